"""A fit that was cut short goes on where it was: weights, landmarks and history, written as it goes.

The file is in the format of model files, and appears whole or not at all. It names the problem that it belongs to
(inputs, labels, kernels, C, landmarks asked for), and a fit of another one refuses it. What it does not keep are the
pairs of L-BFGS, which gathers them anew: a fit that goes on ends at the same optimum, by a path of its own.

A path with a scheme, such as s3://bucket/run.ckpt, goes through fsspec.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf.basis.features import FeatureMap, from_arrays
from kernelcrf.fitting import Keep, Start
from kernelcrf.persistence import ModelFileError, PathLike, read, write
from kernelcrf.solvers import Record

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

__all__ = ["Checkpoint"]

KIND = "checkpoint"


@dataclass(frozen=True)
class Checkpoint:
    """Where a fit is kept, and how often: at its start, every so many iterations, and at its end.

    Parameters
    ----------
    path : str or path
        A file, or a URL that fsspec understands.
    every : int
        Iterations from one writing to the next.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.checkpoints import Checkpoint
    >>> from kernelcrf.datasets import make_sequences
    >>> data = make_sequences(20, random_state=0)
    >>> crf = ChainCRF("linear", tol=1e-8, checkpoint=Checkpoint("run.ckpt", every=5)).fit(data.X, data.y)
    >>> again = ChainCRF("linear", tol=1e-8, checkpoint="run.ckpt").fit(data.X, data.y)  # from where it ended
    >>> again.n_iter_ <= crf.n_iter_ + 1
    True
    """

    path: PathLike
    every: int = 10

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"every={self.every!r}: expected a number of iterations >= 1")

    @classmethod
    def of(cls, checkpoint: Any) -> Checkpoint | None:
        """The checkpoint that a parameter means: a path, a checkpoint or None."""
        if checkpoint is None or isinstance(checkpoint, Checkpoint):
            return checkpoint
        if isinstance(checkpoint, str | os.PathLike):
            return cls(checkpoint)
        raise TypeError(f"checkpoint={checkpoint!r}: expected a path, kernelcrf.checkpoints.Checkpoint, or None")

    def start(self, problem: Mapping[str, Any]) -> Start | None:
        """Where a fit of the problem was, or None where there is no file."""
        found = self._read()
        if found is None:
            return None
        config, arrays = found
        if config.get("kind") != KIND:
            raise ModelFileError(f"{self.path}: a model, and no checkpoint of a fit: name another file")
        there = config["problem"]
        for key, value in problem.items():
            if there.get(key) != value:
                raise ValueError(
                    f"checkpoint={os.fspath(self.path)!r} belongs to another problem, with {key} {there.get(key)!r} "
                    f"instead of {value!r}: name another file, or remove this one to start anew"
                )
        history = tuple(Record(*row) for row in arrays["history"].tolist())
        maps = [_map_of(config, arrays, name) for name in ("map", "edge_map")]
        if maps[0] is None:
            raise ModelFileError(f"{self.path}: expected a feature map")
        return Start(maps[0], maps[1], arrays["theta"], history)

    def keep(self, problem: Mapping[str, Any]) -> Keep:
        """What writes the file as a fit of the problem goes."""

        def kept(map: FeatureMap, edge_map: FeatureMap | None, theta: Floats, history: Sequence[Record]) -> None:
            if (len(history) - 1) % self.every == 0:
                self.write(problem, map, edge_map, theta, history)

        return kept

    def write(
        self,
        problem: Mapping[str, Any],
        map: FeatureMap,
        edge_map: FeatureMap | None,
        theta: Floats,
        history: Sequence[Record],
    ) -> None:
        """Write the file: the old one stays until the new one is whole."""
        config: dict[str, Any] = {"kind": KIND, "problem": dict(problem)}
        arrays: dict[str, Array] = {"theta": theta, "history": np.array([astuple(record) for record in history])}
        for name, one in (("map", map), ("edge_map", edge_map)):
            config[name] = None
            if one is not None:
                config[name], own = one.to_arrays()
                arrays |= {f"{name}.{key}": value for key, value in own.items()}
        if not _is_url(self.path):
            write(self.path, config, arrays)
            return
        files, path = _filesystem(self.path)
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder) / "checkpoint", config, arrays)
            files.put_file(str(Path(folder) / "checkpoint"), f"{path}.partial")
        files.mv(f"{path}.partial", path)

    def _read(self) -> tuple[dict[str, Any], dict[str, Array]] | None:
        if not _is_url(self.path):
            return read(self.path) if Path(self.path).exists() else None
        files, path = _filesystem(self.path)
        if not files.exists(path):
            return None
        with tempfile.TemporaryDirectory() as folder:
            files.get_file(path, str(Path(folder) / "checkpoint"))
            return read(Path(folder) / "checkpoint")


def digest(value: Any) -> str:
    """A few letters that tell JSON-able values apart."""
    return blake2b(json.dumps(value, sort_keys=True, default=repr).encode(), digest_size=12).hexdigest()


def _map_of(config: Mapping[str, Any], arrays: Mapping[str, Array], name: str) -> FeatureMap | None:
    if config[name] is None:
        return None
    own = {key.removeprefix(f"{name}."): value for key, value in arrays.items() if key.startswith(f"{name}.")}
    return from_arrays(config[name], own)


def _is_url(path: PathLike) -> bool:
    return "://" in os.fspath(path)


def _filesystem(path: PathLike) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise ImportError(f"checkpoint={os.fspath(path)!r} needs fsspec: pip install 'kernelcrf[dask]'") from None
    files, inside = url_to_fs(os.fspath(path))
    return files, str(inside)
