"""PerToken: apply a transformer of scikit-learn, which works on a table with one row per sample, to sequences.

The tokens of all sequences are stacked in one table. The table is transformed, and the result is cut into sequences
again. Arrays are stacked to an array, sparse matrices to a CSR matrix, and data frames to a data frame.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Annotated, Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import MetaEstimatorMixin, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from kernelcrf.arrays import Array, UserData, is_sparse
from kernelcrf.estimators.parameters import ValidatedEstimator
from kernelcrf.graphs.structure import Chains
from kernelcrf.readers.columns import common_names, find_orders, have_same_names
from kernelcrf.readers.containers import Ragged, column_names, is_frame, read_matrices
from kernelcrf.readers.labels import flat_labels
from kernelcrf.readers.sequences import open_sequences
from kernelcrf.readers.stored_values import string_names
from kernelcrf.validation import either, has_methods

TRANSFORMER = either(
    has_methods("fit", "transform", text="a transformer, an object with the methods fit and transform"),
    advice="for example PerToken(StandardScaler())",
)


@dataclass(eq=False, repr=False)
class PerToken(  # type: ignore[call-arg]
    MetaEstimatorMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    ValidatedEstimator,
    auto_wrap_output_keys=None,
):
    """Apply a transformer of scikit-learn to the tokens of all sequences, as if each token were a sample.

    X is a list of sequences: arrays, sparse matrices or data frames with one row per token, or lists of feature dicts
    for a transformer such as DictVectorizer. In a Pipeline before an estimator, the transformer is fitted to the
    training sequences only, also in cross-validation and searches. If X is one table with the tokens of all sequences,
    and `lengths` is passed to the estimator, use the transformer without PerToken.

    Parameters
    ----------
    transformer : transformer of scikit-learn
        For example StandardScaler(), PCA(), a ColumnTransformer or a Pipeline of transformers. `fit` fits a clone. If
        the transformer uses y, it gets one label per token.

    Attributes
    ----------
    transformer_ : the fitted transformer.
    n_features_in_ : number of columns of X, if the transformer has this attribute.
    feature_names_in_ : names of the columns of X, if the transformer has this attribute.
    column_names_ : names of the columns, of any type, if `fit` was given data frames; otherwise None. The data frames
        passed to `transform` may have these columns in any order.

    Examples
    --------
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.datasets import make_sequences
    >>> from kernelcrf.preprocessing import PerToken
    >>> data = make_sequences(60, random_state=0)
    >>> X = [x * [1.0, 1000.0] for x in data.X]  # the second column hides the first
    >>> pipe = make_pipeline(PerToken(StandardScaler()), ChainCRF(n_components=50, random_state=0))
    >>> search = GridSearchCV(pipe, {"chaincrf__C": [0.1, 10.0]}, cv=3).fit(X, data.y)
    >>> search.best_params_, round(search.score(X, data.y), 2)
    ({'chaincrf__C': 10.0}, 0.96)
    >>> scaler = PerToken(StandardScaler()).fit(X)
    >>> [x.shape for x in scaler.transform(X)[:2]], scaler.get_feature_names_out()
    ([(11, 2), (14, 2)], array(['x0', 'x1'], dtype=object))
    >>> scaler.set_output(transform="pandas").fit_transform(X)[0].columns.tolist()
    ['x0', 'x1']
    """

    transformer: Annotated[Any, TRANSFORMER]

    def fit(self, X: UserData, y: UserData = None) -> Self:
        """Fit the transformer to the tokens of all sequences; y is a list of label sequences, or None."""
        self._fit("fit", X, y)
        return self

    def fit_transform(self, X: UserData, y: UserData = None) -> list[Any]:
        """Fit the transformer to the tokens of all sequences, and return the transformed sequences."""
        tokens, chains = self._fit("fit_transform", X, y)
        return _cut(tokens, chains)

    def transform(self, X: UserData) -> list[Any]:
        """Return the transformed sequences, each with one row per token."""
        check_is_fitted(self)
        tokens, chains, _ = _stack(X, self.column_names_)
        # scikit-learn refuses tables without rows.
        return _cut(_call(self.transformer_.transform, tokens), chains) if chains.n_nodes else Ragged(X)

    def get_feature_names_out(self, input_features: UserData = None) -> Array:
        """Return the names of the columns of the transformed sequences."""
        check_is_fitted(self)
        return np.asarray(self.transformer_.get_feature_names_out(input_features))

    def set_output(self, *, transform: str | None = None) -> Self:
        """Set the type of transformed sequences: "pandas" or "polars" for data frames, or "default" for matrices."""
        for transformer in (self.transformer, getattr(self, "transformer_", None)):
            if transformer is not None:
                transformer.set_output(transform=transform)
        return self

    @property
    def n_features_in_(self) -> int:
        """Return the number of columns of the sequences passed to `fit`."""
        return int(self.transformer_.n_features_in_)

    @property
    def feature_names_in_(self) -> Array:
        """Return the names of the columns of the data frames passed to `fit`."""
        return np.asarray(self.transformer_.feature_names_in_)

    def _fit(self, method: str, X: UserData, y: UserData) -> tuple[UserData, Chains]:
        """Clone the transformer, and fit the clone with its method "fit" or "fit_transform".

        Return the result of the method, and a Chains object with the lengths of the sequences.
        """
        self._validate_params()
        tokens, chains, names = _stack(X)
        if chains.n_nodes == 0:
            raise ValueError(f"X has {chains.n_samples} sequence(s) and no token: expected at least one token to fit")
        transformer = clone(self.transformer)
        fitted = _call(getattr(transformer, method), tokens, None if y is None else flat_labels(y, chains))
        self.transformer_, self.column_names_ = transformer, names
        return fitted, chains

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.dict = True
        return tags


def _call(method: Callable[..., UserData], tokens: UserData, *labels: UserData) -> UserData:
    """Return method(tokens, *labels); if it fails for feature dicts, raise an error that says what to pass instead."""
    try:
        return method(tokens, *labels)
    except (TypeError, ValueError, AttributeError) as error:
        if not isinstance(tokens, list):
            raise
        raise TypeError(
            f"X has feature dicts or lists of feature names, and the transformer cannot read them ({error}): expected "
            "arrays, or feature dicts with DictVectorizer as the first step, as in "
            "PerToken(make_pipeline(DictVectorizer(), ...))"
        ) from error


def _stack(X: UserData, names: Array | None = None) -> tuple[UserData, Chains, Array | None]:
    """Stack the tokens of all sequences to a matrix, a data frame or a list of feature dicts.

    Return the stacked tokens, a Chains object with the lengths of the sequences, and the names of the columns.

    names : the names of the columns in `fit`, or None. The columns of data frames are brought into this order.
    """
    if is_sparse(X) or is_frame(X) or (isinstance(X, np.ndarray) and X.ndim == 2):
        raise ValueError(
            f"X is one {type(X).__name__} of shape {X.shape}: expected a list of sequences. If X is a single sequence, "
            "pass [X]; if X has the tokens of all sequences, use the transformer without PerToken"
        )
    parts, chains, kind = open_sequences(X)
    if chains.n_nodes == 0 or kind is None:
        return None, chains, None
    if kind == "dicts":
        return list(chain.from_iterable(parts)), chains, None
    named = {f"X[{i}]": part for i, part in enumerate(parts) if is_sparse(part) or len(part)}
    stack = _stack_frames(named.values())
    if stack is not None:
        frames, places = list(named.values()), list(named)
        frame_names = common_names(frames, places.__getitem__)
        # The transformer itself decides about other names if there are strings, the only names that it knows.
        strings = names is None or any(string_names(these) is not None for these in (names, frame_names))
        wanted = frame_names if strings and not have_same_names(names, frame_names) else names
        orders = find_orders("PerToken", frames, places.__getitem__, wanted)
        return stack([_reorder(*one) for one in zip(frames, orders, strict=True)]), chains, frame_names
    matrices = read_matrices(named)
    return (sp.vstack(matrices, format="csr") if is_sparse(matrices[0]) else np.concatenate(matrices)), chains, None


def _stack_frames(parts: Iterable[UserData]) -> Callable[[list[UserData]], UserData] | None:
    """Return the function that stacks the data frames in `parts`: that of pandas, polars or Arrow.

    Return None if a part is not a data frame; raise if the parts belong to different libraries.
    """
    roots = {type(part).__module__.partition(".")[0] if is_frame(part) else "" for part in parts}
    if "" in roots:
        return None
    library = sys.modules.get(roots.pop())
    stack: Callable[..., UserData] | None = getattr(library, "concat", None) or getattr(library, "concat_tables", None)
    if roots or stack is None:
        raise TypeError(
            "X has data frames of several libraries, or of one that cannot stack them: expected data frames of pandas, "
            "of polars or of Arrow. Convert all sequences to one of them, or to arrays"
        )
    return stack


def _reorder(frame: UserData, order: list[int] | None) -> UserData:
    """Return a data frame with its columns in the given order, or unchanged if the order is None."""
    if order is None:
        return frame
    if hasattr(frame, "iloc"):
        return frame.iloc[:, order]
    names = column_names(frame)
    return frame.select([names[position] for position in order])


def _cut(tokens: UserData, chains: Chains) -> list[Any]:
    """Cut the result of a transformer into sequences; raise unless it has one row per token."""
    n_rows = tokens.shape[0]
    if n_rows != chains.n_nodes:
        raise ValueError(
            f"the transformer returned {n_rows} rows for {chains.n_nodes} tokens: expected one row per token; use a "
            "transformer that keeps all rows"
        )
    rows: UserData = tokens.tocsr() if is_sparse(tokens) else getattr(tokens, "iloc", tokens)
    return Ragged(rows[low:high] for low, high in pairwise(chains.offsets.tolist()))
