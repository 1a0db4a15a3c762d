"""Parquet files that the workers of a cluster read and write themselves."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from kernelcrf.answers.spans import PredictedSpan
from kernelcrf.arrays import UserData
from kernelcrf.decoding import find_rule, rule_to_config
from kernelcrf.distributed.cluster import Cluster, releasing
from kernelcrf.distributed.parquet_part import ParquetPart
from kernelcrf.distributed.part_reader import current_cluster
from kernelcrf.distributed.run_folder import RunFolder, is_hidden
from kernelcrf.distributed.sources import SequenceSources, check_ends
from kernelcrf.formats.arrow import ArrowObject, arrow, arrow_errors
from kernelcrf.formats.parquet import open_parquet
from kernelcrf.models.base import model_digest
from kernelcrf.persistence import PathLike, find_remote
from kernelcrf.validation import shown

__all__ = ["TaggingReport", "read_parquet", "tag_parquet"]


def read_parquet(path: PathLike, *, labels: str | None = "labels", sequence: str | None = None) -> SequenceSources:
    """Let the workers of a cluster read sequences from a Parquet file, or from all `.parquet` files of a folder.

    Pass the result to `ChainCRF.fit` as X. This call reads only the footers of the files. If each row is a sequence,
    each row group becomes one part of the data; if each row is a token, each file becomes one part. Files whose names
    begin with a dot or an underscore are skipped.

    A worker raises an error if a file unpacks to more than 256 MiB and to more than a hundred times its packed size.

    Parameters
    ----------
    path : str or path
        A path on this machine, or a URL that fsspec supports, such as s3://bucket/folder; it must be valid on the
        workers too.
    labels : str or None
        The column of labels; None if the sequences have no labels.
    sequence : str or None
        The column that names the sequence of a token, if a row is a token.

    Examples
    --------
    >>> import pyarrow as pa
    >>> import pyarrow.parquet as pq
    >>> from distributed import Client
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.distributed import read_parquet
    >>> rows = {"features": [[["w=a"], ["w=b"]], [["w=b"]]] * 5, "labels": [["A", "B"], ["B"]] * 5}
    >>> pq.write_table(pa.table(rows), "data.parquet")
    >>> with Client(processes=False, dashboard_address=":0"):
    ...     crf = ChainCRF("linear", C=10.0).fit(read_parquet("data.parquet"))
    >>> crf.predict([[["w=b"], ["w=a"]]])[0].tolist()
    ['B', 'A']
    """
    return SequenceSources(_parts(*_files(path), labels, sequence))


def _parts(
    filesystem: ArrowObject, files: list[ArrowObject], labels: str | None, sequence: str | None
) -> list[ParquetPart]:
    parts: list[ParquetPart] = []
    for file in files:
        with open_parquet(file.path, filesystem) as source:
            n_groups = len(source.footer.groups)
        groups = [tuple(range(n_groups))] if sequence is not None else [(k,) for k in range(n_groups)]
        parts.extend(ParquetPart(filesystem, file.path, group, labels, sequence) for group in groups if group)
    return parts


@dataclass(frozen=True)
class TaggingReport:
    """The numbers of sequences and tokens that `tag_parquet` has labelled, and the seconds that it took.

    Examples
    --------
    >>> from kernelcrf.distributed import TaggingReport
    >>> TaggingReport(sequences=10, tokens=150, seconds=0.5).tokens_per_second
    300.0
    """

    sequences: int
    tokens: int
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Return the number of tokens that were labelled per second."""
        return self.tokens / self.seconds


@releasing()
def tag_parquet(
    crf: UserData,
    source: PathLike,
    target: PathLike,
    *,
    sequence: str | None = None,
    keep: Sequence[str] = (),
    probabilities: bool = False,
    spans: bool = False,
    engine: Cluster | None = None,
) -> TaggingReport:
    """Label the sequences of Parquet files on a cluster, and write a folder with one Parquet file per part of the data.

    The rows are in the same order as in the source. A file gets its final name only when it is complete.

    If the call is interrupted, repeat it with the same arguments to write the missing files. An error is raised if the
    folder has other files, or labels that were predicted with another model, other source files or other options. Only
    one process at a time may write to a folder.

    Parameters
    ----------
    crf : ChainCRF or SegmentCRF
        A fitted model.
    source, target : str or path
        A file or folder to read, as for `read_parquet`, and the folder to write to, which is created if necessary.
    sequence : str or None
        The column that names the sequence of a token, if a row is a token.
    keep : list of str
        Columns of the source to copy to the result.
    probabilities : bool
        Whether to write the marginal probability of each predicted label too.
    spans : bool
        Whether to write a column with the spans of each sequence too: lists of entries (start, end, label,
        probability), as `ChainDistribution.spans` returns them. Rows must be sequences.
    engine : DaskEngine or None
        The engine to use; None uses the current Dask client.

    Examples
    --------
    >>> import pyarrow as pa
    >>> import pyarrow.parquet as pq
    >>> from distributed import Client
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.distributed import read_parquet, tag_parquet
    >>> rows = {"features": [[["w=a"], ["w=b"]], [["w=b"]]] * 5, "labels": [["A", "B"], ["B"]] * 5}
    >>> pq.write_table(pa.table(rows), "data.parquet")
    >>> with Client(processes=False, dashboard_address=":0"):
    ...     crf = ChainCRF("linear", C=10.0).fit(read_parquet("data.parquet"))
    ...     report = tag_parquet(crf, "data.parquet", "labelled")
    >>> report.sequences, report.tokens
    (10, 15)
    >>> pq.read_table("labelled").column("labels").to_pylist()[:2]
    [['A', 'B'], ['B']]
    """
    written = ["labels", *(["probabilities"] if probabilities else []), *(["spans"] if spans else [])]
    if spans and sequence is not None:
        raise ValueError(
            f"spans=True cannot be combined with sequence={shown(sequence)}: expected one row per sequence, because a "
            "span belongs to a sequence and not to a token. Pass spans=False, or write one row per sequence"
        )
    if taken := [name for name in written if name in keep]:
        raise ValueError(
            f"keep={shown(list(keep))} has {taken[0]!r}, which is the name of a column of predictions in the result: "
            "rename the column of the source, or omit it"
        )
    if not hasattr(crf, "decoding") or find_rule(crf.decoding).pools_samples:
        raise ValueError(
            f"crf={shown(crf)}: expected a fitted ChainCRF with decoding='viterbi' or 'marginal', since decoding='f1' "
            "compares the spans of all sequences, and each part is labelled alone. Call set_params(decoding='viterbi')"
        )
    # If the original is fitted again, the copy keeps its model.
    crf = copy(crf)
    cluster = current_cluster() if engine is None else engine
    filesystem, files = _files(source)
    parts = _parts(filesystem, files, None, sequence)
    if sequence is not None:
        check_ends(cluster.fetch(cluster.each(_ends, parts)))
    identity = {
        "model": model_digest(crf.model_, _decoding(crf)),
        "source": [[file.path, file.size, file.mtime_ns] for file in files],
        "options": {"sequence": sequence, "keep": list(keep), "probabilities": bool(probabilities)}
        | ({"spans": True} if spans else {}),
        "version": version("kernelcrf"),
    }
    start = time.perf_counter()
    folder = RunFolder.claim(*_locate(target), identity)
    shared = (crf, folder, tuple(keep), probabilities, spans)
    counts = cluster.fetch(cluster.each(_tag, parts, range(len(parts)), shared=shared))
    folder.remove_partial_files()
    sequences, tokens = (int(total) for total in np.sum([(0, 0), *counts], axis=0))
    return TaggingReport(sequences, tokens, time.perf_counter() - start)


def _tag(
    part: ParquetPart, k: int, crf: UserData, folder: RunFolder, keep: tuple[str, ...], probabilities: bool, spans: bool
) -> tuple[int, int]:
    """Label part k of the data and write it to the folder, unless the folder has it already.

    Return the numbers of sequences and tokens of the part.
    """
    pa, _ = arrow()
    name = f"part-{k:06d}.parquet"
    if (known := folder.counts(name)) is not None:
        return known
    data = part()
    lengths = np.asarray(data.lengths)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    distribution = crf.distribution(data.X, lengths)
    labels = np.concatenate([np.empty(0, crf.classes_.dtype), *distribution.decode()])
    columns = part.columns(keep)
    values = {"labels": pa.array(labels)}
    if probabilities:
        p = distribution.probabilities
        index = {label: j for j, label in enumerate(crf.classes_.tolist())}
        values["probabilities"] = pa.array(p[np.arange(len(p)), [index[label] for label in labels.tolist()]])
    for key, flat in values.items():
        columns[key] = flat if part.sequence is not None else pa.ListArray.from_arrays(pa.array(offsets), flat)
    if spans:
        columns["spans"] = _span_column(distribution.spans(), values["labels"].type)
    sequences, tokens = len(lengths), int(offsets[-1])
    folder.write(name, pa.table(columns), sequences, tokens)
    return sequences, tokens


def _span_column(spans: list[list[PredictedSpan]], of_labels: ArrowObject) -> ArrowObject:
    """Return spans as an Arrow array with one list per sequence; `of_labels` is the type of labels."""
    pa, _ = arrow()
    kinds = [("start", pa.int32()), ("end", pa.int32()), ("label", of_labels), ("probability", pa.float64())]
    rows = [[{name: getattr(one, name) for name, _ in kinds} for one in row] for row in spans]
    return pa.array(rows, pa.list_(pa.struct(kinds)))


def _ends(part: ParquetPart) -> tuple[Any, Any] | None:
    """Return the names of the first and of the last sequence of a part, or None if it has no rows."""
    (names,) = part.columns([str(part.sequence)]).values()
    return (names[0].as_py(), names[-1].as_py()) if len(names) else None


def _files(path: PathLike) -> tuple[ArrowObject, list[ArrowObject]]:
    """Return an Arrow filesystem, and Arrow's FileInfo of each Parquet file at the path, sorted by name."""
    pa, _ = arrow()
    filesystem, inside = _locate(path)
    with arrow_errors(os.fspath(path), "a Parquet file or a folder that can be read"):
        info = filesystem.get_file_info(inside)
        if info.type == pa.fs.FileType.Directory:
            entries = filesystem.get_file_info(pa.fs.FileSelector(inside, recursive=True))
            inner = [(one, one.path[len(inside) :].lstrip("/")) for one in entries if one.is_file]
            files = [one for one, name in inner if name.endswith(".parquet") and not is_hidden(name)]
        else:
            files = [info] if info.is_file else []
    if not files:
        raise FileNotFoundError(
            f"{os.fspath(path)}: no Parquet file was found: expected a Parquet file, or a folder with .parquet files"
        )
    return filesystem, sorted(files, key=lambda one: str(one.path))


def _locate(path: PathLike) -> tuple[ArrowObject, str]:
    """Return the Arrow filesystem of a path or URL, and the path on this filesystem."""
    pa, _ = arrow()
    text = os.fspath(path)
    with arrow_errors(text, "the address of a file or folder, such as s3://bucket/folder"):
        if (remote := find_remote(text)) is None:
            return pa.fs.LocalFileSystem(), os.path.abspath(text)
        files, inside = remote
        return pa.fs.PyFileSystem(pa.fs.FSSpecHandler(files)), inside.rstrip("/")


def _decoding(crf: Any) -> Any:
    """Return the decoding rule as values for JSON, which identify the rule when a later call continues this one.

    If JSON cannot store the rule, return a random string, so that no later call counts as a continuation.
    """
    try:
        return rule_to_config(crf.decoding)
    except TypeError:
        return secrets.token_hex(16)
