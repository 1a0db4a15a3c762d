"""Landmarks holds the number of landmarks and the rule that chooses them."""

import numpy as np
import pytest
from sklearn.base import clone

from kernelcrf import ChainCRF, GraphCRF, Input, KernelClassifier, MultiLabelCRF, load
from kernelcrf.basis import Landmarks
from kernelcrf.basis.choice import RULES, choose_basis
from kernelcrf.basis.pivots import Greedy
from kernelcrf.kernels.inputs import InputKernel

X = np.random.default_rng(0).normal(size=(40, 2))
Y = (X[:, 0] > X[:, 1] ** 2).astype(int)


@pytest.mark.parametrize("rule", [name for name in RULES if name != "exact"])
def test_the_landmarks_of_a_rule_are_those_that_the_rule_chooses(rule):
    model = KernelClassifier("rbf", gamma=0.5, n_components=Landmarks(7, rule), random_state=3).fit(X, Y)
    expected = choose_basis(InputKernel("rbf", gamma=0.5), X, 7, rule, random_state=model._seed()).landmarks
    np.testing.assert_allclose(np.sort(model.landmarks_, axis=0), np.sort(expected, axis=0), atol=1e-12)


def test_a_number_stands_for_landmarks_by_the_default_rule():
    by_number, by_object = (KernelClassifier(n_components=n, random_state=0).fit(X, Y) for n in (7, Landmarks(7)))
    np.testing.assert_array_equal(by_number.landmarks_, by_object.landmarks_)
    every = KernelClassifier(n_components=Landmarks(None, "exact")).fit(X, Y)
    assert len(every.landmarks_) == len(X)


def test_rules_as_objects_are_accepted_and_files_store_rules_by_name(tmp_path):
    model = KernelClassifier(n_components=Landmarks(7, "greedy"), random_state=0).fit(X, Y)
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").n_components == Landmarks(7, "greedy")
    same = clone(model).set_params(n_components=Landmarks(7, Greedy())).fit(X, Y)
    np.testing.assert_array_equal(same.landmarks_, model.landmarks_)
    with pytest.raises(TypeError, match="n_components=Landmarks"):
        same.save(tmp_path / "model")


def test_inputs_have_landmarks_of_their_own(tmp_path):
    inputs = {"a": Input("rbf", n_components=Landmarks(5, "uniform")), "b": Input("linear")}
    crf = ChainCRF(inputs=inputs, C=1.0, random_state=0).fit(np.split(X, 8), np.split(Y, 8))
    crf.save(tmp_path / "model")
    assert load(tmp_path / "model").inputs["a"].n_components == Landmarks(5, "uniform")
    assert len(crf.landmarks_["a"]) == 5


def test_landmarks_that_grow_are_a_search():
    grown = KernelClassifier(n_components=Landmarks("auto", "random"), tol=1e-2, random_state=0).fit(X, Y)
    assert grown.certificate_.gap_full is not None
    with pytest.raises(ValueError, match="checkpoint="):
        KernelClassifier(n_components=Landmarks("auto"), checkpoint="run").fit(X, Y)
    with pytest.raises(ValueError, match="n_components=Landmarks"):
        MultiLabelCRF(n_components=Landmarks("auto")).fit(X, np.column_stack((Y, 1 - Y)))
    with pytest.raises(ValueError, match="n_components=Landmarks"):
        GraphCRF(n_components=Landmarks("auto"), cliques="auto").fit([(X[:3], [[0, 1]])], [[0, 1, 0]])


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"n": 0}, "n=0: expected an integer >= 1"),
        ({"n": "all"}, "n='all'"),
        ({"pivots": "best"}, "pivots='best': expected"),
        ({"pivots": Greedy}, "pivots="),
    ],
)
def test_wrong_landmarks_are_refused(parameters, said):
    with pytest.raises(ValueError, match=said):
        Landmarks(**parameters)
