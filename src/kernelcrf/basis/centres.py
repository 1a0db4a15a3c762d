"""Rules that choose cluster centres (means of inputs) as landmarks, as in Zhang, Tsang and Kwok (2008).

Landmarks are the points from which the kernel is approximated. For a smooth kernel, the error of the approximation is
bounded by the quantisation error `sum_x min_b |x - b|^2`, where x are the inputs and b the landmarks. Lloyd's iteration
(k-means) reduces this error: each step moves every centre to the mean of the inputs that are nearest to this centre.

    kmeans     the centres of scikit-learn's MiniBatchKMeans
    lloyd      most landmarks come from a few steps of Lloyd's iteration, the others are random pivots

Random pivots are inputs that are drawn one after the other. The probability of an input x is proportional to its
residual, the part of k(x, x) that the landmarks chosen so far do not explain. Lloyd's iteration starts from random
pivots, because the starting points matter more than the number of steps. If it started from inputs drawn uniformly, it
would miss small clusters. The iteration uses a sample of the inputs, whose size is proportional to the number of
landmarks. The last landmarks are random pivots from all inputs, which cover regions that the sample missed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from kernelcrf.arrays import Array, Places, is_sparse
from kernelcrf.basis.builder import BasisBuilder, Rule
from kernelcrf.basis.distinct_inputs import add_rows
from kernelcrf.basis.factor import row_blocks
from kernelcrf.basis.local_builder import LocalBasisBuilder
from kernelcrf.basis.pivots import Random, drive
from kernelcrf.engines.local import LocalEngine
from kernelcrf.validation import COUNT, check_parameters, either, real, whole

LLOYD = {"steps": either(whole(least=0)), "share": either(real(least=0, most=1)), "rows": COUNT, "start_rows": COUNT}


@dataclass(frozen=True)
class KMeans(Rule):
    """A rule that chooses the centres of scikit-learn's MiniBatchKMeans as landmarks.

    rows : the size of a batch of MiniBatchKMeans, divided by the number of centres.
    """

    rows: int = 4

    def __post_init__(self) -> None:
        COUNT.check("rows", self.rows)

    def grow(self, builder: BasisBuilder, rng: np.random.Generator) -> Iterator[int]:
        # This import loads much of scikit-learn, and no other rule needs it.
        from sklearn.cluster import MiniBatchKMeans

        _check_points(builder, "kmeans")
        X = np.asarray(builder.inputs())
        count = builder.capacity - builder.n
        seed = int(rng.integers(2**31))
        means = MiniBatchKMeans(count, batch_size=self.rows * count, n_init=1, random_state=seed)
        # The stopping rule depends on a sum over threads. With one thread the result is always the same.
        with threadpool_limits(1):
            means.fit(X)
        yield builder.append_points(means.cluster_centers_.astype(X.dtype, copy=False))


@dataclass(frozen=True)
class Lloyd(Rule):
    """A rule that finds most landmarks by Lloyd's iteration, and draws the others as random pivots.

    Landmarks that exist already do not move. Inputs that are nearest to such a landmark do not move any centre.

    steps : the number of steps of the iteration.
    share : the fraction of the landmarks that the iteration finds; the others are random pivots.
    rows : the number of inputs that each step uses, divided by the number of centres.
    start_rows : the number of inputs from which the first centres are drawn, divided by the number of centres.
    """

    steps: int = 3
    share: float = 0.8
    rows: int = 32
    start_rows: int = 8

    def __post_init__(self) -> None:
        check_parameters(vars(self), LLOYD)

    def grow(self, builder: BasisBuilder, rng: np.random.Generator) -> Iterator[int]:
        _check_points(builder, "lloyd")
        count = max(1, round(self.share * (builder.capacity - builder.n)))
        order = rng.permutation(builder.n_inputs)
        centres = _random_pivots(builder, count, np.sort(order[: self.start_rows * count]), rng)
        # If there are fewer pivots than requested, they span the whole sample; after a move they might span less.
        if len(centres) == count:
            fixed = np.asarray(builder.landmarks)
            every = self.rows * count >= builder.n_inputs
            sample = np.asarray(builder.inputs(None if every else np.sort(order[: self.rows * count])))
            for _ in range(self.steps if _has_squares(sample) else 0):
                centres = _lloyd_step(sample, centres, fixed, builder.engine)
        yield builder.append_points(centres)
        yield from Random().grow(builder, rng)


def _random_pivots(builder: BasisBuilder, count: int, sample: Places, rng: np.random.Generator) -> Array:
    """Draw `count` inputs as random pivots, but only from the inputs with the indices `sample`.

    Fewer inputs are returned if these already represent the kernel on the whole sample. `builder` does not change.
    """
    start = builder.basis_for(sample) if builder.n else None
    pivots = LocalBasisBuilder(builder.kernel, builder.inputs(sample), builder.n + count, 0.0, builder.engine, start)
    drive(Random(), pivots, rng)
    return np.asarray(pivots.finish().landmarks[builder.n :])


def _has_squares(X: Array) -> bool:
    """Return whether squared distances between rows of X can be computed without overflow."""
    largest = max(float(X.max()), -float(X.min()))
    most = float(np.finfo(X.dtype).max)
    return bool(4 * X.shape[1] * largest * largest < most)


def _lloyd_step(X: Array, centres: Array, fixed: Array, engine: LocalEngine) -> Array:
    """Return new centres: the means of the rows of X that are nearest to each centre.

    Rows that are nearest to a row of `fixed` do not move any centre. A centre without rows stays where it is.
    """
    all_centres = np.vstack([centres, fixed])
    half = 0.5 * np.einsum("ij,ij->i", all_centres, all_centres)

    def nearest(rows: slice) -> Places:
        inner = X[rows] @ all_centres.T
        inner -= half
        return np.asarray(inner.argmax(axis=1))

    cells = np.concatenate(engine.map(nearest, row_blocks(len(X))))
    counts = np.bincount(cells, minlength=len(all_centres))[: len(centres), None]
    sums = np.zeros_like(all_centres)
    add_rows(X, cells, sums)
    means = sums[: len(centres)] / np.maximum(counts, 1).astype(X.dtype)
    return np.where(counts > 0, means, centres)


def _check_points(builder: BasisBuilder, name: str) -> None:
    if is_sparse(builder.landmarks):
        raise TypeError(
            f"X is sparse, but the rule {name!r} computes means of inputs: use the rule 'random', or pass the dense "
            "X.toarray()"
        )
    if not builder.kernel.is_vectorial:
        raise TypeError(
            f"the kernel is a callable, but the rule {name!r} computes means of inputs, which the kernel may not "
            "accept: use the rule 'random'"
        )
