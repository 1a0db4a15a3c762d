"""A fitted conditional random field on sequences.

The probability of the labels y of a sequence x is

    p(y|x) = exp(sum_t s_t(y_t) + sum_{t>1} w_t(y_{t-1}, y_t)) / Z(x).

The scores s_t of the labels of token t depend on the input x_t of the token; biases may be added to them at all tokens,
and further scores at the first and the last token of a sequence. The scores w_t of the transition from
token t - 1 to token t are the same for all tokens, unless an input with `scores="steps"` makes them depend on x_t. Z(x)
normalises the probabilities.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from kernelcrf.arrays import Array, Arrays, Config, DType, Floats, Inputs, Places, UserData, matrix_of
from kernelcrf.basis.features import WhitenedMap
from kernelcrf.basis.kernel_weights import PairWeights
from kernelcrf.basis.sparse_entries import Entries
from kernelcrf.certificate import IMPORTED, Certificate
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting.fit import Fit
from kernelcrf.fitting.training import Trained
from kernelcrf.graphs.structure import Chains, Legal, OpenChain
from kernelcrf.models import stored_parts as parts
from kernelcrf.models.base import rng_of
from kernelcrf.models.chain_field import ChainField
from kernelcrf.models.kernel import KernelModel
from kernelcrf.models.one_sequence import OneSequence
from kernelcrf.persistence import ModelFileError
from kernelcrf.persistence.checks import read_array, read_legal, read_text
from kernelcrf.readers.base_scores import check_base_scores, read_base_scores
from kernelcrf.readers.inputs import InputsReader, reader_from_config
from kernelcrf.readers.labels import LabelReader, flat_labels
from kernelcrf.readers.sequences import SequenceReader
from kernelcrf.readers.spans import are_spans
from kernelcrf.score.chain_names import expected_terms
from kernelcrf.score.cliques import OF_INPUTS, STEPS, TOKENS
from kernelcrf.score.score import add_base, add_terms
from kernelcrf.score.tables import ChainScores
from kernelcrf.score.terms import (
    BIAS_TERM,
    END_TERM,
    START_TERM,
    TRANSITION_TERM,
    Term,
)
from kernelcrf.validation import shown

CONSTANT_TERMS = {BIAS_TERM, START_TERM, END_TERM, TRANSITION_TERM}
TINY = np.finfo(np.float64).tiny
# The bytes that a prediction takes per pair of labels: for transitions within MILD_RANGE, and for all others, with
# which inference may need logarithms.
MILD_RANGE, MILD_BYTES, WILD_BYTES = 30.0, 40, 100


def _positions(fitted: Fit, engine: LocalEngine) -> Places | None:
    """Return the positions of the landmarks of all inputs that score tokens, or None if there are no landmarks."""
    tokens = [term for term in fitted.layout.terms if term.kind.is_token and term.kernel is not None]
    positions = [fitted.problem.corpus.positions(term, fitted.features[term.name], engine) for term in tokens]
    known = [of_term for of_term in positions if of_term is not None]
    return np.concatenate(known) if known else None


def tokens_count_alone(reader: SequenceReader | InputsReader, classes: Array, legal: Legal | None) -> bool:
    """Return whether all inputs are arrays, and labels are neither constrained nor tags of spans."""
    names = reader.sources if isinstance(reader, InputsReader) else [TOKENS]
    return legal is None and not any(map(reader.is_sparse, names)) and not are_spans(classes.tolist())


@dataclass(frozen=True, eq=False, kw_only=True)
class ChainModel(KernelModel):
    """A fitted conditional random field on sequences.

    legal : which labels may begin a sequence, follow each other, and end a sequence; None if there are no constraints.
    landmark_positions : for each landmark, the index of its sequence in the training data, and the index of its token
        in this sequence; None for the linear kernel. The landmarks of several inputs are one after the other.
    gap_curve : one row per iteration of the fit, with the certified gap relative to the objective, the number of passes
        over the data so far, and the seconds so far.
    metadata : values that the user saves with the model.
    """

    reader: SequenceReader | InputsReader
    labels: LabelReader
    legal: Legal | None
    landmark_positions: Places | None
    gap_curve: Floats
    metadata: Config

    @classmethod
    def of(
        cls,
        trained: Trained,
        readers: tuple[SequenceReader | InputsReader, LabelReader, Legal | None],
        specification: Config,
        engine: LocalEngine,
        metadata: Config,
        base: Iterable[str] = (),
        **fields_of_subclass: Any,
    ) -> Self:
        """Return the model, given the result of training.

        readers : the reader of inputs, the reader of labels, and the constraints on labels, as a tuple.
        specification : the settings of the fit, as plain values.
        base : the names of the base scores of the fit.
        fields_of_subclass : the fields that only a subclass has.
        """
        fitted, (reader, labels, legal) = trained.fit, readers
        history, fields = fitted.solution.history, cls._fields_of(trained, specification)
        return cls(
            **fields | {"base": tuple(sorted(base))},
            reader=reader,
            labels=labels,
            legal=legal,
            landmark_positions=_positions(fitted, engine),
            gap_curve=np.array([(record.relative_gap, record.passes, record.seconds) for record in history]),
            metadata=metadata,
            **fields_of_subclass,
        )

    @classmethod
    def imported(cls, **fields: Any) -> Self:
        """Return a model that another program fitted, of which neither the settings nor the certificate are known.

        fields : the kernels, the layout, theta, the maps, the readers `reader` and `labels`, and `metadata`.
        """
        return cls(
            certificate=Certificate(np.nan, -np.inf, IMPORTED), n_iter=0, C=np.nan, laplace=None, specification={},
            objective_curve=np.empty(0), legal=None, landmark_positions=None, gap_curve=np.empty((0, 3)), **fields,
        )  # fmt: skip

    @cached_property
    def scores_tokens_alone(self) -> bool:
        """Return whether labels of this kind are usually scored one by one, and not as spans or whole labellings."""
        return tokens_count_alone(self.reader, self.labels.classes, self.legal)

    @property
    def column_labels(self) -> list[UserData]:
        """Return the label of each column of the scores."""
        labels: list[UserData] = self.labels.classes.tolist()
        return labels

    def column(self, label: int) -> int:
        """Return the column of the scores that belongs to a label, given by its index."""
        return label

    @property
    def answer_bytes(self) -> int:
        L, theta = len(self.column_labels), self.layout.split(self.theta)
        weights = [theta[term.name] for term in self.layout.terms if term.kind.is_step]
        mild = self.legal is None and sum(np.abs(one).max(initial=0.0) for one in weights) <= MILD_RANGE / 2
        return super().answer_bytes + len(weights) * L * L * (MILD_BYTES if mild and len(weights) == 1 else WILD_BYTES)

    @cached_property
    def transitions(self) -> Floats:
        """Return the transition scores that do not depend on inputs, as an array [from label, to label]."""
        L = len(self.column_labels)
        return self._constants[TRANSITION_TERM].reshape(L, L)

    @cached_property
    def term_positions(self) -> Places | None:
        """Return, for each row of `dual_coef`, the position of its landmark in the training data.

        A position is a pair: the index of a sequence, and the index of a token in this sequence. Rows without a
        landmark have the pair (-1, -1). Return None if there are no landmarks.
        """
        if self.landmark_positions is None:
            return None
        is_landmark = np.concatenate([np.full(one.map.n, one.landmarks is not None) for one in self.token_inputs])
        positions = np.full((len(is_landmark), 2), -1)
        positions[is_landmark] = self.landmark_positions
        return positions

    @cached_property
    def start_scores(self) -> Floats:
        """Return the score of each label at the first token of a sequence; zeros if the model has no such scores."""
        return self._constant(START_TERM)

    @cached_property
    def end_scores(self) -> Floats:
        """Return the score of each label at the last token of a sequence; zeros if the model has no such scores."""
        return self._constant(END_TERM)

    @cached_property
    def edge_coef(self) -> Floats | None:
        """Return the weights of the inputs that score transitions, as an array [feature, from label, to label].

        Return None if no transition depends on inputs. The features of several inputs are one after the other.
        """
        if any(term.views is not None for term in self._step_terms):
            self.refuse_moved_inputs("edge_coef_")
        weights = [self._expand(term.name) for term in self._step_terms]
        return np.concatenate(weights) if weights else None

    @cached_property
    def _step_terms(self) -> list[Term]:
        return [term for term in self.layout.terms if term.kind.is_step and term.kernel is not None]

    @cached_property
    def one_sequence(self) -> OneSequence | None:
        """Return an object that predicts faster than `field` if there is only one sequence.

        Return None if the model needs `field`, for example because it has several inputs.
        """
        (input_term, *others), constants = (
            [term for term in self.layout.terms if term.name in self.maps],
            self._constants,
        )
        weights, reader = self.folded[input_term.name], self.reader
        if others or self.base or not constants.keys() <= CONSTANT_TERMS:
            return None
        if not (isinstance(weights, PairWeights) and input_term.kind.is_token):
            return None
        if not (isinstance(reader, SequenceReader) and reader.has_vocabulary):
            return None
        scores, w = np.array([self.intercept, self.start_scores, self.end_scores]), self.transitions
        if self.legal is not None:
            scores[1:][~np.array([self.legal.first, self.legal.last])] = -np.inf
            w = np.where(self.legal.steps, w, -np.inf)
        return OneSequence(reader, weights.pairs.pointers, weights.records, scores, np.ascontiguousarray(w)[None])

    def field(self, X: UserData, lengths: UserData, engine: LocalEngine, base_scores: UserData = None) -> ChainField:
        """Read the sequences X and return the random field of their labels."""
        flat, chains = self.reader.read_entries(X, lengths)
        return self.field_of(flat, chains, engine, self.read_base(base_scores, chains, flat=lengths is not None))

    def read_base(self, base_scores: UserData, chains: Chains | OpenChain, *, flat: bool) -> dict[str, Floats] | None:
        """Read base scores; raise if they are not of the same kinds as in the fit."""
        base = read_base_scores(base_scores, chains, len(self.labels.classes), flat=flat)
        check_base_scores(self.base, base)
        return base

    def field_of(
        self,
        flat: Inputs | Entries,
        chains: Chains,
        engine: LocalEngine,
        base: Mapping[str, Array] | None = None,
    ) -> ChainField:
        """Return the random field of the labels of sequences that `reader` has read.

        base : the base scores of the sequences, or None.
        """
        rows = self.term_scores(lambda term: matrix_of(flat, str(term.input)), engine)
        dtype, is_tied = rows[0][1].dtype, not (self._step_terms or STEPS in self.base)
        if is_tied:
            # One matrix for all tokens: the scores of the constant term itself, without a copy.
            rows = [(term, Z) for term, Z in rows if not term.kind.is_step]
        if is_tied and rows[0][0].kind.is_token:
            # The scores of the first term are a new array, to which those of the others can be added.
            scores = ChainScores(rows.pop(0)[1], self.transitions.astype(dtype, copy=False))
        else:
            scores = self._zeros(chains.n_nodes, dtype)
        if rows or base:
            add_terms(scores.arrays, rows, chains)
            add_base(scores.arrays, base)
        return self._legal_field(scores.s, scores.w, chains, engine)

    @cached_property
    def open_steps(self) -> Array | None:
        """Return the scores of steps of a sequence that goes on, (L, L); None if they depend on the token."""
        if self._step_terms or STEPS in self.base:
            return None
        return self.transitions if self.legal is None else np.where(self.legal.steps, self.transitions, -np.inf)

    def open_scores(
        self, tokens: UserData, engine: LocalEngine, *, begins: bool, base_scores: UserData = None
    ) -> tuple[Array, Array | None, Floats]:
        """Read tokens of one sequence that goes on, and return the scores of their labels.

        begins : whether the sequence begins with these tokens.
        base_scores : the base scores of these tokens, one row per token.

        Return three arrays: the scores s (n, L) of labels, the scores w (n, L, L) of steps, and the scores (L,) that
        the labels of the last of these tokens also have if it ends the sequence. If `open_steps` has w, w is None.
        """
        flat, chains = self.reader.read_entries([tokens])
        part = OpenChain(chains.n_nodes, begins)
        base = self.read_base(base_scores, part, flat=True)
        rows = self.term_scores(lambda term: matrix_of(flat, str(term.input)), engine)
        scores = self._zeros(part.n_nodes, rows[0][1].dtype)
        tied = self.open_steps is not None
        add_terms(scores.arrays, (row for row in rows if not (tied and row[0].kind.is_step)), part)
        add_base(scores.arrays, base)
        end = np.zeros(len(self.column_labels))
        for term, Z in rows:
            if term.kind.is_last and len(Z):
                end += Z[-1]
        s, w, legal = scores.s, None if tied else scores.w, self.legal
        if legal is not None:
            s[part.first_nodes] = np.where(legal.first, s[part.first_nodes], -np.inf)
            w = None if w is None else np.where(legal.steps, w, -np.inf)
            end = np.where(legal.last, end, -np.inf)
        return s, w, end

    def _zeros(self, n_nodes: int, dtype: DType) -> ChainScores:
        L = len(self.column_labels)
        if self._step_terms or STEPS in self.base:
            return ChainScores.zeros(n_nodes, L, "own", dtype)
        return ChainScores(np.zeros((n_nodes, L), dtype), self.transitions.astype(dtype, copy=False))

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
        flat, chains = self.reader.read(X, lengths)
        draws = n_samples, rng_of(random_state), temperature, engine
        base = self.read_base(base_scores, chains, flat=lengths is not None)
        for s, w in self.score_posterior.draws(flat, chains, *draws, base):
            yield self._legal_field(s, w, chains, engine).marginals()

    def _legal_field(self, s: Array, w: Array, chains: Chains, engine: LocalEngine) -> ChainField:
        if self.legal is not None:
            s, w = self.legal.impose(chains, s, w)
        return ChainField(s, w, chains, engine.n_threads)

    def read_tokens(self, y: UserData, chains: Chains, *, flat: bool = False) -> list[UserData]:
        """Return the labels of all tokens in one list; if `flat` is True, y is such a list already."""
        return flat_labels(y, chains, flat=flat)

    def log_likelihood(self, X: UserData, y: UserData, engine: LocalEngine) -> float:
        """Return the log-probability of the labels y of a sequence, averaged over sequences."""
        field = self.field(X, None, engine)
        return float(field.log_prob(*self.labels.encode(flat_labels(y, field.chains), field.chains)).mean())

    def log_score(self, y: UserData, proba: list[Array]) -> float:
        """Return the log-probability of a label, averaged over all known labels in y.

        proba : for each sequence, the label probabilities, one row per token.
        """
        p = np.concatenate(proba)
        chains = Chains.from_lengths([len(rows) for rows in proba])
        indices, _ = self.labels.encode(flat_labels(y, chains), chains)
        known = np.flatnonzero(indices >= 0)
        return float(np.log(np.maximum(p[known, indices[known]], TINY)).mean())

    def to_arrays(self) -> tuple[Config, Arrays]:
        """Return the model as two dicts: values that JSON can store, and named arrays."""
        config, arrays = super().to_arrays()
        arrays["gap_curve"] = self.gap_curve
        if self.landmark_positions is not None:
            arrays["landmark_positions"] = self.landmark_positions
        if self.legal is not None:
            arrays |= {f"legal.{name}": getattr(self.legal, name) for name in ("steps", "first", "last")}
        fields = {
            "inputs": self.reader.to_config(),
            "labels": self.labels.to_config(),
            "metadata": parts.METADATA.check("metadata_", self.metadata),
        }
        return config | fields, arrays

    @classmethod
    def from_arrays(cls, config: Config, arrays: Arrays) -> Self:
        """Return the model, given the two dicts that `to_arrays` returned; raise an error if they are inconsistent."""
        reader, labels = reader_from_config(config["inputs"]), LabelReader.from_config(config["labels"])
        stored = {read_text(one, "name"): read_text(one, "cliques") for one in config["terms"]}
        sources = reader.sources if isinstance(reader, InputsReader) else ()
        terms = expected_terms(stored, sources, OF_INPUTS)
        L, widths = len(labels.classes), {one: reader.width(one) for _, one in terms.values() if one is not None}
        shared = cls._read_terms(config, arrays, L, terms, widths)
        return cls(**shared, **cls._read_chain(config, arrays, L, shared), reader=reader, labels=labels)

    @staticmethod
    def _read_chain(config: Config, arrays: Arrays, L: int, shared: Config) -> Config:
        """Return the constraints on L labels, positions of landmarks, and records of the fit, as read from a file.

        shared : the fields that `_read_fields` returned.
        """
        positions = None
        tokens = {term.name for term in shared["layout"].terms if term.kind.is_token}
        with_landmarks = [
            feature_map
            for name, feature_map in shared["maps"].items()
            if isinstance(feature_map, WhitenedMap) and name in tokens
        ]
        if with_landmarks:
            positions = read_array(
                arrays, "landmark_positions", (sum(feature_map.n for feature_map in with_landmarks), 2), "i"
            )
        if not isinstance(config["metadata"], dict):
            raise ModelFileError(
                f"the model file has metadata={shown(config['metadata'])}: expected a JSON object. The file may be "
                "damaged: use another copy of it"
            )
        return {
            "legal": read_legal(arrays, L),
            "landmark_positions": positions,
            "gap_curve": read_array(arrays, "gap_curve", (parts.n_records(shared), 3), "f"),
            "metadata": config["metadata"],
        }
