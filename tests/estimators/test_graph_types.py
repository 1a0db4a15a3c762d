"""Graphs whose nodes and edges have types, and cliques that the user names."""

import itertools
import warnings

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

from graph_problems import expanded_weights
from kernelcrf import GraphCRF, ModelFileError, load
from kernelcrf.fitting.graphs import _n_rows
from kernelcrf.persistence import read, write
from kernelcrf.plotting import LabelGraphDisplay
from kernelcrf.readers.graphs import GraphSamples
from kernelcrf.rules import Evidence

TIGHT = {"tol": 1e-9, "random_state": 0}


def random_graphs(seed, m, n_labels=2, same=False):
    """Graphs with two types of nodes, two types of edges, features of edges and named cliques of three nodes."""
    rng = np.random.default_rng(seed)
    X, y, structure = [], [], None
    for _ in range(m):
        if structure is None or not same:
            n = int(rng.integers(4, 6))
            pairs = np.array(list(itertools.combinations(range(n), 2)))
            edges = pairs[rng.random(len(pairs)) < 0.5]
            triples = np.array([rng.permutation(n)[:3] for _ in range(2)])
            structure = {
                "edges": edges,
                "node_types": rng.choice(["atom", "group"], size=n).tolist(),
                "edge_types": rng.integers(1, 3, size=len(edges)),
                "cliques": {"ring": np.unique(triples, axis=0), "far": pairs[:1, ::-1]},
            }
        edge_features = rng.normal(size=(len(structure["edges"]), 1))
        X.append({**structure, "nodes": rng.normal(size=(n, 2)), "edge_features": edge_features})
        y.append(rng.integers(n_labels, size=n))
    y[0][:n_labels] = range(n_labels)
    return X, y


def log_probabilities(model, x, edge_kernel):
    """The log-probability of every labelling, from the weights of the model and the formula of the docstring."""
    W, L, n = expanded_weights(model), len(model.classes_), len(x["nodes"])
    scores = np.zeros((L,) * n)
    for labels in itertools.product(range(L), repeat=n):
        for v, own in enumerate(x["node_types"]):
            scores[labels] += x["nodes"][v] @ W[f"nodes {own!r}"][:, labels[v]]
            scores[labels] += W[f"nodes {own!r} constant"][0, labels[v]]
        for e, (a, b) in enumerate(x["edges"]):
            own, pair = int(x["edge_types"][e]), labels[a] * L + labels[b]
            scores[labels] += model.edge_potentials_[own][labels[a], labels[b]]
            if edge_kernel:
                scores[labels] += x["edge_features"][e] @ W[f"edge inputs {own!r}"][:, pair]
        for name, rows in x["cliques"].items():
            for row in rows:
                scores[labels] += model.clique_potentials_[name][tuple(labels[v] for v in row)]
    return scores - np.logaddexp.reduce(scores.ravel())


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("edge_kernel", [None, "linear"])
def test_objective_and_probabilities_equal_enumeration(same, edge_kernel):
    X, y = random_graphs(1, 8, n_labels=3 - same, same=same)
    model = GraphCRF("linear", edge_kernel=edge_kernel, C=0.7, C_label=2.0, **TIGHT).fit(X, y)
    assert _n_rows(GraphSamples.read(X, directed=False)) == (8 if same else 1)
    assert model.certificate_.status == "optimal"
    assert model.cliques_ == ("edges", "far", "ring")
    L = len(model.classes_)
    assert {name: table.shape for name, table in model.clique_potentials_.items()} == {
        "far": (L,) * 2,
        "ring": (L,) * 3,
    }
    assert list(model.edge_potentials_) == [1, 2]
    for table in model.edge_potentials_.values():
        np.testing.assert_array_equal(table, table.T)
    weights = expanded_weights(model)
    penalty = sum(np.vdot(W, W) / (2 * (2.0 if name.endswith("constant") else 0.7)) for name, W in weights.items())
    all_log_p = [log_probabilities(model, x, edge_kernel) for x in X]
    losses = [log_p[tuple(labels)] for log_p, labels in zip(all_log_p, y, strict=True)]
    assert model.certificate_.objective == pytest.approx(penalty - sum(losses), rel=1e-9)
    np.testing.assert_allclose(model.log_prob(X, y), losses, rtol=1e-9)
    entropies = [-np.sum(np.exp(log_p) * log_p) for log_p in all_log_p]
    np.testing.assert_allclose(model.distribution(X).entropy(), entropies, rtol=1e-9)
    for log_p, proba, best in zip(all_log_p, model.predict_proba(X), model.predict(X), strict=True):
        axes = range(log_p.ndim)
        expected = [np.exp(log_p).sum(axis=tuple(a for a in axes if a != v)) for v in axes]
        np.testing.assert_allclose(proba, expected, atol=1e-12)
        np.testing.assert_array_equal(best, np.unravel_index(log_p.argmax(), log_p.shape))


def with_one_type(X):
    return [
        {"nodes": x, "edges": e, "edge_features": own, "node_types": [7] * len(x), "edge_types": ["e"] * len(e)}
        for x, e, own in X
    ]


@pytest.mark.parametrize("inference", ["exact", "loopy", "gibbs"])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_one_type_is_the_model_without_types(inference, kernel):
    X, y = random_graphs(2, 12)
    X = [(x["nodes"], x["edges"], x["edge_features"]) for x in X]
    typed = with_one_type(X)
    cliques = ("edges", "skips") if inference == "loopy" else ("edges", "skips", "paths")
    model = GraphCRF(kernel, edge_kernel=kernel, n_components=8, cliques=cliques, inference=inference, random_state=0)
    plain, other = model.fit(X, y), GraphCRF(**model.get_params()).fit(typed, y)
    assert other.certificate_ == plain.certificate_
    np.testing.assert_array_equal(other.edge_potentials_["e"], plain.edge_potentials_)
    assert other.cliques_ == plain.cliques_
    for a, b in zip(plain.predict_proba(X), other.predict_proba(typed), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(plain.predict(X), other.predict(typed), strict=True):
        np.testing.assert_array_equal(a, b)


def test_types_that_share_nothing_are_separate_models():
    """Graphs with one component of each type: the sum of two objectives, and the probabilities of two models."""
    parts = [random_graphs(seed, 10) for seed in (3, 4)]
    labels = parts[0][1], parts[1][1]
    separate = [[(x["nodes"], x["edges"]) for x in X] for X, _ in parts]
    joined = [
        {
            "nodes": np.vstack((a[0], b[0])),
            "edges": np.vstack((a[1], b[1] + len(a[0]))),
            "node_types": ["a"] * len(a[0]) + ["b"] * len(b[0]),
            "edge_types": ["a"] * len(a[1]) + ["b"] * len(b[1]),
        }
        for a, b in zip(*separate, strict=True)
    ]
    parameters = {"kernel": "rbf", "gamma": 0.5, "n_components": 6, **TIGHT}
    both = GraphCRF(**parameters).fit(joined, [np.concatenate(pair) for pair in zip(*labels, strict=True)])
    models = [GraphCRF(**parameters).fit(X, y) for X, y in zip(separate, labels, strict=True)]
    objective = sum(model.certificate_.objective for model in models)
    assert both.certificate_.objective == pytest.approx(objective, rel=1e-8)
    found = both.predict_proba(joined)
    for k, (model, own) in enumerate(zip(models, "ab", strict=True)):
        np.testing.assert_allclose(both.edge_potentials_[own], model.edge_potentials_, atol=1e-4)
        np.testing.assert_array_equal(both.landmarks_[own], model.landmarks_)
        for whole, first, alone in zip(found, separate[0], model.predict_proba(separate[k]), strict=True):
            n = len(first[0])
            np.testing.assert_allclose(whole[n:] if k else whole[:n], alone, atol=1e-4)


def renumbered(rng, x, labels):
    """The same graph with its nodes, edges and cliques in another order; the order within a clique stays."""
    order, shuffled = rng.permutation(len(labels)), rng.permutation(len(x["edges"]))
    new = np.argsort(order)
    moved = {
        "nodes": x["nodes"][order],
        "edges": new[x["edges"]][shuffled][:, ::-1],
        "edge_features": x["edge_features"][shuffled],
        "node_types": [x["node_types"][v] for v in order],
        "edge_types": x["edge_types"][shuffled],
        "cliques": {name: new[rows][::-1] for name, rows in reversed(x["cliques"].items())},
    }
    return moved, labels[order], order


@pytest.mark.parametrize("inference", ["exact", "gibbs"])
def test_numbers_of_nodes_mean_nothing(inference):
    X, y = random_graphs(5, 10)
    rng = np.random.default_rng(0)
    moved, moved_y, orders = zip(*(renumbered(rng, *one) for one in zip(X, y, strict=True)), strict=True)
    parameters = {"kernel": "linear", "edge_kernel": "linear", "inference": inference, **TIGHT, "tol": 1e-10}
    model, other = GraphCRF(**parameters).fit(X, y), GraphCRF(**parameters).fit(list(moved), list(moved_y))
    assert model.certificate_.status == other.certificate_.status == "optimal"
    assert other.certificate_.objective == pytest.approx(model.certificate_.objective, rel=1e-9)
    for fitted in (model, other):
        fitted.set_params(inference="exact")
    for a, b, order in zip(model.predict_proba(X), other.predict_proba(list(moved)), orders, strict=True):
        np.testing.assert_allclose(b, a[order], atol=1e-5)


def test_the_order_of_the_nodes_of_a_clique_matters():
    """The label of the third node of a clique is the product of the other two."""
    rng = np.random.default_rng(0)
    y = [rng.integers(2, size=3) for _ in range(60)]
    X = []
    for labels in y:
        row = rng.permutation(3)
        labels[row[2]] = labels[row[0]] * (1 - labels[row[1]])
        X.append({"nodes": np.zeros((3, 1)), "edges": [], "cliques": {"rule": [row]}})
    model = GraphCRF("linear", C_label=100.0).fit(X, y)
    table = model.clique_potentials_["rule"]
    assert (table[[0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 1, 0]] > table[[0, 0, 1, 1], [0, 1, 0, 1], [1, 1, 0, 1]] + 2).all()
    assert model.log_prob(X, y).mean() == pytest.approx(np.log(0.25), abs=0.1)


@pytest.mark.parametrize("parameters", [
    {"kernel": "rbf", "edge_kernel": "rbf", "n_components": 5},
    {"kernel": "linear", "laplace": True, "edge_kernel": "linear"},
    {"kernel": "linear", "inference": "gibbs"},
])  # fmt: skip
def test_files_give_the_same_model(tmp_path, parameters):
    X, y = random_graphs(6, 8)
    model = GraphCRF(random_state=0, **parameters).fit(X, y)
    model.save(tmp_path / "model.kcrf")
    again = load(tmp_path / "model.kcrf")
    assert again.certificate_ == model.certificate_
    assert again.cliques_ == model.cliques_
    assert again.model_.kinds == model.model_.kinds
    for name in ("ring", "far"):
        np.testing.assert_array_equal(again.clique_potentials_[name], model.clique_potentials_[name])
    for a, b in zip(model.predict_proba(X), again.predict_proba(X), strict=True):
        np.testing.assert_array_equal(a, b)
    again.set_params(warm_start=True).fit(X, y)
    assert again.n_iter_ <= 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"named": {"ring": 1}}, "expected a number of nodes, 2 or more, for each name"),
        ({"named": {"ring": 10**6, "far": 2}}, "expected at most .* joint labels"),
        ({"named": {"ring": 3}}, "expected one of"),
        ({"named": {"ring": 3, "far": 2, "more": 3}}, "expected features for .*more"),
        ({"node_types": ["atom", "atom"]}, "expected no duplicates"),
        ({"node_types": [1.5]}, "expected a list of strings and integers"),
        ({"node_types": None}, "expected one of"),
        ({"edge_types": [1]}, "expected one of"),
    ],
)
def test_damaged_files_are_refused(tmp_path, change, message):
    X, y = random_graphs(6, 4)
    path = tmp_path / "model.kcrf"
    GraphCRF("linear").fit(X, y).save(path)
    config, arrays, _ = read(path)
    write(path, {**config, "kinds": {**config["kinds"], **change}}, arrays)
    with pytest.raises(ModelFileError, match=message):
        load(path)


def test_evidence_laplace_and_the_whole_gap():
    X, y = random_graphs(7, 10)
    exact = GraphCRF("rbf", gamma=0.5, n_components=None, edge_kernel="rbf", **TIGHT).fit(X, y)
    found = GraphCRF("rbf", gamma=0.5, n_components=4, edge_kernel="rbf", certify_full=True, **TIGHT).fit(X, y)
    truth = found.certificate_.objective - exact.certificate_.objective
    assert 0 < truth <= found.certificate_.gap_full <= 5 * truth
    chosen = GraphCRF("linear", C="evidence", random_state=0).fit(X, y)
    beside = [GraphCRF("linear", C=chosen.C_ * f, laplace=True, random_state=0).fit(X, y) for f in (0.3, 3.0)]
    assert all(chosen.log_marginal_likelihood() >= one.log_marginal_likelihood() for one in beside)
    parameters = {"kernel": "rbf", "gamma": 5.0, "n_components": 8, "random_state": 0}
    before = GraphCRF(laplace=True, **parameters).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        after = GraphCRF(**parameters | {"C": Evidence(1.0, optimize_kernel=True)}).fit(X, y)
    assert after.log_marginal_likelihood() > before.log_marginal_likelihood()
    kernels = [after.model_.layout.by_name[f"nodes {own!r}"].kernel for own in ("atom", "group")]
    assert str(kernels[0]) == str(kernels[1])


def test_a_warm_start_may_meet_new_types():
    X, y = random_graphs(8, 8)
    only = [{**x, "node_types": ["atom"] * len(x["nodes"])} for x in X]
    model = GraphCRF("rbf", n_components=5, warm_start=True, tol=1e-8, random_state=0).fit(only, y)
    gamma = str(model.model_.layout.by_name["nodes 'atom'"].kernel)
    model.fit(X, y)
    assert str(model.model_.layout.by_name["nodes 'group'"].kernel) == gamma
    assert model.certificate_.status == "optimal"
    with pytest.raises(ValueError, match="expected types among 'atom', 'group'"):
        model.predict([{**X[0], "node_types": ["ion"] * len(X[0]["nodes"])}])


def test_types_and_cliques_may_be_absent_from_new_graphs():
    X, y = random_graphs(9, 8)
    for kernel in ("linear", "rbf"):
        model = GraphCRF(kernel, edge_kernel=kernel, random_state=0).fit(X, y)
        lone = {"nodes": np.ones((1, 2)), "edges": [], "node_types": ["group"]}
        other = {"nodes": np.ones((2, 2)), "edges": [[0, 1]], "node_types": ["atom"] * 2, "edge_types": [2]}
        other["edge_features"] = [[0.3]]
        assert [len(p) for p in model.predict_proba([lone, other])] == [1, 2]
        np.testing.assert_allclose(
            model.predict_proba([lone, other])[1], model.predict_proba([other, X[0]])[0], atol=1e-12
        )
        empty = {"nodes": np.empty((0, 2)), "edges": []}
        assert model.predict([]) == []
        assert [len(labels) for labels in model.predict([empty, lone])] == [0, 1]


def test_missing_labels_and_weights_of_zero():
    X, y = random_graphs(10, 12)
    model = GraphCRF("linear", random_state=0).fit(X, [[None, *labels[1:].tolist()] for labels in y])
    assert model.certificate_.status == "stationary"
    np.testing.assert_allclose(model.log_prob(X[:1], [[None] * len(y[0])]), 0.0, atol=1e-9)
    strange = {**X[0], "node_types": ["ion"] * len(y[0]), "cliques": {"odd": [[0, 1, 2, 3]]}}
    dropped = GraphCRF("linear", **TIGHT).fit([*X, strange], [*y, y[0]], sample_weight=[1.0] * 12 + [0.0])
    plain = GraphCRF("linear", **TIGHT).fit(X, y)
    assert dropped.model_.kinds == plain.model_.kinds
    assert dropped.certificate_.objective == pytest.approx(plain.certificate_.objective, rel=1e-12)


def test_networkx_graphs_have_types_in_attributes():
    X, y = random_graphs(11, 6)
    graphs, mappings = [], []
    for x in X:
        graph = nx.Graph()
        graph.add_nodes_from((v, {"x": row, "type": x["node_types"][v]}) for v, row in enumerate(x["nodes"]))
        graph.add_edges_from((a, b, {"type": own}) for (a, b), own in zip(x["edges"], x["edge_types"], strict=True))
        graphs.append(graph)
        mappings.append({key: x[key] for key in ("nodes", "edges", "node_types", "edge_types")})
    model, other = GraphCRF("linear", **TIGHT).fit(graphs, y), GraphCRF("linear", **TIGHT).fit(mappings, y)
    assert model.certificate_.objective == pytest.approx(other.certificate_.objective, rel=1e-9)
    del graphs[0].nodes[0]["type"]
    with pytest.raises(ValueError, match=r"of X\[0\] have an attribute 'type': expected .* for all nodes or for none"):
        model.predict(graphs)


def test_mappings_without_types_are_tuples():
    X, y = random_graphs(12, 6)
    bare = [{"nodes": sp.csr_array(x["nodes"]), "edges": x["edges"], "edge_types": None} for x in X]
    pairs = [(sp.csr_array(x["nodes"]), x["edges"]) for x in X]
    model, other = GraphCRF("linear", random_state=0).fit(bare, y), GraphCRF("linear", random_state=0).fit(pairs, y)
    assert model.certificate_ == other.certificate_
    assert model.clique_potentials_ == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": 1}, r"X\[0\] is a mapping with the unknown keys 'colour': expected the keys 'nodes', 'edges'"),
        ({"edges": None}, r"X\[0\]\['edges'\] is None"),
        ({"node_types": ["atom"]}, r"X\[0\] has \d nodes and 1 node types: expected one string or integer per node"),
        ({"node_types": [0.5] * 9}, r"has \d nodes and 9 node types"),
        ({"edge_types": np.ones((2, 2))}, r"the edge types of X\[0\] have shape \(2, 2\)"),
        ({"edge_types": None}, "some graphs with edge types and some without"),
        ({"node_types": None}, "some graphs with node types and some without"),
        ({"cliques": [[0, 1, 2]]}, r"the cliques of X\[0\] are .*: expected a dict"),
        ({"cliques": {"edges": [[0, 1, 2]]}}, r"X\[0\] has cliques named 'edges': expected .* choose another name"),
        ({"cliques": {3: [[0, 1, 2]]}}, "cliques named 3"),
        ({"cliques": {"ring": [[0], [1]]}}, r"'ring' of X\[0\] have shape \(2, 1\).* k at least 2"),
        ({"cliques": {"ring": [[0, 1, 1]]}}, r"contain \(0, 1, 1\), which has a node twice"),
        ({"cliques": {"ring": [[0, 1, 2], [0, 1, 2]]}}, r"contain \(0, 1, 2\) more than once"),
        ({"cliques": {"ring": [[0, 1, 77]]}}, r"'ring' of X\[0\] have node numbers from 0 to 77"),
        ({"cliques": {"ring": [[0, 1, 2], [0, 1]]}}, "not rows of equal length"),
        ({"cliques": {"ring": [[0, 1, 2, 3]]}}, r"'ring' of X\[1\] have 3 nodes each, but .* earlier graphs have 4"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(change, message):
    X, y = random_graphs(0, 3)
    with pytest.raises((ValueError, TypeError), match=message):
        GraphCRF("linear").fit([{**X[0], **change}, *X[1:]], y)


def test_types_are_strings_or_integers():
    X, y = random_graphs(0, 3)
    for wrong in (0.5, True, None):
        types = [wrong] * len(X[0]["nodes"])
        with pytest.raises(TypeError, match=rf"node types of X\[0\] contain {wrong}: expected one string or integer"):
            GraphCRF("linear").fit([{**X[0], "node_types": types}, *X[1:]], y)


def test_parameters_that_cannot_be_combined_are_named():
    X, y = random_graphs(0, 3)
    with pytest.raises(ValueError, match="inference='loopy', but X has cliques of three or more nodes, named 'ring'"):
        GraphCRF("linear", inference="loopy").fit(X, y)
    with pytest.raises(ValueError, match="cliques='auto', but X has types or named cliques"):
        GraphCRF("linear", cliques="auto").fit(X, y)
    large = {"nodes": np.zeros((30, 2)), "edges": [], "cliques": {"all": [np.arange(30)]}}
    with pytest.raises(
        ValueError, match="'all' of X have 30 nodes each, with 2 labels: expected at most 33554432 joint"
    ):
        GraphCRF("linear", inference="gibbs").fit([large], [np.arange(30) % 2])
    model = GraphCRF("linear").fit(X, y)
    with pytest.raises(ValueError, match="cliques of three or more nodes: inference='loopy' expects"):
        model.set_params(inference="loopy").predict(X)
    with pytest.raises(ValueError, match=r"a matrix for each of the types 1, 2: expected one matrix"):
        LabelGraphDisplay.from_estimator(model)


def test_what_the_model_does_not_know_is_named():
    X, y = random_graphs(0, 3)
    model, plain = GraphCRF("linear").fit(X, y), GraphCRF("linear").fit([(x["nodes"], x["edges"]) for x in X], y)
    n = len(X[0]["nodes"])
    wrong = {
        "X has the node types 3, 'ion', which": {"node_types": [3] + ["ion"] * (n - 1)},
        "X has no node types, but the model was fitted with the node types 'atom', 'group'": {"node_types": None},
        "X has no edge types, but the model was fitted with the edge types 1, 2": {"edge_types": None},
        "X has cliques named 'odd', which .* expected names among 'far', 'ring'": {"cliques": {"odd": [[0, 1]]}},
        "the cliques 'ring' of X have 2 nodes each: expected 3": {"cliques": {"ring": [[0, 1]]}},
    }
    for message, change in wrong.items():
        with pytest.raises(ValueError, match=message):
            model.predict([{**X[0], **change}])
    bare = {"nodes": X[0]["nodes"], "edges": X[0]["edges"]}
    with pytest.raises(ValueError, match="X has node types, but the model was fitted without node types"):
        plain.predict([{**bare, "node_types": ["atom"] * n}])
    with pytest.raises(ValueError, match=r"cliques named 'far', 'ring', .* expected no cliques"):
        plain.predict([{**bare, "cliques": X[0]["cliques"]}])


def test_loopy_objectives_with_types_and_pairs_are_upper_bounds():
    X, y = random_graphs(13, 8)
    X = [{**x, "cliques": {"far": x["cliques"]["far"]}} for x in X]
    exact, loopy = (GraphCRF("linear", inference=name, random_state=0).fit(X, y) for name in ("exact", "loopy"))
    assert loopy.certificate_.objective >= exact.certificate_.lower_bound
    assert loopy.certificate_.status == "optimal"
    np.testing.assert_allclose([p.sum() for p in loopy.predict_proba(X)], [len(labels) for labels in y])


@pytest.mark.parametrize("parameters", [{"C": "auto"}, {"n_components": "auto", "tol": 1e-2}, {"checkpoint": "run"}])
def test_other_ways_to_fit_are_certified(parameters, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y = random_graphs(14, 10)
    model = GraphCRF(**{"kernel": "rbf", "edge_kernel": "rbf", "gamma": 0.5, "random_state": 0, **parameters})
    assert model.fit(X, y).certificate_.status == "optimal"
    other = GraphCRF("rbf", edge_kernel="rbf", gamma=0.5, C=model.C_, n_components=None, **TIGHT).fit(X, y)
    assert model.certificate_.objective == pytest.approx(other.certificate_.objective, rel=model.tol)
