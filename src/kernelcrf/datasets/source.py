"""Where the files of a data set lie, what they hold, and how their bytes become columns.

Every way in which a file may be absent or wrong ends here, in an error that names the file.
"""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from kernelcrf.formats.unpacking import Gunzipped, load_arrays

Array: TypeAlias = npt.NDArray[Any]
Folder: TypeAlias = str | os.PathLike[str] | None

VARIABLE = "KERNELCRF_DATA"


@dataclass(frozen=True)
class Source:
    """A data set: the folder of its files, and where they come from.

    folder : its name under the folder of all data.
    layout : what the files hold, for who has to make them.
    origin : where the authors' files are.
    """

    folder: str
    layout: str
    origin: str
    description: str
    licence: str
    citation: str

    def about(self, detail: str = "") -> dict[str, Any]:
        """The fields of the data that tell where they come from; `detail` says which part was loaded."""
        description = f"{self.description} {detail}".strip()
        return {"description": description, "licence": self.licence, "citation": self.citation}

    def path(self, folder: Folder, name: str) -> Path:
        """The file of that name: `folder`, else KERNELCRF_DATA, then the set's own folder.

        A file ending in .gz may also lie there unpacked.
        """
        root = folder if folder is not None else os.environ.get(VARIABLE) or None
        if root is None:
            raise FileNotFoundError(
                f"folder=None and the environment variable {VARIABLE} is not set: expected either to name the folder "
                f"that holds {self.folder}/{name}. {self._advice()}"
            )
        path = Path(root) / self.folder / name
        for candidate in (path, path.with_suffix("")) if path.suffix == ".gz" else (path,):
            if candidate.is_file():
                return candidate
        place = f"folder={os.fspath(root)!r}" if folder is not None else f"{VARIABLE}={os.fspath(root)!r}"
        raise FileNotFoundError(f"{path}: no such file, looked for under {place}. {self._advice()}")

    def _advice(self) -> str:
        return f"Expected layout: {self.layout} The data come from {self.origin}. Nothing is downloaded."


def read_text(path: Path) -> str:
    """UTF-8, gzipped where the name says so; lines end in a newline alone."""
    try:
        content = path.read_bytes()
        text = (_gunzipped(content, path) if path.suffix == ".gz" else content).decode("utf-8-sig")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: expected a whole gzip file ({error})") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: expected UTF-8 text ({error})") from error
    return text.replace("\r\n", "\n")


def _gunzipped(content: bytes, path: Path) -> bytes:
    packed = Gunzipped(io.BytesIO(content), os.fspath(path))
    return b"".join(iter(lambda: packed.read1(1 << 20), b""))


def read_arrays(path: Path, names: Sequence[str]) -> dict[str, Array]:
    """The arrays of these names of an .npz file without pickles."""
    try:
        found = load_arrays(path)
        if missing := [name for name in names if name not in found]:
            raise ValueError(f"no array {', '.join(missing)}")
        return {name: found[name] for name in names}
    except ValueError as error:
        raise ValueError(f"{path}: expected an .npz file of the arrays {', '.join(names)} ({error})") from error


def read_table(path: Path, separator: str, names: Sequence[str]) -> list[list[str]]:
    """The columns of a table whose first line names them, each with one string a row."""
    header, *lines = read_text(path).removesuffix("\n").split("\n")
    if header != separator.join(names):
        raise ValueError(f"{path}, line 1: expected the header {separator.join(names)!r}, got {header!r}")
    return split_lines(path, lines, range(2, len(lines) + 2), separator, len(names))


def split_lines(path: Path, lines: Sequence[str], places: Iterable[int], separator: str, width: int) -> list[list[str]]:
    """The `width` columns of some lines of a file; line i is that of number places[i]."""
    if not lines:
        raise ValueError(f"{path} has no rows: expected at least one")
    # One flat split: a list a line costs several times more, for the collector of garbage visits each of them.
    cells = separator.join(lines).split(separator)
    if "" in cells or {line.count(separator) for line in lines} != {width - 1}:
        for place, line in zip(places, lines, strict=True):
            row = line.split(separator)
            if len(row) != width or "" in row:
                raise ValueError(f"{path}, line {place}: expected {width} cells, none of them empty, got {row}")
    return [cells[column::width] for column in range(width)]


def numbers(path: Path, name: str, cells: Sequence[str], dtype: Any = np.float64) -> Array:
    """A column of numbers or of dates."""
    try:
        return np.array(cells, dtype=np.str_).astype(dtype)
    except ValueError as error:
        raise ValueError(f"{path}, column {name}: expected values of type {np.dtype(dtype)} ({error})") from error


def choice(name: str, value: Any, options: Iterable[Any]) -> None:
    """Raise where an argument is none of its options."""
    if value not in (options := list(options)):
        raise ValueError(f"{name}={value!r}: expected one of {', '.join(map(repr, options))}")


def cut(array: Array, starts: npt.ArrayLike) -> list[Array]:
    """The parts of an array that begin at 0 and at each later start, as views."""
    return np.split(array, np.asarray(starts, dtype=np.intp)[1:])
