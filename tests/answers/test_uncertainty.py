import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import entr

import kernelcrf
from chain_fits import of_tokens_and_steps
from kernelcrf import ChainCRF, KernelClassifier
from kernelcrf.answers.selection import draw_batch
from kernelcrf.datasets import make_sequences
from kernelcrf.engines.local import LocalEngine
from kernelcrf.graphs.structure import Chains
from kernelcrf.inference import chain
from kernelcrf.models.base import rng_of


@pytest.fixture(scope="module")
def train():
    return make_sequences(50, random_state=0)


@pytest.fixture(scope="module")
def model(train):
    return ChainCRF(C=10.0, n_components=30, random_state=0, laplace=True).fit(train.X, train.y)


@pytest.mark.parametrize("of_steps", [None, "rbf"])
@pytest.mark.parametrize("label_kernel", ["delta", "centred"])
def test_averages_are_those_over_explicit_models(train, of_steps, label_kernel):
    """The mean of marginals over draws of the weights, made one by one from the covariance of the posterior."""
    X, y = train.X[:15], train.y[:15]
    tokens, steps = of_tokens_and_steps(of_steps=of_steps, n_components=None, gamma=0.5).values()
    model = ChainCRF(
        inputs={"tokens": tokens} if of_steps is None else {"tokens": tokens, "steps": steps},
        C=4.0,
        label_kernel=label_kernel,
        laplace=True,
        fit_intercept=False,
    ).fit(X[:6], y[:6])
    posterior, layout = model.model_.laplace.posterior, model.model_.layout
    covariance = posterior.covariance(slice(0, layout.size))
    rng = np.random.default_rng(1)
    thetas = rng.multivariate_normal(posterior.mode, covariance, size=400)
    flat, chains = model.model_.reader.read(X[:6])
    F = model.model_.maps["inputs__tokens"].transform(flat.matrices["tokens"])
    expected = np.zeros((chains.n_nodes, 3))
    for theta in thetas:
        W = layout.split(theta)
        s, w = layout.terms[0].k_y.expand(F @ W["inputs__tokens"]), W["edge"].reshape(3, 3)
        if of_steps is not None:
            G = model.model_.maps["inputs__steps"].transform(flat.matrices["steps"])
            w = w + np.einsum("tn,nij->tij", G, W["inputs__steps"].reshape(-1, 3, 3))
        expected += chain.moments(s, w, chains).nodes / len(thetas)
    found = np.concatenate(model.predict_proba(X[:6], posterior="laplace", n_samples=400))
    np.testing.assert_allclose(found, expected, atol=0.1)
    assert np.abs(found - expected).mean() < 0.3 * np.abs(found - np.concatenate(model.predict_proba(X[:6]))).mean()
    np.testing.assert_allclose(found.sum(axis=1), 1.0)


def test_no_variance_is_the_mode(model, train):
    still = model.predict_proba(train.X, posterior="laplace", n_samples=2, variance_temperature=0.0)
    for a, b in zip(still, model.predict_proba(train.X), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


def test_parts_add_up_and_the_unknown_is_epistemic(model, train):
    parts = model.uncertainty(train.X, n_samples=50)
    p = model.predict_proba(train.X, posterior="laplace", n_samples=50)
    for epistemic, aleatoric, rows in zip(parts.epistemic, parts.aleatoric, p, strict=True):
        np.testing.assert_allclose(epistemic + aleatoric, entr(rows).sum(axis=1), atol=1e-10)
        assert (epistemic >= 0).all()
    far = [x + 30.0 for x in train.X]
    beyond = np.concatenate(model.uncertainty(far).epistemic).mean()
    assert beyond > 3 * np.concatenate(parts.epistemic).mean()
    more = make_sequences(400, random_state=3)
    larger = ChainCRF(C=10.0, n_components=30, random_state=0, laplace=True).fit(more.X, more.y)
    fewer_doubts = np.concatenate(larger.uncertainty(train.X).epistemic).mean()
    assert fewer_doubts < 0.5 * np.concatenate(parts.epistemic).mean()


def test_rows_have_both_parts_too():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = (X[:, 0] > 0).astype(int) ^ (rng.random(200) < 0.3 * (X[:, 1] > 0))
    model = KernelClassifier(C=5.0, n_components=40, random_state=0, laplace=True).fit(X, y)
    # Labels are noisy above, missing far away.
    parts = model.uncertainty([[1.5, 1.5], [1.5, -1.5], [40.0, 40.0]], n_samples=400)
    assert parts.aleatoric[0] > parts.aleatoric[1]
    assert parts.epistemic[2] > 2 * max(parts.epistemic[0], parts.epistemic[1])


def test_constraints_hold_in_every_draw():
    X = [np.random.default_rng(i).normal(size=(6, 2)) for i in range(20)]
    y = [["O", "B", "I", "O", "B", "O"]] * 20
    model = ChainCRF(constraints="BIO", n_components=20, random_state=0, laplace=True, C=1.0).fit(X, y)
    first = np.stack([rows[0] for rows in model.predict_proba(X, posterior="laplace")])
    assert (first[:, model.classes_.tolist().index("I")] == 0).all()


def test_many_weights_keep_draws(model, train, monkeypatch):
    monkeypatch.setattr("kernelcrf.fitting.laplace.MOST_EXACT", 0)
    sampled = ChainCRF(C=10.0, n_components=30, random_state=0, laplace=True).fit(train.X, train.y)
    off = abs(sampled.log_marginal_likelihood() - model.log_marginal_likelihood())
    assert model.log_marginal_likelihood_error_ == 0 < off < 3 * sampled.log_marginal_likelihood_error_
    a = np.concatenate(sampled.predict_proba(train.X, posterior="laplace"))
    b = np.concatenate(model.predict_proba(train.X, posterior="laplace", n_samples=200))
    assert np.abs(a - b).mean() < 0.01
    with pytest.raises(ValueError, match="n_samples=100: expected at most 32"):
        sampled.predict_proba(train.X, posterior="laplace", n_samples=100)


@pytest.mark.parametrize("most_exact", [5000, 0])
def test_features_never_seen_have_their_prior(most_exact, monkeypatch, tmp_path):
    monkeypatch.setattr("kernelcrf.fitting.laplace.MOST_EXACT", most_exact)
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(6, 8)) * (np.arange(8) < 5) for _ in range(30)]
    y = [(x[:, 0] > 0).astype(int) for x in X]
    dense = ChainCRF("linear", C=3.0, laplace=True, tol=1e-8, fit_intercept=False).fit(X, y)
    sparse = ChainCRF("linear", C=3.0, laplace=True, tol=1e-8, solver="lbfgs", weights="all", fit_intercept=False)
    sparse.fit([sp.csr_array(x) for x in X], y)
    error = dense.model_.laplace.error + sparse.model_.laplace.error
    assert sparse.log_marginal_likelihood() == pytest.approx(dense.log_marginal_likelihood(), abs=1e-4 + 3 * error)
    new = [np.ones((4, 8)) * (np.arange(8) == 7)]
    rows = [sp.csr_array(new[0])]
    n, chains = 32 if most_exact == 0 else 400, Chains.from_lengths([4])
    spread = [
        np.std([s[0, 0] for s, _ in model.model_.score_posterior.draws(x[0], chains, n, rng_of(0), 1.0, LocalEngine())])
        for model, x in ((dense, new), (sparse, rows))
    ]
    np.testing.assert_allclose(spread, np.sqrt(3.0), rtol=0.15 if most_exact else 0.5)
    sparse.save(tmp_path / "model")
    again = kernelcrf.load(tmp_path / "model")
    a, b = (model.predict_proba(rows, posterior="laplace", n_samples=20)[0] for model in (sparse, again))
    np.testing.assert_array_equal(a, b)


def test_a_choice_by_the_evidence_keeps_no_posterior_unless_asked_to(train, tmp_path):
    model = ChainCRF(C="evidence", n_components=20, random_state=0).fit(train.X[:20], train.y[:20])
    assert model.log_marginal_likelihood() < 0
    with pytest.raises(AttributeError, match="posterior of the weights was not kept: fit with laplace=True"):
        model.uncertainty(train.X)
    model.save(tmp_path / "model")
    assert kernelcrf.load(tmp_path / "model").log_marginal_likelihood() == model.log_marginal_likelihood()


def test_a_file_keeps_the_posterior(model, train, tmp_path):
    model.save(tmp_path / "model")
    again = kernelcrf.load(tmp_path / "model")
    assert again.log_marginal_likelihood() == model.log_marginal_likelihood()
    for a, b in zip(
        again.predict_proba(train.X[:3], posterior="laplace"),
        model.predict_proba(train.X[:3], posterior="laplace"),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)
    assert again.C_ == model.C_


def test_a_batch_is_uncertain_and_diverse(model):
    pool = make_sequences(80, random_state=5)
    entropy = model.distribution(pool.X).entropy() / [len(x) for x in pool.X]
    for strategy in ("entropy", "margin", "information"):
        for cost in ("token", "sequence"):
            chosen = model.select_for_labelling(pool.X, 10, strategy, cost=cost, random_state=0)
            assert len(set(chosen.tolist())) == 10
            again = model.select_for_labelling(pool.X, 10, strategy, cost=cost, random_state=0)
            np.testing.assert_array_equal(again, chosen)
            if (strategy, cost) == ("entropy", "token"):
                assert entropy[chosen].mean() > 1.1 * entropy.mean()
    twice = [x for x in pool.X[:20] for _ in range(2)]
    chosen = model.select_for_labelling(twice, 15, random_state=0)
    assert len({i // 2 for i in chosen.tolist()}) == 15
    with pytest.raises(ValueError, match="k=0: expected an integer from 1"):
        model.select_for_labelling(pool.X, 0)
    with pytest.raises(ValueError, match="strategy='random'"):
        model.select_for_labelling(pool.X, 1, "random")
    with pytest.raises(ValueError, match="cost='word'"):
        model.select_for_labelling(pool.X, 1, cost="word")


def test_a_draw_is_in_proportion_to_what_those_before_it_leave():
    rng = np.random.default_rng(0)
    q, phi = rng.uniform(0.3, 1.0, size=6), np.abs(rng.normal(size=(6, 4)))
    unit = phi / np.linalg.norm(phi, axis=1, keepdims=True)
    L = np.outer(q, q) * (unit @ unit.T)
    sparse = [draw_batch(q, sp.csr_array(phi), 3, np.random.default_rng(seed)) for seed in range(50)]
    np.testing.assert_array_equal(sparse, [draw_batch(q, phi, 3, np.random.default_rng(seed)) for seed in range(50)])
    draws = np.array([draw_batch(q, phi, 3, rng) for _ in range(3000)])
    first = np.bincount(draws[:, 0], minlength=6) / len(draws)
    np.testing.assert_allclose(first, q**2 / (q**2).sum(), atol=0.04)
    i = int(first.argmax())
    left = np.diag(L) - L[:, i] ** 2 / L[i, i]
    second = np.bincount(draws[draws[:, 0] == i, 1], minlength=6) / (draws[:, 0] == i).sum()
    np.testing.assert_allclose(second, left / left.sum(), atol=0.06)
    j = int(second.argmax())
    pair = [i, j]
    left = np.diag(L - L[:, pair] @ np.linalg.solve(L[np.ix_(pair, pair)], L[pair]))
    both = (draws[:, 0] == i) & (draws[:, 1] == j)
    third = np.bincount(draws[both, 2], minlength=6) / both.sum()
    np.testing.assert_allclose(third, left / left.sum(), atol=0.15)


def test_a_batch_may_be_the_whole_pool_whatever_its_scores():
    rng = np.random.default_rng(0)
    assert sorted(draw_batch(np.zeros(5), np.ones((5, 2)), 5, rng)) == [0, 1, 2, 3, 4]
    assert sorted(draw_batch(np.array([0.0, 1.0, 1.0]), np.ones((3, 2)), 3, rng)) == [0, 1, 2]


def test_tiny_scores_can_be_drawn():
    drawn = draw_batch(np.array([1e-170, 1e-171, 1e-200]), np.eye(3), 3, np.random.default_rng(0))
    assert sorted(drawn.tolist()) == [0, 1, 2]
    drawn = draw_batch(np.array([1.0, 1e-170, 1e-171]), np.eye(3), 3, np.random.default_rng(0))
    assert drawn[0] == 0
