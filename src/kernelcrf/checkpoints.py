"""A fit that was cut short goes on where it was: weights, landmarks and history, written as it goes.

The file is in the format of model files, is checked as they are, and appears whole or not at all. It names the problem
that it belongs to: digests of inputs, labels and weights, constraints, kernels, prior variances, and how many landmarks
were asked for and by which rule. A fit of another problem refuses it.

Lower bounds are kept for the curve alone. A fit that goes on computes its own, on its own data, so that no file can
make a fit look better than it is. The pairs of L-BFGS are not kept either: the fit ends within `tol` of the same
optimum, by a path of its own, and not at the bits of a fit that was never cut short.

A path with a scheme, such as s3://bucket/run.ckpt, goes through fsspec.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, is_dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf.basis.features import FeatureMap, PrimalMap
from kernelcrf.corpora.corpus import Data
from kernelcrf.fitting import Keep, Settings, Start, layout_of
from kernelcrf.graphs.structure import Legal
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.persistence import ModelFileError, PathLike, read, write
from kernelcrf.solvers import Record
from kernelcrf.stored_maps import checked, feature_map
from kernelcrf.validation import COUNT, PATH, check_parameters, either, instance_of, nothing, path, shown

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

__all__ = ["Checkpoint"]

KIND = "checkpoint"
DATA = {
    "inputs": "X",
    "labels": "y",
    "weights": "sample_weight or class_weight",
    "sequences": "the order of y beside X",
    "constraints": "constraints",
    "label_kernel": "label_kernel",
    "start": "the landmarks of the warm start",
}


@dataclass(frozen=True)
class Checkpoint:
    """Where a fit is kept, and how often: at its start, every so many iterations, and at its end.

    A later fit with the same data and settings goes on from the file. It refuses a file of other data or of another
    problem, and it computes its own lower bounds, so that its certificate does not depend on the file.

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
        check_parameters(vars(self), {"path": PATH, "every": COUNT})

    @classmethod
    def of(cls, checkpoint: Any) -> Checkpoint | None:
        """The checkpoint that a parameter means: a path, a checkpoint or None."""
        CHECKPOINT.check("checkpoint", checkpoint)
        return checkpoint if checkpoint is None or isinstance(checkpoint, Checkpoint) else cls(checkpoint)

    def start(self, problem: Mapping[str, Any], settings: Settings, data: Data) -> Start | None:
        """Return where a fit of the problem was, or None if there is no file.

        problem : what `problem_of` says of the settings and the data.
        """
        found = self._read()
        if found is None:
            return None
        config, arrays = found
        if config.get("kind") != KIND:
            raise ModelFileError(
                f"{self.path}: expected a checkpoint of a fit, got a model: pass another path to checkpoint="
            )
        there = config.get("problem")
        if not isinstance(there, dict):
            raise ModelFileError(f"{self.path}: the checkpoint does not say which problem it belongs to")
        self._check_problem(there, problem)
        try:
            return _start(config, arrays, problem, settings, data)
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
            raise ModelFileError(
                f"{self.path}: the checkpoint is inconsistent ({shown_text(error)}): remove the file to start anew"
            ) from None

    def _check_problem(self, there: Mapping[str, Any], problem: Mapping[str, Any]) -> None:
        differ = [name for name, value in problem.items() if there.get(name) != value]
        if not differ:
            return
        if unknown := [name for name in differ if name not in there]:
            raise ValueError(
                f"checkpoint={os.fspath(self.path)!r} was written by an earlier version, and does not say which "
                f"{unknown[0]} it belongs to: pass another path, or remove the file to start anew"
            )
        if "sequences" in differ and set(differ) & {"inputs", "labels", "weights"}:
            differ.remove("sequences")
        told = [
            DATA[name] if name in DATA else f"{name} {shown(there[name])} instead of {shown(problem[name])}"
            for name in differ
        ]
        raise ValueError(
            f"checkpoint={os.fspath(self.path)!r} belongs to another problem, which differs in {'; '.join(told)}: "
            "pass another path, or remove the file to start anew"
        )

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
            copy = str(Path(folder) / "checkpoint")
            files.get_file(path, copy)
            try:
                return read(copy)
            except ModelFileError as error:
                raise ModelFileError(str(error).replace(copy, os.fspath(self.path))) from None


def problem_of(data: Data, settings: Settings, legal: Legal | None, start: Start | None) -> dict[str, Any]:
    """Return what a checkpoint and a fit must agree on: all that the objective and its landmarks depend on.

    legal : what labelings may be, or None for any.
    start : an earlier fit whose landmarks are taken up, or None.
    """
    edges, rule = settings.edge_kernel, settings.rule
    own = None if start is None else [_map_digest(one) for one in (start.map, start.edge_map) if one is not None]
    problem = {
        **data.digest(),
        "constraints": None if legal is None else digest([legal.steps, legal.first, legal.last]),
        "n_labels": data.n_labels,
        "kernel": settings.kernel.to_config(),
        "edge_kernel": None if edges is None else edges.to_config(),
        "C": [settings.C, settings.C_edge, settings.C_bias],
        "label_kernel": digest(np.asarray(settings.label_kernel)),
        "n_components": settings.n_components,
        "pivots": rule if isinstance(rule, str) else repr(rule) if is_dataclass(rule) else type(rule).__name__,
        "start": None if own is None else digest(own),
    }
    # As it comes back from a file.
    plain: dict[str, Any] = json.loads(json.dumps(problem, default=_listed))
    return plain


CHECKPOINT = either(path, instance_of(Checkpoint, text="a kernelcrf.checkpoints.Checkpoint"), nothing)


def digest(value: Any) -> str:
    """Return a few letters that tell JSON-able values and arrays apart."""
    return blake2b(json.dumps(value, sort_keys=True, default=_listed).encode(), digest_size=12).hexdigest()


def shown_text(error: BaseException) -> str:
    """Return the message of an error in one line of bounded length."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:200]} ..."


def _listed(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else repr(value)


def _map_digest(one: FeatureMap) -> str:
    config, arrays = one.to_arrays()
    parts = [[name, str(array.dtype), list(array.shape), _bytes_digest(array)] for name, array in arrays.items()]
    return digest([config, parts])


def _bytes_digest(array: Array) -> str:
    return blake2b(np.ascontiguousarray(array).data, digest_size=16).hexdigest()


def _start(
    config: Mapping[str, Any], arrays: Mapping[str, Array], problem: Mapping[str, Any], settings: Settings, data: Data
) -> Start:
    """Return the start that a checked file describes."""
    node = _map_of(config, arrays, "map", settings.kernel, problem["kernel"], data.n_features)
    edge = None
    if settings.edge_kernel is not None:
        edge = _map_of(config, arrays, "edge_map", settings.edge_kernel, problem["edge_kernel"], data.n_features)
    elif config["edge_map"] is not None:
        raise ModelFileError("it has landmarks of edges, and edge_kernel is None")
    layout = layout_of(settings, node.n, 0 if edge is None else edge.n, data.n_labels)
    theta = checked(arrays, "theta", (layout.size,), "f").astype(np.float64)
    return Start(node, edge, theta, _history_of(arrays))


def _map_of(
    config: Mapping[str, Any],
    arrays: Mapping[str, Array],
    name: str,
    kernel: InputKernel,
    kernel_config: Any,
    n_features: int,
) -> FeatureMap:
    own = feature_map(config[name], arrays, f"{name}.", n_features)
    is_primal = isinstance(own, PrimalMap)
    if is_primal != (kernel.name == "linear") or (not is_primal and config[name]["kernel"] != kernel_config):
        raise ModelFileError(f"{name} is of another kernel than the problem")
    return own


def _history_of(arrays: Mapping[str, Array]) -> tuple[Record, ...]:
    rows = arrays["history"]
    if rows.ndim != 2 or rows.shape[1] != 6 or rows.dtype != np.float64 or not len(rows):
        raise ModelFileError(f"tensor 'history' has type {rows.dtype} and shape {rows.shape}: expected (n, 6)")
    history = tuple(Record(*row) for row in rows.tolist())
    work = np.array([(record.passes, record.seconds) for record in history])
    grows = np.isfinite(work).all() and (work >= 0).all() and (np.diff(work, axis=0) >= 0).all()
    if not grows or not np.isfinite([(record.value, record.gap) for record in history]).all():
        raise ModelFileError("tensor 'history' has values, passes or seconds that no fit has")
    return history


def _is_url(path: PathLike) -> bool:
    return "://" in os.fspath(path)


def _filesystem(path: PathLike) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise ImportError(f"checkpoint={os.fspath(path)!r} needs fsspec: pip install 'kernelcrf[dask]'") from None
    files, inside = url_to_fs(os.fspath(path))
    return files, str(inside)
