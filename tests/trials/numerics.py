"""Numerics: extreme scales, degenerate data, functions that are not kernels.

Every estimator is fitted and asked for everything that it can answer: labels, marginals, the best labelings, log
probabilities, entropies, samples, explanations, the evidence and what follows from it. These count as failures: a
number that is not finite, an invalid probability, an answer without a valid certificate, and a warning of the
arithmetic that reaches the user. Other failures are an error that is not the library's own or that does not say what to
do, and a function that is not a kernel but is accepted as one.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelcrf import ChainCRF, GraphCRF, Input, KernelClassifier, MarkovNetwork, MultiLabelCRF
from kernelcrf.basis import Landmarks
from kernelcrf.kernels.inputs import InputKernel
from studies.common import Trial
from trials import cases
from trials.probing import ask_long, outcome, probe
from trials.user_kernels import INDEFINITE, WRONG

SOLVERS = ("lbfgs", "newton-cg", "newton", "block-jacobi", "subspace", "dual")
PIVOTS = ("greedy", "random", "uniform", "kmeans", "lloyd")


def with_steps(kernel: str, **settings: Any) -> dict[str, Input]:
    """Return inputs of ChainCRF with which the scores of transitions depend on tokens, too."""
    return {"tokens": Input(kernel, **settings), "steps": Input("linear", scores="steps")}


def makers() -> dict[str, tuple[Callable[[], Any], Callable[[cases.Case], tuple[Any, Any]]]]:
    """Return estimators that use different code, each with a function that makes its data from a case."""
    found: dict[str, tuple[Callable[[], Any], Callable[[cases.Case], tuple[Any, Any]]]] = {}
    common: dict[str, Any] = {"random_state": 0, "max_iter": 100}
    for kernel in ("linear", "rbf", "poly", "cosine", "laplacian"):
        found[f"ChainCRF {kernel}"] = (lambda k=kernel: ChainCRF(k, C=1.0, **common)), lambda case: case
    found["ChainCRF few landmarks"] = (lambda: ChainCRF(C=1.0, n_components=5, **common)), lambda case: case
    found["ChainCRF auto"] = (lambda: ChainCRF(C=1.0, n_components="auto", **common)), lambda case: case
    found["ChainCRF evidence"] = (lambda: ChainCRF(C="evidence", n_components=10, **common)), lambda case: case
    found["ChainCRF edges, Laplace"] = (
        (lambda: ChainCRF(C=1.0, inputs=with_steps("auto", n_components=5), laplace=True, **common)),
        lambda case: case,
    )
    for kernel in ("linear", "rbf", "poly"):
        found[f"KernelClassifier {kernel}"] = (
            (lambda k=kernel: KernelClassifier(k, laplace=True, **common)),
            cases.rows,
        )
    found["MultiLabelCRF auto"] = (lambda: MultiLabelCRF(**common)), cases.labelled_sets
    found["MultiLabelCRF tree"] = (lambda: MultiLabelCRF("linear", structure="tree", **common)), cases.labelled_sets
    for inference in ("exact", "loopy", "gibbs"):
        found[f"GraphCRF {inference}"] = (lambda i=inference: GraphCRF(inference=i, **common)), cases.graphs
    found["GraphCRF edges"] = (lambda: GraphCRF("linear", edge_kernel="linear", **common)), cases.graphs
    for kernel in ("delta", "rbf", "linear"):
        found[f"MarkovNetwork {kernel}"] = (
            (lambda k=kernel: MarkovNetwork(k, max_iter=100)),
            lambda case: (cases.table(case), None),
        )
    return found


def judged(trial: Trial, name: str, said: str) -> None:
    """Count an outcome; both an answer and a refusal are fine."""
    trial.check(said in ("answered", "refused"), f"{name}: {said}")


def degenerate(slow: bool) -> Iterator[Trial]:
    """Try each case with each estimator."""
    scales = Trial(
        "features of 1e-300 to 1e300, denormals, float32 at both ends, one outlier, large offsets",
        "a certified answer, or a refusal that says what to scale",
    )
    shapes = Trial(
        "constant and equal columns, one token, one sequence, one class, all tokens equal, labels never seen together, "
        "empty sequences, n_components > U, more columns than tokens",
        "a certified answer, or a refusal that says what is missing",
    )
    for case_name, case in cases.CASES.items():
        trial = scales if any(word in case_name for word in cases.SCALES) else shapes
        for name, (make, data) in makers().items():
            judged(trial, f"{case_name}, {name}", probe(make, *data(case())))
    yield scales
    yield shapes
    if slow:
        large = Trial("500 labels, 750 tokens", "a certified answer")
        for name in ("ChainCRF linear", "ChainCRF rbf", "MarkovNetwork delta"):
            make, data = makers()[name]
            judged(large, f"500 labels, {name}", probe(make, *data(cases.many_labels())))
        yield large


def penalties(step: int) -> Iterator[Trial]:
    """Try C from 1e-12 to 1e12 with each solver and estimator."""
    trial = Trial(
        "C of 1e-12 to 1e12, labels separable or not, each solver, each estimator",
        "a valid certificate at each; where tol is out of reach the status says so",
    )
    for C in 10.0 ** np.arange(-12, 13, step):
        for data_name, case in (("overlapping", cases.plain()), ("separable", cases.separable())):
            for kernel in ("linear", "rbf"):
                models: dict[str, tuple[Callable[[], Any], Any]] = {
                    f"ChainCRF {solver}": (
                        lambda C=C, k=kernel, s=solver: ChainCRF(k, C=C, solver=s, random_state=0, max_iter=200),
                        case,
                    )
                    for solver in SOLVERS
                }
                models["ChainCRF auto"] = (
                    lambda C=C, k=kernel: ChainCRF(k, C=C, n_components="auto", random_state=0, max_iter=200),
                    case,
                )
                models["ChainCRF edges, Laplace"] = (
                    lambda C=C, k=kernel: ChainCRF(
                        C=C, inputs=with_steps(k), laplace=True, random_state=0, max_iter=200
                    ),
                    case,
                )
                models["KernelClassifier"] = (
                    lambda C=C, k=kernel: KernelClassifier(k, C=C, laplace=True, random_state=0, max_iter=200),
                    cases.rows(case),
                )
                models["MultiLabelCRF"] = (
                    lambda C=C, k=kernel: MultiLabelCRF(k, C=C, C_label=C, random_state=0, max_iter=200),
                    cases.labelled_sets(case),
                )
                for inference in ("exact", "loopy", "gibbs"):
                    models[f"GraphCRF {inference}"] = (
                        lambda C=C, k=kernel, i=inference: GraphCRF(
                            k, C=C, C_label=C, inference=i, random_state=0, max_iter=100
                        ),
                        cases.graphs(case),
                    )
                for name, (make, data) in models.items():
                    judged(trial, f"C={C:.0e}, {data_name}, {kernel}, {name}", probe(make, *data))
            judged(
                trial,
                f"C={C:.0e}, {data_name}, MarkovNetwork",
                probe(lambda C=C: MarkovNetwork(C=C), cases.table(case), None),
            )
    yield trial


def kernels() -> Iterator[Trial]:
    """Try functions that are not kernels, and kernels that are hard."""
    refused = Trial(
        "user kernels that are indefinite, not symmetric, negative, NaN, infinite, complex, text, zero, noisy",
        "each is refused by name, with the proof",
    )
    answered = Trial("user kernels with values of 1e-310 and of 1e305", "a certified answer, or a refusal")
    small, large = cases.plain(), cases.plain(m=60, longest=20)
    for function in (*INDEFINITE, *WRONG):
        trial = refused if function.__name__ not in ("subnormal", "huge") else answered
        for n in (500, 5, "auto"):
            for case in (small, large):
                for make, data in (
                    (lambda n=n, f=function: ChainCRF(f, n_components=n, random_state=0, max_iter=50, C=1.0), case),
                    (lambda n=n, f=function: KernelClassifier(f, n_components=n, random_state=0, max_iter=50),
                     cases.rows(case)),
                ):  # fmt: skip
                    said = probe(make, *data)
                    fine = said == "refused" or (trial is answered and said == "answered")
                    trial.check(fine, f"{function.__name__}, n_components={n}: {said}")
        for make, data in (
            (lambda f=function: MultiLabelCRF(f, random_state=0), cases.labelled_sets(small)),
            (lambda f=function: GraphCRF(f, random_state=0), cases.graphs(small)),
        ):
            said = probe(make, *data)
            fine = said == "refused" or (trial is answered and said == "answered")
            trial.check(fine, f"{function.__name__}: {said}")
    yield refused
    yield answered
    yield gram_matrices()


def gram_matrices() -> Trial:
    """Check Gram matrices of bounded kernels at every scale."""
    trial = Trial(
        "Gram matrices of rbf, laplacian and cosine at scales of 1e-300 to 1e300, with outliers and offsets",
        "values in their range, ones on the diagonal, least eigenvalue above -1e-8",
    )
    for name, case in cases.CASES.items():
        X = np.unique(np.concatenate(case()[0]), axis=0)
        if X.dtype != np.float64 or not X.any():
            continue
        for kernel in ("rbf", "laplacian", "cosine"):
            for gamma in (1e-3, 1.0, 1e3):
                K = InputKernel(kernel, gamma).gram(X)
                ones = np.abs(np.diagonal(K) - X.any(axis=1)).max() < 1e-9
                fine = np.isfinite(K).all() and np.abs(K).max() < 1 + 1e-9 and ones
                fine = fine and np.linalg.eigvalsh((K + K.T) / 2)[0] > -1e-8
                trial.check(bool(fine), f"{kernel}, gamma={gamma}, {name}")
    return trial


def landmarks() -> Iterator[Trial]:
    """Try pivot rules on data with fewer inputs than they ask for."""
    trial = Trial(
        "pivot rules on equal, nearly equal, zero, far and few inputs, n_components of 1, 3 and 1000", "answers"
    )
    for rule in PIVOTS:
        for name in ("equal tokens", "tokens that differ in the last bit", "features of zero", "one entry of 1e20",
                     "an offset of 1e15", "two tokens", "features of 1e-30"):  # fmt: skip
            for n in (1, 3, 1000):
                said = probe(
                    lambda rule=rule, n=n: ChainCRF(
                        n_components=Landmarks(n, rule), random_state=0, gamma=1.0, max_iter=50, C=1.0
                    ),
                    *cases.CASES[name](),
                )
                judged(trial, f"{rule}, {name}, n_components={n}", said)
    yield trial


def new_inputs() -> Iterator[Trial]:
    """Ask models of ordinary data about inputs of another scale."""
    trial = Trial(
        "new inputs 1e10 to 1e300 times those of training: dense, sparse, feature dicts", "answers, or a refusal"
    )
    X, y = cases.plain()
    for factor in (1e10, 1e100, 1e154, 1e200, 1e300):
        new = [x * factor for x in X]
        for kernel in ("linear", "rbf", "poly", "laplacian", "cosine"):
            models = {
                "ChainCRF": (lambda k=kernel: ChainCRF(k, random_state=0, max_iter=50, C=1.0), (X, y), new),
                "KernelClassifier": (
                    lambda k=kernel: KernelClassifier(k, random_state=0, max_iter=50),
                    cases.rows((X, y)),
                    np.concatenate(new),
                ),
                "MultiLabelCRF": (
                    lambda k=kernel: MultiLabelCRF(k, random_state=0, max_iter=50),
                    cases.labelled_sets((X, y)),
                    np.concatenate(new),
                ),
                "GraphCRF": (
                    lambda k=kernel: GraphCRF(k, random_state=0, max_iter=50),
                    cases.graphs((X, y)),
                    cases.graphs((new, y))[0],
                ),
            }
            for name, (make, data, other) in models.items():
                judged(trial, f"{factor:.0e}, {kernel}, {name}", probe(make, *data, other))
        for name, form in (("sparse", sparse), ("dicts", dicts)):
            linear = lambda: ChainCRF("linear", random_state=0, max_iter=50, C=1.0)  # noqa: E731
            judged(trial, f"{factor:.0e}, {name}, new", probe(linear, form(X), y, form(new)))
            judged(trial, f"{factor:.0e}, {name}, fit", probe(linear, form(new), y))
        judged(
            trial, f"{factor:.0e}, sparse rbf", probe(lambda: ChainCRF("rbf", random_state=0, C=1.0), sparse(new), y)
        )
    yield trial


def sparse(X: list[np.ndarray]) -> list[Any]:
    """Return X as CSR matrices."""
    return [sp.csr_array(x) for x in X]


def dicts(X: list[np.ndarray]) -> list[Any]:
    """Return X as feature dicts."""
    return [[{f"f{j}": float(value) for j, value in enumerate(row)} for row in x] for x in X]


def long_sequences(n_tokens: int) -> Iterator[Trial]:
    """Fit one sequence of very many tokens."""
    trial = Trial(
        f"one sequence of {n_tokens:,} tokens: fit, marginals, Viterbi, entropy, samples", "certified answers"
    )
    rng = np.random.default_rng(0)
    y = (np.cumsum(rng.random(n_tokens) < 0.2) % 3).astype(int)
    X = np.eye(3)[y] + 0.7 * rng.normal(size=(n_tokens, 3))

    def action() -> None:
        ask_long(ChainCRF("linear", max_iter=100, C=1.0).fit([X], [y]), [X], [y])
        ask_long(ChainCRF("rbf", n_components=20, random_state=0, max_iter=100, C=1.0).fit([X], [y]), [X], [y])

    judged(trial, f"{n_tokens} tokens", outcome(action))
    yield trial


def trials(options: argparse.Namespace) -> Iterator[Trial]:
    yield from degenerate(slow=True)
    yield from penalties(options.step)
    yield from kernels()
    yield from landmarks()
    yield from new_inputs()
    yield from long_sequences(options.tokens)


OPTIONS = {"step": 2, "tokens": 1_000_000}
