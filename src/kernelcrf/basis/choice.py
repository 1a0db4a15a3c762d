"""Choose landmarks (inducing points) by a rule, such as k-means or random pivots (section 5.3 of the paper).

A rule stops when there are enough landmarks, or when their features approximate the kernel well.

The default rule is `lloyd` for dense inputs and a kernel that is smooth at x = x' (rbf, poly, cosine), and `random`
otherwise; docs/basis.md has the measurements.
"""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state

from kernelcrf.arrays import Inputs, Seed, as_inputs, is_sparse
from kernelcrf.basis.builder import Rule
from kernelcrf.basis.centres import KMeans, Lloyd
from kernelcrf.basis.factor import Basis
from kernelcrf.basis.local_builder import LocalBasisBuilder
from kernelcrf.basis.pivots import AllInputs, Greedy, Random, Uniform, drive
from kernelcrf.engines.local import LocalEngine
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.validation import SEED, either, has_methods, nothing, one_of, real, validated, whole

RULES: dict[str, type[Rule]] = {
    "exact": AllInputs,
    "greedy": Greedy,
    "random": Random,
    "uniform": Uniform,
    "kmeans": KMeans,
    "lloyd": Lloyd,
}
PIVOTS = either(one_of("auto", *RULES), has_methods("grow", text="a rule such as Gradient(scores)"))


@validated(rule=PIVOTS)
def find_rule(rule: str | Rule, kernel: InputKernel, sparse: bool) -> Rule:
    """Return the rule with the name `rule`, with default settings; if `rule` is not a string, return it unchanged.

    The name "auto" means Lloyd's iteration for dense inputs and smooth kernels, and random pivots otherwise.
    """
    if not isinstance(rule, str):
        return rule
    if rule == "auto":
        return Lloyd() if kernel.is_smooth and not sparse else Random()
    return RULES[rule]()


@validated(
    n_components=either(whole(least=1), nothing),
    tol=either(real(least=0, below=1), advice="a share of the trace"),
    random_state=SEED,
)
def choose_basis(
    kernel: InputKernel,
    X: Inputs,
    n_components: int | None,
    rule: str | Rule = "auto",
    *,
    tol: float = 0.0,
    random_state: Seed = None,
    engine: LocalEngine = LocalEngine(),  # noqa: B008  -- a frozen value
    start: Basis | None = None,
    stored: bool = True,
) -> Basis:
    """Choose at most `n_components` landmarks for the distinct inputs X, one input per row.

    n_components : the largest number of landmarks; None, only with rule="exact", makes all inputs landmarks.
    tol : fewer landmarks are chosen if the features F of all inputs already approximate the kernel matrix K well, that
        is, if `tr(K - F F') <= tol tr K`. Because of rounding, values below 1e-12 (1e-5 in float32) count as 1e-12
        (1e-5).
    start : an earlier basis for the same inputs and kernel, or None. Its landmarks and features are kept, and its
        landmarks count towards `n_components`.
    stored : whether the features of the inputs are stored. If not, the result has `RecomputedFeatures`.
    """
    X = as_inputs(X)
    rule = find_rule(rule, kernel, is_sparse(X))
    capacity = capacity_for(n_components, X.shape[0], rule, start)
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31, size=4))
    if start is not None and len(start.F) != X.shape[0]:
        raise ValueError(
            f"start is a basis for {len(start.F)} inputs, but X has {X.shape[0]} rows: pass the X "
            "for which start was chosen"
        )
    builder = LocalBasisBuilder(kernel, X, capacity, tol, engine, start, stored=stored)
    drive(rule, builder, rng)
    return builder.finish()


def capacity_for(n_components: int | None, U: int, rule: Rule, start: Basis | None) -> int:
    """Return the largest allowed number of landmarks for U inputs; raise if the rule does not accept `n_components`."""
    if n_components is None:
        if not isinstance(rule, AllInputs):
            raise ValueError(
                f"n_components=None: expected a number of landmarks for the rule {rule!r}. Only 'exact' accepts None"
            )
        n_components = U
    if isinstance(rule, AllInputs) and n_components < U:
        raise ValueError(
            f"n_components={n_components!r}, but the rule 'exact' makes all {U} distinct inputs landmarks: pass "
            "n_components=None, or choose another rule, such as 'lloyd'"
        )
    if start is not None and n_components < start.n:
        raise ValueError(
            f"n_components={n_components!r}, but start has {start.n} landmarks already: pass n_components >= {start.n}"
        )
    if start is None:
        return min(n_components, U)
    # Landmarks that are no inputs leave all inputs to be chosen.
    return max(min(n_components, U if start.indices is not None else U + start.n), start.n)
