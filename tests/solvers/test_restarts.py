"""Restarts hold the number of further fits; `tests/estimators/test_hidden_labels.py` compares their objectives."""

import numpy as np
import pytest

from kernelcrf import ChainCRF, KernelClassifier, load
from kernelcrf.solvers import NewtonCG, Restarts

X = [np.random.default_rng(0).normal(size=(5, 2)) for _ in range(4)]
MISSING = [[0, None, 1, 1, 0], [1, 1, None, 0, 0], [None, 1, 0, 0, 1], [0, 1, 1, None, 0]]


def test_restarts_are_stored_with_the_name_of_their_solver(tmp_path):
    crf = ChainCRF("linear", C=1.0, solver=Restarts(2, "newton-cg"), random_state=0).fit(X, MISSING)
    crf.save(tmp_path / "model")
    assert load(tmp_path / "model").solver == Restarts(2, "newton-cg")
    with pytest.raises(TypeError, match="solver=Restarts"):
        crf.set_params(solver=Restarts(2, NewtonCG())).save(tmp_path / "model")


def test_the_best_fit_is_at_most_the_first_one_and_no_better_than_its_number_of_starts():
    def objective(solver):
        crf = ChainCRF("rbf", C=5.0, n_components=None, solver=solver, random_state=0, tol=1e-8).fit(X, MISSING)
        return crf.certificate_.objective

    once, often = objective("auto"), objective(Restarts(6))
    assert often <= once
    assert objective(Restarts(6, NewtonCG())) <= often * (1 + 1e-3)


@pytest.mark.parametrize(
    ("n", "solver", "said"),
    [
        (0, "auto", "n=0: expected an integer >= 1"),
        (True, "auto", "n=True"),
        (2, None, "solver=None"),
        (2, Restarts(2), "solver=Restarts"),
    ],
)
def test_wrong_restarts_are_refused(n, solver, said):
    with pytest.raises(ValueError, match=said):
        Restarts(n, solver)


def test_a_solver_that_does_not_exist_is_refused_by_the_fit():
    with pytest.raises(ValueError, match=r"solver=Restarts\(n=2, solver='sgd'\): expected"):
        KernelClassifier(solver=Restarts(2, "sgd")).fit(np.vstack(X), [0, 1] * 10)
