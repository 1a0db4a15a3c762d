"""Convert linear models of sequences to the model files of Wapiti, and back.

Both libraries score the labels of a sequence by

    sum_t sum over features u of token t of w[u, y_t] + sum_{t>1} sum over features b of token t of v[b, y_{t-1}, y_t].

Wapiti calls features observations. Names that begin with u have weights w, those that begin with b have weights v, and
those that begin with * have both. The feature b of Wapiti, which each token has, stands for the constant transitions.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from kernelcrf.arrays import Floats, Ints
from kernelcrf.basis.features import PrimalMap
from kernelcrf.basis.pairs import Pairs
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.models.chain import ChainModel
from kernelcrf.models.crfsuite import find_reason, to_crfsuite
from kernelcrf.models.kernel import kernel_parameter
from kernelcrf.persistence import Budget, PathLike
from kernelcrf.persistence.wapiti import TOKEN_KINDS, WapitiModel, first_weights, read_model
from kernelcrf.readers.feature_items import SEPARATOR
from kernelcrf.readers.inputs import InputsReader
from kernelcrf.readers.labels import LabelReader
from kernelcrf.readers.sequences import SequenceReader
from kernelcrf.readers.vocabulary import Vocabulary
from kernelcrf.score.cliques import STEPS, TOKENS
from kernelcrf.score.layout import Layout
from kernelcrf.score.terms import TRANSITION_TERM, NamedInput, chain_terms, named_term
from kernelcrf.validation import shown

KEY = "wapiti"


def read_wapiti(source: PathLike | bytes) -> ChainModel:
    """Return the model of a file of Wapiti, given its path or its bytes.

    Raise if a prediction would need more memory than the size of the file justifies.
    """
    content = read_model(source)
    budget = Budget(len(source) if isinstance(source, bytes) else Path(source).stat().st_size)
    # An array of labels has the width of the longest one.
    n_labels, longest = len(content.labels), max(map(len, content.labels))
    budget.charge("the labels and transitions of this model of Wapiti", 4 * n_labels * (longest + 2 * n_labels))
    model = from_wapiti(content)
    budget.charge("the first prediction of this model of Wapiti", model.answer_bytes)
    return model


def from_wapiti(content: WapitiModel) -> ChainModel:
    """Return the model of a file of Wapiti; each of its two inputs, tokens and steps, reads the names of features.

    The file says nothing about the fit, so that the certificate has the status "imported" and C is NaN.
    """
    names, L, starts = content.observations, len(content.labels), content.starts
    rows = np.searchsorted(starts, content.places, side="right") - 1
    within = content.places - starts[rows]
    n_of_tokens = np.array([L if name[0] in TOKEN_KINDS else 0 for name in names])[rows]
    of_tokens = within < n_of_tokens
    kernel = InputKernel("linear")
    inputs = {TOKENS: NamedInput(kernel, 1.0), STEPS: NamedInput(kernel, 1.0, STEPS)}
    of_token, of_step = named_term(TOKENS), named_term(STEPS)
    pairs = {
        of_token: _pairs_of(rows[of_tokens], within[of_tokens], len(names), L),
        TRANSITION_TERM: _pairs_of(rows[:0], rows[:0], 1, L * L),
        of_step: _pairs_of(rows[~of_tokens], (within - n_of_tokens)[~of_tokens], len(names), L * L),
    }
    terms = [replace(term, pairs=pairs[term.name]) for term in chain_terms(L, None, inputs=inputs)]
    layout = Layout.of(terms, dict.fromkeys((of_token, of_step), len(names)))
    weights = {of_token: content.weights[of_tokens], of_step: content.weights[~of_tokens]}
    return ChainModel.imported(
        kernels={kernel_parameter(term): kernel for term in (of_token, of_step)},
        layout=layout,
        theta=layout.join({**weights, TRANSITION_TERM: np.empty(0)}),
        maps={term: PrimalMap(len(names)) for term in (of_token, of_step)},
        reader=InputsReader.of_whole(
            SequenceReader("dicts", len(names), Vocabulary(names, SEPARATOR)), (TOKENS, STEPS)
        ),
        labels=LabelReader(np.array(content.labels)),
        metadata={KEY: [content.n_columns, int(content.adds_u), *content.patterns]},
    )


def to_wapiti(model: ChainModel) -> WapitiModel:
    """Return the model as the content of a file of Wapiti; raise ValueError if Wapiti cannot represent the model.

    A model that was read from a file of Wapiti has its observations, also those without weights. For other models, the
    observations are the features with weights, after the prefix u: and the observation b, which has the transitions.
    """
    labels, names = model.labels.classes.tolist(), _names_of(model)
    stored = model.metadata.get(KEY)
    if names is None or not isinstance(stored, list) or model.transitions.any() or model.legal is not None:
        return _of_one_input(model)
    L, starts = len(labels), first_weights(names, len(labels))
    theta, places, weights = model.layout.split(model.theta), list[Ints](), list[Floats]()
    for name in (TOKENS, STEPS):
        term = model.layout.by_name[named_term(name)]
        if term.pairs is None:
            raise ValueError(f"the input {shown(name)} has weights for all pairs: expected a model of Wapiti")
        rows = np.repeat(np.arange(term.pairs.n), np.diff(term.pairs.pointers))
        before = np.array([L if name == STEPS and one[0] == "*" else 0 for one in names])
        places.append(starts[rows] + before[rows] + term.pairs.labels)
        weights.append(theta[term.name])
    joined, values = np.concatenate(places), np.concatenate(weights)
    order = np.argsort(joined)
    order = order[values[order] != 0]
    n_columns, adds_u, *patterns = stored
    return WapitiModel(labels, names, joined[order], values[order], patterns, int(n_columns), bool(adds_u))


def _of_one_input(model: ChainModel) -> WapitiModel:
    """Return the content of a file of Wapiti for a model without named inputs, which CRFsuite can represent, too."""
    if (reason := find_reason(model)) is not None:
        raise ValueError(f"the model cannot be written as a model of Wapiti, because {reason}")
    content, L = to_crfsuite(model), len(model.labels.classes)
    names, (attributes, labels, weights) = content.attributes, content.state
    sources, targets, of_steps = content.transitions
    return WapitiModel(
        labels=content.labels,
        observations=[*(f"u:{name}" for name in names), "b"],
        places=np.concatenate([attributes * L + labels, len(names) * L + sources * L + targets]),
        weights=np.concatenate([weights, of_steps]),
        patterns=[],
    )


def _names_of(model: ChainModel) -> list[str] | None:
    """Return the names of the features of a model that was read from a file of Wapiti; None for all other models."""
    reader = model.reader
    if not isinstance(reader, InputsReader) or set(reader.sources) != {TOKENS, STEPS} or set(reader.entries) != {None}:
        return None
    whole = reader.entries[None]
    return list(whole.vectorizer.names) if isinstance(whole.vectorizer, Vocabulary) else None


def _pairs_of(features: Ints, labels: Ints, n: int, n_labels: int) -> Pairs:
    """Return a `Pairs` object, given pairs that are sorted by feature and label; `n` is the number of features."""
    pointers = np.append(0, np.cumsum(np.bincount(features, minlength=n)))
    return Pairs(pointers.astype(np.int64), labels.astype(np.int32), n_labels)
