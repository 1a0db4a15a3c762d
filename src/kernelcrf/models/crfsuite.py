"""Convert linear models of sequences to the model files of CRFsuite, and back.

Both libraries score the labels of a sequence by

    sum_t sum over attributes a of token t of x_ta w[a, y_t] + sum_{t>1} T[y_{t-1}, y_t].

CRFsuite calls features attributes. Both libraries give the same names to the items of feature dicts.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from kernelcrf.arrays import Ints
from kernelcrf.basis.features import PrimalMap
from kernelcrf.basis.pairs import Pairs
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.models.chain import ChainModel
from kernelcrf.models.kernel import KERNELS
from kernelcrf.persistence import Budget, PathLike
from kernelcrf.persistence.crfsuite.model_file import CRFsuiteModel, StateWeights, TransitionWeights, read_model
from kernelcrf.readers.feature_items import SEPARATOR
from kernelcrf.readers.inputs import InputsReader
from kernelcrf.readers.labels import LabelReader
from kernelcrf.readers.sequences import SequenceReader
from kernelcrf.readers.vocabulary import Vocabulary
from kernelcrf.score.layout import Layout
from kernelcrf.score.terms import TOKEN_TERM, TRANSITION_TERM, chain_terms
from kernelcrf.validation import shown, shown_list

NO_ATTRIBUTES = [""]


def read_crfsuite(source: PathLike | bytes) -> ChainModel:
    """Return the model of a file of CRFsuite, given its path or its bytes.

    Raise if a prediction would need more memory than the size of the file justifies.
    """
    model = from_crfsuite(read_model(source))
    size = len(source) if isinstance(source, bytes) else Path(source).stat().st_size
    Budget(size).charge("the first prediction of this model of CRFsuite", model.answer_bytes)
    return model


def from_crfsuite(content: CRFsuiteModel) -> ChainModel:
    """Return the model of a file of CRFsuite.

    The file says nothing about the fit. The certificate of the model therefore has the status "imported", no objective
    and no bound, and C is NaN. Labels have the order of the file, so that ties are decided as in CRFsuite.
    """
    # A model without attributes gets one without weights, because a reader has at least one column.
    names, L = content.attributes or NO_ATTRIBUTES, len(content.labels)
    pairs = {
        TOKEN_TERM: _pairs_of(content.state.attributes, content.state.labels, len(names), L),
        TRANSITION_TERM: _pairs_of(
            np.zeros(len(content.transitions.sources), np.int64),
            content.transitions.sources * L + content.transitions.targets,
            1,
            L * L,
        ),
    }
    kernel = InputKernel("linear")
    terms = [replace(term, pairs=pairs[term.name]) for term in chain_terms(L, kernel)]
    layout = Layout.of(terms, {TOKEN_TERM: len(names)})
    return ChainModel.imported(
        kernels={KERNELS[TOKEN_TERM]: kernel},
        layout=layout,
        theta=layout.join({TOKEN_TERM: content.state.weights, TRANSITION_TERM: content.transitions.weights}),
        maps={TOKEN_TERM: PrimalMap(len(names))},
        reader=SequenceReader("dicts", len(names), Vocabulary(names, SEPARATOR)),
        labels=LabelReader(np.array(content.labels)),
        metadata={},
    )


def to_crfsuite(model: ChainModel) -> CRFsuiteModel:
    """Return the model as the content of a file of CRFsuite; raise ValueError if CRFsuite cannot represent the model.

    Weights that are zero are left out, and so are attributes without weights.
    """
    if (reason := find_reason(model)) is not None:
        raise ValueError(f"the model cannot be written as a model of CRFsuite, because {reason}")
    layout, L = model.layout, len(model.labels.classes)
    pairs, weights = next(term.pairs for term in layout.terms if term.name == TOKEN_TERM), model.coef.ravel()
    if pairs is None:
        attributes, labels = np.divmod(np.arange(len(weights)), L)
    else:
        attributes, labels = np.repeat(np.arange(pairs.n), np.diff(pairs.pointers)), pairs.labels.astype(np.int64)
        weights = layout.split(model.theta)[TOKEN_TERM]
    kept = weights != 0
    used, indices = np.unique(attributes[kept], return_inverse=True)
    names, T = model.reader.feature_names or [], model.transitions
    sources, targets = np.nonzero(T)
    return CRFsuiteModel(
        labels=model.labels.classes.tolist(),
        attributes=[names[column] for column in used.tolist()],
        state=StateWeights(indices, labels[kept], weights[kept].astype(np.float64)),
        transitions=TransitionWeights(sources, targets, T[sources, targets].astype(np.float64)),
    )


def find_reason(model: ChainModel) -> str | None:
    """Return why the model cannot become a model of CRFsuite or Wapiti, and what to do about it; None if it can."""
    other = "Save it as a .kcrf file"
    reader, labels = model.reader, model.labels.classes.tolist()
    strange = [label for label in labels if not isinstance(label, str)]
    if isinstance(reader, InputsReader):
        return f"it has the inputs {shown_list(reader.sources)}: expected one input without a name. {other}"
    kernel = model.token_inputs[0].kernel
    if not kernel.is_linear:
        return f"its kernel is {kernel.kernel}: expected the linear kernel. {other}, or fit with kernel='linear'"
    if any(scores.any() for scores in (model.intercept, model.start_scores, model.end_scores)):
        return (
            f"it has an intercept, or scores of boundaries: expected neither. {other}, or fit with fit_intercept=False"
        )
    if model.legal is not None:
        return f"it has constraints: expected constraints=None. {other}, or fit without constraints"
    if reader.kind != "dicts":
        return f"its inputs are numbers without names: expected feature dicts, or lists of names. {other}"
    if not isinstance(reader.vectorizer, Vocabulary):
        return f"its features are hashed: expected hash_features=None. {other}, or fit without hash_features"
    if (separator := reader.vectorizer.separator) != SEPARATOR:
        return (
            f"its features have names such as {shown(f'word{separator}the')}, as in files of earlier versions: "
            f"expected names such as {shown(f'word{SEPARATOR}the')}. {other}, or fit it again"
        )
    if strange:
        return f"it has the label {shown(strange[0])}: expected strings. {other}, or fit with labels that are strings"
    return None


def _pairs_of(features: Ints, labels: Ints, n: int, n_labels: int) -> Pairs:
    """Return a `Pairs` object, given pairs that are sorted by feature and label; `n` is the number of features."""
    pointers = np.append(0, np.cumsum(np.bincount(features, minlength=n)))
    return Pairs(pointers.astype(np.int64), labels.astype(np.int32), n_labels)
