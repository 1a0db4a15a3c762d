"""The folder that `tag_parquet` writes to. All its files come from one run: the same model, source files and options.

    _run.json                                         identifies the run: model, source files, options and version
    part-000003.parquet                               the labels of the fourth part of the data
    .part-000003.parquet.5c0e9f12a7d41b30.partial     a part that a worker is writing, or was writing when it was killed

Arrow and other readers of folders skip names that begin with a dot or an underscore, so they only see complete parts.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b

from kernelcrf.arrays import Config
from kernelcrf.formats.arrow import ArrowObject, arrow, arrow_errors
from kernelcrf.formats.records import FormatError

MANIFEST = "_run.json"
PARTIAL = ".partial"
KEY = b"kernelcrf"


@dataclass(frozen=True)
class RunFolder:
    """The folder on an Arrow filesystem to which one run of `tag_parquet` writes.

    run : a digest of the model, the source files, the options and the version of kernelcrf.
    """

    filesystem: ArrowObject
    path: str
    run: str

    @classmethod
    def claim(cls, filesystem: ArrowObject, path: str, identity: Mapping[str, object]) -> RunFolder:
        """Create the folder of a run, or return the folder of an earlier run with the same identity.

        identity : the model, the source files, the options and the version of kernelcrf. An error is raised if the
            folder belongs to a run with another identity, or has files but belongs to no run.
        """
        pa, _ = arrow()
        text = json.dumps(dict(identity), sort_keys=True, indent=1)
        folder = cls(filesystem, path, blake2b(text.encode(), digest_size=16).hexdigest())
        with arrow_errors(path, "a folder that can be written to"):
            filesystem.create_dir(path, recursive=True)
            entries = filesystem.get_file_info(pa.fs.FileSelector(path, recursive=False))
            names = sorted(one.base_name for one in entries if not _is_partial(one.base_name))
            if not names:
                with folder.whole(MANIFEST) as partial, filesystem.open_output_stream(partial) as file:
                    file.write(text.encode())
            elif MANIFEST not in names:
                raise FormatError(
                    f"{path}: the folder has other files, such as {names[0]!r}: expected an empty folder. Choose "
                    "another folder, or empty this one"
                )
            with filesystem.open_input_stream(f"{path}/{MANIFEST}") as file:
                before = _parse(file.read())
        if other := sorted(key for key in {*before, *identity} if before.get(key) != identity.get(key)):
            raise FormatError(
                f"{path}: the folder has labels from another run, which differs in its {' and '.join(other)}: expected "
                "an empty folder, or a folder of the same run. Choose another folder, or empty this one"
            )
        folder.remove_partial_files()
        return folder

    def counts(self, name: str) -> tuple[int, int] | None:
        """Return the numbers of sequences and tokens in the file called `name`, or None if there is no such file."""
        _, pq = arrow()
        path = f"{self.path}/{name}"
        with arrow_errors(path, "a part that this run wrote; remove the file"):
            if not self.filesystem.get_file_info(path).is_file:
                return None
            kept = pq.read_metadata(path, filesystem=self.filesystem).metadata or {}
        written = _parse(kept.get(KEY, b"null"))
        if written.get("run") != self.run:
            raise FormatError(f"{path}: the file comes from another run: expected a file of this run. Remove the file")
        return int(written["sequences"]), int(written["tokens"])

    def write(self, name: str, table: ArrowObject, sequences: int, tokens: int) -> None:
        """Write a table to the file called `name`, which gets this name only when it is complete.

        The file also records the digest of the run, and the numbers of sequences and tokens.
        """
        _, pq = arrow()
        note = json.dumps({"run": self.run, "sequences": sequences, "tokens": tokens})
        with arrow_errors(f"{self.path}/{name}", "a file that can be written"), self.whole(name) as partial:
            pq.write_table(table.replace_schema_metadata({KEY: note}), partial, filesystem=self.filesystem)

    def remove_partial_files(self) -> None:
        """Remove incomplete files that killed workers left behind. No worker may be writing at the same time."""
        pa, _ = arrow()
        for one in self.filesystem.get_file_info(pa.fs.FileSelector(self.path, recursive=False)):
            if _is_partial(one.base_name):
                with suppress(FileNotFoundError):
                    self.filesystem.delete_file(one.path)

    @contextmanager
    def whole(self, name: str) -> Iterator[str]:
        """Yield a temporary path to write to; at the end of the `with` block, this file is renamed to `name`."""
        partial = f"{self.path}/.{name}.{secrets.token_hex(8)}{PARTIAL}"
        try:
            yield partial
            self.filesystem.move(partial, f"{self.path}/{name}")
        except BaseException:
            with suppress(OSError):
                self.filesystem.delete_file(partial)
            raise


def is_hidden(path: str) -> bool:
    """Return whether readers of Parquet folders skip this path: a name in it begins with a dot or an underscore."""
    return any(name.startswith((".", "_")) for name in path.split("/"))


def _is_partial(name: str) -> bool:
    return name.startswith((".part-", f".{MANIFEST}.")) and name.endswith(PARTIAL)


def _parse(text: bytes) -> Config:
    """Parse a text as JSON and return it as a dict; the dict is empty if the text is not a JSON object."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
