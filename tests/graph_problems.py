"""Random graphs with tables for property tests, and their enumeration."""

import itertools
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from kernelcrf.graphs.structure import Graph
from kernelcrf.inference.enumerate import enumerate_labelings


@dataclass(frozen=True)
class GraphProblem:
    graph: Graph
    scores: np.ndarray

    def factors(self, row):
        """(nodes, table) of every clique of the graph."""
        found = []
        for name, nodes in self.graph.cliques.items():
            shape = self.graph.shape(name)
            tables = row[self.graph.slices[name]].reshape(-1, *shape)
            found.extend((tuple(clique), table) for clique, table in zip(nodes.tolist(), tables, strict=True))
        return found

    def enumerations(self):
        for i, row in enumerate(self.scores):
            yield i, enumerate_labelings(self.graph.n_nodes, self.graph.cards.tolist(), self.factors(row))

    def marginals(self, of_clique):
        """The row (n_entries,) of what `of_clique(nodes)` gives for every clique."""
        parts = [of_clique(clique).ravel() for nodes in self.graph.cliques.values() for clique in nodes.tolist()]
        return np.concatenate(parts) if parts else np.empty(0)


def union(graphs):
    """Graphs of several samples side by side, with the same templates, as one."""
    starts = np.cumsum([0, *(graph.n_nodes for graph in graphs)])
    cliques = {
        name: np.concatenate([graph.cliques[name] + low for graph, low in zip(graphs, starts, strict=False)])
        for name in graphs[0].cliques
    }
    samples = np.repeat(np.arange(len(graphs)), [graph.n_nodes for graph in graphs])
    return Graph(np.concatenate([graph.cards for graph in graphs]), cliques, samples)


def random_graph(rng, n_nodes, *, cards=(1, 2, 3), density=0.4, triples=0):
    """Nodes with their own numbers of labels, edges at random, some cliques of three nodes."""
    counts = rng.choice(cards, size=n_nodes)
    scopes = [(v,) for v in range(n_nodes) if rng.random() < 0.8]
    scopes += [
        tuple(rng.permutation(pair)) for pair in itertools.combinations(range(n_nodes), 2) if rng.random() < density
    ]
    if n_nodes >= 3:
        scopes += [tuple(rng.choice(n_nodes, size=3, replace=False)) for _ in range(triples)]
    templates = {}
    for scope in scopes:
        templates.setdefault(str(tuple(counts[list(scope)].tolist())), []).append(scope)
    return Graph(counts, templates)


def random_graph_problem(rng, graph, *, n_rows=2, scale=1.0, forbid=0.0):
    """Tables at random, some labelings forbidden, but never all of a sample."""
    scores = scale * rng.normal(size=(n_rows, graph.n_entries))
    scores[rng.random(scores.shape) < forbid] = -np.inf
    allowed = rng.integers(graph.cards, size=(n_rows, graph.n_nodes))
    rows = np.arange(n_rows)[:, None]
    chosen = graph.chosen(allowed)
    scores[rows, chosen] = scale * rng.normal(size=chosen.shape)
    return GraphProblem(graph, scores)


@st.composite
def graph_problems(draw, max_nodes=9, cards=(1, 2, 3), forbid=(0.0, 0.3, 0.7), triples=2):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    graph = random_graph(
        rng,
        draw(st.integers(1, max_nodes)),
        cards=cards,
        density=draw(st.sampled_from([0.0, 0.2, 0.5, 1.0])),
        triples=draw(st.integers(0, triples)),
    )
    scale, forbidden = draw(st.sampled_from([0.3, 1.0, 4.0])), draw(st.sampled_from(forbid))
    return random_graph_problem(rng, graph, n_rows=draw(st.integers(1, 3)), scale=scale, forbid=forbidden)


def expanded_weights(model):
    """Return the weights of each term of a fitted network, multiplied by the factor of the label kernel."""
    layout = model.model_.layout
    weights = layout.split(model.model_.theta)
    return {term.name: term.k_y.expand(weights[term.name]) for term in layout.terms}
