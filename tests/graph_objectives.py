"""Random objectives on graphs: small enough to enumerate, with inputs on nodes, edges and triples."""

import numpy as np

from graph_problems import GraphProblem, random_graph
from graph_problems import union as joined
from kernelcrf.engines.local import LocalEngine
from kernelcrf.graphs.structure import Graph
from kernelcrf.inference.clique_tree import Exact
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.kernels.labels import LabelKernel
from kernelcrf.objective import Objective
from kernelcrf.partitions.graphs import GraphPartition
from kernelcrf.score.features import TokenFeatures
from kernelcrf.score.layout import Layout
from kernelcrf.score.terms import Term

ANY = InputKernel("rbf", gamma=1.0)


def random_graph_objective(
    seed, *, n_rows=3, n=2, weighted=False, missing=0.0, union=False, centred=False, n_jobs=1, inference=Exact
):
    """Terms with and without inputs for every template of a random graph with single nodes, edges and triples."""
    rng = np.random.default_rng(seed)
    if union:
        graphs = [random_graph(rng, size, cards=(2,), density=0.6) for size in (3, 1, 4)]
        arities = {"(2,)": 1, "(2, 2)": 2}
        graphs = [
            Graph(g.cards, {**{k: np.empty((0, a), int) for k, a in arities.items()}, **g.cliques}) for g in graphs
        ]
        graph, n_rows = joined(graphs), 1
    else:
        graph = random_graph(rng, 5, cards=(2, 3), density=0.6, triples=1)
    nodes = {f"own {card}": np.flatnonzero(graph.cards == card)[:, None] for card in np.unique(graph.cards)}
    graph = Graph(graph.cards, {**graph.cliques, **nodes}, graph.samples)
    terms, features, shared = [], {}, {}
    for name, cliques in graph.cliques.items():
        size = int(np.prod(graph.shape(name)))
        k_y = LabelKernel("centred" if centred and size > 1 else "delta", size)
        terms.append(Term(name, name, k_y, 0.8))
        terms.append(Term(f"{name} x", name, k_y, 1.7, ANY, name, n))
        rows = n_rows * len(cliques)
        features[f"{name} x"] = shared.setdefault(rows, TokenFeatures(rng.normal(size=(rows, n))))
    labels = rng.integers(graph.cards, size=(n_rows, graph.n_nodes)).astype(np.int32)
    labels[rng.random(labels.shape) < missing] = -1
    weights = rng.uniform(0.3, 2.0, size=n_rows * graph.n_samples) if weighted else None
    partition = GraphPartition(inference(graph), labels, features, weights)
    return Objective(Layout(tuple(terms)), [partition], LocalEngine(n_jobs))


def enumerated_graph_value(objective, theta):
    """P by the definition: sums over all labelings, and over those that agree with the labels."""
    value = 0.5 * np.dot(objective.layout.times_lam(theta), theta)
    for partition in objective.partitions:
        graph = partition.graph
        problem = GraphProblem(graph, partition.tables(objective.layout, theta))
        samples = np.zeros(graph.n_nodes, int) if graph.samples is None else graph.samples
        for i, truth in problem.enumerations():
            for k in range(graph.n_samples):
                own = (samples == k) & (partition.labels[i] >= 0)
                fits = (truth.labelings[:, own] == partition.labels[i, own]).all(axis=1)
                weight = 1.0 if partition.weights is None else partition.weights[i * graph.n_samples + k]
                value += weight * (truth.log_partition - np.logaddexp.reduce(truth.scores[fits]))
    return value
