import networkx as nx
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from graph_problems import expanded_weights
from kernelcrf import ChainCRF, GraphCRF, load
from kernelcrf.fitting.graphs import _n_rows
from kernelcrf.inference.clique_tree import TreewidthError
from kernelcrf.readers.graphs import GraphSamples


def grid_edges(rows, columns):
    nodes = np.arange(rows * columns).reshape(rows, columns)
    across = np.column_stack((nodes[:, :-1].ravel(), nodes[:, 1:].ravel()))
    down = np.column_stack((nodes[:-1].ravel(), nodes[1:].ravel()))
    return np.concatenate((across, down))


def images(seed, m, side=4, noise=1.2):
    """Smooth binary images under noise, as graphs."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(m):
        a, b = rng.normal(size=2)
        u, v = np.meshgrid(np.linspace(-1, 1, side), np.linspace(-1, 1, side))
        labels = (a * u + b * v + 0.3 * rng.normal() > 0).astype(int).ravel()
        X.append(
            (
                np.column_stack((labels + noise * rng.normal(size=labels.size), np.ones(labels.size))),
                grid_edges(side, side),
            )
        )
        y.append(labels)
    return X, y


def sequences(seed, m):
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(m):
        T = int(rng.integers(3, 8))
        labels = np.cumsum(rng.integers(0, 2, size=T)) % 3
        X.append(np.eye(3)[labels] + 0.7 * rng.normal(size=(T, 3)))
        y.append(labels)
    return X, y


@pytest.mark.parametrize("inference", ["exact", "loopy", "gibbs"])
def test_edges_help_on_smooth_images(inference):
    X, y = images(0, 20, side=8, noise=0.8)
    X_test, y_test = images(1, 20, side=8, noise=0.8)
    alone = GraphCRF("linear", cliques=(), random_state=0).fit(X, y).score(X_test, y_test)
    joined = GraphCRF("linear", inference=inference, random_state=0).fit(X, y)
    assert joined.score(X_test, y_test) > alone + 0.05
    assert joined.certificate_.relative_gap <= 1e-4
    assert ("bound" in joined.covers_, "pseudo" in joined.covers_) == (inference == "loopy", inference == "gibbs")
    p = joined.predict_proba(X_test[:2])
    np.testing.assert_allclose(p[0].sum(axis=1), 1)
    T = joined.edge_potentials_
    np.testing.assert_allclose(T, T.T, atol=1e-12)
    assert T[0, 0] + T[1, 1] > 2 * T[0, 1]


def test_loopy_probabilities_of_labels_are_bounds():
    X, y = images(0, 20)
    loopy = GraphCRF("linear", inference="loopy", random_state=0).fit(X, y)
    exact = clone(loopy).set_params(inference="exact").fit(X, y)
    assert exact.certificate_.objective <= loopy.certificate_.objective + 1e-6
    exact.model_ = loopy.model_
    assert (loopy.log_prob(X[:3], y[:3]) <= exact.log_prob(X[:3], y[:3]) + 1e-9).all()


def test_sequences_are_chains():
    X, y = sequences(0, 25)
    X_test, _ = sequences(1, 8)
    graph = GraphCRF("linear", C=0.8, C_label=0.8, tol=1e-9)
    # The one difference: a constant for each label, here as a column of the chain's inputs.
    ones = [np.column_stack((x, np.ones(len(x)))) for x in X]
    chain = ChainCRF("linear", C=0.8, tol=1e-9, decoding="viterbi", fit_intercept=False).fit(ones, y)
    graph.fit(X, y)
    assert graph.certificate_.objective == pytest.approx(chain.certificate_.objective, rel=1e-7)
    np.testing.assert_allclose(graph.edge_potentials_, chain.transitions_, atol=1e-4)
    test = [np.column_stack((x, np.ones(len(x)))) for x in X_test]
    for a, b in zip(graph.predict_proba(X_test), chain.predict_proba(test), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)
    for a, b in zip(graph.predict(X_test), chain.predict(test), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(graph.distribution(X_test).entropy(), chain.distribution(test).entropy(), atol=1e-3)
    (graph_best,), (chain_best,) = graph.distribution(X_test[:1]).k_best(3), chain.distribution(test[:1]).k_best(3)
    for (a, p), (b, q) in zip(graph_best, chain_best, strict=True):
        np.testing.assert_array_equal(a, b)
        assert p == pytest.approx(q, abs=1e-3)


def test_one_graph_for_all_equals_the_union():
    X, y = images(0, 10, side=3)
    shared = GraphCRF("rbf", n_components=20, tol=1e-9, random_state=0).fit(X, y)
    # The same graphs, with the edges of one of them in another order: no longer rows of one graph.
    other = [(f, e if i else e[::-1].copy()) for i, (f, e) in enumerate(X)]
    union = GraphCRF("rbf", n_components=20, tol=1e-9, random_state=0).fit(other, y)
    assert _n_rows(GraphSamples.read(X, directed=False)) == 10
    assert _n_rows(GraphSamples.read(other, directed=False)) == 1
    assert shared.certificate_.objective == pytest.approx(union.certificate_.objective, rel=1e-8)
    np.testing.assert_allclose(shared.log_prob(X, y), union.log_prob(X, y), atol=1e-3)


def test_structure_search_on_chains_finds_the_second_order():
    rng = np.random.default_rng(0)
    X, y = [], []
    for _ in range(60):
        labels = [int(rng.integers(2)), int(rng.integers(2))]
        while len(labels) < 12:
            labels.append(labels[-2] ^ labels[-1] if rng.random() < 0.9 else int(rng.integers(2)))
        y.append(np.array(labels))
        X.append(y[-1][:, None] + 0.8 * rng.normal(size=(12, 1)))
    model = GraphCRF("linear", cliques="auto", edge_kernel="linear", random_state=0).fit(X, y)
    assert "paths" in model.cliques_
    assert "edge inputs" not in model.cliques_
    whole = GraphCRF("linear", cliques=("edges", "skips", "paths"), edge_kernel="linear", tol=1e-8, random_state=0).fit(
        X, y
    )
    assert model.search_.lower_bound <= whole.certificate_.objective <= model.certificate_.objective + 1e-6
    first = model.search_.rounds[0]
    best = max(first.joined, key=lambda candidate: candidate.expected_gain)
    assert best.template == "paths"
    plain = GraphCRF("linear", random_state=0).fit(X, y)
    assert model.score(X, y) > plain.score(X, y) + 0.02


def test_edge_features_decide_where_nodes_agree():
    """Neighbours agree where their edge says so, and differ where it does not."""
    rng = np.random.default_rng(0)
    X, y = [], []
    for _ in range(60):
        same = rng.integers(2, size=6)
        labels = np.concatenate(([rng.integers(2)], same)).cumsum() % 2
        X.append(
            (
                labels[:, None] + 2.0 * rng.normal(size=(7, 1)),
                np.column_stack((np.arange(6), np.arange(1, 7))),
                same[:, None] - 0.5,
            )
        )
        y.append(labels)
    blind = GraphCRF("linear", random_state=0).fit([x[:2] for x in X], y)
    seeing = GraphCRF("linear", edge_kernel="linear", random_state=0).fit(X, y)
    assert seeing.score(X, y) > blind.score([x[:2] for x in X], y) + 0.1
    with pytest.raises(ValueError, match="X has no edge features, but the model was fitted with edge features"):
        seeing.predict([x[:2] for x in X])


def test_networkx_graphs_are_read():
    X, y = images(0, 6, side=3)
    graphs = []
    for features, edges in X:
        graph = nx.Graph()
        graph.add_nodes_from((f"n{v}", {"x": row}) for v, row in enumerate(features))
        graph.add_edges_from((f"n{a}", f"n{b}") for a, b in edges)
        graphs.append(graph)
    model = GraphCRF("linear", tol=1e-8).fit(X, y)
    other = GraphCRF("linear", tol=1e-8).fit(graphs, y)
    assert model.certificate_.objective == pytest.approx(other.certificate_.objective, rel=1e-7)
    with pytest.raises(ValueError, match=r"X\[0\] lacks node features"):
        model.predict([nx.path_graph(3)])


def test_missing_labels_and_weights():
    X, y = images(0, 20, side=3, noise=0.5)
    holes = [[None if (i + v) % 3 == 0 else int(label) for v, label in enumerate(labels)] for i, labels in enumerate(y)]
    model = GraphCRF("linear", random_state=0).fit(X, holes)
    assert model.score(X, y) > 0.8
    assert model.certificate_.lower_bound == -np.inf
    twice = GraphCRF("linear", tol=1e-8).fit(X + X[:5], y + y[:5])
    weighted = GraphCRF("linear", tol=1e-8).fit(X, y, sample_weight=[2.0] * 5 + [1.0] * 15)
    assert twice.certificate_.objective == pytest.approx(weighted.certificate_.objective, rel=1e-6)
    np.testing.assert_allclose(model.log_prob(X[:1], [[None] * 9]), 0.0, atol=1e-9)


def test_samples_come_from_the_model():
    X, y = images(0, 20, side=3)
    model = GraphCRF("linear", random_state=0).fit(X, y)
    p = model.predict_proba(X[:2])
    draws = model.distribution(X[:2]).sample(4000, random_state=0)
    assert draws[0].shape == (4000, 9)
    for own, marginals in zip(draws, p, strict=True):
        assert np.abs(own.mean(axis=0) - marginals[:, 1]).max() < 0.05


def test_a_wide_grid_is_refused_and_loopy_takes_it():
    X, y = images(0, 2, side=28)
    with pytest.raises(TreewidthError, match=r"inference='loopy'"):
        GraphCRF("linear").fit(X, y)
    model = GraphCRF("linear", inference="loopy", tol=1e-2).fit(X, y)
    assert model.score(X, y) > 0.9


def test_what_does_not_fit_is_refused_by_name():
    X, y = images(0, 3, side=2)
    with pytest.raises(ValueError, match=r"edges of X\[1\] have node numbers from 0 to 9: expected 0 to 3"):
        GraphCRF().fit([X[0], (X[1][0], [[0, 9]]), X[2]], y)
    with pytest.raises(ValueError, match=r"X\[0\] has an edge from node 1 to itself"):
        GraphCRF().fit([(X[0][0], [[1, 1]])], y[:1])
    with pytest.raises(ValueError, match=r"X\[0\] has 4 edges and 2 rows of edge features"):
        GraphCRF().fit([(*X[0], np.zeros((2, 1)))], y[:1])
    with pytest.raises(ValueError, match="contains NaN"):
        GraphCRF().fit([(np.full((4, 2), np.nan), X[0][1])], y[:1])
    with pytest.raises(ValueError, match="inference='magic': expected 'exact', 'loopy' or 'gibbs'"):
        GraphCRF(inference="magic").fit(X, y)
    with pytest.raises(ValueError, match=r"cliques=\('loops',\)"):
        GraphCRF(cliques=("loops",)).fit(X, y)
    with pytest.raises(ValueError, match="mixes sequences and graphs"):
        GraphCRF().fit([X[0], np.zeros((3, 2))], [y[0], [0, 1, 0]])
    with pytest.raises(ValueError, match="X is one array"):
        GraphCRF().fit(np.zeros((4, 2)), y)
    with pytest.raises(ValueError, match="sets of labels"):
        GraphCRF().fit(X, [[{0, 1}, 0, 2, 1], y[1], y[2]])
    model = GraphCRF("linear", inference="gibbs").fit(X, y)
    with pytest.raises(ValueError, match="log_prob is not available with inference='gibbs'"):
        model.log_prob(X, y)
    with pytest.raises(ValueError, match="k_best is not available with inference='gibbs'"):
        model.distribution(X).k_best()
    with pytest.raises(ValueError, match="expected 2, as in training"):
        model.predict([(np.zeros((2, 3)), [[0, 1]])])


@pytest.mark.parametrize("edge_kernel", [None, "linear"])
def test_graphs_without_edges_or_nodes(edge_kernel):
    rng = np.random.default_rng(0)
    triangle, nothing = np.array([[0, 1], [1, 2], [0, 2]]), np.empty((0, 2), int)
    X = [(rng.normal(size=(3, 2)), triangle), (rng.normal(size=(1, 2)), nothing), (np.empty((0, 2)), nothing)] * 4
    y = [rng.integers(2, size=len(x)) for x, _ in X]
    model = GraphCRF(edge_kernel=edge_kernel, random_state=0).fit(X, y)
    ranked = model.distribution(X).k_best(2)
    assert [len(labels) for ((labels, _), *_) in ranked] == [3, 1, 0] * 4
    for one, own in zip(model.predict(X), ranked, strict=True):
        np.testing.assert_array_equal(one, own[0][0])
    np.testing.assert_allclose([own[0][1] for own in ranked], model.log_prob(X, model.predict(X)), atol=1e-9)
    assert model.log_prob(X, y)[2] == model.distribution(X).entropy()[11] == 0
    weighted = GraphCRF(edge_kernel=edge_kernel, random_state=0).fit(X, y, sample_weight=np.ones(12))
    np.testing.assert_allclose(weighted.edge_potentials_, model.edge_potentials_)


def renumbered(rng, graph, labels):
    """The same graph with its nodes in another order, its edges in another order, and each from either end."""
    features, edges, *rest = graph
    order = rng.permutation(len(features))
    new, shuffled = np.argsort(order), rng.permutation(len(edges))
    ends = new[np.asarray(edges)[shuffled]]
    turned = np.where(rng.random(len(edges))[:, None] < 0.5, ends, ends[:, ::-1])
    return (features[order], turned, *(one[shuffled] for one in rest)), labels[order], order


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("inference", ["exact", "gibbs"])
@pytest.mark.parametrize("edge_kernel", [None, "linear"])
def test_numbers_of_nodes_and_the_order_of_edges_mean_nothing(seed, inference, edge_kernel):
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(12):
        n = int(rng.integers(3, 7))
        pairs = np.array([(a, b) for b in range(n) for a in range(b)])
        kept = pairs[rng.random(len(pairs)) < 0.5]
        X.append((rng.normal(size=(n, 2)), kept, *([rng.normal(size=(len(kept), 2))] if seed == 2 else [])))
        y.append(rng.integers(3, size=n))
    y[0][:3] = 0, 1, 2
    moved, moved_y, orders = zip(
        *(renumbered(rng, graph, labels) for graph, labels in zip(X, y, strict=True)), strict=True
    )
    parameters = {
        "kernel": "linear", "cliques": ("edges", "skips", "paths"), "edge_kernel": edge_kernel, "tol": 1e-10,
        "inference": inference, "random_state": 0,
    }  # fmt: skip
    model = GraphCRF(**parameters).fit(X, y)
    other = GraphCRF(**parameters).fit(list(moved), list(moved_y))
    assert other.certificate_.objective == pytest.approx(model.certificate_.objective, rel=1e-9)
    for fitted in (model, other):
        fitted.set_params(inference="exact")
    for a, b, order in zip(model.predict_proba(X), other.predict_proba(list(moved)), orders, strict=True):
        np.testing.assert_allclose(b, a[order], atol=1e-5)
    for a, b, order in zip(model.predict(X), model.predict(list(moved)), orders, strict=True):
        np.testing.assert_array_equal(b, a[order])
    np.testing.assert_allclose(model.log_prob(list(moved), list(moved_y)), model.log_prob(X, y), rtol=1e-9)


@pytest.mark.parametrize("inference", ["loopy", "gibbs"])
def test_the_evidence_is_that_of_the_posterior_or_refused(inference):
    X, y = images(0, 3, side=2)
    with pytest.raises(ValueError, match=f"inference='{inference}' cannot be combined with laplace=True"):
        GraphCRF("linear", inference=inference, laplace=True).fit(X, y)


def test_what_a_certificate_covers_is_that_of_the_fit(tmp_path):
    X, y = images(0, 3, side=2)
    model = GraphCRF("linear", laplace=True).fit(X, y).set_params(inference="loopy")
    model.save(tmp_path / "model.kcrf")
    again = load(tmp_path / "model.kcrf")
    assert again.covers_ == model.covers_ == "the negative log posterior"
    assert again.log_marginal_likelihood() == model.log_marginal_likelihood()


def with_holes(rng, y, share):
    return [[None if rng.random() < share else int(label) for label in labels] for labels in y]


@pytest.mark.parametrize("seed", [2, 9])
def test_loopy_probabilities_with_missing_labels_are_lower_bounds(seed):
    """Nodes that all see each other, half of them of either label."""
    rng = np.random.default_rng(seed)
    edges = np.array([(a, b) for b in range(4) for a in range(b)])
    y = [rng.permutation([0, 0, 1, 1]) if rng.random() < 0.9 else rng.integers(2, size=4) for _ in range(20)]
    X = [(labels[:, None] + rng.normal(size=(4, 1)), edges) for labels in y]
    model = GraphCRF("linear", inference="loopy", C=10.0, C_label=20.0).fit(X, y)
    holes = [[None if rng.random() < 0.75 else int(label) for label in rng.integers(2, size=4)] for _ in y]
    bound = model.log_prob(X, holes)
    exact = model.set_params(inference="exact").log_prob(X, holes)
    assert (bound <= exact + 1e-9).all()
    assert (bound >= exact - 3).all()


def test_a_loopy_fit_with_missing_labels_is_an_upper_bound():
    X, y = images(0, 8, side=2)
    y = with_holes(np.random.default_rng(1), y, 0.5)
    model = GraphCRF("linear", inference="loopy", C=1.0, C_label=1.0, random_state=0).fit(X, y)
    W, constant, T = (expanded_weights(model)[name] for name in ("nodes", "nodes constant", "edges constant"))
    penalty = 0.5 * sum(float(np.vdot(one, one)) for one in (W, constant, T))
    exact = -model.set_params(inference="exact").log_prob(X, y).sum() + penalty
    assert model.certificate_.objective >= exact - 1e-9
    assert model.certificate_.lower_bound == -np.inf


def test_sequences_are_chains_with_any_kernel():
    """The constant of each label is a constant in the kernel, if both prior variances are one."""
    X, y = sequences(0, 8)
    graph = GraphCRF(RBF(1.3), C=0.8, C_label=0.8, n_components=None, tol=1e-9).fit(X, y)
    kernel = RBF(1.3) + ConstantKernel(1.0)
    chain = ChainCRF(kernel, C=0.8, n_components=None, tol=1e-9, fit_intercept=False).fit(X, y)
    assert graph.certificate_.objective == pytest.approx(chain.certificate_.objective, rel=1e-7)
    for a, b in zip(graph.predict_proba(X), chain.predict_proba(X), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


@pytest.mark.parametrize("inference", ["loopy", "gibbs"])
def test_a_graph_without_nodes_has_one_labelling(inference):
    X, y = images(0, 3, side=2)
    model = GraphCRF("linear", inference=inference, random_state=0).fit(X, y)
    nothing = [(np.empty((0, 2)), np.empty((0, 2), int))]
    assert [len(labels) for labels in model.predict(nothing)] == [0]
    assert model.predict_proba(nothing)[0].shape == (0, 2)
    assert model.distribution(nothing).sample(3, random_state=0)[0].shape == (3, 0)


def test_graphs_without_node_features_are_refused():
    with pytest.raises(ValueError, match=r"X\[0\] has no node features: expected at least one column"):
        GraphCRF("linear").fit([(np.zeros((3, 0)), [[0, 1], [1, 2]])] * 2, [[0, 1, 1], [1, 1, 0]])


def test_an_inference_that_is_not_known_is_named_after_the_fit():
    graphs = [(np.ones((2, 1)), [[0, 1]])] * 2
    crf = GraphCRF("linear").fit(graphs, [[0, 1], [1, 0]]).set_params(inference="other")
    with pytest.raises(ValueError, match="inference='other'"):
        crf.predict(graphs)
