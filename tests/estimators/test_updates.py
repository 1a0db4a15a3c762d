"""The parameter `prior` of the estimators of segments, rows, label sets, graphs and tables, as of ChainCRF."""

from functools import cache

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.base import clone

import kernelcrf
from kernelcrf import ChainCRF, GraphCRF, Input, KernelClassifier, MarkovNetwork, MultiLabelCRF, SegmentCRF
from kernelcrf.estimators import base
from kernelcrf.penalties import ElasticNet

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(120, 3))
CLASSES = (ROWS[:, 0] + np.sin(2 * ROWS[:, 1]) + 0.7 * RNG.normal(size=120) > 0).astype(int)
SETS = np.column_stack((CLASSES, CLASSES ^ (RNG.random(120) < 0.2), ROWS[:, 1] > 0.3)).astype(int)
RING = [[0, 1], [1, 2], [2, 3], [3, 0]]
SEQUENCES, LABELS = np.split(ROWS, 30), np.split(CLASSES, 30)
GRAPHS = [(rows, RING) for rows in SEQUENCES]
TABLE = np.column_stack((SETS, RNG.integers(3, size=120)))
WORDS = np.array([{"w": str(round(value))} for value in ROWS[:, 2]])

MODELS = {
    "SegmentCRF": (SegmentCRF, SEQUENCES, LABELS, {"fit_intercept": True}),
    "KernelClassifier": (KernelClassifier, ROWS, CLASSES, {"fit_intercept": True}),
    "MultiLabelCRF": (MultiLabelCRF, ROWS, SETS, {"structure": "full", "edge_kernel": "linear"}),
    "GraphCRF": (GraphCRF, GRAPHS, LABELS, {"edge_kernel": "linear"}),
    "MarkovNetwork": (MarkovNetwork, TABLE, None, {"structure": "full"}),
}
WITH_INPUTS = [name for name in MODELS if name != "MarkovNetwork"]
ALL = pytest.mark.parametrize("name", MODELS)
OF_INPUTS = pytest.mark.parametrize("name", WITH_INPUTS)
LANDMARKS = {"kernel": "rbf", "gamma": 0.5, "n_components": 8}


def kernels_of(name):
    return [{"kernel": "delta"}] if name == "MarkovNetwork" else [{"kernel": "linear"}, LANDMARKS]


CASES = pytest.mark.parametrize(
    ("name", "kernel"), [(name, kernel) for name in MODELS for kernel in kernels_of(name)], ids=str
)


def part(name, low, high, X=None):
    """Some samples of the data of a case, and their labels: from `low` to `high` of 30 equal parts."""
    _, data, y, _ = MODELS[name]
    data = data if X is None else X
    k = len(MODELS[name][1]) // 30
    chosen = slice(low * k, high * k)
    rows = {key: values[chosen] for key, values in data.items()} if isinstance(data, dict) else data[chosen]
    return rows, None if y is None else y[chosen]


def fitted(name, low, high, **parameters):
    model, _, _, fixed = MODELS[name]
    X = parameters.pop("X", None)
    few = {"n_components": 12} if name in WITH_INPUTS and "inputs" not in parameters else {}
    options = {"C": 0.5, "tol": 1e-10, "random_state": 0} | few | fixed | parameters
    return model(**options).fit(*part(name, low, high, X))


@cache
def earlier(name):
    """Return a model with its posterior, which many tests take for a prior."""
    return fitted(name, 0, 15, laplace=True)


def captured(monkeypatch):
    """Return a list to which each fit adds the result of its training."""
    found, train = [], base.train

    def spy(*args, **kwargs):
        found.append(train(*args, **kwargs))
        return found[-1]

    monkeypatch.setattr(base, "train", spy)
    return found


def dense_update(objective, old, C):
    """Minimise the loss of the new data plus the quadratic penalty of an update, which is made here by hand.

    All weights are those of the earlier model, in the same order.
    """
    layout, before, posterior = objective.layout, old.model_.layout, old.model_.laplace
    assert [(term.name, term.shape) for term in layout.terms] == [(term.name, term.shape) for term in before.terms]
    variances = np.concatenate([np.full(term.size, C.get(term.name, C[None])) for term in layout.terms])
    Lambda = np.diag(1.0 / variances)
    if posterior is not None:
        H = np.linalg.inv(posterior.posterior.covariance(slice(None)))
        Lambda += H - np.diag(1.0 / before.variances)
    mu = old.model_.theta

    def value_and_gradient(theta):
        at = objective.evaluate(theta)
        moved = theta - mu
        loss = at.value - layout.penalty(theta)
        gradient = at.gradient - layout.penalty_gradient(theta)
        return loss + 0.5 * moved @ Lambda @ moved, gradient + Lambda @ moved

    found = minimize(value_and_gradient, mu, jac=True, method="BFGS", options={"gtol": 1e-8, "maxiter": 5000})
    return found.x, found.fun


@pytest.mark.parametrize("posterior", [False, True], ids=["means", "posterior"])
@CASES
def test_an_update_is_certified_and_ends_where_a_dense_twin_does(name, kernel, posterior, monkeypatch):
    old = fitted(name, 0, 15, laplace=posterior, **kernel)
    trained = captured(monkeypatch)
    new = fitted(name, 15, 30, prior=old, C=2.0, laplace=posterior, **kernel)
    C = {None: 2.0}
    if name in ("MultiLabelCRF", "GraphCRF"):
        C |= {term.name: 1.0 for term in new.model_.layout.terms if term.input is None}
    theta, best = dense_update(trained[-1].fit.objective, old, C)
    certificate = new.certificate_
    assert certificate.status == "optimal"
    assert certificate.lower_bound <= best * (1 + 1e-9)
    assert certificate.objective == pytest.approx(best, rel=1e-8)
    np.testing.assert_allclose(new.model_.theta, theta, atol=2e-4)
    if not posterior:
        return
    # The evidence of the update is that of its own Hessian and prior.
    assert np.isfinite(new.log_marginal_likelihood())


@CASES
def test_if_the_loss_is_almost_quadratic_an_update_is_a_fit_to_all_data(name, kernel):
    options = {"C": 0.003, "laplace": True, **kernel}
    if name in ("MultiLabelCRF", "GraphCRF"):
        options["C_label"] = 0.003
    old = fitted(name, 0, 15, **options)
    new = fitted(name, 15, 30, prior=old, **options)
    if kernel is LANDMARKS:
        # All fits have the landmarks of the first one.
        whole = fitted(name, 0, 15, **options | {"warm_start": True, "laplace": False}).fit(*part(name, 0, 30))
    else:
        whole = fitted(name, 0, 30, **options)
    before, after = (np.linalg.norm(one.model_.theta - whole.model_.theta) for one in (old, new))
    assert after < 0.05 * before
    if kernel is not LANDMARKS:
        evidences = old.log_marginal_likelihood() + new.log_marginal_likelihood()
        assert evidences == pytest.approx(whole.log_marginal_likelihood(), abs=0.05)


@ALL
def test_without_data_the_model_is_that_of_the_prior(name):
    old = earlier(name)
    X, y = part(name, 0, 5)
    model, _, _, fixed = MODELS[name]
    new = model(prior=old, **fixed)
    assert new.fit(X, y, sample_weight=np.zeros(len(X))).model_ is old.model_
    empty = None if y is None else y[:0]
    assert new.fit(X[:0], empty).model_ is old.model_
    with pytest.raises(ValueError, match="sample_weight"):
        model(**fixed).fit(X, y, sample_weight=np.zeros(len(X)))


@ALL
def test_c_is_that_of_the_posterior_unless_it_is_a_number(name):
    old = fitted(name, 0, 15, laplace=True, C=3.0)
    assert fitted(name, 15, 30, prior=old, C="auto").C_ == 3.0
    assert fitted(name, 15, 30, prior=old, C=0.25).C_ == 0.25
    chosen = fitted(name, 15, 30, prior=fitted(name, 0, 15, C=3.0), C="auto").C_
    assert chosen in 10.0 ** np.arange(-3, 5)


@ALL
def test_files_are_priors(name, tmp_path):
    old = earlier(name)
    old.save(tmp_path / "old.kcrf")
    direct = fitted(name, 15, 30, prior=old, laplace=True)
    read = fitted(name, 15, 30, prior=tmp_path / "old.kcrf")
    np.testing.assert_allclose(direct.model_.theta, read.model_.theta, atol=1e-9)
    direct.save(tmp_path / "new.kcrf")
    again = kernelcrf.load(tmp_path / "new.kcrf")
    assert again.prior is None
    third = [fitted(name, 5, 20, prior=one).model_.theta for one in (direct, again)]
    np.testing.assert_allclose(*third, atol=1e-9)


@ALL
def test_the_prior_must_be_a_fitted_model_of_the_same_class(name, tmp_path):
    other = ChainCRF("linear", C=1.0).fit(SEQUENCES, LABELS)
    other.save(tmp_path / "chain.kcrf")
    for prior in (MODELS[name][0](), other, 3, "no such file", tmp_path / "chain.kcrf"):
        with pytest.raises(ValueError, match="prior"):
            fitted(name, 15, 30, prior=prior)
    with pytest.raises(ValueError, match=f"expected a fitted {name}"):
        fitted(name, 15, 30, prior=other)


@ALL
def test_what_cannot_be_combined_is_refused(name):
    old = fitted(name, 0, 15)
    refused = [({"warm_start": True}, "warm_start=True"), ({"C": "evidence"}, "C='evidence'")]
    if name != "MarkovNetwork":
        refused += [({"penalty": ElasticNet(0.1), "kernel": "linear"}, "penalty=ElasticNet")]
    refused += [({"kernel": "poly"}, "kernel='poly', but the prior was fitted with kernel=")]
    for settings, match in refused:
        with pytest.raises(ValueError, match=match) as raised:
            fitted(name, 15, 30, prior=old, **settings)
        assert "prior" in str(raised.value)
    assert clone(MODELS[name][0](prior=old)).prior is old


@OF_INPUTS
def test_landmarks_stay_and_new_ones_join(name):
    old = fitted(name, 0, 15, laplace=True, **LANDMARKS)
    new = fitted(name, 15, 30, prior=old, certify_full=True, **LANDMARKS | {"n_components": 14})
    assert len(new.landmarks_) == 14
    np.testing.assert_array_equal(new.landmarks_[:8], old.landmarks_)
    more = fitted(name, 15, 30, prior=old, **LANDMARKS | {"n_components": None})
    gain = new.certificate_.objective - more.certificate_.objective
    assert -1e-6 < gain <= new.certificate_.gap_full


@OF_INPUTS
def test_several_inputs_have_priors_and_learn_new_words(name):
    inputs = {"words": Input("linear"), "vectors": Input("rbf", n_components=6)}
    if name in ("KernelClassifier", "MultiLabelCRF"):
        X = {"words": WORDS, "vectors": ROWS[:, :2]}
    else:
        nodes = [
            {"words": WORDS[4 * i : 4 * i + 4].tolist(), "vectors": ROWS[4 * i : 4 * i + 4, :2]} for i in range(30)
        ]
        X = nodes if name == "SegmentCRF" else [(one, RING) for one in nodes]
    plain = {"MultiLabelCRF": {"edge_kernel": None}, "GraphCRF": {"edge_kernel": None}}.get(name, {})
    old = fitted(name, 0, 3, X=X, inputs=inputs, laplace=True, **plain)
    new = fitted(name, 3, 30, X=X, inputs=inputs, prior=old, **plain)
    assert new.certificate_.status == "optimal"
    assert new.n_features_in_ == 2 + len({word["w"] for word in WORDS}) > old.n_features_in_
    weights = {key: old.model_.layout.split(old.model_.theta)[key] for key in old.model_.layout.by_name}
    for term in new.model_.layout.terms:
        mean = term.unpack(term.mean.reshape(term.shape))
        known = old.model_.layout.by_name[term.name].unpack(weights[term.name])
        if term.pairs is None:
            np.testing.assert_array_equal(mean[: len(known)], known)
            assert not mean[len(known) :].any()
    with pytest.raises(ValueError, match="inputs=None, but the prior was fitted with inputs="):
        fitted(name, 3, 30, X=X, prior=old, **plain)


@pytest.mark.parametrize("durations", ["smooth", "free"])
@pytest.mark.parametrize("name", ["SegmentCRF", "KernelClassifier"])
def test_new_labels_start_at_zero_and_old_ones_at_their_weights(name, durations):
    rename = np.array(["m", "p", "a"])
    y = rename[CLASSES] if name == "KernelClassifier" else [rename[one] for one in LABELS]
    later = np.where(ROWS[:, 1] > 0.8, 2, CLASSES)
    more = rename[later] if name == "KernelClassifier" else np.split(rename[later], 30)
    model, X, _, fixed = MODELS[name]
    k = len(X) // 2
    options = {"kernel": "linear", "C": 1.0, "random_state": 0} | fixed
    options |= {"durations": durations, "max_duration": 4} if name == "SegmentCRF" else {}
    old = model(laplace=True, **options).fit(X[:k], y[:k])
    new = model(prior=old, **options).fit(X[k:], more[k:])
    assert new.classes_.tolist() == ["a", "m", "p"]
    assert new.certificate_.status == "optimal"
    layout, weights = new.model_.layout, old.model_.layout.split(old.model_.theta)
    for term in layout.terms:
        mean, before = term.mean.reshape(term.shape), weights[term.name]
        if term.kind.is_step:
            mean, before = mean.reshape(3, 3)[1:, 1:], before.reshape(2, 2)
            assert not term.mean.reshape(3, 3)[0].any()
        else:
            mean, before = (W.reshape(len(W), -1, L) for W, L in ((mean, 3), (before, 2)))
            assert not mean[..., 0].any()
            mean = mean[..., 1:]
        np.testing.assert_array_equal(mean, before)
    # A fit in which the new label never occurs gives the labels that are known the probabilities of the prior's model.
    none = model(prior=old, classes=["a", "m", "p"], **options).fit(X[k:], y[k:])
    same = model(prior=old, **options).fit(X[k:], y[k:])
    assert none.classes_.tolist() == ["a", "m", "p"]
    assert same.classes_.tolist() == ["m", "p"]


def test_new_types_of_tags_get_both_of_their_tags():
    tags = [["B-PER", "I-PER", "O", "O"] if i % 2 else ["O", "B-PER", "O", "B-PER"] for i in range(10)]
    old = SegmentCRF("linear", C=1.0, laplace=True, max_duration=4).fit(SEQUENCES[:10], tags)
    other = [["B-LOC", "O", "B-PER", "I-PER"]] * 10
    new = SegmentCRF("linear", C=1.0, prior=old, max_duration=4).fit(SEQUENCES[10:20], other)
    assert new.classes_.tolist() == ["B-LOC", "B-PER", "I-LOC", "I-PER", "O"]
    assert new.certificate_.status == "optimal"
    types = [new.segment_labels_.index(label) for label in old.segment_labels_]
    mean = new.model_.layout.by_name["edge"].mean.reshape(3, 3)
    np.testing.assert_array_equal(mean[np.ix_(types, types)], old.transitions_)


@pytest.mark.parametrize("name", ["MultiLabelCRF", "MarkovNetwork"])
def test_pairs_of_the_prior_stay_and_others_join(name):
    settings = {"structure": [[0, 1]], "laplace": True}
    settings |= {} if name == "MarkovNetwork" else {"edge_kernel": None, "kernel": "linear"}
    old = fitted(name, 0, 15, **settings)
    searched = fitted(name, 15, 30, prior=old, **settings | {"structure": "auto", "min_gain": 0.0, "laplace": False})
    assert [0, 1] in searched.edges_.tolist()
    full = fitted(name, 15, 30, prior=old, **settings | {"structure": "full", "laplace": False})
    # The bound of the search covers what all pairs could gain.
    assert searched.search_.lower_bound <= full.certificate_.objective <= searched.certificate_.objective * (1 + 1e-9)
    assert [0, 1] in fitted(name, 15, 30, prior=old, **settings | {"structure": "tree"}).edges_.tolist()
    for structure in ("none", [[1, 2]]):
        with pytest.raises(ValueError, match=r"lacks the pair \(0, 1\) of the prior"):
            fitted(name, 15, 30, prior=old, **settings | {"structure": structure})


def test_cliques_and_types_of_graphs_are_those_of_the_prior():
    X = [{"nodes": rows, "edges": RING, "node_types": ["a", "b", "a", "b"]} for rows in SEQUENCES]
    old = fitted("GraphCRF", 0, 15, X=X, laplace=True, cliques=("edges", "paths"), kernel="linear")
    new = fitted("GraphCRF", 15, 30, X=X, prior=old, cliques=("edges", "paths"), kernel="linear")
    assert new.certificate_.status == "optimal"
    few = [{**one, "node_types": ["a"] * 4} for one in X]
    assert fitted("GraphCRF", 15, 30, X=few, prior=old, cliques=("edges", "paths")).cliques_ == ("edges", "paths")
    with pytest.raises(ValueError, match="the prior has weights of 'paths constant', but this fit has no such weights"):
        fitted("GraphCRF", 15, 30, X=X, prior=old)
    with pytest.raises(ValueError, match="X has the node types 'c', which the training graphs do not have"):
        fitted("GraphCRF", 15, 30, X=[{**one, "node_types": ["c"] * 4} for one in X], prior=old)
    with pytest.raises(ValueError, match=r"term 'edges constant' has another label kernel.*directed=True"):
        GraphCRF("linear", prior=old, cliques=("edges", "paths"), edge_kernel="linear").fit(X, [[2] * 4] * 30)


@pytest.mark.parametrize("directed", [False, True])
def test_graphs_without_edges_update_a_model_of_edges_with_features(directed):
    X = [(rows, RING, rows[:, :1] ** 2) for rows in SEQUENCES]
    old = fitted("GraphCRF", 0, 15, X=X, laplace=True, kernel="linear", directed=directed)
    alone = [(rows, []) for rows in SEQUENCES]
    new = fitted("GraphCRF", 15, 30, X=alone, prior=old, C="auto", directed=directed)
    weights = [one.model_.layout.split(one.model_.theta)["edge inputs"] for one in (old, new)]
    assert weights[0].shape == weights[1].shape
    assert len(new.predict(X[:3])) == 3


def test_a_search_of_cliques_keeps_the_inputs_of_edges_of_the_prior():
    old = fitted("GraphCRF", 0, 15, laplace=True, kernel="linear")
    new = fitted("GraphCRF", 15, 30, prior=old, cliques="auto", kernel="linear", min_gain=0.0)
    assert {"edges", "edge inputs"} <= set(new.model_.layout.cliques)
    assert new.certificate_.status == "optimal"
    every = fitted("GraphCRF", 15, 30, prior=old, cliques=("edges", "skips", "paths"), kernel="linear")
    assert new.search_.lower_bound <= every.certificate_.objective <= new.certificate_.objective * (1 + 1e-9)


def test_directed_graphs_learn_new_labels():
    later = np.split(np.where(ROWS[:, 1] > 0.8, 2, CLASSES), 30)
    old = GraphCRF("linear", directed=True, laplace=True).fit(GRAPHS[:15], LABELS[:15])
    new = GraphCRF("linear", directed=True, prior=old).fit(GRAPHS[15:], later[15:])
    mean = new.model_.layout.by_name["edges constant"].mean.reshape(3, 3)
    np.testing.assert_array_equal(mean[:2, :2], old.edge_potentials_)
    assert not mean[2].any()
    assert not mean[:, 2].any()


@pytest.mark.parametrize("inference", ["loopy", "gibbs"])
def test_inference_that_is_not_exact_has_prior_means(inference):
    old = fitted("GraphCRF", 0, 15, inference=inference, kernel="linear", tol=1e-7)
    new = fitted("GraphCRF", 15, 30, inference=inference, prior=old, C=1e-6, C_label=1e-6, tol=1e-7, kernel="linear")
    assert new.certificate_.status == "optimal"
    np.testing.assert_allclose(new.model_.theta, old.model_.theta, atol=1e-3)


@ALL
def test_missing_labels_have_a_prior_too(name):
    old = earlier(name)
    X, y = part(name, 15, 30)
    model, _, _, fixed = MODELS[name]
    if name == "KernelClassifier":
        missing = np.array([None if i % 3 else label for i, label in enumerate(y)], object)
        kept = model(prior=old, random_state=0, **fixed).fit(X, missing)
        only = model(prior=old, random_state=0, **fixed).fit(X[::3], y[::3])
        np.testing.assert_array_equal(kept.model_.theta, only.model_.theta)
        return
    if name == "MarkovNetwork":
        X = X.astype(object)
        X[:, 0] = None
    elif name == "MultiLabelCRF":
        y = y.copy()
        y[:, 0] = -1
    else:
        y = [[None, *one[1:]] for one in y]
    assert model(prior=old, random_state=0, **fixed).fit(X, y).certificate_.status == "stationary"


@ALL
def test_checkpoints_know_the_prior(name, tmp_path):
    old, other = earlier(name), fitted(name, 0, 10)
    first = fitted(name, 15, 30, prior=old, checkpoint=tmp_path / "run")
    again = fitted(name, 15, 30, prior=old, checkpoint=tmp_path / "run")
    assert again.certificate_.objective == pytest.approx(first.certificate_.objective, rel=1e-9)
    for prior, match in ((other, "or the prior"), (None, "was written by a fit that differs in")):
        with pytest.raises(ValueError, match=match):
            fitted(name, 15, 30, prior=prior, checkpoint=tmp_path / "run")
