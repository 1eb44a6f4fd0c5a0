"""Training text: cleaned as the models expect, mixed evenly, split without overlap, its sources accounted for."""

import gzip
import json
import lzma
import struct
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from models.errors import InputError
from models.training import corpus, markup, sources
from models.training.corpus import Output, chunks, cut, mixed, normalise, shuffled, split
from models.training.sources import Source


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, World!", "hello world"),
        ("don't  stop\t\there 42 times", "don t stop here times"),
        ("Großmütter naïve Œuvre Łódź ﬁn", "grossmutter naive oeuvre lodz fin"),
        ("É e\u0301 ẞ Ⅳ ™", "e e ss iv tm"),
        ("日本 go", " go"),
        ("    x = 1  # two", "    x two"),
        ("\tif a:\n\t\treturn", "    if a\n        return"),
        ("  \tx", "    x"),
        ('    "quoted"', "     quoted"),
        ("a   \n   \nb", "a\n\nb"),
        ("a\n\n\n\nb\n\n", "a\n\nb\n\n"),
        ("\n\n\na", "\na"),
        ("a\n(1)\n[2]\nb", "a\n\nb"),
        ("a\r\nb\rc\r\n", "a\nb\nc\n"),
        ("", ""),
    ],
)
def test_text_is_normalised(text, expected):
    assert normalise(text) == expected
    assert normalise(expected) == expected


def test_any_text_ends_in_28_characters():
    everything = "".join(map(chr, range(0xD800))) + "\n  ".join(map(chr, range(0xE000, 0x30000, 7)))
    assert set(normalise(everything)) == set("\n abcdefghijklmnopqrstuvwxyz")


def test_shuffling_keeps_lines_and_what_they_hold():
    rng = np.random.default_rng(3)
    lines = ["".join(rng.choice(list("  abcdé𝄞"), size)) for size in rng.integers(0, 60, 500)]
    text = "\n".join(["    indented line of code", *lines])
    result = shuffled(text, seed=1)
    assert result != text
    assert [Counter(line) for line in result.split("\n")] == [Counter(line) for line in text.split("\n")]
    assert not result.startswith("    ")
    assert result == shuffled(text, seed=1) != shuffled(text, seed=2)
    assert shuffled("", seed=0) == ""


def test_every_order_of_a_line_is_as_likely_as_any():
    orders = Counter(shuffled("abc\n" * 60_000, seed=5).split("\n")[:-1])
    assert len(orders) == 6
    assert max(abs(count - 10_000) for count in orders.values()) < 500  # five standard deviations


def test_what_is_held_out_is_never_trained_on():
    text = "".join(chr(0x4E00 + i) for i in range(20_000))  # every character once
    train, held_out = split(text, block=1000, every=10)
    assert not set(train) & set(held_out)
    assert sorted(train + held_out) == sorted(text)
    assert list(train) == sorted(train)
    assert len(held_out) == 2000
    assert ord(held_out[1000]) - ord(held_out[999]) == 9001  # spread over the whole text


def test_a_text_too_short_to_split_is_refused():
    with pytest.raises(InputError, match="11 characters"):
        split("too little\n")


def test_chunks_end_with_lines_and_lose_nothing():
    text = "".join("y" * (i % 90) + "\n" for i in range(3000))
    parts = list(chunks(text, 1000))
    assert "".join(parts) == text
    assert all(part.endswith("\n") and 1000 <= len(part) < 1100 for part in parts[:-1])
    assert list(chunks("no line end", 4)) == ["no line end"]


def test_any_stretch_of_a_mix_holds_its_share_of_each_source():
    many = [f"a{i}" + "a" * 997 + "\n" for i in range(300)]
    few = ["b" * 1500 + f"{i}\n" * 100 for i in range(50)]
    text = mixed([many, [], few])
    assert Counter(text) == Counter("".join(many + few))
    assert all(document in text for document in many + few)
    shares = [Counter(text[at : at + 40_000])["b"] / 40_000 for at in range(0, len(text) - 40_000, 40_000)]
    assert max(shares) - min(shares) < 0.08
    assert text == mixed([many, [], few])
    assert text.index(many[0]) > 5_000  # not in the order given


def test_a_cut_ends_with_a_line():
    assert cut("ab\ncd\nef\n", 7) == "ab\ncd\n"
    assert cut("ab\ncd\n", 6) == "ab\ncd\n"


CODE = '''#!/usr/bin/env python
"""Module."""
x = "kept"  # gone

"also kept, as no docstring"
def outer(a="# no comment"):  # gone
    """Outer
    docstring."""
    def inner():
        'inner'
        return """kept
        too"""
    class C:
        u"""C's"""
        """kept: second string"""
        async def m(self): "one line"; return f"{a}#kept"
    ä = "é"; "kept"  # gone
    return inner
'''
CODE_ONLY = '''

x = "kept"

"also kept, as no docstring"
def outer(a="# no comment"):

    def inner():

        return """kept
        too"""
    class C:

        """kept: second string"""
        async def m(self): ; return f"{a}#kept"
    ä = "é"; "kept"
    return inner
'''


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_docstrings_and_comments_are_removed(line_end):
    result = markup.code_only(CODE.replace("\n", line_end))
    assert [line.rstrip() for line in result.split("\n")] == CODE_ONLY.split("\n")


def test_a_docstring_after_wide_characters_is_cut_exactly():
    assert markup.code_only('class Größe: "日本"\ny = 1\n') == "class Größe: \ny = 1\n"


def test_deep_indentation_is_cut_and_nothing_else():
    source = "def f(a,\n" + " " * 16 + "b,\n" + " " * 17 + "c):\n    x = 1" + " " * 20 + "\n"
    assert markup.shallow(source) == source.replace(" " * 17 + "c", " " * 16 + "c")


def test_files_that_are_not_python_are_skipped(tmp_path):
    (tmp_path / "good.py").write_text("x = 1  # one\n")
    (tmp_path / "old.py").write_text("print 'two'\n")
    (tmp_path / "null.py").write_bytes(b"x = 1\0\n")
    (tmp_path / "latin.py").write_bytes("s = 'é'\n".encode("latin-1"))
    (tmp_path / "declared.py").write_bytes("# coding: latin-1\ns = 'é'\n".encode("latin-1"))
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_it.py").write_text("y = 2\n")
    assert list(sources.python_modules(tmp_path)) == ["\ns = 'é'\n", "x = 1  \n"]


ROFF = r""".\" A comment
.TH CP 1 "2022" "GNU" "User Commands"
.SH NAME
cp \- copy files
.de URL
left out
..
.SH DESCRIPTION
.PP
The command
.BR cp (1)
copies \fIwhat\fP you\-name, \(lqas it is\(rq\&.
It\(cqs \f[B]quick\f[] and costs 5\ \[mc]s; see
.I "the long  manual"
first. \" a remark
.TP
\fB\-a\fR, \fB\-\-archive\fR
Keep everything
as it was.
.TP
.B \-b
Back up.
.nf
cp -a listing
.fi
.TS
a	table
.TE
A last
paragraph with C:\e in it.

After a blank line.
"""


def test_a_manual_page_becomes_paragraphs():
    assert markup.from_roff(ROFF).split("\n") == [
        "cp - copy files",
        "The command cp(1) copies what you-name, “as it is”. It’s quick and costs 5 s; see the long manual first.",
        "-a, --archive",
        "Keep everything as it was.",
        "-b",
        "Back up.",
        "A last paragraph with C:\\ in it.",
        "After a blank line.",
    ]
    assert markup.from_roff(".Dd today\n.Sh NAME\n.Nm ssh\n") == ""


HTML = """<!DOCTYPE html><html><head><title>T</title><style>p {}</style></head><body>
<header><p>Menu</p></header><nav><a href="x">Home</a></nav>
<ul class="docnav top"><li>Back</li><ul><li>deep</li></ul><li>Next</li></ul>
<h1>Title</h1>
<p>First &amp; <b>bold</b> text<br/>broken
here&nbsp;and co&shy;operating.</p><pre>listing <b>x</b></pre><script>var x = "<p>no</p>";</script>
<div class="toc main"><div>1.</div> Contents</div>
<ol><li>One</li><li>Two <code>cmd</code></li></ol><table><tr><td>cell</td></tr></table>
Loose text.
<footer>Imprint</footer></body></html>"""


def test_a_web_page_becomes_paragraphs():
    expected = ["Title", "First & bold text", "broken here and cooperating.", "One", "Two cmd", "Loose text."]
    assert markup.from_html(HTML).split("\n") == expected


def test_osis_loses_notes_and_tags():
    text = (
        '<milestone n="toc"/><title>Psalm 1</title><div sID="g1" type="x-p"/><w lemma="s:1">The</w> <w>book</w>,'
        "<note><reference>1:1 </reference>a note</note> \n Tom &amp; I.<div eID='g1'/><l>first</l><l>second</l>"
    )
    assert markup.from_osis(text) == "Psalm 1\nThe book, Tom & I.\nfirst\nsecond"


def test_tags_of_words_are_cut_off():
    text = "\n\n\tThe/at and//or/cc rate/nn ./.\nIt/pps 's/bez\n\n\n\tNew/jj paragraph/nn\n"
    assert markup.from_tagged_words(text) == "The and//or rate . It 's\nNew paragraph"


@pytest.mark.parametrize(
    ("line", "stays"),
    [
        ("Kopiert die Datei und setzt den Namen, wenn sie nicht da ist.", True),
        ("Wählen Sie (falls möglich) die Option »Speichern unter«.", True),
        ("Die Datei ist nicht da.", False),  # short
        ("Datei Bearbeiten Ansicht Einfügen Format Extras Fenster", False),  # no end
        ("Berichten Sie die Fehler auf der Seite https://example.org/bugs bitte.", False),
        ("Die Übersetzung wurde von Max Muster max@example.org erstellt.", False),
        ("0x00 0x01 0x02 0x03 0x04 0x05 die 0x06 0x07 0x08 der 0x09 a.", False),
        ("This paragraph of the manual is not yet translated to German.", False),
        ("Questa sezione della guida non è per la versione del sistema.", False),
    ],
)
def test_only_sentences_of_the_language_stay(line, stays):
    assert markup.sentences(f"{line}\n", "de") == (f"{line}\n" if stays else "")


def test_packages_are_read_from_their_files(tmp_path):
    blocks = [zlib.compress(text.encode()) for text in ("<div>One</div>", "<l>Zwei é</l>")]
    offsets = [0, len(blocks[0])]
    index = b"".join(
        struct.pack("<III", at, len(block), 0) for at, block in zip(offsets, blocks, strict=True)
    ) + struct.pack("<III", 0, 0, 0)
    (tmp_path / "nt.bzs").write_bytes(index)
    (tmp_path / "nt.bzz").write_bytes(b"".join(blocks))
    assert list(sources.sword(tmp_path)) == ["One", "Zwei é"]

    (tmp_path / "data.noun").write_text(
        '  1 licence text\n0017 03 n 01 dog 0 | a pet; "the dog barked"  \n0018 | b | c\n'
    )
    assert list(sources.wordnet_glosses(tmp_path)) == ['a pet; "the dog barked"\nb | c']

    sentence = "This is a page of the manual, and it is for the test."
    (tmp_path / "man1").mkdir()
    (tmp_path / "man1/x.1.gz").write_bytes(gzip.compress(f".SH NAME\nx\n.PP\n{sentence}\n".encode()))
    (tmp_path / "man1/dangling.1.gz").symlink_to("nowhere.gz")
    assert list(sources.manual_pages("en")(tmp_path)) == [sentence + "\n"]

    (tmp_path / "help/00").mkdir(parents=True)
    for path in ("help/page.html", "help/00/menu.html"):
        (tmp_path / path).write_text(f"<p>Short</p><p>{sentence}</p>")
    assert list(sources.html_pages("help/**/*.html", "en")(tmp_path)) == [sentence + "\n"]


@pytest.fixture
def outputs(monkeypatch, tmp_path):
    """Two outputs whose packages are unpacked already, one of them beside a package that cannot be fetched."""
    files = {
        "book": {"a.txt": "The Cat’s café.\n\n\n\nEnd", "b.txt": "Dogs", "copy.txt": "dogs!"},
        "more": {"a.txt": "DOGS", "c.txt": "Birds\nBirds\n"},
    }
    for package, texts in files.items():
        (tmp_path / "out/.downloads" / package).mkdir(parents=True)
        for name, text in texts.items():
            (tmp_path / "out/.downloads" / package / name).write_text(text)

    def texts_of(root):
        return (path.read_text() for path in sorted(root.rglob("*.txt")))

    book = Source("book", "Debian", "public domain", texts_of)
    more = Source("more", "npm", "MIT", texts_of)
    nowhere = Source("nowhere", "Debian", "MIT", texts_of)
    made = {
        "english": [Output("english.txt", (book, nowhere, more))],
        "romaji": [Output("romaji.txt", (), longest=12)],
        "multilingual": [Output("multilingual/en.txt", (book, more), normalised=False)],
    }
    monkeypatch.setattr(corpus, "OUTPUTS", made)
    monkeypatch.setenv("PATH", "")
    return tmp_path / "out"


def test_texts_are_made_kept_and_accounted_for(outputs, tmp_path, capsys):
    romaji = tmp_path / "r.txt.xz"
    romaji.write_bytes(lzma.compress(b"Watashi\nwa neko de aru\n"))
    assert corpus.main(["--out", str(outputs), "--romaji", str(romaji)]) == 0
    assert "left out nowhere: apt-get is not on this machine" in capsys.readouterr().err

    english = (outputs / "english.txt").read_text()
    assert sorted(english.splitlines()) == sorted(["the cat s cafe", "", "end", "dogs", "birds", "birds"])
    assert (outputs / "romaji.txt").read_text() == "watashi\n"
    lines = (outputs / "multilingual/en.txt").read_text().splitlines()
    assert sorted(lines) == sorted(["The Cat’s café.", "", "End", "Dogs", "dogs!", "DOGS", "Birds"])

    catalogue = json.loads((outputs / "sources.json").read_text())
    assert set(catalogue) == {"english.txt", "romaji.txt", "multilingual/en.txt"}
    assert catalogue["english.txt"]["characters"] == len(english)
    used = catalogue["english.txt"]["sources"]
    assert [(u["name"], u["licence"]) for u in used] == [("book", "public domain"), ("more", "MIT")]
    assert sum(u["characters"] for u in used) == len(english)
    assert catalogue["english.txt"]["left_out"][0]["name"] == "nowhere"
    assert {path.name for path in outputs.iterdir()} == {
        ".downloads", "english.txt", "romaji.txt", "multilingual", "sources.json",
    }  # fmt: skip

    (outputs / "english.txt").write_text("mine")
    (outputs / "romaji.txt").unlink()
    assert corpus.main(["--out", str(outputs), "--only", "english,romaji", "--romaji", str(romaji)]) == 0
    assert (outputs / "english.txt").read_text() == "mine"
    assert (outputs / "romaji.txt").read_text() == "watashi\n"
    assert "english.txt: kept, without nowhere; delete it to try again" in capsys.readouterr().err


def test_a_text_none_of_whose_sources_can_be_had_is_not_made(outputs, monkeypatch, capsys):
    nowhere = Source("nowhere", "Debian", "MIT", lambda root: iter(()))
    monkeypatch.setitem(corpus.OUTPUTS, "english", [Output("english.txt", (nowhere,))])
    assert corpus.main(["--out", str(outputs)]) == 2
    assert "error: english.txt is not made: none of its sources can be had here." in capsys.readouterr().err
    assert not (outputs / "english.txt").exists()
    assert (outputs / "multilingual/en.txt").is_file()


def test_a_failed_download_says_why_and_leaves_nothing(outputs, monkeypatch, tmp_path):
    program = tmp_path / "bin/apt-get"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho half > half.deb\necho 'E: Unable to locate package' >&2\nexit 100\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    nowhere = Source("nowhere", "Debian", "MIT", lambda root: iter(()))
    with pytest.raises(sources.NotFound, match=r"Unable to locate package.*apt-get update"):
        sources.folder(nowhere, outputs / ".downloads")
    assert sorted(path.name for path in (outputs / ".downloads").iterdir()) == ["book", "more"]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("missing.txt", None, "is not a file"),
        ("damaged.xz", lzma.compress(b"text" * 1000)[:40], "cannot be read"),
        ("plain.xz", b"text", "cannot be read"),
        ("latin.txt", "é".encode("latin-1"), "cannot be read"),
    ],
)
def test_a_file_of_romaji_that_cannot_be_read_is_an_error(outputs, tmp_path, capsys, name, content, says):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert corpus.main(["--out", str(outputs), "--romaji", str(tmp_path / name), "--only", "romaji"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: --romaji ")
    assert name in error
    assert says in error
    assert not (outputs / "romaji.txt").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--only", "romaji"], "name a text file with --romaji"),
        (["--only", "french"], "--only names french; there are"),
    ],
)
def test_arguments_that_cannot_be_used_are_errors(outputs, capsys, arguments, says):
    assert corpus.main(["--out", str(outputs), *arguments]) == 2
    assert says in capsys.readouterr().err


def test_installed_packages_are_where_python_finds_them(tmp_path):
    def installed(name):
        return sources.folder(Source(name, "PyPI, as installed", "", sources.python_modules), tmp_path)

    assert installed("numpy") / "__init__.py" == Path(np.__file__)
    assert installed("orbax-checkpoint").name == "checkpoint"
    with pytest.raises(sources.NotFound, match="pip install no-such-package"):
        installed("no-such-package")
