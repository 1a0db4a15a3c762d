"""A fitted conditional random field on sequences, and the distributions of labels that it gives.

    p(y|x) = exp(sum_t s_t(y_t) + sum_{t>1} w_t(y_{t-1}, y_t)) / Z(x)

with the scores s_t = f(x_t, .) of tokens and w_t = T + f'(x_t, ., .) of steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from kernelcrf.arrays import Array, Arrays, Config, Flags, Floats, Inputs, Labels, Places, UserData
from kernelcrf.basis.features import FeatureMap
from kernelcrf.basis.folded import Weights, fold
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting.training import Trained
from kernelcrf.graphs.structure import Chains, Legal
from kernelcrf.inference import chain, decoding
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.models import stored_parts as parts
from kernelcrf.models.base import KernelModel
from kernelcrf.persistence import ModelFileError
from kernelcrf.persistence.checks import read_array, read_map
from kernelcrf.readers.labels import LabelReader
from kernelcrf.readers.sequences import SequenceReader
from kernelcrf.terms import STEP_TERM, TOKEN_TERM, TRANSITION_TERM
from kernelcrf.validation import shown

TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True, eq=False)
class ChainDistribution:
    """p(y|x) of a batch of sequences, N tokens in all; labels are indices into the classes.

    s : (N, L) scores of tokens.
    w : (L, L) scores of steps, or (N, L, L) if they depend on inputs; -inf forbids a label or a step.
    """

    s: Array
    w: Array
    chains: Chains
    n_threads: int = 1

    def marginals(self) -> Array:
        """Return p(y_t = j | x), (N, L)."""
        return chain.moments(self.s, self.w, self.chains, n_threads=self.n_threads).nodes

    def edge_marginals(self) -> Array:
        """Return p(y_{t-1} = i, y_t = j | x), (N, L, L), zero at first tokens."""
        return chain.edge_marginals(self.s, self.w, self.chains, n_threads=self.n_threads)

    def best(self, rule: str = "viterbi") -> Array:
        """Return the likeliest labelling, (N,), or by "marginal" the likeliest label of each token."""
        if rule == "marginal":
            return np.asarray(self.marginals().argmax(axis=1))
        return decoding.viterbi(self.s, self.w, self.chains, n_threads=self.n_threads)[0]

    def k_best(self, k: int) -> Iterator[list[tuple[Labels, float]]]:
        """Yield the k likeliest labellings of each sequence with their log-probabilities, best first."""
        ranked = decoding.k_best(self.s, self.w, self.chains, k, n_threads=self.n_threads)
        for item, log_z in zip(ranked, self.log_partition(), strict=True):
            yield [(y, float(score - log_z)) for y, score in zip(item.labelings, item.scores, strict=True)]

    def log_partition(self) -> Floats:
        """Return log Z(x) of each sequence, (m,)."""
        return chain.log_partition(self.s, self.w, self.chains, n_threads=self.n_threads)

    def log_prob(self, labels: Labels, allowed: Flags | None = None) -> Floats:
        """Return log p(y|x) of each sequence, (m,), or of all its labellings that are allowed (N, L)."""
        if allowed is None:
            return chain.log_prob(self.s, self.w, self.chains, labels, n_threads=self.n_threads)
        clamped = replace(self, s=np.where(allowed, self.s, self.s.dtype.type(-np.inf)))
        return np.asarray(clamped.log_partition() - self.log_partition())

    def entropy(self) -> Floats:
        """Return the entropy of the labelling of each sequence, (m,), in nats."""
        return chain.entropy(self.s, self.w, self.chains, n_threads=self.n_threads)

    def sample(self, n_samples: int, rng: np.random.Generator) -> Array:
        """Return labellings drawn from p(y|x), (n_samples, N)."""
        return decoding.sample(self.s, self.w, self.chains, n_samples, rng, n_threads=self.n_threads)


@dataclass(frozen=True, eq=False, kw_only=True)
class ChainModel(KernelModel):
    """A fitted conditional random field on sequences.

    legal : labels that may begin, follow each other and end, or None for all.
    transitions : (L, L), [from, to].
    edge_kernel, edge_map, edge_coef : kernel, features and weights (n, L, L) of steps with inputs, or None.
    landmark_positions : (n, 2), sequence and token of each landmark; None for the linear kernel.
    gap_curve : (n_iter + 1, 3), relative certified gap, passes over the data and seconds.
    metadata : plain values that travel with the model.
    """

    reader: SequenceReader
    labels: LabelReader
    legal: Legal | None
    transitions: Floats
    edge_kernel: InputKernel | None
    edge_map: FeatureMap | None
    edge_coef: Floats | None
    landmark_positions: Places | None
    gap_curve: Floats
    metadata: Config

    @classmethod
    def of(
        cls,
        found: Trained,
        readers: tuple[SequenceReader, LabelReader, Legal | None],
        engine: LocalEngine,
        metadata: Config,
    ) -> Self:
        """Return the model that a fit has found."""
        fitted, L, shared = found.fit, len(readers[1].classes), cls._fields_of(found)
        history, steps, corpus = fitted.solution.history, fitted.weights.get(STEP_TERM), fitted.problem.corpus
        return cls(
            **shared,
            reader=readers[0],
            labels=readers[1],
            legal=readers[2],
            transitions=fitted.weights[TRANSITION_TERM].reshape(L, L),
            edge_kernel=next((term.kernel for term in fitted.layout.terms if term.name == STEP_TERM), None),
            edge_map=fitted.maps.get(STEP_TERM),
            edge_coef=None if steps is None else steps.reshape(-1, L, L),
            landmark_positions=corpus.positions(fitted.layout.terms[0], fitted.features[TOKEN_TERM], engine),
            gap_curve=np.array([(record.relative_gap, record.passes, record.seconds) for record in history]),
            metadata=metadata,
        )

    @property
    def maps(self) -> dict[str, FeatureMap]:
        """Return the feature maps of the templates that have inputs, by name."""
        return super().maps | ({} if self.edge_map is None else {STEP_TERM: self.edge_map})

    @property
    def kernels(self) -> dict[str, InputKernel]:
        """Return the kernels by the names of the parameters that they come from."""
        return super().kernels | ({} if self.edge_kernel is None else {"edge_kernel": self.edge_kernel})

    @cached_property
    def edge_weights(self) -> Weights | None:
        """Return the weights of steps with inputs as a function of inputs."""
        if self.edge_map is None or self.edge_coef is None:
            return None
        return fold(self.edge_map, self.edge_coef.reshape(self.edge_map.n, -1))

    def distribution(self, X: UserData, lengths: UserData, engine: LocalEngine) -> ChainDistribution:
        """Return p(y|x) of sequences."""
        flat, chains = self.reader.read_entries(X, lengths)
        s = self.weights.scores(flat, engine)
        w = self.transitions.astype(s.dtype)
        if self.edge_weights is not None:
            w = w + self.edge_weights.scores(flat, engine).reshape(-1, *w.shape)
        return self._legal_distribution(s, w, chains, engine)

    def draw_marginals(
        self,
        flat: Inputs,
        chains: Chains,
        n_samples: int | None,
        temperature: float,
        random_state: UserData,
        engine: LocalEngine,
    ) -> Iterator[Array]:
        """Yield marginals (N, L) under draws from the posterior, at sequences that were read."""
        for s, w in self.draw_scores(flat, n_samples, temperature, random_state, engine):
            yield self._legal_distribution(s, w, chains, engine).marginals()

    def _legal_distribution(self, s: Array, w: Array, chains: Chains, engine: LocalEngine) -> ChainDistribution:
        if self.legal is not None:
            s, w = self.legal.impose(chains, s, w)
        return ChainDistribution(s, w, chains, engine.n_threads)

    def tempered(self, temperature: float) -> Self:
        """Return the model with its weights divided by a temperature, without posterior and certificate."""
        steps = None if self.edge_coef is None else self.edge_coef / temperature
        return replace(super().tempered(temperature), transitions=self.transitions / temperature, edge_coef=steps)

    def log_likelihood(self, X: UserData, y: UserData, engine: LocalEngine) -> float:
        """Return the mean log-probability of labelled sequences."""
        found = self.distribution(X, None, engine)
        return float(found.log_prob(*self.labels.encode(y, found.chains)).mean())

    def log_score(self, y: UserData, proba: list[Array]) -> float:
        """Return the mean log-probability of the known labels of tokens, under given marginals."""
        p = np.concatenate(proba)
        indices, _ = self.labels.encode(y, Chains.from_lengths([len(rows) for rows in proba]))
        known = np.flatnonzero(indices >= 0)
        return float(np.log(np.maximum(p[known, indices[known]], TINY)).mean())

    def to_arrays(self) -> tuple[Config, Arrays]:
        """Return a JSON-able config and named arrays, from which `from_arrays` makes an equal model."""
        config, arrays = super().to_arrays()
        arrays |= {"transitions": self.transitions, "gap_curve": self.gap_curve}
        edge_config = None
        if self.edge_map is not None and self.edge_coef is not None:
            edge_config, of_map = self.edge_map.to_arrays()
            arrays |= {f"edge_map.{name}": array for name, array in of_map.items()}
            arrays["edge_coef"] = self.edge_coef
        if self.landmark_positions is not None:
            arrays["landmark_positions"] = self.landmark_positions
        if self.legal is not None:
            arrays |= {f"legal.{name}": getattr(self.legal, name) for name in ("steps", "first", "last")}
        config |= {
            "estimator": "ChainCRF",
            "inputs": self.reader.to_config(),
            "labels": self.labels.to_config(),
            "edge_kernel": None if self.edge_kernel is None else self.edge_kernel.to_config(),
            "edge_map": edge_config,
            "metadata": parts.METADATA.check("metadata_", self.metadata),
        }
        return config, arrays

    @classmethod
    def from_arrays(cls, config: Config, arrays: Arrays) -> Self:
        """Return the model that `to_arrays` described, once its parts are consistent."""
        reader, labels = SequenceReader.from_config(config["inputs"]), LabelReader.from_config(config["labels"])
        L = len(labels.classes)
        shared = cls._read_fields(config, arrays, reader.n_features, L)
        legal = edge_kernel = edge_map = edge_coef = positions = None
        if "legal.steps" in arrays:
            legal = Legal(
                read_array(arrays, "legal.steps", (L, L), "b"),
                read_array(arrays, "legal.first", (L,), "b"),
                read_array(arrays, "legal.last", (L,), "b"),
            )
        if config["edge_kernel"] is not None:
            edge_kernel = InputKernel.from_config(config["edge_kernel"])
            edge_map = read_map(config["edge_map"], arrays, "edge_map.", reader.n_features)
            edge_coef = read_array(arrays, "edge_coef", (edge_map.n, L, L), "f")
        if hasattr(shared["map"], "landmarks"):
            positions = read_array(arrays, "landmark_positions", (shared["map"].n, 2), "i")
        if not isinstance(config["metadata"], dict):
            raise ModelFileError(f"metadata is {shown(config['metadata'])}: expected an object")
        return cls(
            **shared,
            reader=reader,
            labels=labels,
            legal=legal,
            transitions=read_array(arrays, "transitions", (L, L), "f"),
            edge_kernel=edge_kernel,
            edge_map=edge_map,
            edge_coef=edge_coef,
            landmark_positions=positions,
            gap_curve=read_array(arrays, "gap_curve", (shared["n_iter"] + 1, 3), "f"),
            metadata=config["metadata"],
        )
