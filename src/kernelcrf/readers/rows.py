"""Read rows of numbers and their labels, and apply scikit-learn's checks.

If a row may have several labels, y is an indicator matrix as in scikit-learn, dense or sparse: one row per sample and
one column per label. If y contains zeros, -1 marks a missing label. Otherwise, for example if y contains only -1 and 1,
each column may have any two values, and no label is missing. A one-dimensional y counts as a matrix with one column.
If each row has only one label, the module `kernelcrf.readers.missing_labels` states when -1 is a missing label.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Number

import numpy as np
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_array, check_X_y

from kernelcrf.arrays import Array, Flags, Floats, Inputs, Labels, NamedInputs, UserData, as_writable, is_sparse
from kernelcrf.persistence import ModelFileError
from kernelcrf.persistence.checks import read_count, read_flag, read_text
from kernelcrf.readers.columns import check_names, named_errors, names_as_text, names_to_config, read_names
from kernelcrf.readers.containers import is_frame, read_container
from kernelcrf.readers.inputs import InputsReader
from kernelcrf.readers.labels import check_same_type, values_to_config
from kernelcrf.readers.missing_labels import UNKNOWN, missing_among
from kernelcrf.readers.stored_values import names_from_config, object_array, values_from_config
from kernelcrf.readers.weights import read_weights
from kernelcrf.validation import shown, shown_list

DTYPES = (np.float64, np.float32)


@dataclass(frozen=True, eq=False)
class RowReader:
    """Reads rows that have the same columns as the rows passed to `fit`.

    owner : the name of the estimator, for error messages.
    column_names : the names of the columns if `fit` was given a data frame; otherwise None.
    named : if the inputs have names, the reader that reads each row as a sequence of one token; otherwise None.
    """

    owner: str
    n_features: int
    column_names: Array | None = None
    named: InputsReader | None = None

    @classmethod
    def fit(
        cls,
        owner: str,
        X: UserData,
        y: UserData,
        sample_weight: UserData = None,
        *,
        multi_output: bool = False,
        chosen: Mapping[str, tuple[str | None, UserData]] | None = None,
    ) -> tuple[RowReader, Inputs | NamedInputs, Array]:
        """Check X and y, and return three values: a reader for rows with the columns of X, the inputs, and y.

        X becomes a dense or CSR matrix, and y an array, or a CSR matrix if it is sparse.

        sample_weight : one weight per row; feature names in a row of weight 0 are not added to a vocabulary.
        chosen : for several inputs, the entry and the columns of each, as for `InputsReader.fit`; else None.
        """
        if y is None:
            raise ValueError(f"{owner} requires y to be passed, but the target y is None: expected one label per row")
        if chosen is not None:
            n_rows = _count_rows(X)
            with named_errors("X", "y"):
                _, y = check_X_y(np.zeros((n_rows, 1)), _targets(y), multi_output=multi_output, estimator=owner)
            weights = read_weights(sample_weight, n_rows, "row")
            lengths = np.ones(n_rows, np.int64)
            named, inputs, _ = InputsReader.fit(X, chosen, lengths, sample_weight=weights, owner=owner)
            return cls(owner, named.n_features, named.column_names, named), inputs, y
        X, y = _rows(X), _targets(y)
        names = read_names(X)
        with named_errors("X", "y"):
            X, y = check_X_y(X, y, accept_sparse="csr", dtype=DTYPES, multi_output=multi_output, estimator=owner)
        return cls(owner, X.shape[1], names), as_writable(X), y

    def read(self, X: UserData) -> Inputs | NamedInputs:
        """Return X as a dense or CSR matrix, one row per sample; an empty list becomes a matrix without rows.

        If inputs have names, return one matrix per input.
        """
        if self.named is not None:
            return self.named.read(*([X] if _is_empty(X) else [X, np.ones(_count_rows(X), np.int64)]))[0]
        X = _rows(X)
        if _is_empty(X):
            return np.empty((0, self.n_features))
        check_names(self.owner, X, "X", self.column_names)
        with named_errors("X"):
            X = check_array(
                X, accept_sparse="csr", dtype=DTYPES, ensure_min_samples=0, estimator=self.owner, input_name="X"
            )
        if X.shape[1] != self.n_features:
            raise ValueError(
                f"X has {X.shape[1]} features, but {self.owner} is expecting {self.n_features} features as input, the "
                "same columns as in fit"
            )
        return as_writable(X)

    def extend(self, X: UserData, sample_weight: UserData = None) -> tuple[RowReader, Inputs | NamedInputs]:
        """Return a pair: a reader that also knows the feature names of X, and the inputs of X.

        sample_weight : one weight per row; names in a row of weight 0 are not added.
        """
        if self.named is None or _is_empty(X):
            return self, self.read(X)
        n_rows = _count_rows(X)
        weights = read_weights(sample_weight, n_rows, "row", part=True)
        named, inputs, _ = self.named.extend(X, np.ones(n_rows, np.int64), weights)
        return replace(self, n_features=named.n_features, named=named), inputs

    @property
    def feature_names(self) -> list[str] | None:
        """Return the column names as text, or None if the columns have no names."""
        return names_as_text(self.column_names)

    def names_of(self, name: str) -> list[str] | None:
        """Return the names of the columns of an input, or None if they have no names."""
        return self.feature_names if self.named is None else self.named.names_of(name)

    def to_config(self) -> dict[str, object]:
        """Return the reader as a dict for JSON; `from_config` reads this dict."""
        if self.named is not None:
            return {"inputs": self.named.to_config()}
        return {"n_features": int(self.n_features), "feature_names": names_to_config(self.column_names)}

    @classmethod
    def from_config(cls, config: Mapping[str, UserData]) -> RowReader:
        """Return the reader whose `to_config` returned `config`."""
        owner = read_text(config, "estimator")
        if "inputs" in config:
            named = InputsReader.from_config(config["inputs"], owner)
            return cls(owner, named.n_features, named.column_names, named)
        n_features = read_count(config, "n_features", 1)
        return cls(owner, n_features, names_from_config(config, n_features))


def _is_empty(X: UserData) -> bool:
    return isinstance(X, list) and not X


def _count_rows(X: UserData) -> int:
    """Return the number of rows of X; raise if X is a mapping whose entries differ in their number of rows."""
    counts = {}
    for name, entry in X.items() if isinstance(X, Mapping) and not is_sparse(X) else [(None, X)]:
        opened = read_container(entry, "X", "a matrix with one row per sample, or a mapping of such matrices")
        counts[name] = int(opened.shape[0] if hasattr(opened, "shape") else len(opened))
    if len(set(counts.values())) != 1:
        raise ValueError(f"X has entries with the numbers of rows {counts}: expected one row per sample in every entry")
    return next(iter(counts.values()))


def _rows(X: UserData) -> UserData:
    """Convert X to a list, an array, a sparse matrix or a frame; raise if X has masked entries or dates."""
    X = read_container(X, "X", "a matrix of numbers, one row per sample")
    # scikit-learn would convert dates to numbers without a warning.
    types = list(X.dtypes) if is_frame(X) and hasattr(X, "dtypes") else [getattr(X, "dtype", "")]
    if any(str(kind).lower().startswith(("date", "time", "duration")) for kind in types):
        raise TypeError("X has dates: expected numbers; convert each date, for example to days since a fixed date")
    if isinstance(X, list):
        # NumPy would ignore the masks and read the masked numbers.
        X = [read_container(row, f"X[{i}]") if isinstance(row, np.ma.MaskedArray) else row for i, row in enumerate(X)]
    return X


def _targets(y: UserData) -> UserData:
    """Convert y to an array, a sparse matrix, a frame or a list; raise if y has masked entries."""
    if y is None or is_sparse(y) or is_frame(y) or hasattr(y, "iloc") or isinstance(y, str | Number):
        return y
    if isinstance(y, np.ma.MaskedArray):
        read_container(y, "y")
    if not isinstance(y, np.ndarray):
        return read_container(y, "y", "a list of labels, one per row")
    # scikit-learn cannot tell the type of a target whose numbers are stored as objects.
    held = y.dtype == object and all(isinstance(value, Number) for value in y.flat)
    return np.asarray(y.tolist() if held else y)


def find_classes(y: Array, given: UserData = None) -> tuple[Array, Labels]:
    """Return a pair: the sorted classes, and the class index of each row, which is -1 for a missing label.

    given : all classes, or None for the labels of y.
    """
    known = ~_missing(y, given)
    labels = _same_type(y[known])
    if not len(labels):
        raise ValueError("y has only missing labels (None or -1): expected at least one labelled row")
    with named_errors("y"):
        check_classification_targets(labels)
    name, named = ("y", labels) if given is None else ("classes", object_array(list(given)))
    classes = _sort_classes(named, name)
    if len(classes) < 2:
        raise ValueError(f"{name} has one class, {shown(classes[0])}: a classifier needs samples of at least 2 classes")
    return classes, read_classes(y, classes, len(y))


def more_classes(y: UserData, known: Array, given: UserData, n_rows: int) -> tuple[Array, Labels]:
    """Return a pair: the sorted old and new classes, and the class index of each row, which is -1 for a missing label.

    known : the classes of the earlier model.
    given : the new classes; None means the labels of y that the earlier model does not have.
    """
    y = np.asarray(_targets(y))
    if y.shape != (n_rows,):
        raise ValueError(f"y has shape {y.shape}: expected ({n_rows},), one label per row of X")
    if not n_rows:
        return known, np.empty(0, np.int32)
    name, named = ("y", y[~_missing(y, known.tolist())]) if given is None else ("classes", object_array(list(given)))
    new = [label for label in dict.fromkeys(_same_type(named).tolist()) if label not in set(known.tolist())]
    check_same_type(new, known.tolist(), name, "the prior")
    classes = _sort_classes(object_array([*known.tolist(), *new]), name) if new else known
    return classes, read_classes(y, classes, n_rows)


def _sort_classes(labels: Array, name: str) -> Array:
    """Return the distinct labels in sorted order; raise if they cannot be sorted.

    name : the argument that has the labels, for the error message.
    """
    try:
        return np.unique(_same_type(labels))
    except TypeError:
        example = shown(labels[0])
        raise TypeError(f"{name} has labels that cannot be sorted ({example}): expected strings or numbers") from None


def read_classes(y: UserData, classes: Array, n_rows: int) -> Labels:
    """Return `n_rows` class indices, -1 for a missing label; raise if y has another length or other labels."""
    y = np.asarray(_targets(y))
    if y.shape != (n_rows,):
        raise ValueError(f"y has shape {y.shape}: expected ({n_rows},), one label per row of X")
    known = ~_missing(y, classes.tolist())
    labels = _same_type(y[known])
    places = np.searchsorted(classes, labels)
    if not np.array_equal(classes[np.minimum(places, len(classes) - 1)], labels):
        raise ValueError(f"y has labels that are not among the classes: expected {shown_list(classes.tolist())}")
    indices = np.full(n_rows, UNKNOWN, np.int32)
    indices[known] = places
    return indices


def _missing(y: Array, classes: UserData) -> Flags:
    """Return one flag per row, which says whether its label is missing; `classes` are all classes, or None."""
    # Floats are never missing; there may be many different ones, if y is by mistake a target of regression.
    if y.dtype.kind not in "iuO":
        return np.zeros(len(y), bool)
    labels = y.tolist()
    is_missing = missing_among(labels if y.dtype == object else np.unique(y).tolist(), classes)
    return np.fromiter(map(is_missing, labels), bool, len(labels))


def _same_type(labels: Array) -> Array:
    """Convert labels that are stored as Python objects to an array of strings or numbers, if all have the same type."""
    kinds = {type(label) for label in labels.tolist()} if labels.dtype == object else set()
    return np.asarray(labels.tolist()) if len(kinds) == 1 and kinds <= {str, int, float, bool} else labels


def count_right_sets(
    true: Labels, predicted: Array, sample_weight: UserData, *, part: bool = False
) -> tuple[float, float]:
    """Return the number of rows in which all known labels are right, and the number of rows with a known label.

    Rows count with their weights; -1 stands for a missing label.

    part : whether the rows are a part of the data, so that there need be no row to count.
    """
    if true.shape != predicted.shape:
        raise ValueError(f"y has {len(true)} rows and X has {len(predicted)}: expected the same number")
    weights = read_weights(sample_weight, len(true), "row", part=part)
    weights = np.ones(len(true)) if weights is None else weights
    known = (true >= 0).any(axis=1)
    if not part and not known.any():
        raise ValueError("y has no row with a known label: expected at least one to score")
    if not part and not weights[known].any():
        raise ValueError("sample_weight is 0 for every row with a known label: expected a weight above 0")
    right = ((true == predicted) | (true < 0)).all(axis=1)
    return float(weights[known & right].sum()), float(weights[known].sum())


def row_accuracy(y: UserData, predicted: Array, classes: Array, sample_weight: UserData) -> float:
    """Return the weighted fraction of rows with a known label whose predicted label is right."""
    if not len(predicted):
        raise ValueError("X has no rows: expected at least one row to score")
    weights, truth = read_weights(sample_weight, len(predicted), "row"), np.asarray(_targets(y))
    if truth.shape == predicted.shape and (missing := _missing(truth, classes.tolist())).any():
        if missing.all():
            raise ValueError("y has no row with a known label: expected at least one to score")
        truth, predicted = _same_type(truth[~missing]), predicted[~missing]
        weights = None if weights is None else weights[~missing]
    from sklearn.metrics import accuracy_score

    with named_errors("y"):
        return float(accuracy_score(truth, predicted, sample_weight=weights))


def count_right_rows(
    y: UserData, predicted: Array, classes: Array, sample_weight: UserData = None
) -> tuple[float, float]:
    """Return the number of rows whose known label is predicted right, and the number of rows with a known label.

    The rows are a part of the data, so that there need be no row to count. Rows count with their weights.
    """
    weights = read_weights(sample_weight, len(predicted), "row", part=True)
    weights = np.ones(len(predicted)) if weights is None else weights
    known = ~_missing(np.asarray(_targets(y)), classes.tolist()) & (weights > 0)
    if not known.any():
        return 0.0, 0.0
    total = float(weights[known].sum())
    share = row_accuracy(np.asarray(_targets(y))[known], predicted[known], classes, weights[known])
    return share * total, total


@dataclass(frozen=True, eq=False)
class LabelSetReader:
    """Reads indicator matrices y that have the same columns as the y passed to `fit`.

    Each row of y says which labels are in the label set of a sample.

    values : the two values of each column, such as 0 and 1; the second value means that the label is in the set.
    one_column : whether the y passed to `fit` was one-dimensional.
    """

    values: tuple[Array, ...]
    one_column: bool

    @classmethod
    def fit(cls, y: UserData) -> tuple[LabelSetReader, Labels]:
        """Return a pair: a reader for matrices with the columns of y, and y as a matrix of indices.

        An index is 0 or 1, for the first or second value of a column, or -1 for a missing label.
        """
        Y = label_columns(y)
        zeros = bool((Y == 0).any())
        known = [_known_values(column, j, zeros) for j, column in enumerate(Y.T)]
        # A column may have one of the two values of the others, such as -1 beside columns with -1 and 1.
        every, pairs = {value for values in known for value in values.tolist()}, [np.array([-1, 1])]
        pairs += [values for values in known if len(values) == 2]
        common = next((pair for pair in pairs if set(pair.tolist()) == every), None)
        reader = cls(tuple(_two_values(values, common) for values in known), y.ndim == 1)
        return reader, reader._encode(Y)

    @property
    def classes(self) -> Array:
        """Return the column numbers 0, 1, ...; if the y passed to `fit` was one-dimensional, return its two values."""
        return self.values[0] if self.one_column else np.arange(len(self.values))

    def read(self, y: UserData) -> Labels:
        """Return y as a matrix of indices: 0 or 1 for the first or second value of a column, -1 for a missing label."""
        with named_errors("y"):
            y = check_array(_targets(y), accept_sparse="csr", ensure_2d=False, dtype=None, ensure_min_samples=0)
        Y = label_columns(y) if y.shape[0] else np.empty((0, len(self.values)))
        if Y.shape[1] != len(self.values):
            raise ValueError(f"y has {Y.shape[1]} columns: expected {len(self.values)}, one per label")
        return self._encode(Y)

    def decode(self, indices: Array) -> Array:
        """Convert indices (0 or 1) to the values of each column; the result is 1-D if the y passed to `fit` was."""
        columns = [values[indices[:, j]] for j, values in enumerate(self.values)]
        return columns[0] if self.one_column else np.column_stack(columns)

    def to_config(self) -> dict[str, object]:
        """Return the reader as a dict that can be written as JSON; `from_config` reads this dict."""
        return {"values": [values_to_config(values) for values in self.values], "one_column": self.one_column}

    @classmethod
    def from_config(cls, config: Mapping[str, UserData]) -> LabelSetReader:
        """Return the reader whose `to_config` returned `config`."""
        # If a label had only one value in training, this value is stored twice.
        values = tuple(values_from_config(stored, distinct=False) for stored in config["values"])
        one_column = read_flag(config, "one_column")
        if any(pair.shape != (2,) for pair in values) or (one_column and len(values) != 1):
            raise ModelFileError(
                f"the model file has values of labels with the shapes {shown_list(pair.shape for pair in values)}: "
                "expected (2,) for each label, and only one label if one_column is true. The file may be damaged: "
                "use another copy of it"
            )
        return cls(values, one_column)

    def _encode(self, Y: Array) -> Labels:
        indices = np.full(Y.shape, -1, np.int32)
        for j, (column, values) in enumerate(zip(Y.T, self.values, strict=True)):
            indices[column == values[0], j] = 0
            indices[column == values[1], j] = 1
            unknown = column[~np.isin(column, values)]
            wrong = unknown[unknown != -1] if column.dtype.kind in "if" else unknown
            if len(wrong):
                raise ValueError(
                    f"column {j} of y has the value {shown(wrong[0])}: expected {shown(values[0])} or "
                    f"{shown(values[1])}"
                )
        return indices


def read_probabilities(y: UserData) -> Floats | None:
    """Return probabilities of labels as a matrix with one column per label; None if y has ordinary labels.

    y has probabilities if all numbers are from 0 to 1, and some are neither 0 nor 1.
    """
    table = np.asarray(y) if not is_sparse(y) else np.empty(0)
    if table.dtype.kind != "f" or not ((table >= 0) & (table <= 1)).all() or np.isin(table, (0, 1)).all():
        return None
    return np.asarray(table.reshape(len(table), -1), np.float64)


def label_columns(y: UserData) -> Array:
    """Return y as a dense matrix with one column per label."""
    dense = np.asarray(y.toarray() if is_sparse(y) else y)
    return dense.reshape(len(dense), -1)


def _known_values(column: Array, j: int, zeros: bool) -> Array:
    """Return the distinct values in column j of y, without missing labels; raise if there are more than two.

    zeros : whether y contains zeros. If it does, -1 means a missing label in a column with only -1, 0 and 1.
    """
    may_miss = zeros and column.dtype.kind in "if" and bool(np.isin(column, (-1, 0, 1)).all())
    known = column[column != -1] if may_miss else column
    if len(known):
        check_classification_targets(known)
    values = np.unique(known)
    if len(values) > 2:
        raise ValueError(
            f"Only binary classification is supported. The type of the target is {type_of_target(known)}: column "
            f"{j} of y has the values {shown(values[:5].tolist())}; expected at most two different values per column"
        )
    return values


def _two_values(values: Array, common: Array | None) -> Array:
    """Return the two values that a column may have, for a label that is absent and for a label that is present.

    values : the values that occur in the column.
    common : the two values that occur in the columns of y together, or None if y has more or fewer values.
    """
    if len(values) == 1 and common is not None:
        return common.astype(values.dtype)
    if np.isin(values, (0, 1)).all():
        return np.array([0, 1], values.dtype)
    return values if len(values) == 2 else np.concatenate((values, values))
