"""Averages over the posterior of the weights of networks equal averages of enumeration at the same draws."""

from itertools import product

import numpy as np
import pytest
from scipy.special import entr

import kernelcrf
from kernelcrf import GraphCRF, MarkovNetwork, MultiLabelCRF
from kernelcrf.models.base import rng_of

RNG = np.random.default_rng(0)
RING = [[0, 1], [1, 2], [2, 3], [3, 0]]
NODE_LABELS = [np.roll([0, 0, 1, 2], i) for i in range(10)]
GRAPHS = [(y[:, None] + RNG.normal(size=(4, 2)), RING) for y in NODE_LABELS]
ROWS = RNG.normal(size=(40, 2))
SETS = (ROWS @ RNG.normal(size=(2, 3)) + RNG.normal(size=(40, 3)) > 0).astype(int)
TABLE = np.array([(v % 2, v % 3, (v + v // 4) % 2) for v in RNG.integers(0, 60, size=80)])
HOLES = [[None, 1, 0], [0, None, None], [None, None, None], [1, 2, 1]]
DRAWS = {"n_samples": 7, "random_state": 3}

FITS = {
    "graphs": lambda **kw: GraphCRF("linear", edge_kernel="linear", **kw).fit(GRAPHS, NODE_LABELS),
    "sets": lambda **kw: MultiLabelCRF("linear", edge_kernel="linear", structure="full", **kw).fit(ROWS, SETS),
    "table": lambda **kw: MarkovNetwork("rbf", gamma=0.5, structure="full", **kw).fit(TABLE),
}
INPUTS = {"graphs": GRAPHS[:2], "sets": ROWS[:3], "table": HOLES}


@pytest.fixture(scope="module")
def models():
    return {name: fit(laplace=True) for name, fit in FITS.items()}


def drawn_weights(model):
    """Yield the dense weights of each term for each draw, as the model draws them."""
    layout, posterior = model.model_.layout, model.model_.laplace.posterior
    for deviation in posterior.deviations(DRAWS["n_samples"], rng_of(DRAWS["random_state"])):
        weights = layout.split(posterior.mode + deviation)
        yield {term.name: weights[term.name] @ term.k_y.factor.T for term in layout.terms}


def marginals(score, cards, known=None):
    """Return the probabilities of the values of each variable, by enumeration of all values."""
    known = [None] * len(cards) if known is None else known
    values = product(*(range(card) if value is None else [value] for card, value in zip(cards, known, strict=True)))
    values = list(values)
    p = np.exp([score(y) for y in values])
    found = np.zeros((len(cards), max(cards)))
    for y, one in zip(values, p / p.sum(), strict=True):
        found[np.arange(len(cards)), y] += one
    return found


def of_graphs(W):
    def score(y, x, L=3):
        nodes = sum(x[v] @ W["nodes"][:, y[v]] + W["nodes constant"][0, y[v]] for v in range(4))
        pairs = [(np.append(x[u] + x[v], abs(x[u] - x[v])), y[u] * L + y[v]) for u, v in RING]
        return nodes + sum(W["edges constant"][0, k] + z @ W["edge inputs"][:, k] for z, k in pairs)

    return np.concatenate([marginals(lambda y, x=x: score(y, x), [3] * 4) for x, _ in INPUTS["graphs"]])


def of_sets(W):
    def score(y, x):
        singles = [(f"label {j}", y[j]) for j in range(3)]
        pairs = [(f"edge {j} {k}", 2 * y[j] + y[k]) for j in range(3) for k in range(j + 1, 3)]
        return sum(x @ W[name][:, k] + W[f"{name} constant"][0, k] for name, k in singles + pairs)

    return np.concatenate([marginals(lambda y, x=x: score(y, x), [2] * 3) for x in INPUTS["sets"]])


def of_table(W):
    cards = [2, 3, 2]

    def score(y):
        pairs = [(f"edge {u} {v}", cards[v] * y[u] + y[v]) for u in range(3) for v in range(u + 1, 3)]
        return sum(W[f"variable {v}"][0, y[v]] for v in range(3)) + sum(W[name][0, k] for name, k in pairs)

    return np.concatenate([marginals(score, cards, row) for row in HOLES])


ORACLES = {"graphs": of_graphs, "sets": of_sets, "table": of_table}


def flat(name, found):
    """Return answers as an array whose rows are nodes, labels or values, in the order of the oracles."""
    return np.concatenate(found) if name == "graphs" else np.asarray(found).ravel()


def flat_proba(name, found):
    if name == "graphs":
        return np.concatenate(found)
    if name == "sets":
        return np.stack((1 - found, found), axis=-1).reshape(-1, 2)
    return np.stack([np.pad(p, ((0, 0), (0, 3 - p.shape[1]))) for p in found], axis=1).reshape(-1, 3)


@pytest.mark.parametrize("name", FITS)
def test_averages_equal_those_of_enumeration_at_the_same_draws(name, models):
    model, X = models[name], INPUTS[name]
    each = np.array([ORACLES[name](W) for W in drawn_weights(model)])
    mean, aleatoric = each.mean(axis=0), entr(each).sum(axis=2).mean(axis=0)
    np.testing.assert_allclose(flat_proba(name, model.predict_proba(X, posterior="laplace", **DRAWS)), mean, atol=1e-9)
    parts = model.uncertainty(X, **DRAWS)
    np.testing.assert_allclose(flat(name, parts.aleatoric), aleatoric, atol=1e-9)
    np.testing.assert_allclose(flat(name, parts.epistemic), entr(mean).sum(axis=1) - aleatoric, atol=1e-9)


@pytest.mark.parametrize("name", FITS)
def test_a_posterior_without_variance_is_the_mode_and_files_keep_the_posterior(name, models, tmp_path):
    model, X = models[name], INPUTS[name]
    at_mode = model.predict_proba(X, posterior="laplace", variance_temperature=0.0, n_samples=2)
    for a, b in zip(at_mode, model.predict_proba(X), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
    model.save(tmp_path / "model")
    loaded = kernelcrf.load(tmp_path / "model")
    for a, b in zip(*(m.predict_proba(X, posterior="laplace", **DRAWS) for m in (model, loaded)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", FITS)
def test_a_fit_without_a_posterior_says_what_to_do(name):
    model = FITS[name]()
    with pytest.raises(AttributeError, match="fit with laplace=True"):
        model.uncertainty(INPUTS[name])
    with pytest.raises(AttributeError, match="fit with laplace=True"):
        model.predict_proba(INPUTS[name], posterior="laplace")


def test_inputs_far_from_all_landmarks_are_uncertain():
    model = MultiLabelCRF("rbf", gamma=1.0, C=10.0, n_components=20, laplace=True, random_state=0).fit(ROWS, SETS)
    near, far = model.uncertainty(np.array([ROWS[0], [50.0, 50.0]])).epistemic
    assert (far > near).all()
    graphs = GraphCRF("rbf", gamma=1.0, C=10.0, n_components=10, laplace=True, random_state=0).fit(GRAPHS, NODE_LABELS)
    moved = [(GRAPHS[0][0] + 50.0, RING)]
    assert graphs.uncertainty(moved).epistemic[0].mean() > graphs.uncertainty(GRAPHS[:1]).epistemic[0].mean()


def test_blocks_of_rows_and_samples_without_rows_or_edges_are_answered(models, monkeypatch):
    sets, whole = models["sets"], models["sets"].predict_proba(ROWS, posterior="laplace", **DRAWS)
    monkeypatch.setattr("kernelcrf.models.label_sets.BLOCK_ENTRIES", 200)
    np.testing.assert_allclose(sets.predict_proba(ROWS, posterior="laplace", **DRAWS), whole, atol=1e-12)
    assert sets.uncertainty(ROWS[:0]).epistemic.shape == (0, 3)
    alone = (GRAPHS[0][0][:1], np.empty((0, 2), int))
    assert models["graphs"].predict_proba([alone], posterior="laplace", **DRAWS)[0].shape == (1, 3)
