"""Checkpoints: a fit writes its weights, landmarks and history to a file, so that an interrupted fit can continue.

The file has the format of model files and passes the same checks; it is replaced as a whole or not at all. It has
digests of inputs, labels, weights and constraints, and also the kernels, the prior variances, the L1 penalties, the
number of observed pairs, the number of landmarks and the rule that chooses them. If a fit with other data or settings
finds the file, it raises an error.

A continued fit computes new lower bounds from its data, so that no file can make a fit look better than it is. Lower
bounds in the file appear only in `gap_curve_`. The history of L-BFGS is not stored: a continued fit reaches the same
optimum within `tol`, but not exactly the weights of an uninterrupted fit.

A path with a scheme, such as s3://bucket/run.ckpt, is opened with fsspec.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import astuple, dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kernelcrf.arrays import Array
from kernelcrf.basis.builder import Rule
from kernelcrf.basis.features import FeatureMap, PrimalMap
from kernelcrf.fitting.corpus import Problem, input_of, sharing_inputs
from kernelcrf.fitting.digest import digest_array, digest_value
from kernelcrf.fitting.fit import Fit, Settings, Start, fit
from kernelcrf.fitting.specification import differences, plain_values
from kernelcrf.kernels.labels import LabelMap
from kernelcrf.persistence import Content, ModelFileError, PathLike, check_target, find_remote, local_copy, read, write
from kernelcrf.persistence.checks import read_array
from kernelcrf.persistence.feature_maps import maps_to_arrays, read_map
from kernelcrf.score.layout import Layout
from kernelcrf.solvers import Record
from kernelcrf.validation import COUNT, PATH, check_parameters, either, instance_of, nothing, one_line, path, shown

__all__ = ["Checkpoint"]

KIND = "checkpoint"
# The most values that an error names if the checkpoint belongs to another fit.
MOST_NAMED = 3
DATA = {
    "inputs": "X",
    "labels": "y",
    "weights": "sample_weight or class_weight",
    "sequences": "the order of y beside X",
    "graphs": "the graphs",
    "constraints": "constraints",
    "label_kernel": "label_kernel",
    "start": "the landmarks of the warm start, or the prior",
}


@dataclass(frozen=True)
class Checkpoint:
    """A file to which a fit is saved at its start, after every `every` iterations, and at its end.

    A later fit with the same data and settings continues from the file. A fit with other data or settings raises an
    error, except that `random_state` may differ: a continued fit keeps the landmarks in the file. It computes new lower
    bounds, so that its certificate does not depend on the file.

    Parameters
    ----------
    path : str or path
        Path of a file, or a URL that fsspec supports.
    every : int
        Number of iterations between two writes.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.fitting.checkpoints import Checkpoint
    >>> from kernelcrf.datasets import make_sequences
    >>> data = make_sequences(20, random_state=0)
    >>> crf = ChainCRF("linear", tol=1e-8, checkpoint=Checkpoint("run.ckpt", every=5)).fit(data.X, data.y)
    >>> again = ChainCRF("linear", tol=1e-8, checkpoint="run.ckpt").fit(data.X, data.y)  # continues
    >>> again.n_iter_ <= crf.n_iter_ + 1
    True
    """

    path: PathLike
    every: int = 10

    def __post_init__(self) -> None:
        check_parameters(vars(self), {"path": PATH, "every": COUNT})

    @classmethod
    def of(cls, checkpoint: Any) -> Checkpoint | None:
        """Return the parameter `checkpoint` unchanged if it is a Checkpoint or None; convert a path to a Checkpoint."""
        return checkpoint if checkpoint is None or isinstance(checkpoint, Checkpoint) else cls(checkpoint)

    def resume(self, problem: Problem, settings: Settings, start: Start | None) -> Fit:
        """Fit the problem, and write the file during the fit and at its end. If the file exists, continue from it."""
        stated = _statement_of(problem, settings, start)
        stored, steps = self._start(stated, problem), 0
        check_target(self.path)

        def keep(at: Start) -> None:
            nonlocal steps
            steps += 1
            if (len(at.history) - 1) % self.every == 0:
                self.write(stated, at)

        try:
            fitted = fit(problem, settings, stored or start, keep)
        except ValueError as error:
            # The fit that wrote the file got past this step, so the file must be wrong.
            if stored is None or steps > 1:
                raise
            raise ModelFileError(
                f"{self.path}: the fit cannot continue from the weights and landmarks of this checkpoint "
                f"({one_line(error)}): remove the file to start again"
            ) from None
        self.write(stated, replace(fitted.end, history=fitted.solution.history))
        return fitted

    def _start(self, stated: Mapping[str, Any], problem: Problem) -> Start | None:
        """Return the feature maps, weights and history of the file, or None if there is no file.

        Raise if the file was written for other data or settings than `stated`, the result of `_statement_of`.
        """
        if (content := self._read()) is None:
            return None
        config, arrays, _ = content
        if config.get("kind") != KIND:
            raise ModelFileError(
                f"{self.path} is a model file: expected a checkpoint of a fit. Pass another path as `checkpoint`"
            )
        there = config.get("problem")
        if not isinstance(there, dict):
            raise ModelFileError(
                f"{self.path}: the checkpoint does not describe its data and settings: remove the file to start again"
            )
        self._check_problem(there, stated)
        try:
            return _read_start(config, arrays, problem)
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
            raise ModelFileError(
                f"{self.path}: the checkpoint is inconsistent ({one_line(error)}): remove the file to start again"
            ) from None

    def _check_problem(self, there: Mapping[str, Any], problem: Mapping[str, Any]) -> None:
        differ = differences(problem, there)
        if not differ:
            return
        if unknown := [name for name in differ if name not in there]:
            raise ValueError(
                f"checkpoint={os.fspath(self.path)!r} was written by an earlier version of kernelcrf, which did not "
                f"store {unknown[0]!r}: pass another path, or remove the file to start again"
            )
        if "sequences" in differ and set(differ) & {"inputs", "labels", "weights"}:
            differ.remove("sequences")
        if {"terms", "landmarks"} <= set(differ):
            differ.remove("landmarks")
        names = [
            DATA[name] if name in DATA else f"{name} {shown(there[name])} instead of {shown(problem[name])}"
            for name in differ[:MOST_NAMED]
        ]
        more = f" and in {len(differ) - MOST_NAMED} more values" if len(differ) > MOST_NAMED else ""
        raise ValueError(
            f"checkpoint={os.fspath(self.path)!r} was written by a fit that differs in {'; '.join(names)}{more}: pass "
            "another path, or remove the file to start again"
        )

    def write(self, stated: Mapping[str, Any], at: Start) -> None:
        """Write the state of a fit to the file.

        at : the current feature maps, weights and history.
        stated : the description of the data and settings that `_statement_of` returns.
        """
        maps, arrays = maps_to_arrays(at.maps.values())
        config = {"kind": KIND, "problem": dict(stated), "maps": maps}
        arrays["theta"] = np.concatenate([W.ravel() for W in at.weights.values()])
        arrays["history"] = np.array([astuple(record) for record in at.history])
        write(self.path, config, arrays)

    def _read(self) -> Content | None:
        if (remote := find_remote(self.path)) is None:
            if Path(self.path).is_dir():
                raise ValueError(f"checkpoint={os.fspath(self.path)!r} is a folder: pass the path of a file")
            exists = Path(self.path).exists()
        else:
            exists = remote[0].exists(remote[1])
        if not exists:
            return None
        with local_copy(self.path) as copy:
            return read(copy)


def _statement_of(problem: Problem, settings: Settings, start: Start | None) -> dict[str, Any]:
    """Return a dict that describes the data, settings and warm start of a fit; a checkpoint must have an equal dict."""
    landmarks, terms = settings.landmarks, problem.terms
    stated = {
        **problem.corpus.digest(),
        "terms": [term.name for term in terms],
        "n_labels": {term.name: term.k_y.L for term in terms},
        "kernels": {term.name: term.kernel.to_config() for term in terms if term.kernel is not None},
        "C": {term.name: term.C for term in terms},
        "penalty": {term.name: str(term.penalty) for term in terms if not term.penalty.is_smooth},
        "numbers of observed pairs": {term.name: term.pairs.size for term in terms if term.pairs is not None},
        "label_kernel": digest_value([_label_kernel_digest(term.k_y) for term in terms]),
        "n_components": landmarks.n,
        "pivots": _rule_text(landmarks.pivots),
        "start": None if start is None else digest_value(_start_digests(problem, start)),
        "landmarks": {name: [one.n, _rule_text(one.pivots)] for name, one in settings.of_inputs.items()},
    }
    if views := {term.name: digest_array(term.views.columns) for term in terms if term.views is not None}:
        stated["views"] = views
    return plain_values(stated)


def _rule_text(rule: str | Rule) -> str:
    return rule if isinstance(rule, str) else repr(rule) if is_dataclass(rule) else type(rule).__name__


CHECKPOINT = either(path, instance_of(Checkpoint, text="a kernelcrf.fitting.checkpoints.Checkpoint"), nothing)


def _label_kernel_digest(k_y: LabelMap) -> str:
    """Return a digest that identifies a label kernel K = A A': the digest of A' r for a fixed random vector r."""
    return digest_array(k_y.adjoint(np.random.default_rng(0).standard_normal((1, k_y.L))))


def _start_digests(problem: Problem, start: Start) -> list[Any]:
    """Return digests of the feature maps of a warm start, and of the priors that an earlier model determines."""
    digests: list[Any] = [_map_digest(feature_map) for feature_map in start.maps.values()]
    for term in problem.terms:
        if arrays := term.penalty.arrays:
            digests.append([term.name, *map(digest_array, arrays)])
    return digests


def _map_digest(one: FeatureMap) -> str:
    config, arrays = one.to_arrays()
    return digest_value([config, {name: digest_array(array) for name, array in arrays.items()}])


def _read_start(config: Mapping[str, Any], arrays: Mapping[str, Array], problem: Problem) -> Start:
    """Return the feature maps, weights and history of a checkpoint; raise if they are inconsistent with the problem."""
    groups = sharing_inputs(problem.terms)
    maps: dict[str, FeatureMap] = {}
    if len(config["maps"]) != len(groups):
        raise ModelFileError(f"there are {len(config['maps'])} feature maps in the checkpoint: expected {len(groups)}")
    for place, (terms, map_config) in enumerate(zip(groups, config["maps"], strict=True)):
        name, kernel = input_of(terms[0])
        feature_map = read_map(map_config, arrays, f"map {place}.", problem.corpus.n_columns(name))
        is_primal = isinstance(feature_map, PrimalMap)
        stored = None if is_primal else map_config["kernel"]
        if is_primal != kernel.is_linear or stored not in (None, plain_values(kernel.to_config())):
            raise ModelFileError(
                f"the feature map of term {terms[0].name!r} is for another kernel: expected a feature map for the "
                "kernel of this fit"
            )
        maps |= {term.name: feature_map for term in terms}
    layout = Layout.of(problem.terms, {name: feature_map.n for name, feature_map in maps.items()})
    theta = read_array(arrays, "theta", (layout.size,), "f").astype(np.float64)
    return Start(maps, layout.split(theta), _history_of(arrays))


def _history_of(arrays: Mapping[str, Array]) -> tuple[Record, ...]:
    rows = arrays["history"]
    if rows.ndim != 2 or rows.shape[1] != 6 or rows.dtype != np.float64 or not len(rows):
        raise ModelFileError(
            f"tensor 'history' has type {rows.dtype} and shape {rows.shape}: expected type float64 and shape (n, 6)"
        )
    history = tuple(Record(*row) for row in rows.tolist())
    known = np.array([(record.value, record.gap, record.passes, record.seconds) for record in history])
    work = known[:, 2:]
    if not np.isfinite(known).all() or (work < 0).any() or (np.diff(work, axis=0) < 0).any():
        raise ModelFileError(
            "tensor 'history' has invalid numbers: expected finite numbers, and numbers of passes and seconds that are "
            ">= 0 and never decrease"
        )
    return history
