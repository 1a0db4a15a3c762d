"""Labels that share weights through features, beside enumeration with dense kernels."""

import numpy as np
import pytest
from sklearn.base import clone

from joint_twin import JointTwin
from kernelcrf import ChainCRF, KernelClassifier, LabelFeatures, load

C, GAMMA, OWN = 2.0, 0.4, 0.5
PARTS = {"B-X": ["B", "X"], "I-X": ["I", "X"], "B-Y": ["B", "Y"], "I-Y": ["I", "Y"]}
RNG = np.random.default_rng(1)
X = [RNG.normal(size=(T, 2)) for T in (3, 2, 3, 1)]
Y = [["B-X", "I-X", "B-Y"], ["B-X", "I-X"], ["B-Y", "B-X", "I-X"], ["B-Y"]]
TIGHT = {"gamma": GAMMA, "C": C, "tol": 1e-10, "fit_intercept": False, "random_state": 0}
ALIKE = LabelFeatures(PARTS, OWN)


@pytest.fixture(scope="module")
def model():
    return ChainCRF("rbf", n_components=None, label_kernel=ALIKE, certify_full=True, **TIGHT).fit(X, Y)


def test_a_fit_equals_enumeration_with_the_dense_kernel(model):
    rows, classes = np.concatenate(X), model.classes_.tolist()
    psi = np.array([[name in PARTS[label] for name in "BIXY"] for label in classes], float)
    k_y = psi @ psi.T + OWN * np.eye(len(psi))
    k_x = np.exp(-GAMMA * np.square(rows[:, None] - rows[None]).sum(-1))
    twin = JointTwin(
        [len(x) for x in X], C * np.einsum("st,yz->sytz", k_x, k_y), C * np.einsum("ac,bd->abcd", k_y, k_y)
    )
    value, p = twin.fit([[classes.index(label) for label in labels] for labels in Y])
    assert model.certificate_.objective == pytest.approx(value, rel=1e-8)
    assert model.certificate_.gap_full < 1e-7
    for found, true in zip(model.predict_proba(X), twin.marginals(p, len(classes)), strict=True):
        assert found == pytest.approx(true, abs=1e-4)


def test_gap_full_covers_the_distance_to_the_exact_optimum(model):
    found = ChainCRF("rbf", n_components=3, label_kernel=ALIKE, certify_full=True, **TIGHT).fit(X, Y).certificate_
    assert 0 < found.objective - model.certificate_.objective <= found.gap_full


def test_a_label_without_training_tokens_is_predicted_by_its_features(model):
    assert "I-Y" in model.classes_
    assert not any("I-Y" in labels for labels in Y)
    p = model.transition_table().loc["B-Y"]
    assert p["I-Y"] > p["B-Y"]  # I follows B in the training data


def test_names_numbers_and_vectors_are_the_same_features():
    dicts = {label: dict.fromkeys(names, 1) for label, names in PARTS.items()}
    vectors = {label: [float(name in names) for name in "BXIY"] for label, names in PARTS.items()}
    classes = list(PARTS)
    grams = [LabelFeatures(one, OWN).label_maps(classes).k_y.gram for one in (PARTS, dicts, vectors)]
    assert all(np.array_equal(grams[0], gram) for gram in grams)


def test_answers_of_a_stored_model_are_the_same(model, tmp_path):
    model.save(tmp_path / "model.kcrf")
    loaded = load(tmp_path / "model.kcrf")
    for found, true in zip(loaded.predict_proba(X), model.predict_proba(X), strict=True):
        assert np.array_equal(found, true)
    assert clone(loaded).fit(X, Y).certificate_.objective == pytest.approx(model.certificate_.objective, rel=1e-9)
    assert loaded.set_params(warm_start=True).fit(X, Y).n_iter_ <= 1
    assert loaded.explain(X[0], 0).label in PARTS
    assert loaded.coef_.shape[1] == len(PARTS)


def test_what_has_no_bound_or_no_posterior_is_refused(model):
    with pytest.raises(ValueError, match="labels share the weights"):
        model.distribution(X).certify()
    with pytest.raises(ValueError, match="laplace=True"):
        clone(model).set_params(laplace=True).fit(X, Y)
    with pytest.raises(ValueError, match="KernelClassifier has no structure"):
        KernelClassifier(label_kernel=ALIKE).fit([[0.0], [1.0]], ["B-X", "I-X"])
    with pytest.raises(ValueError, match="has the label 'other'"):
        clone(model).fit(X, [["other", "B-X", "I-X"], *Y[1:]])


@pytest.mark.parametrize(
    ("features", "own", "message"),
    [
        ({}, 1.0, "a dict from each label"),
        ({"a": ["x"], "b": [1.0]}, 1.0, "features of the same form"),
        ({"a": [1.0], "b": [1.0, 2.0]}, 1.0, "vectors of the same length"),
        ({"a": {"x": np.nan}, "b": {"x": 1.0}}, 1.0, "finite numbers"),
        ({"a": [0.0], "b": [0.0]}, 0.0, "all features of labels are 0"),
        ({"a": [0.0], "b": [1.0]}, -1.0, "own=-1.0"),
    ],
)
def test_wrong_features_are_named(features, own, message):
    with pytest.raises(ValueError, match=message):
        LabelFeatures(features, own)
