"""Rules whose atoms are means of inputs, so that B need not be data points (Zhang, Tsang and Kwok 2008).

For a smooth kernel the residual trace of landmarks B is bounded by the quantisation error `sum_x min_b |x -
b|^2`, which Lloyd's iteration lowers: each centre moves to the mean of the inputs that are nearest to it.

    kmeans     centres of scikit-learn's MiniBatchKMeans
    lloyd      a few of Lloyd's steps from random pivots for most atoms, random pivots for the rest

Where the iteration starts matters more than how long it runs: from equal draws it misses the small clusters
that random pivots find. The start and the steps see a sample whose size goes with n and not with U; the
random pivots at the end see all inputs, and take what the sample missed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from kernelcrf.basis.distinct import add_rows
from kernelcrf.basis.factor import Basis, Growth, row_blocks, stack
from kernelcrf.basis.pivots import Generator, Random, drive
from kernelcrf.engines.local import LocalEngine
from kernelcrf.kernels.inputs import Array
from kernelcrf.validation import COUNT, check_parameters, either, real, whole

LLOYD = {"steps": either(whole(least=0)), "share": either(real(least=0, most=1)), "rows": COUNT, "start_rows": COUNT}


@dataclass(frozen=True)
class KMeans:
    """Centres of MiniBatchKMeans; a batch holds `rows` rows for each centre."""

    rows: int = 4

    def __post_init__(self) -> None:
        COUNT.check("rows", self.rows)

    def grow(self, growth: Growth, rng: Generator) -> Iterator[int]:
        """Append the centres."""
        # Loads a good part of scikit-learn, for this rule alone.
        from sklearn.cluster import MiniBatchKMeans

        _check_points(growth, "kmeans")
        X = np.asarray(growth.inputs(slice(None)))
        count = growth.capacity - growth.n
        seed = int(rng.integers(2**31))
        means = MiniBatchKMeans(count, batch_size=self.rows * count, n_init=1, random_state=seed)
        # Inertia is summed over threads, and the stopping rule reads it: one thread, one result.
        with threadpool_limits(1):
            means.fit(X)
        yield growth.append_points(means.cluster_centers_.astype(X.dtype, copy=False))


@dataclass(frozen=True)
class Lloyd:
    """A `share` of the atoms by Lloyd's iteration, the rest random pivots of what those leave.

    `steps` run over `rows` inputs an atom, from random pivots of `start_rows` inputs an atom. Atoms that are
    there already keep their place, and the inputs next to them count for no other.
    """

    steps: int = 3
    share: float = 0.8
    rows: int = 32
    start_rows: int = 8

    def __post_init__(self) -> None:
        check_parameters(vars(self), LLOYD)

    def grow(self, growth: Growth, rng: Generator) -> Iterator[int]:
        """Append the centres, then random pivots."""
        _check_points(growth, "lloyd")
        count = max(1, round(self.share * (growth.capacity - growth.n)))
        order = rng.permutation(growth.n_inputs)
        centres = _random_pivots(growth, count, np.sort(order[: self.start_rows * count]), rng)
        # Fewer pivots than asked for span the whole sample already; moved, they might span less.
        if len(centres) == count:
            fixed = [np.asarray(part) for part in growth.landmarks]
            every = self.rows * count >= growth.n_inputs
            sample = np.asarray(growth.inputs(slice(None) if every else np.sort(order[: self.rows * count])))
            for _ in range(self.steps if _has_squares(sample) else 0):
                centres = _lloyd_step(sample, centres, fixed, growth.engine)
        yield growth.append_points(centres)
        yield from Random().grow(growth, rng)


def _random_pivots(growth: Growth, count: int, sample: NDArray[np.intp], rng: Generator) -> Array:
    """The `count` atoms that random pivoting would add to the basis if only a sample of the inputs were
    there.
    """
    start = None
    if growth.n:
        start = Basis(
            landmarks=stack(growth.landmarks),
            R=growth.R[: growth.n, : growth.n],
            F=growth.features(sample),
            residual=growth.residuals(sample),
            indices=None,
            trace=growth.trace,
        )
    pivots = Growth(growth.kernel, growth.inputs(sample), growth.n + count, 0.0, growth.engine, start)
    drive(Random(), pivots, rng)
    return np.asarray(pivots.finish().landmarks[growth.n :])


def _has_squares(X: Array) -> bool:
    """Whether squared distances are within the range of their type: without them no input has a nearest centre."""
    largest = max(float(X.max()), -float(X.min()))
    most = float(np.finfo(X.dtype).max)
    return bool(4 * X.shape[1] * largest * largest < most)


def _lloyd_step(X: Array, centres: Array, fixed: list[Array], engine: LocalEngine) -> Array:
    """Each centre to the mean of the rows that are nearer to it than to any other centre or fixed point."""
    all_centres = np.vstack([centres, *fixed])
    half = 0.5 * np.einsum("ij,ij->i", all_centres, all_centres)

    def nearest(rows: slice) -> NDArray[np.intp]:
        inner = X[rows] @ all_centres.T
        inner -= half
        return np.asarray(inner.argmax(axis=1))

    cells = np.concatenate(engine.map(nearest, row_blocks(len(X))))
    counts = np.bincount(cells, minlength=len(all_centres))[: len(centres), None]
    sums = np.zeros_like(all_centres)
    add_rows(X, cells, sums)
    means = sums[: len(centres)] / np.maximum(counts, 1).astype(X.dtype)
    return np.where(counts > 0, means, centres)


def _check_points(growth: Growth, name: str) -> None:
    if growth.is_sparse:
        raise TypeError(f"rule {name!r} takes means of inputs and X is sparse: use rule='random', or X.toarray()")
    if not growth.kernel.is_vectorial:
        raise TypeError(
            f"rule {name!r} takes means of inputs, which a callable kernel need not understand: use rule='random'"
        )
