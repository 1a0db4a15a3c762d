"""A fit ends, or the estimator is as it was."""

import numpy as np
import pytest

from kernelcrf import ChainCRF
from kernelcrf.fitting.sequences import LabelledSequences
from trials import cases
from trials.interruption import ESTIMATORS, fits_interrupted


@pytest.mark.usefixtures("two_threads_of_blas")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_interrupted_at_random_lines(name):
    trial = fits_interrupted(2, seed=1, names=(name,))
    assert trial.times == 2
    assert trial.failures == []


def test_interrupted_behind_the_solver(monkeypatch):
    """Landmarks are looked up once the weights are there: the moment at which both models are at hand."""
    X, y = cases.plain(0)
    model = ChainCRF(n_components=8, random_state=0, C=1.0).fit(X, y)
    before = vars(model).copy()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(LabelledSequences, "positions", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(*cases.plain(1))
    assert vars(model) == before
    fresh = ChainCRF(C=1.0)
    with pytest.raises(KeyboardInterrupt):
        fresh.fit(X, y)
    assert vars(fresh) == vars(ChainCRF(C=1.0))


def test_an_error_in_a_second_fit_leaves_the_first():
    X, y = cases.plain(0)
    model = ChainCRF(n_components=8, random_state=0, C=1.0).fit(X, y)
    expected = [p.copy() for p in model.predict_proba(X)]
    with pytest.raises(ValueError, match="NaN"):
        model.fit([np.full((2, 3), np.nan)], [[0, 1]])
    for p, q in zip(model.predict_proba(X), expected, strict=True):
        np.testing.assert_array_equal(p, q)
