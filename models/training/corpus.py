"""Training text for the small models: ``python -m models.training.corpus --out corpus``."""

import argparse
import json
import lzma
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from models.errors import ClearboxError, InputError
from models.training import sources
from models.training.sources import NotFound, Source

CHUNK = 100_000  # characters of one document that stay together when documents are mixed
TAB = 4
BLOCK = 20_000  # characters
EVERY = 100  # one block in so many is held out

_LETTERS = str.maketrans({"ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "ı": "i"})
_MARKS = re.compile("[\u0300-\u036f]+")
_LEADING_OR_OTHER = re.compile(r"(^ +)|[^a-z\n]+", re.M)
_TRAILING = re.compile(r" +$", re.M)
_BLANK_LINES = re.compile(r"(?<![^\n])\n+")


def normalise(text: str) -> str:
    """Text in the 28 characters of the character models: newline, space, a to z.

    Lower case; accents and ligatures become plain letters; leading spaces stay (a tab reaches the next multiple of
    four), any other run of characters becomes one space, none at the end of a line; two blank lines never meet.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.isascii():
        text = _MARKS.sub("", unicodedata.normalize("NFKD", text))
    text = text.lower().translate(_LETTERS).expandtabs(TAB)
    text = _LEADING_OR_OTHER.sub(lambda found: found[1] or " ", text)
    return _BLANK_LINES.sub("\n", _TRAILING.sub("", text))


def shuffled(text: str, seed: int) -> str:
    """The characters of every line in random order, leading spaces too; lines keep their places and lengths."""
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    ends = codes == ord("\n")
    line = np.cumsum(ends) - ends
    place = line + np.where(ends, 1.0, np.random.default_rng(seed).random(len(codes)))
    return codes[np.argsort(place, kind="stable")].tobytes().decode("utf-32-le")


def chunks(text: str, size: int = CHUNK) -> Iterator[str]:
    """The text in pieces of about ``size`` characters, each ending with a line."""
    start = 0
    while start < len(text):
        end = text.find("\n", start + size - 1) + 1 or len(text)
        yield text[start:end]
        start = end


def mixed(texts: Iterable[list[str]]) -> str:
    """The documents of several sources so mixed that any long stretch holds a fair share of each source.

    Documents of a source are cut in chunks, put in a random order that is always the same, and spread evenly.
    """
    rng = np.random.default_rng(0)
    placed: list[tuple[float, str]] = []
    for documents in texts:
        parts = [part for document in documents for part in chunks(document)]
        parts = [parts[i] for i in rng.permutation(len(parts))]
        sizes = np.array([len(part) for part in parts])
        places = (np.cumsum(sizes) - sizes / 2) / sizes.sum()
        placed += zip(places.tolist(), parts, strict=True)
    return "".join(part if part.endswith("\n") else part + "\n" for _, part in sorted(placed, key=lambda p: p[0]))


def cut(text: str, longest: int) -> str:
    """The first lines of a text, ``longest`` characters or fewer."""
    return text if len(text) <= longest else text[: text.rfind("\n", 0, longest) + 1]


def split(text: str, block: int = BLOCK, every: int = EVERY) -> tuple[str, str]:
    """A text for training and one to measure with: one block of characters in every ``every`` is held out.

    Raises InputError where the text is too short for that.
    """
    blocks = [text[start : start + block] for start in range(0, len(text), block)]
    held_out = blocks[every // 2 :: every]
    if not held_out:
        raise InputError(
            f"The text has {len(text):,} characters, too few to hold out one block of {block:,} in {every}: give a "
            "longer one."
        )
    del blocks[every // 2 :: every]
    return "".join(blocks), "".join(held_out)


def unrepeated() -> Callable[[str], str]:
    """A filter that lets each line through once: notices that documents share are said once in a text."""
    seen: set[str] = set()

    def fresh(text: str) -> str:
        lines = dict.fromkeys(unicodedata.normalize("NFC", text).splitlines())
        new = [line for line in lines if line not in seen]
        seen.update(new)
        return "".join(line + "\n" for line in new)

    return fresh


@dataclass(frozen=True)
class Output:
    """A text file to make."""

    file: str
    sources: tuple[Source, ...]
    """Empty for a text that the user has."""
    longest: int = 30_000_000
    """In characters."""
    normalised: bool = True
    """Whether in the 28 characters of the character models; else as written, each line once."""


OUTPUTS = {
    "english": [Output("english.txt", sources.ENGLISH)],
    "python": [Output("python.txt", sources.PYTHON)],
    "romaji": [Output("romaji.txt", ())],
    "multilingual": [
        Output(f"multilingual/{language}.txt", found, longest=6_000_000, normalised=False)
        for language, found in sources.MULTILINGUAL.items()
    ],
}


def make(output: Output, downloads: Path, report: Callable[[str], None]) -> tuple[str, dict[str, Any]]:
    """The text of an output and what it is made of, characters before it was cut to length.

    Sources that cannot be had here are left out and listed as such; raises NotFound where none can be had.
    """
    clean = normalise if output.normalised else unrepeated()
    texts, used, left_out = [], [], []
    seen: set[str] = set()
    for source in output.sources:
        report(f"{output.file}: {source.name}")
        try:
            folder = sources.folder(source, downloads)
        except NotFound as error:
            left_out.append({"name": source.name, "why": str(error)})
            report(f"{output.file}: left out {source.name}: {error}")
            continue
        documents = dict.fromkeys(clean(document).strip("\n") + "\n" for document in source.documents(folder))
        texts.append([document for document in documents if document.strip() and document not in seen])
        seen.update(texts[-1])
        characters = sum(map(len, texts[-1]))
        used.append({"name": source.name, "origin": source.origin, "licence": source.licence, "characters": characters})
    if not used:
        raise NotFound(f"{output.file} is not made: none of its sources can be had here.")
    return cut(mixed(texts), output.longest), {"sources": used, "left_out": left_out}


def from_file(output: Output, path: Path) -> tuple[str, dict[str, Any]]:
    """The first part of a text file that the user has; ``.xz`` is unpacked."""
    try:
        with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as file:
            text = normalise(cut(file.read(output.longest + 1), output.longest))
    except (OSError, UnicodeDecodeError, lzma.LZMAError, EOFError) as error:
        raise InputError(f"--romaji {path} cannot be read ({error}): name a UTF-8 text file, plain or .xz.") from None
    used = {"name": path.name, "origin": "a file", "licence": "as its maker states", "characters": len(text)}
    return text, {"sources": [used], "left_out": []}


def save(path: Path, text: str) -> None:
    """Write a file so that it is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, "utf-8")
    partial.replace(path)


def build(out: Path, names: Iterable[str], romaji: Path | None, report: Callable[[str], None]) -> None:
    """Make the texts that are not there yet, and ``sources.json``, which says what each is made of.

    Raises NotFound, when all others are made, for those that cannot be.
    """
    catalogue = out / "sources.json"
    made = json.loads(catalogue.read_text("utf-8")) if catalogue.is_file() else {}
    missing = []
    for output in (output for name in names for output in OUTPUTS[name]):
        path = out / output.file
        if path.is_file():
            lacks = [source["name"] for source in made.get(output.file, {}).get("left_out", [])]
            report(f"{output.file}: kept" + (f", without {', '.join(lacks)}; delete it to try again" if lacks else ""))
            continue
        try:
            if output.sources:
                text, origin = make(output, out / ".downloads", report)
            elif romaji:
                text, origin = from_file(output, romaji)
            else:
                raise NotFound(f"{output.file} is not made: name a text file with --romaji.")
        except NotFound as error:
            missing.append(str(error))
            continue
        save(path, text)
        made[output.file] = {"characters": len(text), **origin}
        save(catalogue, json.dumps(made, indent=2, ensure_ascii=False) + "\n")
        report(f"{output.file}: {len(text) / 1e6:.1f} million characters")
    if missing:
        raise NotFound(" ".join(missing))


def main(argv: list[str] | None = None) -> int:
    """Run the command. Returns 0, or 2 if a text could not be made."""
    parser = argparse.ArgumentParser("python -m models.training.corpus", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the texts")
    parser.add_argument("--romaji", type=Path, metavar="FILE", help="romanised Japanese text, plain or .xz")
    parser.add_argument("--only", metavar="NAMES", help=f"of {', '.join(OUTPUTS)}; separated by commas")
    args = parser.parse_args(argv)
    names = args.only.split(",") if args.only else [name for name in OUTPUTS if name != "romaji" or args.romaji]
    try:
        if unknown := [name for name in names if name not in OUTPUTS]:
            raise InputError(f"--only names {', '.join(unknown)}; there are {', '.join(OUTPUTS)}.")
        if args.romaji and not args.romaji.is_file():
            raise InputError(f"--romaji {args.romaji} is not a file: name a UTF-8 text file, plain or .xz.")
        build(args.out, names, args.romaji, report=lambda line: print(line, file=sys.stderr, flush=True))
    except (ClearboxError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("error: interrupted; run it again to go on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
