"""Parquet in parts: what the workers of a cluster read and write themselves.

A row a sequence, with columns as `objects` has them:

    features    lists of lists of feature names
    vectors     lists of lists of d numbers, the inner ones of any list type
    labels      lists of labels
    weight      a number

or a row a token, where a column names the sequence: neighbouring rows with one name are one sequence, `features` are
lists of names, `vectors` lists of numbers, `labels` single values.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf.engines.cluster import Cluster, releasing
from kernelcrf.estimators.identity import model_digest
from kernelcrf.estimators.parts import Partitions, Sequences
from kernelcrf.estimators.shared import current_cluster
from kernelcrf.formats.arrow import arrow, arrow_errors
from kernelcrf.formats.arrow_columns import named, runs_of, unnested, vectors, whole
from kernelcrf.formats.parquet_file import open_parquet
from kernelcrf.formats.records import FormatError
from kernelcrf.formats.run_folder import RunFolder, is_hidden
from kernelcrf.formats.streams import PathLike
from kernelcrf.validation import shown_list

__all__ = ["Tagged", "read_parquet", "tag_parquet"]

INPUTS = ("features", "vectors")
WEIGHT = "weight"


@dataclass(frozen=True)
class ParquetPart:
    """Some row groups of a Parquet file; a call reads them.

    labels : the column of labels, None if there are none to read.
    sequence : the column that names a token's sequence, None if a row is a sequence.
    """

    filesystem: Any
    path: str
    groups: tuple[int, ...]
    labels: str | None
    sequence: str | None

    def __call__(self) -> Sequences:
        """Read the sequences of the row groups."""
        with open_parquet(self.path, self.filesystem) as file:
            columns = file.columns
            names = [name for name in INPUTS if name in columns]
            if len(names) != 1:
                raise FormatError(
                    f"{self.path}: the columns are {shown_list(columns)}: expected one of {' and '.join(INPUTS)}"
                )
            for column, holds in ((self.labels, "the labels"), (self.sequence, "the names of sequences")):
                if column is not None and column not in columns:
                    raise FormatError(
                        f"{self.path}: the columns are {shown_list(columns)}: expected {column!r} with {holds}"
                    )
            wanted = [name for name in (*names, self.labels, self.sequence, WEIGHT) if name in columns]
            table = file.read(self.groups, wanted, [name for name in wanted if name in (self.labels, self.sequence)])
        with arrow_errors(self.path, f"sequences in the columns {shown_list(wanted)}"):
            if self.sequence is None:
                lengths, inputs = unnested(whole(table.column(names[0])), self.path)
                ends = None
            else:
                inputs = whole(table.column(names[0]))
                lengths, ends = runs_of(table.column(self.sequence).to_numpy())
            X = vectors(inputs, self.path) if names == ["vectors"] else named(inputs, self.path)
            y = None if self.labels is None else self._labels(table.column(self.labels), lengths)
            has_weights = WEIGHT in wanted and self.sequence is None
            weights = table.column(WEIGHT).to_numpy() if has_weights else None
            return Sequences(X, y, weights, lengths, ends)

    def columns(self, names: Sequence[str]) -> dict[str, Any]:
        """Read further columns of the row groups, as Arrow has them."""
        with open_parquet(self.path, self.filesystem) as file:
            if missing := [name for name in names if name not in file.columns]:
                raise FormatError(
                    f"{self.path}: the columns are {shown_list(file.columns)}: expected {missing[0]!r} to keep"
                )
            table = file.read(self.groups, names)
        return {name: table.column(name) for name in names}

    def _labels(self, column: Any, lengths: npt.NDArray[np.int64]) -> list[Any]:
        if self.sequence is not None:
            return list(column.to_pylist())
        own, values = unnested(whole(column), self.path)
        if not np.array_equal(own, lengths):
            row = int(np.flatnonzero(own != lengths)[0])
            raise FormatError(
                f"{self.path}, row {row}: {own[row]} labels and {lengths[row]} tokens: expected one label a token"
            )
        return list(values.to_pylist())


def read_parquet(path: PathLike, *, labels: str | None = "labels", sequence: str | None = None) -> Partitions:
    """The sequences of a Parquet file, or of all `.parquet` files of a folder, for a cluster to read.

    Nothing but the files' footers is read here. A part is a row group; where a row is a token, a file. In a folder,
    names that begin with a dot or an underscore are skipped, as other readers of Parquet do.

    The workers refuse a file that unpacks to more than 256 MiB and more than a hundred times its packed size.

    Parameters
    ----------
    path : str or path
        On this machine, or a URL such as s3://bucket/folder; the workers must reach it under the same name.
    labels : str or None
        The column of labels; None where the data are to be labelled.
    sequence : str or None
        The column that names the sequence of a token, where a row is a token.

    Examples
    --------
    >>> import pyarrow as pa
    >>> import pyarrow.parquet as pq
    >>> from distributed import Client
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.formats.partitioned import read_parquet, tag_parquet
    >>> rows = {"features": [[["w=a"], ["w=b"]], [["w=b"]]] * 5, "labels": [["A", "B"], ["B"]] * 5}
    >>> pq.write_table(pa.table(rows), "data.parquet")
    >>> with Client(processes=False, dashboard_address=":0"):
    ...     crf = ChainCRF("linear", C=10.0).fit(read_parquet("data.parquet"))
    >>> crf.predict([[["w=b"], ["w=a"]]])[0].tolist()
    ['B', 'A']
    """
    filesystem, files = _files(path)
    parts: list[ParquetPart] = []
    for file in files:
        with open_parquet(file.path, filesystem) as source:
            n_groups = len(source.footer.groups)
        groups = [tuple(range(n_groups))] if sequence is not None else [(k,) for k in range(n_groups)]
        parts.extend(ParquetPart(filesystem, file.path, own, labels, sequence) for own in groups if own)
    return Partitions(parts)


@dataclass(frozen=True)
class Tagged:
    """What was written: sequences, tokens and seconds of all parts.

    Examples
    --------
    >>> from kernelcrf.formats.partitioned import Tagged
    >>> Tagged(sequences=10, tokens=150, seconds=0.5).tokens_per_second
    300.0
    """

    sequences: int
    tokens: int
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Tokens over seconds."""
        return self.tokens / self.seconds


def tag_parquet(
    crf: Any,
    source: PathLike,
    target: PathLike,
    *,
    sequence: str | None = None,
    keep: Sequence[str] = (),
    probabilities: bool = False,
    engine: Cluster | None = None,
) -> Tagged:
    """Label the sequences of Parquet files on a cluster, into a folder of Parquet files, part by part.

    Rows come in the order of the source, and each file appears whole or not at all.

    The folder belongs to one run: the same model, source files and options. If such a run was cut short, the next one
    goes on with the parts that are missing; a folder with the labels of another run, or with other files, is refused.
    Only one run at a time may write to a folder.

    Parameters
    ----------
    crf : ChainCRF
        Fitted.
    source, target : str or path
        A file or folder as for `read_parquet`, and the folder to write to, which is made if it is not there.
    sequence : str or None
        The column that names the sequence of a token, where a row is a token.
    keep : names
        Columns of the source to write beside the labels, with the types of the Parquet schema.
    probabilities : bool
        Write the marginal probability of each label too.
    engine : DaskEngine or None
        None is that of the current Dask client.

    Returns
    -------
    Tagged
        Sequences, tokens and seconds.

    Examples
    --------
    >>> import pyarrow as pa
    >>> import pyarrow.parquet as pq
    >>> from distributed import Client
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.formats.partitioned import read_parquet, tag_parquet
    >>> rows = {"features": [[["w=a"], ["w=b"]], [["w=b"]]] * 5, "labels": [["A", "B"], ["B"]] * 5}
    >>> pq.write_table(pa.table(rows), "data.parquet")
    >>> with Client(processes=False, dashboard_address=":0"):
    ...     crf = ChainCRF("linear", C=10.0).fit(read_parquet("data.parquet"))
    ...     told = tag_parquet(crf, "data.parquet", "labelled")
    >>> told.sequences, told.tokens
    (10, 15)
    >>> pq.read_table("labelled").column("labels").to_pylist()[:2]
    [['A', 'B'], ['B']]
    """
    cluster = current_cluster() if engine is None else engine
    parts = read_parquet(source, labels=None, sequence=sequence).sources
    identity = {
        "model": model_digest(crf),
        "source": [[file.path, file.size, file.mtime_ns] for file in _files(source)[1]],
        "options": {"sequence": sequence, "keep": list(keep), "probabilities": bool(probabilities)},
        "version": version("kernelcrf"),
    }
    start = time.perf_counter()
    folder = RunFolder.claim(*_located(target), identity)
    with releasing():
        model = cluster.call(_itself, crf)
        shared = (model, folder, tuple(keep), probabilities)
        counts = cluster.fetch([cluster.call(_tagged, part, k, *shared) for k, part in enumerate(parts)])
    folder.remove_partial_files()
    sequences, tokens = (int(total) for total in np.sum([(0, 0), *counts], axis=0))
    return Tagged(sequences, tokens, time.perf_counter() - start)


# What workers do with a part.


def _itself(value: Any) -> Any:
    return value


def _tagged(
    part: ParquetPart, k: int, crf: Any, folder: RunFolder, keep: tuple[str, ...], probabilities: bool
) -> tuple[int, int]:
    """Label a part and write it, unless the folder has it; return its sequences and tokens."""
    pa, _ = arrow()
    name = folder.part(k)
    if (known := folder.counts(name)) is not None:
        return known
    data = part()
    lengths: Any = data.lengths
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    labels = np.concatenate([np.empty(0, crf.classes_.dtype), *crf.predict(data.X, lengths=lengths)])
    columns = part.columns(keep)
    values = {"labels": pa.array(labels)}
    if probabilities:
        p = np.concatenate([np.empty((0, len(crf.classes_))), *crf.predict_proba(data.X, lengths=lengths)])
        of = {label: k for k, label in enumerate(crf.classes_.tolist())}
        values["probabilities"] = pa.array(p[np.arange(len(p)), [of[label] for label in labels.tolist()]])
    for key, flat in values.items():
        columns[key] = flat if part.sequence is not None else pa.ListArray.from_arrays(pa.array(offsets), flat)
    sequences, tokens = len(lengths), int(offsets[-1])
    folder.write(name, pa.table(columns), sequences, tokens)
    return sequences, tokens


def _files(path: PathLike) -> tuple[Any, list[Any]]:
    """A filesystem of Arrow, and what it knows of the Parquet files of a path, by name."""
    pa, _ = arrow()
    filesystem, inside = _located(path)
    with arrow_errors(os.fspath(path), "a Parquet file or a folder that can be read"):
        info = filesystem.get_file_info(inside)
        if info.type == pa.fs.FileType.Directory:
            found = filesystem.get_file_info(pa.fs.FileSelector(inside, recursive=True))
            inner = [(one, one.path[len(inside) :].lstrip("/")) for one in found if one.is_file]
            files = [one for one, name in inner if name.endswith(".parquet") and not is_hidden(name)]
        else:
            files = [info] if info.is_file else []
    if not files:
        raise FileNotFoundError(f"{os.fspath(path)}: expected a Parquet file, or a folder with .parquet files")
    return filesystem, sorted(files, key=lambda one: str(one.path))


def _located(path: PathLike) -> tuple[Any, str]:
    """A filesystem of Arrow and the path in it."""
    pa, _ = arrow()
    text = os.fspath(path)
    if "://" not in text:
        return pa.fs.LocalFileSystem(), os.path.abspath(text)
    with arrow_errors(text, "the address of a file or folder, such as s3://bucket/folder"):
        filesystem, inside = pa.fs.FileSystem.from_uri(text)
    return filesystem, inside.rstrip("/")
