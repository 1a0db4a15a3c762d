"""Define maps from inputs to features; inner products of features approximate a kernel k.

With landmarks B and the Cholesky factor R of their kernel matrix, `K_BB = R R'`, the features of an input x are
`F(x) = k(x, B) R^-T`. The norm of a function in the span of the landmarks is then the Euclidean norm of its weights
(Corollary 8 of the paper). For the linear kernel, the features are the inputs themselves.

Features of training inputs and of new inputs are computed in the same way. The docstring of `factor` says how much
memory this needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from kernelcrf.arrays import CSR_PARTS, Array, Config, Inputs, Seed, as_inputs, is_sparse
from kernelcrf.basis.builder import Rule
from kernelcrf.basis.choice import choose_basis
from kernelcrf.basis.factor import Basis, row_blocks
from kernelcrf.basis.panels import Panels
from kernelcrf.basis.recomputed_features import FeatureRows, RecomputedFeatures
from kernelcrf.engines.local import LocalEngine
from kernelcrf.kernels.inputs import InputKernel


@dataclass(frozen=True)
class PrimalMap:
    """The feature map of the linear kernel, which returns inputs of n columns unchanged."""

    n: int

    def transform(self, X: Inputs, engine: LocalEngine = LocalEngine()) -> Inputs:  # noqa: B008  -- a frozen value
        """Return X as a float array or CSR matrix; raise if it does not have n columns."""
        return check_columns(X, self.n)

    def with_columns(self, n_columns: int) -> PrimalMap:
        """Return the map for inputs that have new columns at the end, so that there are `n_columns` columns."""
        return PrimalMap(n_columns)

    def to_arrays(self) -> tuple[Config, dict[str, Array]]:
        """Return a pair for `from_arrays`: a dict for JSON, and an empty dict, because the map has no arrays."""
        return {"map": "primal", "n": self.n}, {}


@dataclass(frozen=True, eq=False)
class WhitenedMap:
    """The feature map `k(x, B) R^-T`, where B are the landmarks.

    landmarks : the landmarks, one per row.
    R : the Cholesky factor of the kernel matrix of the landmarks, K_BB = R R', a lower triangular matrix.
    """

    kernel: InputKernel
    landmarks: Inputs
    R: Array

    @property
    def n(self) -> int:
        """Return the number of landmarks."""
        return len(self.R)

    def with_columns(self, n_columns: int) -> WhitenedMap:
        """Return the map for inputs that have new columns at the end, so that there are `n_columns` columns.

        The landmarks are 0 in the new columns.
        """
        if not is_sparse(self.landmarks) or self.landmarks.shape[1] == n_columns:
            return self
        parts = self.landmarks.data, self.landmarks.indices, self.landmarks.indptr
        return replace(self, landmarks=sp.csr_array(parts, shape=(self.n, n_columns)))

    @cached_property
    def _panels(self) -> Panels:
        return Panels.of(self.kernel, self.landmarks, self.R, 0)

    def transform(self, X: Inputs, engine: LocalEngine = LocalEngine()) -> Array:  # noqa: B008  -- a frozen value
        """Return the features of any inputs, with one row per row of X and one column per landmark.

        The features are computed in float64, and rounded to the dtype of the landmarks.
        """
        X = check_columns(X, self.landmarks.shape[1])
        F, panels = np.empty((X.shape[0], self.n), self.landmarks.dtype), self._panels
        engine.map(lambda rows: panels.fill(X[rows], F[rows]), row_blocks(X.shape[0]))
        return F

    def recompute(self, X: Inputs) -> RecomputedFeatures:
        """Return the features of any inputs, which are computed each time they are needed."""
        return RecomputedFeatures(self.kernel, self.landmarks, self.R, check_columns(X, self.landmarks.shape[1]))

    def to_arrays(self) -> tuple[Config, dict[str, Array]]:
        """Return a pair, from which `from_arrays` makes the map again: a dict for JSON, and a dict of named arrays."""
        config = {"map": "whitened", "kernel": self.kernel.to_config(), "sparse": is_sparse(self.landmarks)}
        if not is_sparse(self.landmarks):
            return config, {"landmarks": self.landmarks, "R": self.R}
        parts = {f"landmarks.{part}": getattr(self.landmarks, part) for part in CSR_PARTS}
        return {**config, "d": int(self.landmarks.shape[1])}, {**parts, "R": self.R}


FeatureMap: TypeAlias = PrimalMap | WhitenedMap
"""A map from inputs to features with `transform(X) transform(Y)' ~ K`."""


def from_arrays(config: Mapping[str, Any], arrays: Mapping[str, Array]) -> FeatureMap:
    """Return the feature map whose method `to_arrays` returned these two dicts."""
    if config["map"] == "primal":
        return PrimalMap(config["n"])
    if config["map"] != "whitened" or type(config["sparse"]) is not bool:
        raise ValueError(
            f"the stored feature map is {config}: expected 'map' to be 'primal' or 'whitened', and 'sparse' to be true "
            "or false. The file may be damaged: use another copy of it"
        )
    R = arrays["R"]
    if config["sparse"]:
        parts = tuple(arrays[f"landmarks.{part}"] for part in CSR_PARTS)
        landmarks: Inputs = sp.csr_array(parts, shape=(len(R), config["d"]))
    else:
        landmarks = arrays["landmarks"]
    return WhitenedMap(InputKernel.from_config(config["kernel"]), landmarks, R)


@dataclass(frozen=True, eq=False)
class Features:
    """A feature map, and the features of the inputs from which its landmarks were chosen.

    F : the features, one row per input; they are stored, or `RecomputedFeatures`.
    basis : the landmarks and residuals; None for the linear kernel.
    """

    map: FeatureMap
    F: FeatureRows
    basis: Basis | None


def make_features(
    kernel: InputKernel,
    X: Inputs,
    n_components: int | None = None,
    rule: str | Rule = "auto",
    *,
    tol: float = 0.0,
    random_state: Seed = None,
    engine: LocalEngine = LocalEngine(),  # noqa: B008  -- a frozen value
    start: Basis | None = None,
    stored: bool = True,
) -> Features:
    """Choose landmarks, and compute the features of the distinct inputs X (for the linear kernel, X itself).

    The arguments after X have the same meaning as in `choose_basis`. To add landmarks to earlier features, pass
    `start=features.basis`.
    """
    X = as_inputs(X)
    if kernel.is_linear:
        return Features(PrimalMap(X.shape[1]), X, None)
    basis = choose_basis(
        kernel, X, n_components, rule, tol=tol, random_state=random_state, engine=engine, start=start, stored=stored
    )
    return Features(WhitenedMap(kernel, basis.landmarks, basis.R), basis.F, basis)


def features_of(
    kernel: InputKernel,
    X: Inputs,
    n_components: int | None,
    rule: str | Rule,
    random_state: Seed,
    engine: LocalEngine,
    start: Basis | None = None,
    *,
    stored: bool = True,
) -> Features:
    """Return features of the distinct inputs X, with one feature per landmark.

    If `n_components` is None or not below the number of inputs, every input is a landmark. Otherwise, or if there is
    an earlier basis `start`, the rule chooses the landmarks. Raise ValueError if k(x, x) = 0 for all inputs x.
    """
    if start is None and (n_components is None or n_components >= X.shape[0]):
        n_components, rule = None, "exact"
    features = make_features(
        kernel, X, n_components, rule, random_state=random_state, engine=engine, start=start, stored=stored
    )
    if X.shape[0] and features.basis is not None and not features.basis.n:
        raise zero_kernel(kernel)
    return features


def zero_kernel(kernel: InputKernel) -> ValueError:
    """Return the error to raise if k(x, x) = 0 for all inputs x."""
    return ValueError(
        f"{kernel.described} has k(x, x) = 0 for every input x, so that nothing can be learned: expected inputs that "
        "are not all zero. Pass other inputs, or choose another kernel"
    )


def check_columns(X: Inputs, d: int) -> Inputs:
    """Return X as a float array or CSR matrix; raise if it does not have d columns."""
    X = as_inputs(X)
    if X.shape[1] != d:
        raise ValueError(f"X has {X.shape[1]} columns: expected {d}, as in the training data")
    return X
