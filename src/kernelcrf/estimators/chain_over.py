"""ChainOver: a chain over any classifier, which reads the log-probabilities that the classifier gives to each token.

The classifier is fitted to the tokens of all sequences, as if they were independent. The chain learns how far to trust
the probabilities of the classifier, and which labels follow each other. The input of the chain at token t is the
vector s_t - mean(s_t), where

    s_t = log((p_t + floor) / (1 + L floor)),

and p_t are the probabilities of the L labels; the floor keeps the logarithm finite. A classifier is overconfident on
tokens that it was fitted to. The chain is therefore fitted to out-of-fold probabilities: whole sequences, or whole
`groups` of them, are divided into `cv` folds, and each fold is predicted by a copy of the classifier that was fitted to
the other folds. New sequences are predicted by a copy that was fitted to all tokens whose labels are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import GroupKFold
from sklearn.utils.validation import has_fit_parameter

from kernelcrf.arrays import Array, Floats, Inputs, UserData
from kernelcrf.distributions.chain import ChainDistribution
from kernelcrf.estimators.base import fitted_model
from kernelcrf.estimators.chain import ChainCRF
from kernelcrf.estimators.input import ENTRY, Input
from kernelcrf.estimators.parameters import ValidatedEstimator
from kernelcrf.graphs.structure import Chains
from kernelcrf.readers.containers import Ragged, read_groups, read_list
from kernelcrf.readers.labels import LabelReader, flat_labels
from kernelcrf.readers.sequences import SequenceReader
from kernelcrf.readers.weights import read_weights
from kernelcrf.validation import ParameterError, either, has_methods, instance_of, nothing, real, shown, whole

# The entries of the sequences that the chain reads: the log-probabilities, and the tokens themselves.
CLASSIFIER, TOKENS = "classifier", "tokens"
CHAIN = either(instance_of(ChainCRF, text="a ChainCRF with inputs"), nothing)
A_CLASSIFIER = either(has_methods("fit", "predict_proba", text="a classifier with the method predict_proba"))


@dataclass(frozen=True, eq=False)
class FittedChainOver:
    """A fitted classifier and the chain over its probabilities.

    reader : converts the tokens to the rows that the classifier reads.
    """

    reader: SequenceReader
    classifier: Any
    chain: ChainCRF


@dataclass(eq=False, repr=False)
class ChainOver(ValidatedEstimator):
    """Chain over any scikit-learn classifier, fitted to the probabilities that the classifier predicts for each token.

    X is a list of sequences, as in ChainCRF: arrays, sparse matrices, data frames, lists of feature dicts, or dicts
    from names to these. The classifier reads each sequence, or the entry of it that the parameter `of` names, as one
    row per token.

    Parameters
    ----------
    classifier : classifier with the method predict_proba
        A classifier of single tokens, such as RandomForestClassifier(). It is cloned, and fitted to the tokens whose
        labels are known.
    chain : None or ChainCRF, default=None
        The ChainCRF to fit; it is cloned. Its `inputs` must contain "classifier", which reads the logarithms of the
        probabilities. They may contain others: "tokens" reads the sequence itself. If sequences are dicts, use the
        names of their entries instead of "tokens". None means
        ChainCRF(inputs={"classifier": Input("linear")}, fit_intercept=True).
    cv : int, default=5
        Number of folds. The chain is fitted to out-of-fold probabilities: each fold is predicted by a copy of the
        classifier that was fitted to the other folds. With fewer sequences or groups than `cv`, each of them is a fold.
    of : None or str, default=None
        Name of the entry that the classifier reads, if sequences are dicts.
    floor : float, default=1e-3
        Number that is added to all probabilities before the logarithm, which would be -inf for a probability of 0.

    Attributes
    ----------
    classifier_ : the classifier that was fitted to all tokens whose labels are known.
    chain_ : the fitted ChainCRF; it reads what `transform` returns.
    classes_ : the labels, in the order of the columns of probabilities.

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from kernelcrf import ChainCRF, ChainOver, Input
    >>> from kernelcrf.datasets import make_sequences
    >>> data, new = make_sequences(60, random_state=0), make_sequences(60, random_state=1)
    >>> forest = RandomForestClassifier(30, random_state=0)
    >>> crf = ChainOver(forest).fit(data.X, data.y)
    >>> round(crf.score(new.X, new.y), 1), crf.predict(new.X)[0][:6], crf.predict_proba(new.X)[0].shape
    (0.9, array([2, 2, 1, 1, 1, 1]), (9, 3))
    >>> crf.log_prob(new.X[:1], new.y[:1]).shape, crf.distribution(new.X[:1]).entropy().shape
    ((1,), (1,))
    >>> inputs = {"classifier": Input("linear"), "tokens": Input("rbf", n_components=100)}  # a kernel beside the forest
    >>> both = ChainOver(forest, chain=ChainCRF(inputs=inputs, random_state=0)).fit(data.X, data.y)
    >>> round(both.score(new.X, new.y), 1), both.chain_.explain(both.transform(new.X)[0], 0).label
    (0.9, 2)
    """

    classifier: Annotated[Any, A_CLASSIFIER]
    _: KW_ONLY
    chain: Annotated[Any, CHAIN] = None
    cv: Annotated[int, either(whole(least=2))] = 5
    of: Annotated[str | None, ENTRY] = None
    floor: Annotated[float, either(real(least=1e-12, most=1.0))] = 1e-3

    def fit(self, X: UserData, y: UserData, sample_weight: UserData = None, groups: UserData = None) -> Self:
        """Fit the classifier to the tokens, and the chain to out-of-fold probabilities.

        sample_weight : one weight per sequence, for the chain, and for the classifier if it accepts weights. Neither is
            fitted to sequences of weight 0.
        groups : one value per sequence, such as a person; sequences with equal values are in the same fold. None puts
            each sequence into a group of its own.
        """
        self._validate_params()
        chain = clone(_DEFAULT_CHAIN if self.chain is None else self.chain)
        if chain.inputs is None or CLASSIFIER not in chain.inputs:
            raise ParameterError(
                f"chain has inputs={shown(chain.inputs)}: expected an input {CLASSIFIER!r}, which reads the "
                "probabilities of the classifier; pass, for example, "
                f'ChainCRF(inputs={{"{CLASSIFIER}": Input("linear")}})'
            )
        sequences = read_list(X, "X")
        reader, rows, chains = SequenceReader.fit(self._tokens(sequences))
        tokens = flat_labels(y, chains)
        labels = LabelReader.fit(tokens, None if self.chain is None else self.chain.classes)
        known, _ = labels.encode(tokens, chains)
        weights = read_weights(sample_weight, chains.n_samples, "sequence")
        p = np.empty((chains.n_nodes, len(labels.classes)))
        for training, held_out in self._folds(chains, groups):
            fitted = self._fit_classifier(rows, known, labels.classes, training, weights, chains)
            p[held_out] = _probabilities(fitted, rows[held_out], labels.classes)
        classifier = self._fit_classifier(rows, known, labels.classes, np.arange(chains.n_nodes), weights, chains)
        chain.fit(self._join(sequences, p, chains), y, sample_weight)
        self.model_ = FittedChainOver(reader, classifier, chain)
        return self

    def _tokens(self, sequences: list[UserData]) -> list[UserData]:
        """Return what the classifier reads: each sequence or, if sequences are mappings, the entry that `of` names."""
        if not any(isinstance(x, Mapping) for x in sequences):
            if self.of is not None and sequences:
                raise ValueError(f"of={self.of!r}, but the sequences in X are not mappings: pass of=None")
            return sequences
        if self.of is None:
            raise ValueError(
                "the sequences in X are mappings, but of=None: pass the name of the entry that the classifier reads "
                "as `of`"
            )
        if taken := [i for i, x in enumerate(sequences) if isinstance(x, Mapping) and CLASSIFIER in x]:
            raise ValueError(
                f"X[{taken[0]}] has an entry {CLASSIFIER!r}, but this name is reserved for the probabilities of the "
                "classifier: rename the entry"
            )
        missing = [i for i, x in enumerate(sequences) if not isinstance(x, Mapping) or self.of not in x]
        if missing:
            raise ValueError(
                f"X[{missing[0]}] has no entry {self.of!r}: expected one in each sequence, because of={self.of!r}; "
                "add the entry, or pass another name as `of`"
            )
        return [x[self.of] for x in sequences]

    def _folds(self, chains: Chains, groups: UserData) -> list[tuple[Array, Array]]:
        """Return, for each fold, the tokens for training and the held-out tokens."""
        filled = np.repeat(read_groups(groups, chains.n_samples), chains.lengths)
        n_groups = len(np.unique(filled))
        if n_groups < 2:
            raise ValueError(
                f"X has {n_groups} group(s) of sequences with tokens: expected at least 2, because each token is "
                "predicted by a classifier that has not seen its group; pass more sequences, or cut long ones "
                "into pieces"
            )
        return list(GroupKFold(min(self.cv, n_groups)).split(filled, groups=filled))

    def _fit_classifier(
        self, rows: Inputs, known: Array, classes: Array, training: Array, weights: Floats | None, chains: Chains
    ) -> Any:
        of_tokens = np.ones(chains.n_nodes) if weights is None else np.repeat(weights, chains.lengths)
        training = training[(known[training] >= 0) & (of_tokens[training] > 0)]
        if not len(training):
            raise ValueError(
                "the training sequences of a fold have no known label with a weight above 0: expected at least one in "
                "each fold; label more sequences"
            )
        classifier, options = clone(self.classifier), {}
        if weights is not None and has_fit_parameter(classifier, "sample_weight"):
            options["sample_weight"] = of_tokens[training]
        return classifier.fit(rows[training], classes[known[training]], **options)

    def _join(self, sequences: list[UserData], p: Floats, chains: Chains) -> list[dict[str, UserData]]:
        """Return the sequences for the chain: dicts in which the logarithms of the probabilities p are an entry."""
        scores = np.log((p + self.floor) / (1 + p.shape[1] * self.floor))
        scores = Ragged.cut(scores - scores.mean(axis=1, keepdims=True), chains.offsets)
        others = [dict(x) if isinstance(x, Mapping) else {TOKENS: x} for x in sequences]
        return [{**entries, CLASSIFIER: s} for entries, s in zip(others, scores, strict=True)]

    def transform(self, X: UserData) -> list[dict[str, UserData]]:
        """Return the sequences X in the form that `chain_` reads: with the log-probabilities of `classifier_`.

        Methods of ChainCRF that this class does not have can be called as, for example,
        `crf.chain_.explain(crf.transform(X)[0], 0)`.
        """
        return self._transform(self._model, X)

    def _transform(self, model: FittedChainOver, X: UserData) -> list[dict[str, UserData]]:
        sequences, classes = read_list(X, "X"), model.chain.classes_
        rows, chains = model.reader.read(self._tokens(sequences))
        p = np.zeros((0, len(classes)))
        if chains.n_nodes:
            p = _probabilities(model.classifier, rows, classes)
        return self._join(sequences, p, chains)

    @property
    def _model(self) -> FittedChainOver:
        model: FittedChainOver = fitted_model(self)
        return model

    @property
    def classifier_(self) -> Any:
        """Return the classifier that was fitted to all tokens whose labels are known."""
        return self._model.classifier

    @property
    def chain_(self) -> ChainCRF:
        """Return the fitted ChainCRF, which reads what `transform` returns."""
        return self._model.chain

    @property
    def classes_(self) -> Array:
        """Return the labels, in the order of the columns of probabilities."""
        return self._model.chain.classes_

    def distribution(self, X: UserData) -> ChainDistribution:
        """Return the distribution p(y|x) of the labels of the sequences X, as `ChainCRF.distribution` does."""
        model = self._model
        return model.chain.distribution(self._transform(model, X))

    def predict(self, X: UserData) -> list[Array]:
        """Return the predicted labels, one array per sequence."""
        model = self._model
        return model.chain.predict(self._transform(model, X))

    def predict_proba(self, X: UserData) -> list[Array]:
        """Return one array per sequence, with one row per token: entry [t, j] is p(y_t = classes_[j] | x)."""
        model = self._model
        return model.chain.predict_proba(self._transform(model, X))

    def log_prob(self, X: UserData, y: UserData) -> Floats:
        """Return log p(y|x) of each sequence; if labels are missing, return the log-probability of the known labels."""
        model = self._model
        return model.chain.log_prob(self._transform(model, X), y)

    def score(self, X: UserData, y: UserData, sample_weight: UserData = None) -> float:
        """Return the fraction of known labels that are predicted correctly, with one `sample_weight` per sequence."""
        model = self._model
        return model.chain.score(self._transform(model, X), y, sample_weight)


_DEFAULT_CHAIN = ChainCRF(inputs={CLASSIFIER: Input("linear")}, fit_intercept=True)


def _probabilities(classifier: Any, rows: Inputs, classes: Array) -> Floats:
    """Return the probabilities of `classes`, one row per token; a class that is new to the classifier has 0."""
    predicted = np.asarray(classifier.predict_proba(rows), np.float64)
    places = {label: j for j, label in enumerate(classes.tolist())}
    p = np.zeros((len(predicted), len(classes)))
    p[:, [places[label] for label in classifier.classes_.tolist()]] = predicted
    return p
