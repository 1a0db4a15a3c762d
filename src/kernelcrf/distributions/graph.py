"""The distribution p(y|x) of the labels of the nodes of graphs; `models.network` has the formula."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernelcrf.arrays import Array, Floats, Labels, UserData
from kernelcrf.distributions.base import Distribution, read_only
from kernelcrf.engines.local import LocalEngine
from kernelcrf.graphs.structure import Chains
from kernelcrf.models.base import rng_of
from kernelcrf.models.network import GraphModel, NetworkField
from kernelcrf.readers.containers import Ragged
from kernelcrf.readers.graphs import GraphSamples
from kernelcrf.readers.labels import flat_labels
from kernelcrf.readers.weights import score_weights
from kernelcrf.score.cliques import EDGES, NODES
from kernelcrf.validation import SEED, SIZE, either, validated


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GraphDistribution(Distribution):
    """The distribution p(y|x) of the labels of the nodes of graphs, as `GraphCRF.distribution` returns it.

    If inference is not exact, probabilities are approximations.

    model : the fitted model.
    graphs : the graphs, as the model has read them.
    field : the scores of all labellings of all cliques, with labels as indices.
    inference : "exact", "loopy" or "gibbs".

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf import GraphCRF
    >>> rng = np.random.default_rng(0)
    >>> ring = [[0, 1], [1, 2], [2, 3], [3, 0]]
    >>> y = [np.full(4, rng.integers(2)) for _ in range(40)]  # all nodes of a ring share their label
    >>> X = [(labels[:, None] + rng.normal(size=(4, 1)), ring) for labels in y]
    >>> distribution = GraphCRF("linear").fit(X, y).distribution(X[:1])
    >>> [round(log_p, 2) for labels, log_p in distribution.k_best(2)[0]]
    [-0.11, -2.54]
    >>> distribution.log_prob(y[:1]).round(2), distribution.entropy().round(2)
    (array([-0.11]), array([0.44]))
    >>> distribution.marginals()[0].shape, distribution.edge_marginals()[0].shape
    ((4, 2), (4, 2, 2))
    >>> distribution.sample(3, random_state=0)[0].shape, distribution.decode("marginal")[0]
    ((3, 4), array([1, 1, 1, 1]))
    """

    model: GraphModel
    graphs: GraphSamples
    field: NetworkField
    inference: str
    engine: LocalEngine

    @property
    def chains(self) -> Chains:
        """Return the ranges of the nodes of each graph, as a Chains object."""
        return Chains(self.graphs.offsets)

    @property
    def n_samples(self) -> int:
        return self.graphs.n_samples

    @property
    def classes(self) -> Array:
        return self.model.labels.classes

    @property
    def shape(self) -> tuple[int, ...]:
        return self.chains.n_nodes, len(self.classes)

    @cached_property
    def probabilities(self) -> Array:
        return read_only(self.field.marginals(NODES)[0].reshape(self.shape))

    @cached_property
    def best(self) -> Labels:
        """Return the likeliest labelling of each graph or, if inference is not exact, the likeliest label of each node.

        The labels are indices, one per node.
        """
        return read_only(self.field.best()[0])

    def marginals(self) -> list[Array]:
        """Return one array per graph, with one row per node: entry [v, j] is p(y_v = classes[j] | x)."""
        return Ragged.cut(self.probabilities.copy(), self.graphs.offsets)

    def edge_marginals(self) -> list[Array]:
        """Return one array per graph, with one matrix per edge (u, v): entry [e, i, j] is p(y_u = i, y_v = j | x).

        Labels are indices into `classes`. Edges are in the order of X.
        """
        if EDGES not in self.model.cliques:
            raise ValueError(
                "edges have no scores in this model, so their probabilities were not computed: fit with 'edges' in "
                "cliques"
            )
        edges, kinds, L = self.graphs.edges, self.model.kinds, len(self.classes)
        p = np.empty((len(edges), L, L))
        for edge_type, kind in kinds.edges.items():
            types = self.graphs.edge_types
            chosen = slice(None) if edge_type is None or types is None else np.flatnonzero(types == edge_type)
            p[chosen] = self.field.marginals(kind)[0].reshape(-1, L, L)
        # The edges of a graph are consecutive.
        ends = np.searchsorted(self.graphs.samples[edges[:, 0]], np.arange(self.n_samples + 1))
        return Ragged.cut(p, ends)

    def log_prob(self, y: UserData) -> Floats:
        """Return log p(y|x) of each graph; with inference="loopy", return a lower bound of log p(y|x).

        If labels are missing, this is the logarithm of the total probability of all labellings that agree with y. It is
        not available with inference="gibbs".
        """
        return self.field.log_prob(self.model.labels.encode_single(flat_labels(y, self.chains), self.chains)[None])

    def entropy(self) -> Floats:
        """Return the entropy of p(y|x) in nats, -sum_y p(y|x) log p(y|x), for each graph.

        With inference="loopy" the result is an approximation. It is not available with inference="gibbs".
        """
        return self.field.entropy()

    @validated(n_samples=either(SIZE), random_state=SEED)
    def sample(self, n_samples: int = 1, random_state: UserData = None) -> list[Array]:
        """Return labels drawn from p(y|x): one array per graph, with one row per draw and one column per node.

        With inference="exact" the draws are exact; otherwise, they are from Gibbs sampling.
        """
        draws = self.field.sample(n_samples, rng_of(random_state))[0]
        return Ragged.cut(self.classes[draws], self.graphs.offsets, axis=1)

    @validated(k=either(SIZE))
    def k_best(self, k: int = 1) -> list[list[tuple[Array, float]]]:
        """Return the k likeliest labellings of each graph with their log-probabilities, best first.

        This needs inference="exact".
        """
        if self.inference != "exact":
            raise ValueError(f"k_best is not available with inference={self.inference!r}: set inference='exact'")
        ranked = []
        for i, log_z in enumerate(self.field.log_partition()):
            one = self.graphs.select(np.arange(self.n_samples) == i)
            ((labels, log_p),) = self.model.field(one, self.inference, self.engine).k_best(k, np.array([log_z]))
            ranked.append(list(zip(self.classes[labels], log_p, strict=True)))
        return ranked

    def _name_labels(self, indices: Labels) -> list[Array]:
        return self.model.labels.decode(indices, self.chains)


def count_right_nodes(
    distribution: GraphDistribution, y: UserData, sample_weight: UserData = None, *, part: bool = False
) -> tuple[float, float]:
    """Return the number of nodes whose known label is predicted right, and the number of nodes with a known label.

    Nodes count with the weights of their graphs.

    part : whether these graphs are a part of the data, so that there need be no label to count.
    """
    tokens = flat_labels(y, distribution.chains)
    right, known = distribution.model.labels.compare(distribution.decode_indices(), tokens)
    if part and not known.any():
        return 0.0, 0.0
    weights = score_weights(sample_weight, distribution.chains, known, "graph", part=part)
    return float(weights[right[known]].sum()), float(weights.sum())
