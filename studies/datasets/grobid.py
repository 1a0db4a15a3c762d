"""Load the training data of GROBID's parsers, and describe their tokens by columns as GROBID's templates expect them.

The columns of dictionaries (names, places, journals and others) are not part of the data. Templates that read them are
left out.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias
from xml.etree import ElementTree

import numpy as np

from kernelcrf.datasets.labelled_sequences import LabelledSequences
from kernelcrf.datasets.source import Folder, check_choice
from kernelcrf.formats import Templates
from studies.datasets.sources import SOURCES

Parser: TypeAlias = Literal["citation", "date", "affiliation", "citation names", "header names"]
# A field by the name of its element, or by this name and the value of an attribute.
Fields: TypeAlias = Mapping[str, str]

WORD = re.compile(r"\w+|[^\w\s]")
AFFIXES = (1, 2, 3, 4)
TWELFTHS = 12
OTHER, BREAK = "O", "lb"
# What GROBID's columns 10 to 13 say is computed here; the next ones are dictionaries, then punctuation and the rest.
OWN_COLUMNS, EMPTY = 14, "0"
BRACKETS = {"(": "opens", "[": "opens", ")": "closes", "]": "closes"}
MARKS = {".": "full stop", ",": "comma", "-": "hyphen", "–": "hyphen", '"': "quote", "'": "quote", "“": "quote"}


@dataclass(frozen=True)
class Layout:
    """Hold where the data of a parser are, which elements are items and fields, and which columns templates read.

    n_dictionaries : the number of columns of dictionaries, which begin at OWN_COLUMNS; punctuation follows.
    last : the column after punctuation: "place" in the item, "shape" of the word, or "" if there is none.
    """

    archive: str
    folder: str
    item: str
    fields: Fields
    n_dictionaries: int
    last: str = ""


NAMES = {
    "forename": "forename",
    "middlename": "middlename",
    "surname": "surname",
    "lastname": "surname",
    "suffix": "suffix",
    "rolename": "title",
    "marker": "marker",
}
LAYOUTS: dict[Parser, Layout] = {
    "citation": Layout(
        "citation",
        "citation",
        "bibl",
        {
            **{name: name for name in ("author", "editor", "date", "publisher", "note")},
            "title": "title",
            "title j": "journal",
            "title m": "book title",
            "title s": "series",
            "biblscope vol": "volume",
            "biblscope volume": "volume",
            "biblscope issue": "issue",
            "biblscope pp": "pages",
            "biblscope page": "pages",
            "biblscope pages": "pages",
            "note report": "report",
            "pubplace": "location",
            "idno": "number",
            "ptr": "web",
            "orgname": "institution",
            "orgname collaboration": "collaboration",
        },
        13,
        "place",
    ),
    "date": Layout("date", "date", "date", {"day": "day", "month": "month", "year": "year"}, 2),
    "affiliation": Layout(
        "affiliation-address",
        "affiliation-address",
        "author",
        {
            "orgname": "institution",
            "orgname department": "department",
            "orgname departement": "department",
            "orgname laboratory": "laboratory",
            "settlement": "settlement",
            "country": "country",
            "postcode": "post code",
            "postbox": "post box",
            "region": "region",
            "addrline": "address line",
            "marker": "marker",
        },
        5,
        "shape",
    ),
    "citation names": Layout("name", "name/citation", "author", NAMES, 3),
    "header names": Layout("name", "name/header", "author", NAMES, 3),
}


def load_grobid(parser: Parser = "citation", *, folder: Folder = None) -> LabelledSequences:
    """Load the training corpus of one of GROBID's parsers, one sequence per item.

    X has one dict per token: the token as `word`, and whether it is the "first", an "inner" or the "last" token of its
    `line`. A token is a run of letters and digits, or another character. y has IOB2 tags of fields, such as "B-author".

    parser : "citation" (bibliographic references), "date", "affiliation" (with addresses), or names of authors, from
        references ("citation names") or from the first page of an article ("header names").
    folder : the folder with all data sets; None means the environment variable KERNELCRF_DATA.

    Examples
    --------
    >>> from studies.datasets import load_grobid
    >>> data = load_grobid("date")
    >>> [token["word"] for token in data.X[0]], data.y[0].tolist()
    (['Published', '24', 'May', '2011'], ['O', 'B-day', 'B-month', 'B-year'])
    """
    check_choice("parser", parser, LAYOUTS)
    layout = LAYOUTS[parser]
    path, found = SOURCES["grobid"].path(folder, f"{layout.archive}.tar.gz"), []
    for name, text in _members(path, f"{layout.folder}/corpus/"):
        if name.endswith(".xml"):
            try:
                root = ElementTree.parse(io.BytesIO(text)).getroot()
            except ElementTree.ParseError as error:
                raise ValueError(f"{path}, {name}: expected XML ({error}); use another copy of the archive") from error
            found += [_tokens(item, layout.fields) for item in root.iter() if _name(item) == layout.item]
    found = [item for item in found if item]
    return LabelledSequences(
        X=[[{"word": word, "line": line} for word, line, _ in item] for item in found],
        y=[np.array([tag for *_, tag in item]) for item in found],
        **SOURCES["grobid"].about(f"Parser {parser!r}."),
    )


def grobid_templates(parser: Parser = "citation", *, folder: Folder = None) -> Templates:
    """Return the templates of one of GROBID's parsers, without those that read a column of dictionaries."""
    check_choice("parser", parser, LAYOUTS)
    layout = LAYOUTS[parser]
    path = SOURCES["grobid"].path(folder, f"{layout.archive}.tar.gz")
    text = next(text for _, text in _members(path, f"{layout.folder}/crfpp-templates/")).decode()
    punctuation = OWN_COLUMNS + layout.n_dictionaries
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    kept = [
        line
        for line in lines
        if not any(OWN_COLUMNS <= int(column) < punctuation for column in re.findall(r"%x\[-?\d+,(\d+)\]", line))
    ]
    return Templates("\n".join(kept), punctuation + 1 + bool(layout.last))


def grobid_columns(tokens: Sequence[Mapping[str, Any]], parser: Parser = "citation") -> list[list[str]]:
    """Return the cells of each token of an item that the templates of a parser read.

    Columns of dictionaries have the same cell for all tokens.

    Examples
    --------
    >>> from studies.datasets import grobid_columns
    >>> cells = grobid_columns([{"word": "May", "line": "first"}, {"word": ",", "line": "last"}], "date")
    >>> cells[0][:10], cells[1][10:]
    (['May', 'may', 'M', 'Ma', 'May', 'May', 'y', 'ay', 'May', 'May'], ['last', 'none', 'none', '1', '0', '0', 'comma'])
    """
    layout, found = LAYOUTS[parser], []
    for t, token in enumerate(tokens):
        word = token["word"]
        cells = [word, word.lower(), *(word[:k] for k in AFFIXES), *(word[-k:] for k in AFFIXES), token["line"]]
        cells += [_capitals(word), _digits(word), str(int(len(word) == 1)), *[EMPTY] * layout.n_dictionaries]
        cells.append(_punctuation(word))
        if layout.last:
            cells.append(_shape(word) if layout.last == "shape" else str(TWELFTHS * t // len(tokens)))
        found.append(cells)
    return found


def _members(path: Path, prefix: str) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of the files of an archive below a folder, in the order of their names."""
    found = {}
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile() and member.name.removeprefix("./").startswith(prefix):
                file = archive.extractfile(member)
                assert file is not None
                found[member.name] = file.read()
    yield from sorted(found.items())


def _name(element: ElementTree.Element) -> str:
    """Return the name of an element without its namespace, in lower case; comments have none."""
    return element.tag.rpartition("}")[2].lower() if isinstance(element.tag, str) else ""


def _field(element: ElementTree.Element, fields: Fields) -> str | None:
    kinds = [value.lower() for name, value in element.attrib.items() if name in ("level", "type", "unit")]
    name = _name(element)
    return next((fields[key] for key in (*(f"{name} {kind}" for kind in kinds), name) if key in fields), None)


def _pieces(element: ElementTree.Element, fields: Fields, field: Any = None) -> Iterator[tuple[str | None, Any]]:
    """Yield texts of an element, or None for the end of a line, with their field: its name and its element."""
    yield element.text or "", field
    for child in element:
        if _name(child) == BREAK:
            yield None, field
        elif _name(child):
            own = _field(child, fields)
            yield from _pieces(child, fields, field if own is None else (own, child))
        yield child.tail or "", field


def _tokens(item: ElementTree.Element, fields: Fields) -> list[tuple[str, str, str]]:
    """Return the word, the place in its line, and the tag of each token of an item."""
    words, breaks, last = list[tuple[str, str]](), {0}, None
    for text, field in _pieces(item, fields):
        if text is None:
            breaks.add(len(words))
        for word in WORD.findall(text or ""):
            words.append((word, OTHER if field is None else f"{'I' if field is last else 'B'}-{field[0]}"))
            last = field
    breaks.add(len(words))
    line = ["first" if t in breaks else "last" if t + 1 in breaks else "inner" for t in range(len(words))]
    return [(word, place, tag) for (word, tag), place in zip(words, line, strict=True)]


def _capitals(word: str) -> str:
    return "all" if word.isupper() and len(word) > 1 else "first" if word[:1].isupper() else "none"


def _digits(word: str) -> str:
    return "all" if word.isdigit() else "some" if any(character.isdigit() for character in word) else "none"


def _punctuation(word: str) -> str:
    return "none" if word.isalnum() else BRACKETS.get(word) or MARKS.get(word) or "other"


def _shape(word: str) -> str:
    """Return the kinds of the characters of a word, with repetitions of a kind left out."""
    kinds = "".join("0" if c.isdigit() else "X" if c.isupper() else "x" if c.isalpha() else c for c in word)
    return re.sub(r"(.)\1+", r"\1", kinds)
