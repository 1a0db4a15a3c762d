"""Read a model from a file, check each of its values, and compute the scores of the labels of one sequence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Array, Arrays, Config, Floats, Places, UserData
from ..graphs.structure import Legal
from ..kernels.labels import KINDS, LabelKernel
from ..persistence import Budget, ModelFileError, PathLike, read
from ..persistence.checks import (
    check_map,
    check_terms,
    read_array,
    read_count,
    read_legal,
    read_pairs,
    read_text,
)
from ..persistence.error import CONTENT_ERRORS
from ..persistence.long_lists import listed
from ..persistence.model_file import VERSION, WEIGHTS
from ..readers.spans import are_spans
from ..readers.stored_inputs import SEVERAL, Source, StoredColumns, columns_from_config, sources_from_config
from ..readers.stored_values import classes_from_config
from ..score.chain_names import (
    BIAS_TERM,
    END_TERM,
    ENDS,
    START_TERM,
    STARTS,
    STEPS,
    TOKENS,
    TRANSITION_TERM,
    expected_terms,
)
from ..validation import shown, shown_list
from .kernels import Gram, check_kernel
from .rows import DenseReader, Reader, SparseRows, reader_of, select_columns
from .transformers import Transformers
from .weights import DENSE_ENTRIES, DenseWeights, Weights, pair_weights, weights_at_landmarks

CHAIN, PIPELINE, STEP = "ChainCRF", "Pipeline", "step "
CONVERT = "Load the file with kernelcrf.load and save it again"
# The term of a parameter that files of version 0.1 have; kernelcrf.load makes it an input.
EDGE_KERNEL_TERM = "steps"
# What inputs may score, and the rows of the tokens that have these cliques.
CLIQUES: Mapping[str, Any] = {TOKENS: slice(None), STEPS: slice(None), STARTS: 0, ENDS: -1}
LARGEST_SCORE = float(np.sqrt(np.finfo(np.float64).max))
# The bytes of numbers that a prediction takes per pair of labels.
PAIR_BYTES = 100


class InputTerm(NamedTuple):
    """A term of the score that depends on inputs.

    entry : the entry of the sequence that the term reads; None means the sequence itself.
    columns : the columns that the term reads; None means all.
    cliques : the kind of cliques that the term scores, a name in CLIQUES.
    """

    weights: Weights
    entry: str | None
    columns: Places | None
    cliques: str

    @property
    def is_step(self) -> bool:
        """Return whether the term scores pairs of neighbouring labels."""
        return self.cliques == STEPS


# Label kernels of Symmetry and LabelFeatures, for which the tagger has no code.
SHARED = ("orbits", "product")


@dataclass(frozen=True, eq=False)
class StoredModel:
    """A model that was read from a file.

    classes : the labels, in the order of the columns of scores.
    decoding : the name of the rule that chooses labels, and the parameters of the rule.
    readers : the reader of each entry of a sequence; if sequences are not mappings, the only key is None.
    terms : the terms that depend on inputs, in the order in which scores are added.
    bias, start, end : the scores of labels at all tokens, at the first and at the last token.
    w : the scores of steps (L, L), which are -inf for forbidden steps.
    """

    classes: list[Any]
    decoding: Config
    metadata: Config
    transformers: Transformers
    readers: Mapping[str | None, Reader]
    terms: list[InputTerm]
    bias: Floats | None
    start: Floats | None
    end: Floats | None
    w: Floats
    legal: Legal | None

    @property
    def scores_tokens_alone(self) -> bool:
        """Return whether all inputs are arrays, and labels are neither constrained nor tags of spans."""
        dense = all(isinstance(reader, DenseReader) for reader in self.readers.values())
        return dense and self.legal is None and not are_spans(self.classes)

    @property
    def by_token(self) -> bool:
        """Return whether the scores of steps depend on the token."""
        return any(term.is_step for term in self.terms)

    def scores(self, tokens: UserData) -> tuple[Floats, Floats]:
        """Return a pair: the scores of the labels of a sequence, (T, L), and of its steps, (L, L) or (T, L, L)."""
        s, w, end = self.open_scores(tokens, begins=True)
        if len(s):
            s[-1] += end
        return s, w

    def open_scores(self, tokens: UserData, *, begins: bool) -> tuple[Floats, Floats, Floats]:
        """Return the scores of the labels and of the steps of some tokens of a sequence that goes on.

        begins : whether the sequence begins with these tokens.

        The third array (L,) has the scores that the labels of the last token also have if it ends the sequence.
        """
        rows = self._read(tokens)
        L = len(self.w)
        if not _n_rows(next(iter(rows.values()))):
            return np.empty((0, L)), np.empty((0, L, L)) if self.by_token else self.w, np.zeros(L)
        s: Any = None
        w: Any = None
        end = np.zeros(L) if self.end is None else self.end.copy()
        for term in self.terms:
            X, place = rows[term.entry], CLIQUES[term.cliques]
            if place == 0 and not begins:
                continue
            Z = term.weights.scores(X if term.columns is None else select_columns(X, term.columns))
            if term.is_step:
                w = Z if w is None else w + Z
            elif place == -1:
                end += Z[-1]
            elif s is None:
                s = Z
            else:
                s[place] += Z[place]
        if not (s.max() <= LARGEST_SCORE and s.min() >= -LARGEST_SCORE):
            raise ValueError(
                "the scores of labels are so large that computations overflow: expected inputs on the scale of the "
                "training data. Scale the tokens as the training data were scaled"
            )
        s = s if self.bias is None else s + self.bias
        if self.start is not None and begins:
            s[0] += self.start
        if self.legal is not None:
            s[0] = np.where(self.legal.first, s[0], -np.inf) if begins else s[0]
            end = np.where(self.legal.last, end, -np.inf)
        return s, self.w if w is None else w.reshape(-1, *self.w.shape) + self.w, end

    def _read(self, tokens: UserData) -> dict[str | None, Floats | SparseRows]:
        tokens = self.transformers.transform(tokens)
        if None in self.readers:
            return {None: self.readers[None].read(tokens)}
        if not isinstance(tokens, Mapping) or not set(self.readers) <= set(tokens):
            given = (
                f"has the entries {shown_list(tokens)}"
                if isinstance(tokens, Mapping)
                else f"is of type {type(tokens).__name__}"
            )
            raise TypeError(
                f"the argument tokens {given}: expected one sequence, as a dict with the entries "
                f"{shown_list(self.readers)}, as in fit"
            )
        rows = {entry: reader.read(tokens[str(entry)]) for entry, reader in self.readers.items()}
        lengths = {entry: _n_rows(x) for entry, x in rows.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(
                f"the entries of tokens have the lengths {lengths}: expected equal lengths, with one row per token in "
                "each entry"
            )
        return rows


def _n_rows(X: Floats | SparseRows) -> int:
    return X.n_rows if isinstance(X, SparseRows) else len(X)


def open_model(path: PathLike) -> StoredModel:
    """Return the model of a file; raise ModelFileError if it is damaged, or has a part unknown to the tagger."""
    config, arrays, budget = read(path, texts=lambda texts: texts)
    try:
        if config["version"] < VERSION:
            raise ModelFileError(
                f"the file has version {config['version']} of the format: expected {VERSION}. {CONVERT}"
            )
        if config.get("estimator") != PIPELINE:
            return _read_model(config, arrays, budget, Transformers([], {}, STEP))
        steps = Transformers(config["steps"], arrays, STEP)
        others = {name: array for name, array in arrays.items() if not name.startswith(STEP)}
        return _read_model(config["last"], others, budget, steps)
    except CONTENT_ERRORS as error:
        raise ModelFileError(f"{path}: {error}") from None


def _read_model(config: Config, arrays: Arrays, budget: Budget, steps: Transformers) -> StoredModel:
    if config.get("estimator") != CHAIN:
        raise ModelFileError(
            f"the file has a model of {shown(config.get('estimator'))}: expected {CHAIN}, the only estimator that "
            "kernelcrf-tagger knows. Open the file with kernelcrf.load"
        )
    if config.get("base_scores"):
        raise ModelFileError(
            "the model was fitted with base_scores, which kernelcrf-tagger does not take: expected a model without "
            "them. Open the file with kernelcrf.load"
        )
    inputs, labels = config["inputs"], classes_from_config(config["labels"]).tolist()
    several = inputs["kind"] == SEVERAL
    entries: dict[str | None, StoredColumns] = (
        {entry: columns_from_config(one) for entry, one in inputs["entries"]}
        if several
        else {None: columns_from_config(inputs)}
    )
    sources = sources_from_config(inputs, entries) if several else {TOKENS: Source(None, None)}
    stored = {read_text(one, "name"): read_text(one, "cliques") for one in config["terms"]}
    if EDGE_KERNEL_TERM in stored:
        raise ModelFileError(f"the model has the parameter edge_kernel of version 0.1. {CONVERT}")
    if unknown := set(stored.values()) - set(CLIQUES):
        raise ModelFileError(
            f"the model has terms that score the cliques {shown_list(sorted(unknown))}, which kernelcrf-tagger does "
            f"not know: expected {', '.join(CLIQUES)}. Open the file with kernelcrf.load"
        )
    check_terms(config, expected_terms(stored, sources if several else (), CLIQUES))
    widths = {
        name: entries[entry].n_features if columns is None else len(columns)
        for name, (entry, columns) in sources.items()
    }
    legal = read_legal(arrays, len(labels))
    # The first prediction takes the weights again, and matrices with a number for each pair of labels.
    theta = arrays[WEIGHTS]
    n_bytes = 8 * 4 * theta.size + PAIR_BYTES * len(labels) ** 2 + 8 * DENSE_ENTRIES
    budget.charge("the first prediction of this ChainCRF", n_bytes)
    # Vocabularies take the most memory while they are read: they are read before the weights.
    readers = {entry: reader_of(columns) for entry, columns in entries.items()}
    terms, constants = _read_terms(config, arrays, len(labels), widths)
    steps.check(entries[None].n_features if None in entries else None, budget)
    w = constants[TRANSITION_TERM].reshape(len(labels), len(labels))
    return StoredModel(
        classes=labels,
        decoding=_read_decoding(config["parameters"].get("decoding", "viterbi")),
        metadata=_read_metadata(listed(config["metadata"])),
        transformers=steps,
        readers=readers,
        terms=[InputTerm(weights, *sources[name], cliques) for weights, name, cliques in terms],
        **{key: constants.get(name) for key, name in (("bias", BIAS_TERM), ("start", START_TERM), ("end", END_TERM))},
        w=w if legal is None else np.where(legal.steps, w, -np.inf),
        legal=legal,
    )


def _read_terms(
    config: Config, arrays: Arrays, L: int, widths: Mapping[str, int]
) -> tuple[list[tuple[Weights, str, str]], dict[str, Floats]]:
    """Return a list of (weights, input, kind of cliques) for terms with inputs, and a dict of scores of other terms."""
    kernels = [_read_label_kernel(one) for one in config["label_kernels"]]
    grams: dict[int, tuple[Gram, Array]] = {}
    terms: list[tuple[Weights, str, str]] = []
    constants: dict[str, Floats] = {}
    used = 0
    sizes: list[int] = []
    for one in config["terms"]:
        name, cliques, place = one["name"], one["cliques"], one["label_kernel"]
        if type(place) is not int or not 0 <= place < len(kernels):
            raise ModelFileError(
                f"the model file has label_kernel={shown(place)}: expected the index of a label kernel. The file may "
                "be damaged: use another copy of it"
            )
        n, k_y = read_count(one, "n", 1), kernels[place]
        size = L * L if cliques == STEPS else L
        if size != k_y.L:
            raise ModelFileError(
                f"the term {shown(name)} of the model file has a label kernel of {k_y.L} labellings: expected {size}. "
                "The file may be damaged: use another copy of it"
            )
        pairs = read_pairs(arrays, name, size)
        n_weights = n * k_y.rank if pairs is None else len(pairs[1])
        sizes.append(n_weights)
        weights = arrays[WEIGHTS].reshape(-1)[used : used + n_weights]
        used += n_weights
        if len(weights) != n_weights:
            continue
        if pairs is not None and not (k_y.is_identity and len(pairs[0]) == n + 1):
            raise ModelFileError(
                f"the pairs of the term {shown(name)} of the model file do not match its {n} features: expected pairs "
                f"for {n} features. The file may be damaged: use another copy of it"
            )
        if one["kernel"] is None:
            W = np.zeros((1, k_y.rank))
            if pairs is None:
                W[0] = weights
            else:
                W[0, pairs[1]] = weights
            constants[name] = np.asarray(k_y.expand(W))[0]
            continue
        check_kernel(one["kernel"])
        source, at = one["input"], read_count(one, "map")
        stored = check_map(config["maps"][at], arrays, f"map {at}.", widths[source])
        if stored.n != n:
            raise ModelFileError(
                f"the term {shown(name)} of the model file has {n} features: expected {stored.n}. The file may be "
                "damaged: use another copy of it"
            )
        if pairs is not None:
            terms.append((pair_weights(*pairs, weights, k_y), source, cliques))
            continue
        W = weights.reshape(n, k_y.rank)
        if stored.R is None:
            terms.append((DenseWeights(W, k_y), source, cliques))
        else:
            if at not in grams:
                grams[at] = Gram(stored), stored.R
            terms.append((DenseWeights(weights_at_landmarks(stored.R, W), k_y, grams[at][0]), source, cliques))
    read_array(arrays, WEIGHTS, (sum(sizes),), "f")
    return terms, constants


def _read_label_kernel(config: Config) -> LabelKernel:
    if config["kind"] in SHARED:
        raise ModelFileError(
            f"the labels of the model share weights by a label kernel of the kind {config['kind']!r}, which "
            "kernelcrf-tagger does not know. Open the file with kernelcrf.load"
        )
    if config["kind"] not in KINDS:
        raise ModelFileError(
            f"the model file has a label kernel with kind={shown(config['kind'])}: expected one of "
            f"{', '.join(KINDS)}. The file may be damaged: use another copy of it"
        )
    return LabelKernel.from_config(config)


def _read_decoding(config: str | Config) -> Config:
    rule = {"name": config} if isinstance(config, str) else dict(config)
    read_text(rule, "name")
    return rule


def _read_metadata(config: Config) -> Config:
    if not isinstance(config, dict):
        raise ModelFileError(
            f"the model file has metadata={shown(config)}: expected a JSON object. The file may be damaged: use "
            "another copy of it"
        )
    return config
