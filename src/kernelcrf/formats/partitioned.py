"""Parquet in parts: what the workers of a cluster read and write themselves.

A row a sequence, with columns as `objects` has them:

    features    lists of lists of feature names
    vectors     lists of lists of d numbers, the inner ones of any list type
    labels      lists of labels
    weight      a number

or a row a token, where a column names the sequence: neighbouring rows with one name are one sequence, `features` are
lists of names, `vectors` lists of numbers, `labels` single values.

Names are never made into Python strings one by one: Arrow numbers the distinct ones of a part, and only these are
looked up or hashed.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf.engines.cluster import Cluster
from kernelcrf.estimators.feature_dicts import NamedTokens
from kernelcrf.estimators.parts import Partitions, Sequences
from kernelcrf.estimators.shared import current_cluster
from kernelcrf.formats.parquet import arrow
from kernelcrf.formats.records import FormatError
from kernelcrf.formats.streams import PathLike

__all__ = ["Tagged", "read_parquet", "tag_parquet"]

INPUTS = ("features", "vectors")
WEIGHT = "weight"


@dataclass(frozen=True)
class ParquetPart:
    """Some row groups of a Parquet file; a call reads them.

    labels : the column of labels, None where there are none to read.
    sequence : the column that names a token's sequence, None where a row is a sequence.
    """

    filesystem: Any
    path: str
    groups: tuple[int, ...]
    labels: str | None
    sequence: str | None

    def __call__(self) -> Sequences:
        """The sequences of the row groups."""
        table = self.table()
        names = [name for name in INPUTS if name in table.column_names]
        if len(names) != 1:
            raise FormatError(
                f"{self.path}: it has the columns {table.column_names}: expected one of {' and '.join(INPUTS)}"
            )
        if self.labels is not None and self.labels not in table.column_names:
            raise FormatError(
                f"{self.path}: it has the columns {table.column_names}: expected {self.labels!r} with the labels"
            )
        if self.sequence is None:
            lengths, inputs = _unnested(_whole(table.column(names[0])), self.path)
            ends = None
        else:
            inputs = _whole(table.column(names[0]))
            lengths, ends = _runs_of(table.column(self.sequence).to_numpy())
        X = _vectors(inputs, self.path) if names == ["vectors"] else _named(inputs, self.path)
        y = None if self.labels is None else self._labels(table.column(self.labels), lengths)
        weights = table.column(WEIGHT).to_numpy() if WEIGHT in table.column_names and self.sequence is None else None
        return Sequences(X, y, weights, lengths, ends)

    def table(self, columns: Sequence[str] | None = None) -> Any:
        """The row groups as an Arrow table; all columns that are read, or those named."""
        pa, pq = arrow()
        try:
            with pq.ParquetFile(self.path, filesystem=self.filesystem) as file:
                wanted = (*INPUTS, self.labels, self.sequence, WEIGHT) if columns is None else columns
                return file.read_row_groups(
                    list(self.groups), [name for name in file.schema_arrow.names if name in wanted]
                )
        except pa.ArrowInvalid as error:
            raise FormatError(f"{self.path}: expected a Parquet file ({error})") from None

    def _labels(self, column: Any, lengths: npt.NDArray[np.int64]) -> list[Any]:
        if self.sequence is not None:
            return list(column.to_pylist())
        own, values = _unnested(_whole(column), self.path)
        if not np.array_equal(own, lengths):
            row = int(np.flatnonzero(own != lengths)[0])
            raise FormatError(
                f"{self.path}, row {row}: {own[row]} labels and {lengths[row]} tokens: expected one label a token"
            )
        return list(values.to_pylist())


def read_parquet(path: PathLike, *, labels: str | None = "labels", sequence: str | None = None) -> Partitions:
    """The sequences of a Parquet file, or of all `.parquet` files of a folder, for a cluster to read.

    Nothing but the files' footers is read here. A part is a row group; where a row is a token, a file.

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
    pa, pq = arrow()
    filesystem, inside = _located(path)
    info = filesystem.get_file_info(inside)
    if info.type == pa.fs.FileType.Directory:
        found = filesystem.get_file_info(pa.fs.FileSelector(inside, recursive=True))
        files = sorted(one.path for one in found if one.is_file and one.path.endswith(".parquet"))
    else:
        files = [inside] if info.is_file else []
    if not files:
        raise FileNotFoundError(f"{os.fspath(path)}: expected a Parquet file, or a folder with .parquet files")
    parts: list[ParquetPart] = []
    for file in files:
        try:
            n_groups = pq.read_metadata(file, filesystem=filesystem).num_row_groups
        except pa.ArrowInvalid as error:
            raise FormatError(f"{file}: expected a Parquet file ({error})") from None
        groups = [tuple(range(n_groups))] if sequence is not None else [(k,) for k in range(n_groups)]
        parts.extend(ParquetPart(filesystem, file, own, labels, sequence) for own in groups if own)
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

    Rows come in the order of the source. Each file appears whole or not at all, and parts that are there already are
    not made again: a run that was cut short goes on.

    Parameters
    ----------
    crf : ChainCRF
        Fitted.
    source, target : str or path
        A file or folder as for `read_parquet`, and the folder to write to.
    sequence : str or None
        The column that names the sequence of a token, where a row is a token.
    keep : names
        Columns of the source to write beside the labels.
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
    filesystem, folder = _located(target)
    filesystem.create_dir(folder, recursive=True)
    start = time.perf_counter()
    model = cluster.call(_itself, crf)
    names = [f"{folder}/part-{k:06d}.parquet" for k in range(len(parts))]
    shared = (model, filesystem, tuple(keep), probabilities)
    counts = cluster.fetch(
        [cluster.call(_tagged, part, name, *shared) for part, name in zip(parts, names, strict=True)]
    )
    sequences, tokens = (int(total) for total in np.sum(counts, axis=0))
    return Tagged(sequences, tokens, time.perf_counter() - start)


# What workers do with a part.


def _itself(value: Any) -> Any:
    return value


def _tagged(
    part: ParquetPart, name: str, crf: Any, filesystem: Any, keep: tuple[str, ...], probabilities: bool
) -> tuple[int, int]:
    """Label a part and write it; returns its sequences and tokens."""
    pa, pq = arrow()
    if filesystem.get_file_info(name).is_file:
        metadata = pq.read_metadata(name, filesystem=filesystem)
        return tuple(map(int, metadata.metadata[b"kernelcrf"].split()))  # type: ignore[return-value]
    data = part()
    lengths: Any = data.lengths
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    labels = np.concatenate([np.empty(0, crf.classes_.dtype), *crf.predict(data.X, lengths=lengths)])
    columns = {one: part.table([one]).column(one) for one in keep}
    values = {"labels": pa.array(labels)}
    if probabilities:
        p = np.concatenate([np.empty((0, len(crf.classes_))), *crf.predict_proba(data.X, lengths=lengths)])
        of = {label: k for k, label in enumerate(crf.classes_.tolist())}
        values["probabilities"] = pa.array(p[np.arange(len(p)), [of[label] for label in labels.tolist()]])
    for key, flat in values.items():
        columns[key] = flat if part.sequence is not None else pa.ListArray.from_arrays(pa.array(offsets), flat)
    figures = f"{len(lengths)} {int(offsets[-1])}"
    table = pa.table(columns).replace_schema_metadata({"kernelcrf": figures})
    partial = f"{name}.{secrets.token_hex(8)}.partial"
    pq.write_table(table, partial, filesystem=filesystem)
    filesystem.move(partial, name)
    return len(lengths), int(offsets[-1])


def _located(path: PathLike) -> tuple[Any, str]:
    """A filesystem of Arrow and the path in it."""
    pa, _ = arrow()
    text = os.fspath(path)
    if "://" not in text:
        return pa.fs.LocalFileSystem(), os.path.abspath(text)
    filesystem, inside = pa.fs.FileSystem.from_uri(text)
    return filesystem, inside.rstrip("/")


def _whole(column: Any) -> Any:
    """A column as one array."""
    found = column.combine_chunks()
    return found if not hasattr(found, "chunks") else arrow()[0].concat_arrays(found.chunks)


def _unnested(array: Any, path: str) -> tuple[npt.NDArray[np.int64], Any]:
    """The lengths of the rows of an array of lists, and their entries one after the other."""
    pa, _ = arrow()
    if not _is_list(pa, array.type):
        raise FormatError(f"{path}: a column is of type {array.type}: expected lists, an entry a token")
    if array.null_count:
        raise FormatError(f"{path}: a column of type {array.type} has rows without a value: expected a list in each")
    return np.asarray(array.value_lengths(), np.int64), array.flatten()


def _is_list(pa: Any, kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _named(tokens: Any, path: str) -> NamedTokens:
    counts, names = _unnested(tokens, path)
    encoded = names.dictionary_encode()
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return NamedTokens(encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int32), offsets)


def _vectors(tokens: Any, path: str) -> npt.NDArray[np.floating[Any]]:
    counts, numbers = _unnested(tokens, path)
    if len(set(counts.tolist())) > 1:
        raise FormatError(f"{path}: vectors have {sorted(set(counts.tolist()))[:5]} numbers: expected the same in all")
    return np.asarray(numbers.to_numpy(zero_copy_only=False).reshape(len(counts), -1))


def _runs_of(names: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], tuple[Any, Any] | None]:
    """Lengths of runs of equal names, and the first and the last of these."""
    if not len(names):
        return np.zeros(0, np.int64), None
    starts = np.flatnonzero(np.concatenate([[True], names[1:] != names[:-1]]))
    lengths = np.diff(np.append(starts, len(names))).astype(np.int64)
    return lengths, (names[0], names[-1])
