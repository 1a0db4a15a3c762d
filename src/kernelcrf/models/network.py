"""Fitted models on graphs of labels: graphs as samples, sets of labels, and tables of variables.

p(y|x) = exp(sum over cliques C of t_C(y_C)) / Z(x),      t_C the table of a clique, summed over terms
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property, partial

import numpy as np

from kernelcrf.arrays import Array, Arrays, Config, Floats, Labels
from kernelcrf.fitting.structure_search import Search
from kernelcrf.graphs.structure import Graph
from kernelcrf.inference.clique_tree import Exact
from kernelcrf.inference.gibbs import Gibbs
from kernelcrf.inference.loopy import Loopy
from kernelcrf.inference.loss import clamped, labelling_scores
from kernelcrf.inference.lower_bounds import mean_field
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.models.base import FittedModel
from kernelcrf.models.stored_parts import search_from_config

Way = Exact | Loopy | Gibbs

COVERS = {
    "exact": "the negative log posterior",
    "loopy": "an upper bound on the negative log posterior, by tree-reweighted messages",
    "gibbs": "the negative log pseudo-likelihood, with the same prior",
}
"""The objective of a fit, by the way of inference."""


def inference_named(name: str, seed: int) -> Callable[[Graph], Way]:
    """Return what makes inference on a graph: "exact", "loopy" or "gibbs"."""
    ways: dict[str, Callable[[Graph], Way]] = {"exact": Exact, "loopy": Loopy, "gibbs": partial(Gibbs, seed=seed)}
    return ways[name]


@dataclass(frozen=True, eq=False)
class NetworkDistribution:
    """p(y|x) of m rows on one graph, each with `inference.graph.n_samples` samples; labels are numbers of values.

    tables : (m, n_entries), the scores of cliques.
    n_samples : number of samples; those at the end that have no nodes have one labelling, of probability 1.
    """

    inference: Way
    tables: Floats
    n_samples: int
    n_threads: int = 1

    def marginals(self, template: str) -> Floats:
        """Return the marginals of the cliques of a template, (m, n_cliques * n_labellings)."""
        return self.all_marginals[:, self.inference.graph.slices[template]]

    @cached_property
    def all_marginals(self) -> Floats:
        """Return the marginals of all cliques, (m, n_entries)."""
        return self.inference.moments(self.tables, self.n_threads).cliques

    def best(self) -> Array:
        """Return the likeliest labelling of each row, (m, V), or its likeliest single labels unless exact."""
        return self.inference.best(self.tables, self.n_threads)[0]

    def k_best(self, k: int) -> Iterator[tuple[Array, list[float]]]:
        """Yield the k likeliest labellings (k, V) of each row with their log-probabilities; exact inference only."""
        if not isinstance(self.inference, Exact):
            raise ValueError("labellings are ranked by exact inference: fit or predict with inference='exact'")
        log_z = self.inference.log_partition(self.tables, self.n_threads)[:, 0]
        for (labels, scores), z in zip(self.inference.k_best(self.tables, k), log_z, strict=True):
            yield labels, [float(score - z) for score in scores]

    def log_prob(self, labels: Labels) -> Floats:
        """Return log p(y|x) of each sample, of all labellings that agree with labels (m, V) if some are -1.

        With loopy inference it is a lower bound.
        """
        if isinstance(self.inference, Gibbs):
            raise ValueError(
                "log_prob is not available with inference='gibbs': expected 'exact', or 'loopy' for a lower bound"
            )
        log_z = self.inference.log_partition(self.tables, self.n_threads)
        if (labels >= 0).all():
            return self._by_sample(labelling_scores(self.inference.graph, self.tables, labels) - log_z)
        target = clamped(self.inference.graph, self.tables, labels)
        if isinstance(self.inference, Loopy):
            # A difference of two upper bounds would bound nothing.
            return self._by_sample(mean_field(self.inference.cover, target).log_partition - log_z)
        return self._by_sample(self.inference.log_partition(target, self.n_threads) - log_z)

    def entropy(self) -> Floats:
        """Return the entropy of the labelling of each sample, in nats."""
        return self._by_sample(self.inference.entropy(self.tables, self.n_threads))

    def sample(self, n_samples: int, rng: np.random.Generator) -> Array:
        """Return labellings drawn from p(y|x), (m, n_samples, V): exactly, or by Gibbs sampling unless exact."""
        if isinstance(self.inference, Exact):
            return self.inference.calibrate(self.tables).sample(n_samples, rng)
        return Gibbs(self.inference.graph).sample(self.tables, n_samples, rng)

    def _by_sample(self, values: Floats) -> Floats:
        known = values.ravel()[: self.n_samples]
        return np.concatenate((known, np.zeros(self.n_samples - len(known))))


@dataclass(frozen=True, eq=False, kw_only=True)
class NetworkModel(FittedModel):
    """A fitted model on a graph of labels.

    search : rounds of the structure search, or None without one.
    kernels : of parameters that are not names of kernels.
    """

    search: Search | None

    def to_arrays(self) -> tuple[Config, Arrays]:
        """Return a JSON-able config and named arrays, from which `from_arrays` makes an equal model."""
        config, arrays = super().to_arrays()
        config["search"] = None if self.search is None else asdict(self.search)
        config["kernels"] = {name: own.to_config() for name, own in self.kernels.items()}
        return config, arrays

    @classmethod
    def _read_fields(cls, config: Config) -> Config:
        """Return the shared fields from a model file; the posterior of the weights is not in it."""
        return cls._read_shared(config, {}, np.empty(0)) | {
            "search": search_from_config(config["search"]),
            "kernels": {name: InputKernel.from_config(own) for name, own in config.get("kernels", {}).items()},
        }
