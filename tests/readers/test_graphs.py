import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

from kernelcrf import GraphCRF, MarkovNetwork
from kernelcrf.readers.graphs import GraphSamples

X, EDGES = np.arange(6.0).reshape(3, 2), [[0, 1], [1, 2]]


def network(node=1.0, edge=None):
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, 1.0, "x")
    graph.nodes[1]["x"] = node
    if edge is not None:
        nx.set_edge_attributes(graph, 1.0, "x")
        graph.edges[0, 1]["x"] = edge
    return graph


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (X, r"X is one array, of shape \(3, 2\): expected a list of graphs"),
        (sp.csr_array(X), "X is one array"),
        ([], "X is empty"),
        ([(X, EDGES), X], "mixes sequences and graphs"),
        ([(X, EDGES, np.ones((1, 2)))], r"X\[0\] has 2 edges and 1 rows of edge features"),
        ([(X, [[0, 1, 2]])], r"edges of X\[0\] have shape \(1, 3\)"),
        ([(X, [[0.5, 1.0]])], "expected .* of integers"),
        ([(X, [[0, 3]])], "have node numbers from 0 to 3: expected 0 to 2"),
        ([(X, [[1, 1]])], "has an edge from node 1 to itself"),
        ([(X, EDGES), (X[:, :1], EDGES)], r"X\[1\] has 1 node features but X\[0\] has 2"),
        ([(X, EDGES), (X, EDGES, np.ones((2, 1)))], "X has some graphs with edge features and some without"),
        ([(X, EDGES, np.ones((2, 2))), (X, EDGES, np.ones((2, 1)))], "with different numbers of edge features"),
        ([([["a"], ["b"]], [[0, 1]])], r"X\[0\]\[0\] has dtype <U1"),
        ([(np.array([[np.nan], [0.0]]), [[0, 1]])], r"X\[0\]\[0\] contains NaN: .*impute"),
        ([nx.path_graph(3)], r"X\[0\] lacks node features"),
        ([network(node=[1.0, 2.0])], r"X\[0\] lacks node features: expected .* same number"),
        ([network(node=np.nan)], r"X\[0\], the attributes 'x' of nodes, contains NaN"),
        ([network(edge=np.inf)], r"X\[0\], the attributes 'x' of edges, contains infinity: .*clip"),
        ([network(edge=[1.0, 2.0])], r"edges of X\[0\] have attributes 'x' that are not numbers or differ in length"),
    ],
)
def test_what_is_no_graph_is_named(samples, message):
    with pytest.raises((ValueError, TypeError), match=message):
        GraphSamples.read(samples, directed=False)


def test_sparse_features_and_graphs_without_edges_are_read():
    found = GraphSamples.read([(sp.csr_array(X), EDGES), (sp.csr_array(X), [])], directed=False)
    np.testing.assert_array_equal(found.nodes.toarray(), np.vstack((X, X)))
    assert found.edges.tolist() == EDGES
    np.testing.assert_array_equal(found.samples, [0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize("directed", [False, True])
def test_paths_of_three_nodes_go_the_way_of_the_edges(directed):
    found = GraphSamples.read([(X, [[0, 1], [2, 1]])], directed=directed)
    assert found.paths.tolist() == ([] if directed else [[0, 1, 2]])


def test_weights_and_structures_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"sample_weight has shape \(2,\): expected .* \(1,\), .* for each graph"):
        GraphCRF("linear").fit([(X, EDGES)], [[0, 1, 0]], sample_weight=[1.0, 2.0])
    table = np.array([[0, 1], [1, 0], [1, 1]])
    with pytest.raises(ValueError, match=r"sample_weight has shape \(1,\): expected .* \(3,\), .* for each row"):
        MarkovNetwork().fit(table, sample_weight=[1.0])
    with pytest.raises(ValueError, match="structure='ring'"):
        MarkovNetwork(structure="ring").fit(table)
    with pytest.raises(ValueError, match=r"X has shape \(3,\)"):
        MarkovNetwork().fit(table[:, 0])


@pytest.mark.parametrize(
    ("edges", "directed", "message"),
    [
        (
            [[0, 1], [1, 2], [0, 1]],
            False,
            r"edge \(0, 1\) more than once: expected each edge once; .* are the same edge unless directed=True",
        ),
        ([[2, 1], [0, 1], [1, 2]], False, r"edge \(2, 1\) more than once.*directed=True"),
        ([[0, 1], [1, 2], [1, 2]], True, r"edge \(1, 2\) more than once: expected each edge once$"),
    ],
)
def test_an_edge_counts_once(edges, directed, message):
    with pytest.raises(ValueError, match=message):
        GraphSamples.read([(X, edges)], directed=directed)


def test_edges_of_both_directions_are_two():
    assert len(GraphSamples.read([(X, [[0, 1], [1, 0]])], directed=True).edges) == 2


@pytest.mark.parametrize(
    ("kind", "directed", "message"),
    [
        (nx.DiGraph, False, r"X\[0\] is a DiGraph of networkx, and directed=False.*graph.to_undirected\(\)"),
        (nx.MultiDiGraph, False, r"X\[0\] is a MultiDiGraph of networkx, and directed=False"),
        (nx.Graph, True, r"X\[0\] is a Graph of networkx, and directed=True.*graph.to_directed\(\)"),
    ],
)
def test_networkx_graphs_say_whether_edges_have_a_direction(kind, directed, message):
    with pytest.raises(ValueError, match=message):
        GraphSamples.read([kind(network())], directed=directed)


def test_parallel_edges_and_features_of_some_edges_are_refused():
    graph = nx.MultiGraph(network())
    graph.add_edge(1, 0)
    with pytest.raises(ValueError, match=r"edge \(0, 1\) more than once"):
        GraphSamples.read([graph], directed=False)
    some = network()
    some.edges[0, 1]["x"] = 1.0
    with pytest.raises(ValueError, match=r"1 of the 2 edges of X\[0\] have an attribute 'x': expected this .* all"):
        GraphSamples.read([some], directed=False)


def test_classes_name_labels_that_y_does_not_show():
    X = [(np.ones((2, 1)), [[0, 1]]), (np.zeros((2, 1)), [[0, 1]])]
    with pytest.raises(ValueError, match=r"y has one class, 'a': .*use classes="):
        GraphCRF("linear").fit(X, [["a", "a"], ["a", None]])
    crf = GraphCRF("linear", classes=["a", "b"]).fit(X, [["a", "a"], ["a", None]])
    assert crf.classes_.tolist() == ["a", "b"]
