"""A fitted semi-Markov conditional random field, and the random field of segmentations that it predicts.

The probability of a segmentation of a sequence x is the exponential of its score, divided by Z(x). The score is a sum
over segments, and over the steps from one segment to the next; `inference.segments` has the formula.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from kernelcrf.arrays import (
    Array,
    Arrays,
    Config,
    Flags,
    Floats,
    Inputs,
    Labels,
    NamedInputs,
    UserData,
    join_columns,
    matrix_of,
)
from kernelcrf.basis.kernel_weights import check_scores
from kernelcrf.engines.local import LocalEngine
from kernelcrf.graphs.structure import Chains, OpenChain
from kernelcrf.inference.segmentations import Segments, k_best, sample, viterbi
from kernelcrf.inference.segments import SegmentMessages, SegmentScores
from kernelcrf.models.base import rng_of
from kernelcrf.models.chain import ChainModel
from kernelcrf.partitions.segments import SegmentRules
from kernelcrf.persistence import ModelFileError
from kernelcrf.persistence.checks import read_count, read_flag, read_text
from kernelcrf.readers.inputs import InputsReader, reader_from_config
from kernelcrf.readers.labels import LabelReader
from kernelcrf.readers.pooling import ENDS, described, pool
from kernelcrf.readers.segments import SegmentLabels, read_tokens
from kernelcrf.readers.sequences import SequenceReader
from kernelcrf.score.cliques import FIRSTS, LASTS, OF_SINGLE_LABELS, SEGMENTS, TOKENS, kind_of
from kernelcrf.score.score import add_base, add_terms
from kernelcrf.score.tables import arrays_of_scores
from kernelcrf.score.terms import (
    CHAIN_CLIQUES,
    DURATION_TERM,
    SEGMENT_CLIQUES,
    SEGMENT_TERM,
    TAIL_TERM,
    Term,
    input_name,
    named_term,
)


@dataclass(frozen=True, eq=False)
class SegmentField:
    """The random field of the segmentations of a batch of sequences; labels of tokens are indices of classes.

    free : the scores before impossible segmentations are given the score -inf.
    rules : which segmentations are possible.
    spec : the labels of tokens, the labels of segments, and which of them belong together.
    """

    free: SegmentScores
    rules: SegmentRules
    spec: SegmentLabels
    n_threads: int = 1

    @property
    def chains(self) -> Chains:
        """Return which tokens belong to which sequence."""
        return self.free.order

    @cached_property
    def scores(self) -> SegmentScores:
        """Return the scores, with -inf for everything that the rules forbid."""
        return self.rules.impose(self.free)

    @cached_property
    def messages(self) -> SegmentMessages:
        """Return the forward and backward messages, from which probabilities follow; they are computed once."""
        return SegmentMessages.of(self.scores, n_threads=self.n_threads)

    def part(self, low: int, high: int) -> SegmentField:
        """Return the field of the sequences from `low` to `high` - 1."""
        if (low, high) == (0, self.chains.n_samples):
            return self
        return replace(self, free=self.free.part(low, high))

    def marginals(self) -> Floats:
        """Return the probabilities p(y_t = j | x), with one row per token t and one column per label j of tokens."""
        moments = self.messages.moments
        return self.spec.probabilities(moments.nodes, moments.starts)

    def best(self) -> Labels:
        """Return the labels of the likeliest segmentation of each sequence."""
        return np.concatenate([np.empty(0, np.int32), *(self.classes_of(one) for one in self.best_segments)])

    @cached_property
    def best_segments(self) -> list[Segments]:
        """Return the likeliest segmentation of each sequence."""
        engine = LocalEngine(self.n_threads)
        return engine.map(lambda i: viterbi(self.scores, i)[0], range(self.chains.n_samples))

    def classes_of(self, segments: Segments) -> Labels:
        """Return the label of each token of a segmentation, as the index of a class."""
        types = np.repeat([a for a, _, _ in segments], [e - b for _, b, e in segments]).astype(np.int64)
        is_first = np.zeros(len(types), bool)
        is_first[[b for _, b, _ in segments]] = True
        return self.spec.class_of(types, is_first)

    def k_best(self, k: int) -> Iterator[list[tuple[Labels, float]]]:
        """Yield the k likeliest labellings of each sequence with their log-probabilities, best first."""
        for i, log_z in enumerate(self.log_partition()):
            yield [(self.classes_of(one), float(score - log_z)) for one, score in k_best(self.scores, k, i)]

    def log_partition(self) -> Floats:
        """Return log Z(x), the logarithm of the normalising constant, for each sequence."""
        return self.messages.log_partition

    def log_prob(self, labels: Labels, allowed: Flags | None = None) -> Floats:
        """Return the log-probability of the labels of each sequence.

        If `allowed` is given, return instead the log-probability that all labels of the sequence are allowed. `allowed`
        is a boolean array with one row per token and one column per class; `labels` is then ignored.
        """
        known = self.spec.known(labels, allowed, self.chains)
        if known.observed is not None:
            log_z = known.observed.moments(self.scores).log_partition
        else:
            clamped = self.rules.impose(self.free, known.opens, known.continues)
            log_z = SegmentMessages.of(clamped, n_threads=self.n_threads).log_partition
        return np.asarray(log_z - self.log_partition())

    def entropy(self) -> Floats:
        """Return the entropy of p(y|x) for each sequence, in nats."""
        return self.messages.entropy()

    def sample(self, n_samples: int, rng: np.random.Generator) -> Array:
        """Return labels drawn from p(y|x), one row per draw and one column per token."""
        labels = np.empty((n_samples, self.chains.n_nodes), np.int32)
        for i, (low, high) in enumerate(zip(self.chains.offsets[:-1], self.chains.offsets[1:], strict=True)):
            for row, segments in enumerate(sample(self.messages, n_samples, rng, i)):
                labels[row, low:high] = self.classes_of(segments)
        return labels


@dataclass(frozen=True, eq=False, kw_only=True)
class SegmentModel(ChainModel):
    """A fitted semi-Markov conditional random field.

    `legal` says which labels of segments may begin a sequence, follow each other, and end a sequence.

    longest : the number of durations that have scores of their own: from 1 token to `longest` tokens.
    tail : whether segments may have more than `longest` tokens.
    pooling : how the inputs of whole segments are computed: a name, a function of the user, or None if there are none.
    segment_reader : if `pooling` is a function, the reader that converts its results to arrays; else None.
    """

    longest: int
    tail: bool
    pooling: str | Callable[[Any, int, int], Any] | None
    segment_reader: SequenceReader | None

    @cached_property
    def spec(self) -> SegmentLabels:
        """Return an object with the labels of tokens, the labels of segments, and which of them belong together."""
        return SegmentLabels.of(self.labels.classes)

    @cached_property
    def rules(self) -> SegmentRules:
        """Return which segmentations are possible."""
        return SegmentRules(self.longest, self.tail, self.spec.repeats, self.legal)

    def read_tokens(self, y: UserData, chains: Chains, *, flat: bool = False) -> list[UserData]:
        return read_tokens(y, chains, flat=flat, is_tags=self.spec.is_tags)

    @property
    def answer_bytes(self) -> int:
        return super().answer_bytes + 40 * self.longest * len(self.spec.types)

    @property
    def column_labels(self) -> list[UserData]:
        return self.spec.types

    def column(self, label: int) -> int:
        return int(self.spec.of_class[label])

    @cached_property
    def duration_scores(self) -> Floats:
        """Return the scores of the durations 1, 2, ... of segments: one row per duration, one column per label."""
        L = len(self.spec.types)
        known = any(term.name == DURATION_TERM for term in self.layout.terms)
        return self._expand(DURATION_TERM).reshape(-1, L) if known else np.zeros((self.longest, L))

    @cached_property
    def segment_coef(self) -> Floats | None:
        """Return the weights of the inputs of whole segments, one row per feature; None if segments have no inputs."""
        return self._expand(SEGMENT_TERM) if SEGMENT_TERM in self.maps else None

    @cached_property
    def tail_scores(self) -> Floats:
        """Return, for each label, the score of every token of a segment after the first `longest` tokens.

        The scores are -inf if segments cannot be longer.
        """
        return self._constant(TAIL_TERM) if self.tail else np.full(len(self.spec.types), -np.inf)

    def field(  # type: ignore[override]
        self, X: UserData, lengths: UserData, engine: LocalEngine, base_scores: UserData = None
    ) -> SegmentField:
        """Read the sequences X and return the random field of their segmentations."""
        inputs, chains = self._read(X, lengths)
        base = self.spec.base_of_types(self.read_base(base_scores, chains, flat=lengths is not None))
        return self._joined(self.term_scores(lambda term: inputs[term.name], engine), chains, base, engine)

    @cached_property
    def open_steps(self) -> Array | None:
        """Return the scores of steps between segments, (L, L), with -inf for forbidden steps."""
        same = ~self.rules.repeats & np.eye(len(self.spec.types), dtype=bool)
        steps = np.where(same, -np.inf, self.transitions)
        return steps if self.legal is None else np.where(self.legal.steps, steps, -np.inf)

    def open_scores(  # type: ignore[override]
        self, tokens: UserData, engine: LocalEngine, *, begins: bool, base_scores: UserData = None
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Read tokens of one sequence that goes on, and return the scores of the labels of segments.

        begins : whether the sequence begins with these tokens.
        base_scores : the base scores of these tokens, one row per token.

        Return four arrays. The first three (n, L) have the scores of all tokens, of tokens that are the first of a
        segment, and of those that are the last. The fourth (L,) has the scores that the last of these tokens also has
        if it ends the sequence.
        """
        inputs, chains = self._read([tokens], None)
        part, L = OpenChain(chains.n_nodes, begins), len(self.spec.types)
        base = self.spec.base_of_types(self.read_base(base_scores, part, flat=True))
        rows = self.term_scores(lambda term: inputs[term.name], engine)
        arrays = {name: np.zeros((part.n_nodes, L)) for name in (TOKENS, FIRSTS, LASTS)}
        add_terms(arrays, (row for row in rows if row[0].kind.array in arrays), part)
        add_base(arrays, base)
        end, first = np.zeros(L), arrays[FIRSTS]
        for term, Z in rows:
            if term.kind.is_last and len(Z):
                end += Z[-1]
        if self.legal is not None:
            first[part.first_nodes] = np.where(self.legal.first, first[part.first_nodes], -np.inf)
            end = np.where(self.legal.last, end, -np.inf)
        return arrays[TOKENS], first, arrays[LASTS], end

    def _joined(
        self,
        drawn: list[tuple[Term, Array]],
        chains: Chains,
        base: Mapping[str, Array] | None,
        engine: LocalEngine,
    ) -> SegmentField:
        scores = self.rules.zeros(self.layout.terms, chains, base)
        add_terms(arrays_of_scores(scores), drawn, chains)
        add_base(arrays_of_scores(scores), base)
        return SegmentField(scores, self.rules, self.spec, engine.n_threads)

    def _read(self, X: UserData, lengths: UserData) -> tuple[dict[str, Inputs], Chains]:
        """Return a pair: a dict from names of terms with inputs to these inputs, and the sequences."""
        flat, chains = self.reader.read(X, lengths)
        of_terms = {name: str(self.layout.by_name[name].input) for name in self.maps}
        inputs = {name: matrix_of(flat, source) for name, source in of_terms.items() if source != SEGMENTS}
        if SEGMENT_TERM in self.maps:
            inputs[SEGMENT_TERM] = self._pooled(X, lengths, flat, chains)
        return inputs, chains

    def _pooled(self, X: UserData, lengths: UserData, flat: Inputs | NamedInputs, chains: Chains) -> Inputs:
        if isinstance(self.pooling, str):
            return pool(join_columns(flat), chains, self.longest, self.pooling)
        assert self.pooling is not None
        assert self.segment_reader is not None
        described_segments = described(X, lengths, chains, self.longest, self.pooling)
        return self.segment_reader.read(described_segments)[0]

    def draw_marginals(
        self,
        X: UserData,
        lengths: UserData,
        n_samples: int | None,
        temperature: float,
        random_state: UserData,
        engine: LocalEngine,
        base_scores: UserData = None,
    ) -> Iterator[Array]:
        """Yield, for each draw from the posterior of the weights, the label probabilities, one row per token."""
        inputs, chains = self._read(X, lengths)
        base = self.spec.base_of_types(self.read_base(base_scores, chains, flat=lengths is not None))
        for drawn in self.score_posterior.draw_terms(inputs, n_samples, rng_of(random_state), temperature, engine):
            of_terms = [(term, check_scores(Z)) for term, Z in drawn]
            yield self._joined(of_terms, chains, base, engine).marginals()

    def to_arrays(self) -> tuple[Config, Arrays]:
        """Return the model as two dicts: values that JSON can store, and named arrays."""
        config, arrays = super().to_arrays()
        if not isinstance(self.pooling, str | None):
            raise TypeError(
                "pooling is a function, which a model file cannot store: use pooling='mean', 'max' or 'ends', or save "
                "this estimator with joblib.dump"
            )
        fields = {"longest": self.longest, "tail": self.tail, "pooling": self.pooling}
        return config | fields, arrays

    @classmethod
    def from_arrays(cls, config: Config, arrays: Arrays) -> Self:
        """Return the model, given the two dicts that `to_arrays` returned; raise an error if they are inconsistent."""
        reader, labels = reader_from_config(config["inputs"], "SegmentCRF"), LabelReader.from_config(config["labels"])
        spec, known = SegmentLabels.of(labels.classes), CHAIN_CLIQUES | SEGMENT_CLIQUES
        widths_of_inputs = reader.widths if isinstance(reader, InputsReader) else {TOKENS: reader.n_features}
        if isinstance(reader, InputsReader):
            stored = {read_text(one, "name"): read_text(one, "cliques") for one in config["terms"]}
            scored = {named_term(name): stored.get(named_term(name), TOKENS) for name in widths_of_inputs}
            known |= {name: cliques for name, cliques in scored.items() if cliques in OF_SINGLE_LABELS}
            known |= {named_term(name, cliques): cliques for name in widths_of_inputs for cliques in (FIRSTS, LASTS)}
        names = [read_text(one, "name") for one in config["terms"]]
        if unknown := [name for name in names if name not in known]:
            raise ModelFileError(
                f"the model file has the term {unknown[0]!r}: expected one of {', '.join(known)}. The file may be "
                "damaged: use another copy of it"
            )
        with_map = {read_text(one, "name") for one in config["terms"] if one["kernel"] is not None}
        pooling = None if config["pooling"] is None else read_text(config, "pooling")
        widths = widths_of_inputs | {SEGMENTS: (2 if pooling == ENDS else 1) * sum(widths_of_inputs.values())}
        sources = {name: input_name(name) or kind_of(known[name]).input for name in names}
        terms = {name: (known[name], sources[name] if name in with_map else None) for name in names}
        L, longest = len(spec.types), read_count(config, "longest", 1)
        shared = cls._read_terms(config, arrays, L, terms, widths, longest)
        return cls(
            **shared,
            **cls._read_chain(config, arrays, L, shared),
            reader=reader,
            labels=labels,
            longest=longest,
            tail=read_flag(config, "tail"),
            pooling=pooling,
            segment_reader=None,
        )
