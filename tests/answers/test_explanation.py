import sys
from copy import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.special import log_softmax
from sklearn.exceptions import NotFittedError
from sklearn.metrics.pairwise import rbf_kernel

import kernelcrf
from kernelcrf import ChainCRF, ModelFileError
from kernelcrf.answers import explain
from kernelcrf.basis import Landmarks, factor
from kernelcrf.datasets import make_sequences
from kernelcrf.kernels import Polynomial

ALL = 10**6


@pytest.fixture(scope="module")
def data():
    return make_sequences(40, random_state=0)


@pytest.fixture(scope="module")
def dicts():
    words = [["the", "cat", "sat"], ["a", "dog"], ["the", "dog", "ran", "off"]] * 4
    X = [[{"w": w, "n": float(len(w)), "last": t == len(s) - 1} for t, w in enumerate(s)] for s in words]
    return X, [["D", "N", "V", "P"][: len(s)] for s in words]


def fitted(data, **parameters):
    defaults = {"C": 10.0, "n_components": 30, "random_state": 0, "fit_intercept": False}
    return ChainCRF(**defaults | parameters).fit(data.X, data.y)


@pytest.fixture(scope="module")
def model(data):
    return fitted(data, n_components=Landmarks(30, "random"))


def own_scores(model, x):
    """s_t by the features that predictions are made of."""
    return np.asarray(model.model_.maps["node"].transform(model.model_.reader.read([x])[0]) @ model.coef_)


def check(model, x, tolerance):
    scores, proba = own_scores(model, x), model.predict_proba([x])[0]
    predicted = model.predict([x])[0]
    alone = log_softmax(scores.astype(np.float64), axis=1)
    for t in range(len(scores)):
        assert model.explain(x, t).label == predicted[t]
        for j, label in enumerate(model.classes_.tolist()):
            found = model.explain(x, t, label, n_terms=ALL)
            expected = scores[t, j] - scores[t].mean()
            assert found.contributions.sum() == pytest.approx(expected, abs=tolerance)
            assert found.score == pytest.approx(expected, abs=tolerance)
            np.testing.assert_array_equal(found.contributions, found.values * found.weights)
            assert found.p == pytest.approx(proba[t, j], abs=tolerance)
            assert found.p_alone == pytest.approx(np.exp(alone[t, j]), abs=tolerance)
            assert found.neighbours == pytest.approx(np.log(proba[t, j]) - alone[t, j], abs=10 * tolerance)


@pytest.mark.parametrize(
    "parameters",
    [
        {"kernel": "linear"},
        {"n_components": Landmarks(30, "random")},
        {"n_components": Landmarks(30, "lloyd")},
        {"kernel": Polynomial(degree=2)},
        {"n_components": "auto", "label_kernel": "centred", "decoding": "marginal"},
    ],
)
def test_contributions_sum_to_the_score(data, parameters):
    check(fitted(data, **parameters), data.X[0], 1e-8)


@pytest.mark.parametrize(
    "parameters",
    [{"kernel": "linear"}, {"n_components": Landmarks(30, "random")}, {"n_components": Landmarks(30, "lloyd")}],
)
def test_contributions_sum_to_the_score_in_single_precision(data, parameters):
    X = [x.astype(np.float32) for x in data.X]
    options = {"C": 10.0, "n_components": 30, "random_state": 0, "fit_intercept": False}
    check(ChainCRF(**options | parameters).fit(X, data.y), X[0], 1e-4)


def test_features_of_dicts_have_their_names(dicts):
    X, y = dicts
    model = ChainCRF("linear", C=10.0).fit(X, y)
    check(model, X[2], 1e-8)
    found = model.explain(X[0], 1)
    assert found.label == "N"
    assert set(found.terms) == {"w:cat", "n"}
    assert dict(zip(found.terms, found.values.tolist(), strict=True)) == {"w:cat": 1.0, "n": 3.0}
    row = dict(zip(found.terms, found.weights, strict=True))["w:cat"]
    coef = model.coef_[model.model_.reader.feature_names.index("w:cat")]
    assert row == pytest.approx(coef[model.classes_.tolist().index("N")] - coef.mean())
    hashed = ChainCRF("linear", hash_features=64, C=1.0).fit(X, y)
    assert all(term.startswith("x") for term in hashed.explain(X[0], 0).terms)
    assert ChainCRF("linear", C=1.0).fit(X, y).explain([{"w": "unseen"}], 0).terms == ()


def test_columns_of_arrays_are_numbered(data):
    found = fitted(data, kernel="linear").explain(data.X[0], 0)
    assert set(found.terms) == {"x0", "x1"}
    assert found.positions is None
    assert list(found.to_dict()) == ["term", "value", "weight", "contribution"]


def test_the_largest_come_first_and_the_rest_is_one_row(model, data):
    whole = model.explain(data.X[1], 2, n_terms=ALL)
    assert (np.diff(np.abs(whole.contributions)) <= 0).all()
    assert (whole.n_rest, whole.rest) == (0, 0.0)
    cut = model.explain(data.X[1], 2, n_terms=4)
    assert cut.terms == whole.terms[:4]
    assert cut.n_rest == 26
    columns = cut.to_dict()
    assert {len(column) for column in columns.values()} == {5}
    assert columns["term"][-1] == "26 others"
    assert (columns["sequence"][-1], columns["token"][-1]) == (-1, -1)
    assert sum(columns["contribution"]) == pytest.approx(cut.score, abs=1e-8)
    assert cut.score == whole.score


def test_a_token_alone_has_no_neighbours(model, data):
    found = model.explain(data.X[0][:1], 0)
    assert found.neighbours == pytest.approx(0, abs=1e-12)
    assert found.p == pytest.approx(found.p_alone, abs=1e-12)


def test_constraints_belong_to_the_neighbours():
    rng = np.random.default_rng(0)
    y = [["B", "I", "O", "O"], ["O", "B", "O", "B"], ["B", "I", "I", "I"]] * 5
    X = [rng.normal(size=(4, 3)) for _ in y]
    model = ChainCRF(constraints="BIO", n_components=20, random_state=0, C=1.0).fit(X, y)
    found = model.explain(X[0], 0, "I", n_terms=ALL)
    assert (found.p, found.neighbours) == (0.0, -np.inf)
    assert np.isfinite(found.score)
    assert found.p_alone > 0
    assert "p = 0," in str(found)


def test_positions_are_those_of_inputs_equal_to_the_landmarks(model, data):
    assert model.landmark_positions_.shape == (30, 2)
    for (i, t), landmark in zip(model.landmark_positions_, model.landmarks_, strict=True):
        np.testing.assert_array_equal(data.X[i][t], landmark)
    found = model.explain(data.X[0], 0)
    for term, (i, t), value in zip(found.terms, found.positions, found.values, strict=True):
        b = int(term.removeprefix("landmark "))
        np.testing.assert_array_equal(data.X[i][t], model.landmarks_[b])
        assert value == pytest.approx(model.model_.kernel.gram(data.X[0][:1], data.X[i][t : t + 1])[0, 0], abs=1e-12)


def test_equal_inputs_count_once_and_empty_sequences_keep_their_numbers():
    X = [np.empty((0, 2)), np.eye(2), np.empty((0, 2)), np.eye(2), np.array([[3.0, 3.0]])]
    y = [[], ["a", "b"], [], ["a", "b"], ["a"]]
    model = ChainCRF(n_components=None, C=1.0).fit(X, y)
    assert sorted(map(tuple, model.landmark_positions_.tolist())) == [(1, 0), (1, 1), (4, 0)]
    sparse = ChainCRF("cosine", C=1.0).fit([sp.csr_array(x) for x in X], y)
    for (i, t), landmark in zip(sparse.landmark_positions_, sparse.landmarks_.toarray(), strict=True):
        np.testing.assert_array_equal(X[i][t], landmark)
    check(sparse, sp.csr_array(X[1]), 1e-8)


@pytest.mark.parametrize("rule", ["lloyd", "kmeans"])
def test_centres_have_the_place_of_the_nearest_input(data, rule, monkeypatch):
    monkeypatch.setattr(factor, "ROWS", 50)
    model = fitted(data, n_components=Landmarks(30, rule))
    flat = np.concatenate(data.X)
    assert len(flat) > 100
    nearest = np.square(flat[:, None] - model.landmarks_).sum(axis=2).argmin(axis=0)
    found = np.array([data.X[i][t] for i, t in model.landmark_positions_])
    np.testing.assert_array_equal(found, flat[nearest])


def test_a_warm_start_points_into_the_data_of_the_last_fit(data):
    model = fitted(data, n_components=Landmarks(30, "random"), warm_start=True)
    model.fit(data.X[::-1], data.y[::-1])
    for (i, t), landmark in zip(model.landmark_positions_, model.landmarks_, strict=True):
        np.testing.assert_array_equal(data.X[::-1][i][t], landmark)


def test_explanations_survive_a_file(model, data, tmp_path):
    model.save(tmp_path / "model")
    loaded = kernelcrf.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.landmark_positions_, model.landmark_positions_)
    assert str(loaded.explain(data.X[3], 1)) == str(model.explain(data.X[3], 1))
    linear = fitted(data, kernel="linear")
    linear.save(tmp_path / "linear")
    assert kernelcrf.load(tmp_path / "linear").landmark_positions_ is None
    short = copy(model)
    short.model_ = replace(model.model_, landmark_positions=model.landmark_positions_[1:])
    short.save(tmp_path / "short")
    with pytest.raises(ModelFileError, match=r"'landmark_positions' has type int64 and shape \(29, 2\)"):
        kernelcrf.load(tmp_path / "short")


def test_it_prints_as_aligned_tables(model, data):
    found = model.explain(data.X[0], 3, n_terms=3)
    head, columns, nearest, terms = (part.splitlines() for part in str(found).split("\n\n"))
    assert head == [
        f"label {found.label} at token 3: p = {found.p:.4g}, and {found.p_alone:.4g} without neighbours",
        f"score above mean label {found.score:+.4g}; neighbours change log p by {found.neighbours:+.4g}",
    ]
    assert columns[1].split() == ["column", "value", "reference", "effect"]
    assert nearest[1].split() == ["sequence", "token", "similarity", "label"]
    assert terms[1].split() == ["term", "sequence", "token", "value", "weight", "contribution"]
    for table in (columns, nearest, terms):
        assert len({len(line) for line in table[1:]}) == 1
    assert columns[2].split()[0] == found.columns[0].column
    assert nearest[2].split()[:2] == [str(found.nearest[0].sequence), str(found.nearest[0].token)]
    assert terms[2].split()[:4] == [*found.terms[0].split(), *map(str, found.positions[0])]
    assert terms[-1].split() == ["27", "others", f"{found.rest:.4g}"]
    assert len(str(fitted(data, kernel="linear").explain(data.X[0], 3)).split("\n\n")) == 1
    assert "no landmark is similar" not in str(found)
    assert "no landmark is similar to this token; scale" in str(model.explain(1000 * data.X[0], 3))


def centred_score(model, x, t, label):
    scores = own_scores(model, x)[t]
    return scores[model.classes_.tolist().index(label)] - scores.mean()


@pytest.mark.parametrize("kernel", ["rbf", "poly"])
def test_the_effect_of_a_column_is_the_change_of_the_score(data, kernel, monkeypatch):
    monkeypatch.setattr(explain, "BLOCK", 2)
    X = [pd.DataFrame(x, columns=["a", "b"]).assign(c=x[:, 0] * x[:, 1]) for x in data.X]
    model = ChainCRF(kernel, n_components=30, random_state=0, C=1.0).fit(X, data.y)
    for t in range(3):
        found = model.explain(X[0], t)
        assert {effect.column for effect in found.columns} == {"a", "b", "c"}
        sizes = [abs(effect.effect) for effect in found.columns]
        assert sizes == sorted(sizes, reverse=True)
        for name, value, reference, effect in found.columns:
            changed = X[0].copy()
            assert value == changed.loc[t, name]
            assert reference == pytest.approx(model.landmarks_[:, list(X[0].columns).index(name)].mean())
            changed.loc[t, name] = reference
            expected = centred_score(model, X[0], t, found.label) - centred_score(model, changed, t, found.label)
            assert effect == pytest.approx(expected, abs=1e-6)


def test_a_feature_of_a_dict_is_compared_with_its_absence(dicts):
    X, y = dicts
    model = ChainCRF("rbf", C=10.0).fit(X, y)
    found = model.explain(X[0], 2)
    assert {(effect.column, effect.reference) for effect in found.columns} == {("w:sat", 0), ("n", 0), ("last", 0)}
    without = [*X[0][:2], {"n": 3.0, "last": True}]
    effect = {effect.column: effect.effect for effect in found.columns}["w:sat"]
    expected = centred_score(model, X[0], 2, found.label) - centred_score(model, without, 2, found.label)
    assert effect == pytest.approx(expected, abs=1e-8)
    assert model.explain([{"w": "unseen"}], 0).columns == ()


@pytest.mark.parametrize("kernel", ["rbf", "poly"])
def test_the_nearest_landmarks_are_the_most_similar(data, kernel):
    model = fitted(data, kernel=kernel, n_components=Landmarks(30, "random"))
    found, B = model.explain(data.X[0], 1, n_terms=4), model.landmarks_
    k, x = model.kernel_.gram, data.X[0][1:2]
    alike = k(x, B)[0] / np.sqrt(k(x, x)[0, 0] * np.diag(k(B, B)))
    most = np.argsort(-alike)[:4]
    np.testing.assert_allclose([near.similarity for near in found.nearest], alike[most])
    assert [(near.sequence, near.token) for near in found.nearest] == list(map(tuple, model.landmark_positions_[most]))
    assert [near.label for near in found.nearest] == model.classes_[own_scores(model, B[most]).argmax(axis=1)].tolist()
    linear = fitted(data, kernel="linear").explain(data.X[0], 1)
    assert (linear.columns, linear.nearest) == ((), ())


def test_it_becomes_a_frame(model, data, monkeypatch):
    found = model.explain(data.X[0], 3)
    frame = found.to_frame()
    pd.testing.assert_frame_equal(frame, pd.DataFrame(found.to_dict()))
    assert frame["contribution"].sum() == pytest.approx(found.score, abs=1e-8)
    assert frame["sequence"].dtype == np.int64
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"to_frame needs pandas.*to_dict\(\)"):
        found.to_frame()


def test_what_cannot_be_explained_is_refused(model, data, dicts):
    x = data.X[0]
    for t in (len(x), -1, 0.5):
        with pytest.raises(ValueError, match=rf"t={t}: expected an integer, 0 <= t < {len(x)}"):
            model.explain(x, t)
    for label in (7, [0]):
        with pytest.raises(ValueError, match=r"label=.*: expected one of the classes 0, 1, 2, or None"):
            model.explain(x, 0, label)
    with pytest.raises(ValueError, match="n_terms=0: expected an integer >= 1"):
        model.explain(x, 0, n_terms=0)
    batches = [
        data.X[:3],
        np.zeros((3, 4, 2)),
        [[[0.0, 1.0]]] * 3,
        dicts[0][:3],
        [[["w=a"]]] * 3,
        [sp.eye_array(2)] * 3,
    ]
    for batch in batches:
        with pytest.raises(ValueError, match=r"x is a batch of 3 sequences: .* such as x\[0\]"):
            model.explain(batch, 0)
    with pytest.raises(NotFittedError):
        ChainCRF(C=1.0).explain(x, 0)
    assert model.explain(x.tolist(), 0).score == model.explain(x, 0).score


@pytest.mark.filterwarnings("ignore:the fit")
def test_similarities_of_huge_kernels_do_not_overflow():
    def huge(X, Y):
        return 1e160 * rbf_kernel(X, Y)

    data = make_sequences(5, random_state=0)
    crf = ChainCRF(huge, C=1.0, n_components=5, random_state=0, max_iter=5).fit(data.X, data.y)
    near = crf.explain(data.X[0], 0).nearest[0]
    assert 0.1 < near.similarity <= 1 + 1e-12
