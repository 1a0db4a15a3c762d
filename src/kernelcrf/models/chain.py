"""A fitted conditional random field on sequences, and the distribution of labels that it predicts.

    p(y|x) = exp(sum_t s_t(y_t) + sum_{t>1} w_t(y_{t-1}, y_t)) / Z(x)

with the token scores s_t = f(x_t, .), and the transition scores w_t = T + f'(x_t, ., .) of steps from t - 1 to t.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from kernelcrf.arrays import Array, Arrays, Config, Flags, Floats, Inputs, Labels, Places, UserData
from kernelcrf.basis.features import WhitenedMap
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting.training import Trained
from kernelcrf.graphs.structure import Chains, Legal
from kernelcrf.inference import chain, decoding
from kernelcrf.models import stored_parts as parts
from kernelcrf.models.base import KernelModel
from kernelcrf.persistence import ModelFileError
from kernelcrf.persistence.checks import read_array
from kernelcrf.readers.labels import LabelReader, flat_labels
from kernelcrf.readers.sequences import SequenceReader
from kernelcrf.terms import STEP_TERM, TOKEN_TERM, TRANSITION_TERM
from kernelcrf.validation import shown

TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True, eq=False)
class ChainDistribution:
    """The distribution p(y|x) of a batch of sequences with N tokens in all; labels are indices into the classes.

    s : (N, L) token scores; -inf forbids a label.
    w : (L, L) transition scores, or (N, L, L) if they depend on inputs; -inf forbids a transition.
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
        """Return the likeliest labelling, (N,); with rule="marginal", the likeliest label of each token."""
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
        """Return log p(y|x) of each sequence, (m,); with `allowed` (N, L), of all its allowed labellings together."""
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

    legal : constraints on which labels may begin, follow each other and end; None if there are none.
    landmark_positions : (n, 2), sequence and token of each landmark; None for the linear kernel.
    gap_curve : (n_iter + 1, 3), relative certified gap, passes over the data and seconds at each iteration.
    metadata : values of the user that are saved with the model.
    """

    reader: SequenceReader
    labels: LabelReader
    legal: Legal | None
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
        """Return the model with the result of training and the readers of the training data."""
        fitted, (reader, labels, legal) = found.fit, readers
        token_term, history = fitted.layout.terms[0], fitted.solution.history
        return cls(
            **cls._fields_of(found, len(labels.classes)),
            reader=reader,
            labels=labels,
            legal=legal,
            landmark_positions=fitted.problem.corpus.positions(token_term, fitted.features[TOKEN_TERM], engine),
            gap_curve=np.array([(record.relative_gap, record.passes, record.seconds) for record in history]),
            metadata=metadata,
        )

    @property
    def transitions(self) -> Floats:
        """Return the scores (L, L) of transitions that do not depend on the input, [from, to]."""
        return self.coefs[TRANSITION_TERM]

    @property
    def edge_coef(self) -> Floats | None:
        """Return the weights (n, L, L) of transitions that depend on the input, or None if there are none."""
        return self.coefs.get(STEP_TERM)

    def distribution(self, X: UserData, lengths: UserData, engine: LocalEngine) -> ChainDistribution:
        """Read the sequences X and return the distribution p(y|x) of their labels."""
        flat, chains = self.reader.read_entries(X, lengths)
        s = self.folded[TOKEN_TERM].scores(flat, engine)
        w = self.transitions.astype(s.dtype)
        if STEP_TERM in self.folded:
            w = w + self.folded[STEP_TERM].scores(flat, engine).reshape(-1, *w.shape)
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
        """Yield the marginals (N, L) for draws from the posterior, given the inputs of sequences."""
        for s, w in self.draw_scores(flat, n_samples, temperature, random_state, engine):
            yield self._legal_distribution(s, w, chains, engine).marginals()

    def _legal_distribution(self, s: Array, w: Array, chains: Chains, engine: LocalEngine) -> ChainDistribution:
        if self.legal is not None:
            s, w = self.legal.impose(chains, s, w)
        return ChainDistribution(s, w, chains, engine.n_threads)

    def log_likelihood(self, X: UserData, y: UserData, engine: LocalEngine) -> float:
        """Return the mean log-probability per sequence of the labels y."""
        found = self.distribution(X, None, engine)
        return float(found.log_prob(*self.labels.encode(flat_labels(y, found.chains), found.chains)).mean())

    def log_score(self, y: UserData, proba: list[Array]) -> float:
        """Return the mean log-probability per token of the known labels y, given the marginals `proba`."""
        p = np.concatenate(proba)
        chains = Chains.from_lengths([len(rows) for rows in proba])
        indices, _ = self.labels.encode(flat_labels(y, chains), chains)
        known = np.flatnonzero(indices >= 0)
        return float(np.log(np.maximum(p[known, indices[known]], TINY)).mean())

    def to_arrays(self) -> tuple[Config, Arrays]:
        """Return a JSON-able config and named arrays, from which `from_arrays` makes an equal model."""
        config, arrays = super().to_arrays()
        arrays["gap_curve"] = self.gap_curve
        if self.landmark_positions is not None:
            arrays["landmark_positions"] = self.landmark_positions
        if self.legal is not None:
            arrays |= {f"legal.{name}": getattr(self.legal, name) for name in ("steps", "first", "last")}
        own = {
            "estimator": "ChainCRF",
            "inputs": self.reader.to_config(),
            "labels": self.labels.to_config(),
            "metadata": parts.METADATA.check("metadata_", self.metadata),
        }
        return {"edge_kernel": None, "edge_map": None} | config | own, arrays

    @classmethod
    def from_arrays(cls, config: Config, arrays: Arrays) -> Self:
        """Return the model that `to_arrays` wrote; raise if its parts do not fit together."""
        reader, labels = SequenceReader.from_config(config["inputs"]), LabelReader.from_config(config["labels"])
        L, names = len(labels.classes), [TOKEN_TERM, TRANSITION_TERM]
        if config["edge_kernel"] is not None:
            names.append(STEP_TERM)
        shared = cls._read_fields(config, arrays, reader.n_features, L, names)
        legal = positions = None
        if "legal.steps" in arrays:
            legal = Legal(
                read_array(arrays, "legal.steps", (L, L), "b"),
                read_array(arrays, "legal.first", (L,), "b"),
                read_array(arrays, "legal.last", (L,), "b"),
            )
        if isinstance(shared["maps"][TOKEN_TERM], WhitenedMap):
            positions = read_array(arrays, "landmark_positions", (shared["maps"][TOKEN_TERM].n, 2), "i")
        if not isinstance(config["metadata"], dict):
            raise ModelFileError(f"metadata is {shown(config['metadata'])}: expected a JSON object")
        return cls(
            **shared,
            reader=reader,
            labels=labels,
            legal=legal,
            landmark_positions=positions,
            gap_curve=read_array(arrays, "gap_curve", (shared["n_iter"] + 1, 3), "f"),
            metadata=config["metadata"],
        )
