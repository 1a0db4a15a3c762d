"""GraphCRF on many graphs in parts is GraphCRF on all graphs."""

from functools import partial

import numpy as np
import pytest
from sklearn.base import clone

from clusters import Inline
from kernelcrf import GraphCRF, Input
from kernelcrf.distributed import RawSequences, SequenceSources

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")

SETTINGS = {"kernel": "linear", "C": 1.0, "tol": 1e-9, "random_state": 0}


@pytest.fixture(scope="module")
def graphs():
    """Rings and trees of different sizes, whose neighbours often have the same label."""
    rng = np.random.default_rng(0)
    X, y = [], []
    for k in range(30):
        n = int(rng.integers(3, 7))
        edges = [(i, i + 1) for i in range(n - 1)] + ([(0, n - 1)] if k % 2 else [])
        labels = np.repeat(rng.integers(2, size=2), (n - 1, 1))
        X.append((labels[:, None] + rng.normal(size=(n, 2)), np.array(edges)))
        y.append(np.where(labels, "b", "a"))
    return X, y


def agree(model, X, y, **fit):
    here = clone(model).fit(X, y, **fit)
    there = clone(model).set_params(engine=Inline(forgetful=False)).fit(X, y, **fit)
    assert there.certificate_.objective == pytest.approx(here.certificate_.objective, rel=1e-9)
    assert there.certificate_.status == here.certificate_.status
    assert there.cliques_ == here.cliques_
    np.testing.assert_allclose(there.edge_potentials_, here.edge_potentials_, atol=1e-4)
    assert all(map(np.array_equal, there.predict(X), here.predict(X)))
    return here, there


@pytest.mark.parametrize(
    "settings",
    [
        {"edge_kernel": "linear", "class_weight": "balanced"},
        {"kernel": "rbf", "n_components": 10, "certify_full": True, "laplace": True, "solver": "newton-cg"},
        {"inputs": {"a": Input("rbf", columns=[0], n_components=6), "b": Input("linear")}, "kernel": "auto"},
        {"cliques": "auto", "directed": True},
        {"inference": "gibbs", "cliques": ("edges", "paths")},
        {"inference": "loopy", "tol": 1e-5},
        {"C": "auto", "classes": ["a", "b", "c"]},
    ],
    ids=str,
)
def test_a_fit_is_that_of_one_machine(graphs, settings):
    here, there = agree(GraphCRF(**SETTINGS | settings), *graphs, sample_weight=np.linspace(0, 2, 30))
    assert there.C_ == here.C_
    if settings.get("laplace"):
        assert there.certificate_.gap_full == pytest.approx(here.certificate_.gap_full, rel=1e-4, abs=1e-6)
        assert there.log_marginal_likelihood() == pytest.approx(here.log_marginal_likelihood(), rel=1e-7)


def test_equal_graphs_and_sequences(graphs):
    rng = np.random.default_rng(1)
    y = [rng.integers(2, size=4) for _ in range(20)]
    ring = [(0, 1), (1, 2), (2, 3), (0, 3)]
    agree(GraphCRF(**SETTINGS), [(labels[:, None] + rng.normal(size=(4, 1)), ring) for labels in y], y)
    agree(GraphCRF(**SETTINGS), [x for x, _ in graphs[0]], graphs[1])


def typed(graphs, first):
    """The same graphs with types and named cliques; edges only have features after the first few graphs."""
    rng = np.random.default_rng(2)
    X = []
    for k, (features, edges) in enumerate(graphs[0]):
        own = edges if k >= first else edges[:0]
        types = np.where(np.arange(len(features)) % 2, "odd", "even")
        x = {"nodes": features, "edges": own, "node_types": types, "cliques": {"ends": [[0, len(features) - 1]]}}
        if len(own):
            x |= {"edge_features": rng.normal(size=(len(own), 3)), "edge_types": np.arange(len(own)) % 2}
        X.append(x)
    return X, graphs[1]


def test_types_cliques_and_features_of_edges(graphs):
    X, y = typed(graphs, 12)
    model = GraphCRF(**SETTINGS, edge_kernel="rbf", n_components=8)
    here = clone(model).fit(X, y)
    there = clone(model).set_params(engine=Inline(5, forgetful=False)).fit(X, y)
    assert there.certificate_.objective == pytest.approx(here.certificate_.objective, rel=1e-9)
    assert there.model_.kinds == here.model_.kinds
    np.testing.assert_allclose(there.clique_potentials_["ends"], here.clique_potentials_["ends"], atol=1e-4)


def test_graphs_that_weights_of_classes_leave_out():
    """All graphs of the first part have the weight 0, and the last graph has no nodes."""
    rng = np.random.default_rng(3)
    y = [["a"] * 3 if k < 5 else ["b", "c", "b"] for k in range(12)]
    X = [(rng.normal(size=(3, 2)), [[0, 1], [1, 2]]) for _ in y]
    X, y = [*X, (np.zeros((0, 2)), np.zeros((0, 2), int))], [*y, []]
    agree(GraphCRF(**SETTINGS, class_weight={"a": 0.0}), X, y)


def test_a_prior_and_a_warm_start(graphs):
    X, y = graphs
    old = GraphCRF(**SETTINGS).fit(X[:15], y[:15])
    agree(GraphCRF(kernel="linear", prior=old, tol=1e-9), X[15:], y[15:])
    model = GraphCRF(**SETTINGS, warm_start=True, engine=Inline(forgetful=False)).fit(X, y)
    assert model.set_params(tol=1e-7).fit(X, y).n_iter_ <= 1
    same = GraphCRF(kernel="linear", prior=old, engine=Inline()).fit(X, y, sample_weight=np.zeros(30))
    np.testing.assert_array_equal(same.edge_potentials_, old.edge_potentials_)


def test_what_cannot_be_read_is_named(graphs):
    X, y = graphs
    model = GraphCRF(**SETTINGS, engine=Inline())
    with pytest.raises(ValueError, match="base_scores cannot be combined with data on a cluster"):
        model.fit(X, y, base_scores=[1])
    with pytest.raises(ValueError, match="X has 30 graphs and y has 2"):
        model.fit(X, y[:2])
    sequences = [x for x, _ in X[10:]]
    for more, message in (
        (sequences, "X mixes sequences and graphs"),
        ([(x[:, :1], edges) for x, edges in X[10:]], "2 features in one part and 1 features in another"),
        ([(x, edges, np.zeros((len(edges), 1))) for x, edges in X[10:]], "some graphs with edge features and some"),
        (
            [{"nodes": x, "edges": e, "node_types": ["n"] * len(x)} for x, e in X[10:]],
            "node types in one part and none",
        ),
    ):
        parts = SequenceSources([partial(RawSequences, X[:10], y[:10]), partial(RawSequences, more, y[10:])])
        with pytest.raises(ValueError, match=message):
            model.fit(parts)


def test_bags(client, graphs):
    db = pytest.importorskip("dask.bag")
    X, y = graphs
    here = GraphCRF(**SETTINGS).fit(X, y)
    there = GraphCRF(**SETTINGS).fit(*(db.from_sequence(part, npartitions=4) for part in (X, y)))
    assert there.certificate_.objective == pytest.approx(here.certificate_.objective, rel=1e-9)
