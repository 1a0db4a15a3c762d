"""ChainCRF(prior=model): a fit to new data whose prior is an earlier model."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV

import kernelcrf
from chain_fits import of_tokens_and_steps
from kernelcrf import ChainCRF, Input
from kernelcrf.datasets import make_sequences
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting.corpus import Problem
from kernelcrf.fitting.earlier import information
from kernelcrf.fitting.fit import Settings, Start, choose_features, objective_of
from kernelcrf.fitting.sequences import LabelledSequences
from kernelcrf.penalties import ElasticNet
from kernelcrf.rules import Evidence
from objectives import dense_optimum, prior_matrix

WORDS = np.array(["a", "b", "c", "d", "e", "f", "g", "h"])


def sentences(seed, n=8, words=4, labels=("x", "y", "z")):
    """Feature dicts and labels, of which most are given by the word."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        drawn = rng.integers(words, size=rng.integers(1, 5))
        X.append([{"w": WORDS[k], "bias": 1.0} for k in drawn])
        y.append([labels[k % len(labels)] if rng.random() < 0.8 else labels[0] for k in drawn])
    y[0] = [labels[-1]] * len(y[0])
    return X, y


def fitted(seed, prior=None, **settings):
    words = settings.pop("words", 4)
    crf = ChainCRF("linear", prior=prior, **{"C": 2.0, "tol": 1e-10, "max_iter": 3000} | settings)
    return crf.fit(*sentences(seed, words=words))


def weight(crf, name, label):
    names, classes = crf.get_feature_names_out().tolist(), crf.classes_.tolist()
    return crf.coef_[names.index(name), classes.index(label)]


@pytest.mark.parametrize("posterior", [False, True, "diagonal"])
@pytest.mark.parametrize("grows", [False, True])
def test_the_prior_has_the_weights_and_precisions_of_the_old_model(posterior, grows):
    old = fitted(0, laplace=posterior, weights="all")
    new = fitted(1, old, words=8 if grows else 4, weights="all")
    layout = new.model_.layout
    terms = {term.name: term for term in layout.terms}
    names, known = new.get_feature_names_out().tolist(), old.get_feature_names_out().tolist()
    assert names[: len(known)] == known
    assert (len(names) > len(known)) == grows
    mean = terms["node"].mean.reshape(len(names), -1)
    np.testing.assert_array_equal(mean[: len(known)], old.coef_)
    assert not mean[len(known) :].any()
    np.testing.assert_array_equal(terms["edge"].mean.reshape(3, 3), old.transitions_)
    if not posterior:
        assert terms["node"].precision is None
        return
    own = np.concatenate([terms["node"].precision, terms["edge"].precision])
    old_sizes = [term.size for term in old.model_.layout.terms]
    if posterior is True:
        inverse = old.model_.laplace.posterior.covariance(slice(None))
        expected = np.diagonal(np.linalg.inv(inverse))
    else:
        expected = old.model_.laplace.posterior.scale**-2
    np.testing.assert_allclose(own[: old_sizes[0]], expected[: old_sizes[0]], rtol=1e-8)
    np.testing.assert_allclose(own[-old_sizes[1] :], expected[-old_sizes[1] :], rtol=1e-8)
    np.testing.assert_allclose(terms["node"].precision[old_sizes[0] :], 1 / new.C_)


def test_new_labels_start_at_zero_and_old_ones_at_their_weights():
    old = fitted(0, laplace="diagonal")
    X, y = sentences(3, labels=("a label", "x", "zz"))
    new = ChainCRF("linear", prior=old, tol=1e-10).fit(X, y)
    assert new.classes_.tolist() == ["a label", "x", "y", "z", "zz"]
    node, edge = new.model_.layout.terms
    steps = edge.mean.reshape(5, 5)
    np.testing.assert_array_equal(steps[1:4, 1:4], old.transitions_)
    assert not steps[[0, 4]].any()
    assert not steps[:, [0, 4]].any()
    assert new.certificate_.status == "optimal"
    assert (node.mean != 0).sum() == (old.coef_ != 0).sum()
    # Weights of labels that the new data do not show fall, as the new data speak against them.
    assert set(np.unique(np.concatenate(new.predict(X)))) <= set(new.classes_)


@pytest.mark.parametrize("seeds", [(2, 5, 7), pytest.param(range(1, 11), marks=pytest.mark.slow)], ids=["few", "ten"])
@pytest.mark.parametrize("posterior", [False, True, "diagonal"])
def test_updates_are_certified_at_every_step(posterior, seeds):
    """The lower bound of every update is below the optimum that a dense Newton's method finds for the same problem."""
    crf = fitted(0, laplace=posterior, words=3)
    for seed in seeds:
        X, y = sentences(seed, n=5, words=3 + seed % 6, labels=("x", "y", "z") if seed < 6 else ("x", "y", "z", "v"))
        new = ChainCRF("linear", prior=crf, tol=1e-4, C=2.0, laplace=posterior).fit(X, y)
        # The twin: the same terms on the same data, minimised by Newton's method with a dense Hessian.
        rows, chains = new.model_.reader.read(X)
        tokens = [label for one in y for label in one]
        labels, _ = new.model_.labels.encode(tokens, chains)
        data = LabelledSequences(rows, chains, labels, len(new.classes_))
        problem = Problem(new.model_.layout.terms, data)
        objective = objective_of(problem, choose_features(problem, Settings(), Start(new.model_.maps)), LocalEngine())
        theta, best = dense_optimum(objective)
        assert new.certificate_.lower_bound <= best * (1 + 1e-12)
        assert new.certificate_.objective >= best * (1 - 1e-12)
        assert new.certificate_.relative_gap <= 1e-4
        allowed = 2 * (new.certificate_.gap_in_span + 1e-11)
        moved = new.model_.theta - theta
        assert moved @ prior_matrix(objective.layout) @ moved <= allowed
        crf = new


def test_precisions_add_up_over_updates():
    first = fitted(0, laplace="diagonal", weights="all")
    second = fitted(1, first, laplace="diagonal", weights="all")
    third = fitted(2, second, laplace="diagonal", weights="all")
    known = [information(crf.model_.layout, crf.model_.laplace.posterior) for crf in (first, second, third)]
    assert (known[1] >= known[0]).all()
    assert (known[2] >= known[1]).all()
    terms = second.model_.layout.terms
    np.testing.assert_allclose(np.concatenate([term.penalty.information for term in terms]), known[0])


@pytest.mark.parametrize(("posterior", "lam"), [("diagonal", 1 / 4 + 0.5), (True, 1 / 4 + 1.0), (False, 1 / 4)])
def test_tiny_new_data_move_a_weight_by_its_gradient_over_its_precision(posterior, lam):
    """Two tokens with p = 1/2 give each weight the curvature 2 p (1 - p) = 1/2, and -1/2 with the other label's.

    The gradient p - 1 is the opposite for the other label, and the precision is 1/4 + 1 in this direction.
    """
    X, y = [[{"w": w}] for w in "aabb"], [["x"], ["y"], ["x"], ["y"]]
    old = ChainCRF("linear", C=4.0, tol=1e-13, laplace=posterior, weights="all").fit(X, y)
    tiny = 1e-4
    new = ChainCRF("linear", C=4.0, tol=1e-13, prior=old, weights="all")
    new.fit([[{"w": "a"}]], [["x"]], sample_weight=[tiny])
    p = old.predict_proba([[{"w": "a"}]])[0][0, 0]
    assert p == pytest.approx(0.5)
    assert weight(new, "w:a", "x") - weight(old, "w:a", "x") == pytest.approx(tiny * (1 - p) / lam, rel=1e-3)
    assert weight(new, "w:a", "y") - weight(old, "w:a", "y") == pytest.approx(-tiny * p / lam, rel=1e-3)
    assert weight(new, "w:b", "x") == pytest.approx(weight(old, "w:b", "x"), abs=1e-9)


def test_if_the_hessian_is_diagonal_an_update_is_a_fit_to_all_data():
    """Tokens of one feature, two labels that share one weight, and a loss that is almost quadratic for a small C."""
    rng = np.random.default_rng(0)
    X = [[{"w": f"{k}"}] for k in rng.integers(5, size=400)]
    y = [["x" if rng.random() < 0.5 + 0.02 * int(x[0]["w"]) else "y"] for x in X]
    opposite = [[0.5, -0.5], [-0.5, 0.5]]
    settings = {"C": 0.02, "tol": 1e-12, "label_kernel": opposite, "max_iter": 3000, "solver": "newton"}
    whole = ChainCRF("linear", **settings).fit(X, y)
    for posterior in (True, "diagonal"):
        old = ChainCRF("linear", laplace=posterior, **settings).fit(X[:200], y[:200])
        new = ChainCRF("linear", prior=old, laplace=posterior, **settings).fit(X[200:], y[200:])
        before, after = (np.linalg.norm(crf.coef_ - whole.coef_) for crf in (old, new))
        assert after < 0.01 * before
        evidences = [crf.log_marginal_likelihood() for crf in (old, new)]
        all_at_once = ChainCRF("linear", laplace=True, **settings).fit(X, y).log_marginal_likelihood()
        assert sum(evidences) == pytest.approx(all_at_once, abs=1e-2)


def test_without_data_the_model_is_that_of_the_prior():
    old = fitted(0, laplace=True)
    X, y = sentences(1)
    for data in (([], []), (X, y, np.zeros(len(X)))):
        none = ChainCRF("linear", prior=old).fit(*data)
        assert none.model_ is old.model_
        np.testing.assert_array_equal(none.coef_, old.coef_)
    with pytest.raises(ValueError, match="no sequences"):
        ChainCRF("linear").fit([], [])


def test_a_file_is_a_prior(tmp_path):
    old = fitted(0, laplace="diagonal")
    old.save(tmp_path / "old.kcrf")
    direct, read = fitted(1, old), fitted(1, tmp_path / "old.kcrf")
    np.testing.assert_array_equal(direct.model_.theta, read.model_.theta)
    read.save(tmp_path / "new.kcrf")
    again = kernelcrf.load(tmp_path / "new.kcrf")
    assert again.prior is None
    np.testing.assert_array_equal(again.model_.theta, read.model_.theta)
    X, y = sentences(1)
    direct.loo_log_prob(X, y)
    with pytest.raises(ValueError, match="model files do not store"):
        again.loo_log_prob(X, y)
    third = [fitted(2, crf) for crf in (direct, again)]
    np.testing.assert_array_equal(third[0].model_.theta, third[1].model_.theta)


def test_a_diagonal_posterior_is_stored(tmp_path):
    old = fitted(0, laplace="diagonal")
    old.save(tmp_path / "old.kcrf")
    again = kernelcrf.load(tmp_path / "old.kcrf")
    X, _ = sentences(5)
    draws = [crf.predict_proba(X, posterior="laplace", n_samples=5, random_state=0) for crf in (old, again)]
    np.testing.assert_array_equal(draws[0][0], draws[1][0])
    assert again.log_marginal_likelihood() == old.log_marginal_likelihood()


def test_a_model_of_crfsuite_is_a_prior(tmp_path):
    old = fitted(0, weights="all")
    old.save(tmp_path / "old.crfsuite")
    new = fitted(1, tmp_path / "old.crfsuite", C=1.0)
    same = fitted(1, old, C=1.0)
    assert new.certificate_.objective == pytest.approx(same.certificate_.objective, rel=1e-8)


def test_landmarks_stay_and_new_ones_join():
    a, b = make_sequences(20, random_state=0), make_sequences(20, random_state=1)
    old = ChainCRF("rbf", C=10.0, n_components=20, laplace=True, random_state=0, tol=1e-8).fit(a.X, a.y)
    for n_components, expected in ((20, 20), (10, 20), (35, 35)):
        new = ChainCRF(prior=old, n_components=n_components, random_state=0, tol=1e-8).fit(b.X, b.y)
        assert len(new.landmarks_) == expected
        np.testing.assert_array_equal(new.landmarks_[:20], old.landmarks_)
        assert new.certificate_.status == "optimal"
        assert new.C_ == 10.0
        node = new.model_.layout.terms[0]
        np.testing.assert_array_equal(node.mean.reshape(expected, -1)[:20], old.coef_)
        np.testing.assert_allclose(node.precision.reshape(expected, -1)[20:], 0.1)
        few = ChainCRF(prior=old, n_components=n_components).fit(b.X[:1], b.y[:1])
        assert len(few.landmarks_) >= 20
    grown = ChainCRF(prior=old, n_components="auto", tol=1e-2, random_state=0).fit(b.X, b.y)
    assert grown.certificate_.gap_full <= 1e-2 * grown.certificate_.objective
    every = ChainCRF(prior=old, n_components=None, certify_full=True, tol=1e-6).fit(b.X[:3], b.y[:3])
    assert every.certificate_.gap_full <= 1.1e-6 * every.certificate_.objective
    assert len(every.landmarks_) <= 20 + sum(map(len, b.X[:3]))
    assert every.distribution(b.X[:3]).certify().tokens[0].shape == b.y[0].shape


def test_landmarks_of_a_growing_vocabulary():
    X, y = sentences(0)
    old = ChainCRF("rbf", C=2.0, n_components=3, laplace=True, random_state=0).fit(X, y)
    X, y = sentences(1, words=8)
    new = ChainCRF("rbf", prior=old, n_components=6, random_state=0, certify_full=True).fit(X, y)
    assert new.landmarks_.shape[1] > old.landmarks_.shape[1]
    np.testing.assert_array_equal(new.landmarks_.toarray()[:3, : old.landmarks_.shape[1]], old.landmarks_.toarray())
    assert new.certificate_.status == "optimal"


def test_several_inputs_have_priors():
    a, b = make_sequences(15, random_state=0), make_sequences(15, random_state=1)

    def named(data):
        return [{"words": [{"w": str(int(v[0]))} for v in x], "vectors": x} for x in data.X]

    inputs = {"words": Input("linear"), "vectors": Input("rbf", n_components=10, C=5.0)}
    old = ChainCRF(inputs=inputs, laplace="diagonal", random_state=0).fit(named(a), a.y)
    new = ChainCRF(inputs=inputs, prior=old, random_state=0, tol=1e-6).fit(named(b), b.y)
    assert new.certificate_.status == "optimal"
    assert new.input_variances_ == old.input_variances_
    assert all(term.precision is not None for term in new.model_.layout.terms)
    with pytest.raises(ValueError, match=r"inputs=None, but the prior was fitted with inputs="):
        ChainCRF(prior=old).fit(b.X, b.y)


def test_c_is_that_of_the_posterior_or_chosen_on_held_out_sequences():
    old, plain = fitted(0, laplace="diagonal", C=3.0), fitted(0, C=3.0)
    assert fitted(1, old, C="auto").C_ == 3.0
    assert fitted(1, old, C=0.5).C_ == 0.5
    chosen = fitted(1, plain, C="auto").C_
    assert np.log10(chosen) == round(np.log10(chosen))


def test_label_kernels_keep_their_coordinates():
    matrix = np.array([[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 1.0]])
    for kernel in ("centred", matrix):
        for posterior in (False, True, "diagonal"):
            old = fitted(0, laplace=posterior, label_kernel=kernel)
            new = fitted(1, old, label_kernel=kernel, tol=1e-8)
            assert new.certificate_.status == "optimal"
            own = old.model_.layout.split(old.model_.theta)["node"]
            np.testing.assert_allclose(new.model_.layout.terms[0].mean, own.ravel())
        with pytest.raises(ValueError, match="term 'node' has another label kernel"):
            fitted(1, old)
        X, y = sentences(1, labels=("x", "new"))
        with pytest.raises(ValueError, match=r"labels that are new to the prior|label_kernel"):
            ChainCRF("linear", prior=old, label_kernel=kernel).fit(X, y)


def test_missing_labels_have_a_prior_too():
    old = fitted(0, laplace="diagonal")
    X, y = sentences(1)
    new = ChainCRF("linear", prior=old, random_state=0).fit(X, [[None, *one[1:]] for one in y])
    assert new.certificate_.status == "stationary"
    only = ChainCRF("linear", prior=old).fit(X, [[None] * len(one) for one in y])
    np.testing.assert_allclose(only.coef_[: len(old.coef_)], old.coef_, atol=1e-12)


def test_checkpoints_know_the_prior(tmp_path):
    old, other = fitted(0, laplace="diagonal"), fitted(2)
    path = tmp_path / "run.ckpt"
    first = fitted(1, old, checkpoint=path)
    again = fitted(1, old, checkpoint=path)
    assert again.certificate_.objective == pytest.approx(first.certificate_.objective, rel=1e-9)
    for prior in (other, None):
        with pytest.raises(ValueError, match="or the prior"):
            fitted(1, prior, checkpoint=path)


def test_clones_and_searches_keep_the_fitted_prior():
    old = fitted(0, laplace="diagonal")
    crf = clone(ChainCRF("linear", prior=old, C=0.3))
    assert crf.prior is old
    assert crf.C == 0.3
    search = GridSearchCV(crf, {"C": [0.1, 1.0]}, cv=2).fit(*sentences(1))
    assert search.best_estimator_.prior is old


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"penalty": ElasticNet(0.1)}, "penalty=ElasticNet"),
        ({"warm_start": True}, "warm_start=True"),
        ({"C": "evidence"}, "C='evidence'"),
        ({"C": Evidence("auto", optimize_kernel=True)}, "optimize_kernel=True"),
        ({"kernel": "rbf"}, "kernel='rbf', but the prior was fitted with kernel='linear'"),
        ({"hash_features": 8}, "hash_features=8"),
    ],
)
def test_what_cannot_be_combined_is_refused(settings, match):
    old = fitted(0)
    with pytest.raises(ValueError, match=match) as raised:
        ChainCRF(**{"kernel": "linear", "prior": old} | settings).fit(*sentences(1))
    assert "prior" in str(raised.value)


def test_the_prior_must_be_a_fitted_chain(tmp_path):
    X, y = sentences(0)
    (tmp_path / "text").write_text("no model")
    for prior in (ChainCRF(), 3, {}, "no such file", tmp_path / "text", tmp_path):
        with pytest.raises(ValueError, match="prior"):
            ChainCRF(prior=prior).fit(X, y)
    kernelcrf.KernelClassifier("linear").fit([[0.0], [1.0]], [0, 1]).save(tmp_path / "rows.kcrf")
    with pytest.raises(ValueError, match="KernelClassifier"):
        ChainCRF(prior=tmp_path / "rows.kcrf").fit(X, y)
    with pytest.raises(NotFittedError):
        _ = ChainCRF(prior=fitted(0)).classes_


def test_terms_of_the_prior_are_kept_and_new_ones_join():
    with_bias = fitted(0, fit_intercept=True, laplace=True)
    with pytest.raises(ValueError, match=r"fit_intercept=False, but the prior was fitted with fit_intercept"):
        fitted(1, with_bias, fit_intercept=False)
    new = fitted(1, with_bias, fit_intercept="boundaries")
    assert new.certificate_.status == "optimal"
    bias, start = (next(t for t in new.model_.layout.terms if t.name == name) for name in ("bias", "start"))
    np.testing.assert_array_equal(bias.mean, with_bias.intercept_)
    assert start.mean is None
    with pytest.raises(ValueError, match="but the prior was fitted with fit_intercept='boundaries'"):
        fitted(2, new, fit_intercept=True)


def test_labels_of_another_type_are_refused():
    X, y = sentences(1)
    with pytest.raises(ValueError, match="the prior has labels such as 'z' of type str"):
        ChainCRF("linear", prior=fitted(0)).fit(X, [[1] * len(one) for one in y])


def test_the_diagonal_is_that_of_the_hessian_for_single_tokens():
    X, y = sentences(0, n=30)
    X, y = [[x] for one in X for x in one], [[label] for one in y for label in one]
    exact, approximate = (
        ChainCRF("linear", C=2.0, laplace=kind, fit_intercept="boundaries", tol=1e-10).fit(X, y)
        for kind in (True, "diagonal")
    )
    known = [information(crf.model_.layout, crf.model_.laplace.posterior) for crf in (exact, approximate)]
    np.testing.assert_allclose(known[1], known[0], atol=1e-8)
    # By Hadamard's inequality, the determinant of the diagonal is the larger one.
    assert approximate.log_marginal_likelihood() <= exact.log_marginal_likelihood() + 1e-8
    assert approximate.model_.laplace.n_effective >= exact.model_.laplace.n_effective - 1e-8


@pytest.mark.parametrize("kernel", ["delta", "centred"])
def test_the_diagonal_of_steps_is_the_sum_over_tokens(kernel):
    data = make_sequences(12, random_state=0)
    settings = {"label_kernel": kernel, "laplace": "diagonal", "random_state": 0}
    crf = ChainCRF(inputs=of_tokens_and_steps(n_components=5), C=2.0, **settings).fit(data.X, data.y)
    known = crf.model_.layout.split(information(crf.model_.layout, crf.model_.laplace.posterior))
    q = crf.distribution(data.X).edge_marginals()
    variances = np.concatenate([one * (1 - one) for one in q])
    np.testing.assert_allclose(known["edge"].ravel(), variances.sum(axis=0).ravel(), rtol=1e-8)
    F, found = crf.model_.maps["inputs__steps"].transform(np.vstack(data.X)), known["inputs__steps"]
    expected = np.einsum("tn,tij->nij", F**2, variances).reshape(len(found), -1)
    np.testing.assert_allclose(found, expected, rtol=1e-7)


@pytest.mark.parametrize("posterior", [False, True, "diagonal"])
def test_certified_labels_are_those_of_the_optimum(posterior):
    a, b = make_sequences(20, random_state=0), make_sequences(12, random_state=1)
    settings = {"decoding": "viterbi", "n_components": 20, "C": 10.0, "random_state": 0}
    old = ChainCRF("rbf", laplace=posterior, **settings).fit(a.X, a.y)
    n_certified = []
    for tol in (1e-2, 1e-6):
        rough, exact = (ChainCRF(prior=old, tol=own, **settings).fit(b.X, b.y) for own in (tol, 1e-10))
        found, labels = rough.distribution(a.X).certify(), np.concatenate(exact.predict(a.X))
        sure = np.concatenate(found.tokens)
        assert (np.concatenate(found.labels)[sure] == labels[sure]).all()
        low, high = rough.distribution(a.X).score_bounds(a.y).accuracy
        assert low <= exact.score(a.X, a.y) <= high
        n_certified.append(int(sure.sum()))
    assert n_certified[0] <= n_certified[1]
    assert n_certified[1] > 0


@pytest.mark.filterwarnings("ignore:the fit ended with status")
@pytest.mark.parametrize("seed", range(6))
def test_what_earlier_data_do_not_say_has_the_precision_of_C(seed):
    """Earlier data with a collinear column and huge weights: rounding errors of their information exceed 1 / C."""
    rng, C = np.random.default_rng(seed), 1e4
    F = rng.normal(size=(40, 2))
    F = np.column_stack((F, F @ [0.3, 0.7]))
    labels = (F[:, 0] + 0.7 * rng.normal(size=40) > 0).astype(int)
    old = ChainCRF("linear", C=C, laplace=True, fit_intercept=False).fit(
        list(F[:, None]), list(labels[:, None]), np.full(40, 1e12)
    )
    G = rng.normal(size=(6, 3))
    y = (G[:, 2] + 1.5 * rng.normal(size=6) > 0).astype(int)
    y[:2] = [0, 1]
    new = ChainCRF("linear", prior=old, fit_intercept=False).fit(list(G[:, None]), list(y[:, None]))
    unknown = np.outer([0.3, 0.7, -1.0], [1.0, -1.0])
    unknown /= np.linalg.norm(unknown)

    def objective(step):
        S = G @ (old.coef_ + step * unknown)
        return (logsumexp(S, axis=1) - S[np.arange(6), y]).sum() + step**2 / (2 * C)

    reachable = min(minimize_scalar(objective, bracket=(0, end)).fun for end in (-1, 1))
    assert new.certificate_.status == "optimal"
    assert new.certificate_.lower_bound <= reachable
    assert new.certificate_.objective <= reachable * (1 + 1e-4)


def test_an_update_does_not_lose_the_constraints_of_its_prior():
    X, y = [["a", "b"]] * 3, [["B-X", "I-X"], ["O", "B-X"], ["B-X", "O"]]
    X = [[{"w": word} for word in words] for words in X]
    old = ChainCRF("linear", constraints="BIO").fit(X, y)
    with pytest.raises(ValueError, match="constraints=None, but the prior was fitted with constraints"):
        ChainCRF("linear", prior=old).fit(X, y)
    new = ChainCRF("linear", prior=old, constraints="BIO").fit(X, y)
    assert new.log_prob(X[:1], [["O", "I-X"]])[0] == -np.inf
