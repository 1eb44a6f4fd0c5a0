"""From what publishers and programmers write to the text that a model learns from."""

import ast
import html
import io
import re
import tokenize
import warnings

_OSIS_LEFT_OUT = re.compile(r"<(note|milestone|rdg)\b[^>]*?(?:/>|>.*?</\1>)", re.S)
_OSIS_ENDS_LINE = re.compile(r"</?(?:div|title|l|lg|lb|list|item|row|table|chapter|speaker|p)\b[^>]*>")
_TAG = re.compile(r"<[^<>]*>")


def lines_of_prose(text: str) -> str:
    """One line a paragraph: white space collapsed, empty lines gone."""
    lines = (" ".join(line.split()) for line in text.split("\n"))
    return "\n".join(line for line in lines if line)


def from_osis(markup: str) -> str:
    """The text of an OSIS document or a part of one, without notes and tags, one paragraph or verse line a line."""
    text = _OSIS_LEFT_OUT.sub("", markup.replace("\n", " "))
    return lines_of_prose(html.unescape(_TAG.sub("", _OSIS_ENDS_LINE.sub("\n", text))))


def from_tagged_words(text: str) -> str:
    """Text from ``word/tag`` pairs as in the Brown corpus, one paragraph a line."""
    paragraphs = (
        " ".join(token.rpartition("/")[0] for token in paragraph.split()) for paragraph in re.split(r"\n\s*\n", text)
    )
    return lines_of_prose("\n".join(paragraphs))


def code_only(source: str) -> str:
    """Python source without its docstrings and comments.

    Only what Python itself takes for a docstring goes: the string that opens a module, a class or a function.
    Raises SyntaxError (or ValueError, for null bytes) where the source is not Python.
    """
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    lines = source.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)

    def offset(row: int, byte: int) -> int:
        return starts[row - 1] + len(lines[row - 1].encode()[:byte].decode())

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes in other people's strings
        tree = ast.parse(source)
    docs = (
        node.body[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and ast.get_docstring(node, clean=False) is not None
    )
    cuts = [(offset(d.lineno, d.col_offset), offset(d.end_lineno, d.end_col_offset)) for d in docs]
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            start = starts[token.start[0] - 1] + token.start[1]
            cuts.append((start, start + len(token.string)))
    kept, at = [], 0
    for start, end in sorted(cuts):
        kept.append(source[at:start])
        at = end
    return "".join([*kept, source[at:]])
