"""The formats of files of sequences, and what each of them can do.

The functions that read and write files, and the command line, look up here what a format can do. The module
`kernelcrf.formats.<name>` has the functions `read(path)`, which yields lists of records, and `write(file, records)`.
The command line defines its options from this registry, so this module does not import NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """A format of files of sequences.

    title : the name of the format in the help of the command.
    extensions : the file extensions, the most common first.
    kind : the only kind of input that the format can store, "text", "features" or "vectors"; None if it stores all.
    is_binary : whether the files are binary instead of text; binary files cannot be streamed or gzipped.
    is_written : whether files can also be written; all formats can be read.
    read_options : which of the options "labels" and "n_columns" of `read_batches` apply to this format.
    has_token_lines : whether each token has its own line in the file; errors then name the line.
    tagged_as : the format that `kernelcrf tag` writes by default for files of this format, "columns" or "jsonl".

    Examples
    --------
    >>> from kernelcrf.formats import FORMATS
    >>> FORMATS["npz"].extensions, FORMATS["npz"].kind, FORMATS["npz"].is_binary
    (('.npz',), 'vectors', True)
    """

    title: str
    extensions: tuple[str, ...]
    kind: str | None = None
    is_binary: bool = False
    is_written: bool = True
    read_options: tuple[str, ...] = ()
    has_token_lines: bool = False
    tagged_as: str = "columns"


COLUMN_FILES = (".txt", ".conll", ".tsv", ".iob", ".iob2", ".bio", ".data")
FORMATS: Mapping[str, Format] = {
    "columns": Format("column files", COLUMN_FILES, "text", read_options=("labels", "n_columns"), has_token_lines=True),
    "conllu": Format("CoNLL-U", (".conllu",), "text", is_written=False, read_options=("labels",), has_token_lines=True),
    "jsonl": Format("JSON lines", (".jsonl", ".ndjson"), tagged_as="jsonl"),
    "crfsuite": Format("CRFsuite's text", (".items", ".crfs"), "features", has_token_lines=True),
    "parquet": Format("Parquet", (".parquet",), is_binary=True),
    "npz": Format("NumPy's archives", (".npz",), "vectors", is_binary=True),
}
