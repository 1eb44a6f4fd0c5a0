"""From what publishers and programmers write to the text that a model learns from."""

import ast
import html
import io
import re
import tokenize
import warnings
from collections import Counter
from html.parser import HTMLParser

_HYPHENS = {0xAD: None, 0x2010: "-", 0x2011: "-"}


def lines_of_prose(text: str) -> str:
    """One line a paragraph: white space collapsed, empty lines and soft hyphens gone."""
    lines = (" ".join(line.split()) for line in text.translate(_HYPHENS).split("\n"))
    return "\n".join(line for line in lines if line)


_ADDRESS = re.compile(r"://|www\.|\w@\w|\ufffd")
_SENTENCE_END = re.compile(r"[^\W\d_][)\]”“»«’\"']*\s?[.!?:;][)\]”“»«’\"']*$")
_COMMON_WORDS = {
    "de": "der die das den dem und ist nicht ein eine mit für auf werden wird oder sie von zu wenn",
    "fr": "le les des et est une du pour dans que qui sur ne pas sont vous ce cette ou par avec",
    "it": "il di che è per una del della sono con non gli nel si da questo viene i alla essere",
    "en": "the of and to is that it for be this are by with not you as or can from if",
}
_LANGUAGE_OF = {word: language for language, words in _COMMON_WORDS.items() for word in words.split()}


def sentences(text: str, language: str) -> str:
    """The lines that read as sentences of a language.

    A line stays if it has 40 characters or more, ends as a sentence does, is letters for the most part, names no
    address of the web or of mail, and holds at least as many of the language's commonest words as of any other's.
    """
    return "".join(line + "\n" for line in text.split("\n") if _is_sentence(line) and _speaks(line, language))


def _is_sentence(line: str) -> bool:
    letters = sum(character.isalpha() or character == " " for character in line)
    return (
        len(line) >= 40
        and letters > 0.85 * len(line)
        and bool(_SENTENCE_END.search(line))
        and not _ADDRESS.search(line)
    )


def _speaks(line: str, language: str) -> bool:
    counts = Counter(_LANGUAGE_OF[word] for word in line.lower().split() if word in _LANGUAGE_OF)
    return counts[language] == max(counts.values(), default=0)


_OSIS_LEFT_OUT = re.compile(r"<(note|milestone|rdg)\b[^>]*?(?:/>|>.*?</\1>)")
_OSIS_ENDS_LINE = re.compile(r"</?(?:div|title|l|lg|lb|list|item|row|table|chapter|speaker|p)\b[^>]*>")
_TAG = re.compile(r"<[^<>]*>")


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


class _Paragraphs(HTMLParser):
    """Collects what stands in the text of a page, a line for each block."""

    INLINE = frozenset({
        "a", "abbr", "acronym", "b", "bdi", "cite", "code", "dfn", "em", "i", "img", "kbd", "q", "s", "samp", "small",
        "span", "strong", "sub", "sup", "tt", "u", "var",
    })  # fmt: skip
    HIDDEN = frozenset({
        "head", "script", "style", "noscript", "header", "footer", "nav", "aside", "button", "pre", "table", "dt",
    })  # fmt: skip
    MENUS = frozenset({"toc", "docnav", "navheader", "navfooter", "index", "indexterm", "url", "screen"})

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.within = ""  # the tag of the hidden element that the parser is in
        self.depth = 0  # how many elements with that tag are open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if not self.within and (tag in self.HIDDEN or self.MENUS & set((dict(attrs).get("class") or "").split())):
            self.within = tag
        self.depth += tag == self.within
        self._end_of_line(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._end_of_line(tag)

    def handle_endtag(self, tag: str) -> None:
        self.depth -= tag == self.within
        if not self.depth:
            self.within = ""
        self._end_of_line(tag)

    def handle_data(self, data: str) -> None:
        if not self.within:
            self.parts.append(data.replace("\n", " "))

    def _end_of_line(self, tag: str) -> None:
        if tag not in self.INLINE:
            self.parts.append("\n")


def from_html(page: str) -> str:
    """The text of a page without menus, tables, listings and tags, one block a line."""
    reader = _Paragraphs()
    reader.feed(page)
    reader.close()
    return lines_of_prose("".join(reader.parts))


_ROFF_GLYPHS = {
    "aq": "'", "Aq": "'", "dq": '"', "lq": "“", "rq": "”", "oq": "‘", "cq": "’", "Bq": "„", "Fo": "«", "Fc": "»",
    "em": "—", "en": "–", "hy": "-", "mi": "-", "ti": "~", "ha": "^", "rs": "\\", "la": "<", "ra": ">", "mu": "×",
    "co": "©", "rg": "®", "R": "®", "ss": "ß",
}  # fmt: skip
_ROFF_ESCAPE = re.compile(
    r"""\\(?: (?P<mark>["\#].*)                            # a comment
            | [fFmMgkn*](?:\((?P<two>..)|\[(?P<long>[^]]*)]|.)   # fonts, colours, strings
            | s[-+]?\d+ | [hvwboDlLxX]'[^']*'              # sizes, motions, drawings
            | \((?P<glyph>..) | \[(?P<named>[^]]*)]
            | (?P<other>.) )""",
    re.X,
)
_ROFF_SHOWN = {"-": "-", "e": "\\", "\\": "\\", " ": " ", "~": " ", "0": " ", "'": "'", "`": "`", ".": "."}
_ROFF_BLOCKS = {"TS": "TE", "nf": "fi", "EX": "EE", "de": ".", "am": "."}
_ROFF_BREAKS = frozenset({
    "PP", "P", "LP", "sp", "br", "IP", "TP", "TQ", "HP", "RS", "RE", "SH", "SS", "in", "INDENT", "UNINDENT",
})  # fmt: skip
_ROFF_SPACED = frozenset({"B", "I", "R", "SM", "UR", "MT", "URL", "MTO", "UE", "ME"})
_ROFF_JOINED = frozenset({"SB", "BR", "BI", "IR", "RI", "RB", "IB"})  # fonts alternate, without spaces
_ROFF_WORD = re.compile(r'"((?:[^"]|"")*)"?|((?:\\.|[^\s"])(?:\\.|[^\s])*)')


def _roff_text(line: str) -> str:
    def shown(found: re.Match[str]) -> str:
        name = found["glyph"] or found["named"] or (found[0].startswith("\\*") and (found["two"] or found["long"]))
        return _ROFF_GLYPHS.get(name, "") if name else _ROFF_SHOWN.get(found["other"] or "", "")

    return _ROFF_ESCAPE.sub(shown, line)


def from_roff(page: str) -> str:
    """The text of a manual page in the man macros, without headings, tables and listings, one paragraph a line.

    A page in the mdoc macros gives no text.
    """
    if re.search(r"^\.Sh ", page, re.M):
        return ""
    parts: list[str] = []
    until = ""  # the request that ends the block to leave out
    label = False  # whether the next line is the label of an indented paragraph
    for line in page.split("\n"):
        control = re.match(r"[.']\s*(\w+|\.)?\s*(.*)", line)
        if until:
            until = "" if control and control[1] == until else until
        elif control:
            request, rest = control[1] or "", control[2]
            until = _ROFF_BLOCKS.get(request, "")
            if until or request in _ROFF_BREAKS:
                parts.append("\n")
                label = request in ("TP", "TQ")
            elif request in _ROFF_SPACED | _ROFF_JOINED:
                words = [quoted.replace('""', '"') or plain for quoted, plain in _ROFF_WORD.findall(rest)]
                parts.append(_roff_text(("" if request in _ROFF_JOINED else " ").join(words)))
                parts.append("\n" if label else " ")
                label = False
        else:
            parts.append(_roff_text(line) + ("\n" if label or not line.strip() else " "))
            label = False
    return lines_of_prose("".join(parts))


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
    cuts = []
    for doc in docs:
        assert doc.end_lineno is not None  # as in all that is parsed
        assert doc.end_col_offset is not None
        cuts.append((offset(doc.lineno, doc.col_offset), offset(doc.end_lineno, doc.end_col_offset)))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            start = starts[token.start[0] - 1] + token.start[1]
            cuts.append((start, start + len(token.string)))
    kept, at = [], 0
    for start, end in sorted(cuts):
        kept.append(source[at:start])
        at = end
    return "".join([*kept, source[at:]])


def shallow(source: str, deepest: int = 16) -> str:
    """Source whose lines begin with at most ``deepest`` spaces.

    What lies deeper mostly aligns the lines of one call; a small model would learn of it only to go on with spaces.
    """
    return re.sub(f"^ {{{deepest},}}", " " * deepest, source, flags=re.MULTILINE)
