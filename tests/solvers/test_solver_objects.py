"""Solver objects, which estimators take wherever they take the name of a solver."""

from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.base import clone

from kernelcrf import ChainCRF, GraphCRF, KernelClassifier, MarkovNetwork, MultiLabelCRF
from kernelcrf.datasets import make_sequences
from kernelcrf.solvers import NewtonCG
from kernelcrf.solvers.loop import descend


@dataclass(frozen=True)
class Descent:
    """The solver of docs/extend/solver.md."""

    def check(self, objective):
        """Accept any objective."""

    def solve(self, start, progress):
        return descend(self, start, progress, curvature=False, wolfe=0.1)

    def direction(self, objective, at):
        return -at.gradient, 0.0


RNG = np.random.default_rng(0)
CHAINS = make_sequences(12, random_state=0)
ROWS = RNG.normal(size=(30, 2))
GRAPHS = [(x, [(i, i + 1) for i in range(len(x) - 1)]) for x in CHAINS.X]
PROBLEMS = {
    "chain": (ChainCRF("rbf", n_components=8, random_state=0, C=1.0), CHAINS.X, CHAINS.y),
    "classifier": (KernelClassifier(n_components=8, random_state=0), ROWS, ROWS[:, 0] > 0),
    "graph": (GraphCRF("linear"), GRAPHS, CHAINS.y),
    "multilabel": (MultiLabelCRF("linear"), ROWS, (ROWS > 0).astype(int)),
    "network": (MarkovNetwork(), (ROWS > 0).astype(int), None),
}


@pytest.mark.parametrize("kind", PROBLEMS)
def test_a_solver_object_fits_every_estimator(kind):
    estimator, X, y = PROBLEMS[kind]
    named = clone(estimator).set_params(solver="newton-cg", tol=1e-8).fit(X, y)
    given = clone(estimator).set_params(solver=NewtonCG(), tol=1e-8).fit(X, y)
    own = clone(estimator).set_params(solver=Descent(), tol=1e-6, max_iter=5000).fit(X, y)
    assert given.certificate_.objective == named.certificate_.objective
    assert own.certificate_.status == "optimal"
    assert own.certificate_.objective == pytest.approx(named.certificate_.objective, rel=2e-6)


@pytest.mark.parametrize("solver", [NewtonCG, object(), "adam", None])
def test_anything_else_is_refused(solver):
    with pytest.raises(ValueError, match=r"solver=.*expected 'auto', 'newton-cg'.*a solver such as NewtonCG"):
        ChainCRF(solver=solver, C=1.0).fit(CHAINS.X, CHAINS.y)


def test_a_model_with_a_solver_object_is_saved_once_the_solver_has_a_name(tmp_path):
    crf = ChainCRF("linear", solver=NewtonCG(), C=1.0).fit(CHAINS.X, CHAINS.y)
    with pytest.raises(TypeError, match=r"solver=NewtonCG\(.*cannot be written to a file"):
        crf.save(tmp_path / "model.kcrf")
    crf.set_params(solver="auto").save(tmp_path / "model.kcrf")
