"""Find and read the files of public data sets; `sources.toml` describes these files."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from kernelcrf.arrays import Array, Places
from kernelcrf.formats.streams import line_batches

Folder: TypeAlias = str | os.PathLike[str] | None

VARIABLE = "KERNELCRF_DATA"


@dataclass(frozen=True)
class Source:
    """A public data set: its folder, the files in this folder (`layout`), and where to obtain the files (`origin`)."""

    folder: str
    layout: str
    origin: str
    description: str
    licence: str
    citation: str

    def about(self, detail: str = "") -> dict[str, Any]:
        """Return a dict with description, licence and citation; `detail` is added to the description."""
        description = f"{self.description} {detail}".strip()
        return {"description": description, "licence": self.licence, "citation": self.citation}

    def path(self, folder: Folder, name: str) -> Path:
        """Return the path of the file `name` of this data set.

        `folder` is the folder with all data sets; None means the environment variable KERNELCRF_DATA. If `name` ends in
        .gz and the file does not exist, look for the unpacked file instead. If neither exists, raise FileNotFoundError.
        """
        root = folder if folder is not None else os.environ.get(VARIABLE) or None
        advice = f"Expected layout: {self.layout} The data come from {self.origin}. Nothing is downloaded."
        if root is None:
            raise FileNotFoundError(
                f"folder=None and the environment variable {VARIABLE} is not set: set one of them to the folder "
                f"that contains {self.folder}/{name}. {advice}"
            )
        path = Path(root) / self.folder / name
        for candidate in (path, path.with_suffix("")) if path.suffix == ".gz" else (path,):
            if candidate.is_file():
                return candidate
        place = f"folder={os.fspath(root)!r}" if folder is not None else f"{VARIABLE}={os.fspath(root)!r}"
        raise FileNotFoundError(f"{path}: no such file ({place}). {advice}")


def read_sources(path: Path) -> dict[str, Source]:
    """Return a dict from names to the data sets that a TOML file describes."""
    return {name: Source(**fields) for name, fields in tomllib.loads(path.read_text(encoding="utf-8")).items()}


SOURCES = read_sources(Path(__file__).with_name("sources.toml"))


def read_lines(path: Path) -> list[str]:
    """Return the lines of a UTF-8 text file; unpack the file if its name ends in .gz."""
    return [line for _, lines in line_batches(path) for line in lines]


def read_sentences(path: Path, separator: str, width: int) -> tuple[list[list[str]], Places]:
    """Return the columns of a file with one token per line, and the index of the first token of each sentence."""
    lines = {number: line for number, line in enumerate(read_lines(path), 1) if line.strip(" ")}
    return split_lines(path, lines, separator, width), np.flatnonzero(np.diff(list(lines), prepend=-1) > 1)


def split_lines(path: Path, lines: Mapping[int, str], separator: str, width: int) -> list[list[str]]:
    """Split lines into `width` columns of cells; `lines` is a dict from line numbers, for error messages, to lines."""
    if not lines:
        raise ValueError(f"{path} has no rows: expected at least one. The file may be damaged: use another copy of it")
    # One list per line would take several times as long, because the garbage collector visits each list.
    cells = separator.join(lines.values()).split(separator)
    if "" in cells or {line.count(separator) for line in lines.values()} != {width - 1}:
        for number, line in lines.items():
            row = line.split(separator)
            if len(row) != width or "" in row:
                raise ValueError(f"{path}, line {number}: expected {width} cells, none of them empty, got {row}")
    return [cells[column::width] for column in range(width)]


def read_numbers(path: Path, name: str, cells: Sequence[str], dtype: npt.DTypeLike = np.float64) -> Array:
    """Convert a column of strings to numbers or dates; error messages show the file `path` and the column `name`."""
    try:
        return np.array(cells, dtype=np.str_).astype(dtype)
    except ValueError as error:
        raise ValueError(f"{path}, column {name}: expected values of type {np.dtype(dtype)} ({error})") from error


def check_choice(name: str, value: object, options: Iterable[object]) -> None:
    """Raise unless `value`, the value of the argument `name`, is one of `options`."""
    if value not in (options := list(options)):
        raise ValueError(f"{name}={value!r}: expected one of {', '.join(map(repr, options))}")


def cut(array: Array, starts: npt.ArrayLike) -> list[Array]:
    """Split an array into views that begin at the indices `starts`; the first index must be 0."""
    return np.split(array, np.asarray(starts, dtype=np.intp)[1:])
