"""Apply fitted transformers of scikit-learn, stored in a model file, to the rows of one sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ..arrays import Array, Config, Floats, UserData
from ..persistence.budget import Budget
from ..persistence.checks import read_count, read_flag, read_number
from ..persistence.error import ModelFileError
from ..persistence.fitted_transformers import FITTED, read_fitted
from ..validation import shown
from .rows import check_table

Step = Callable[[Floats], Floats]
PASSTHROUGH = "passthrough"


class Transformers:
    """The transformers of a pipeline, one after the other."""

    def __init__(self, configs: Iterable[Config], arrays: Mapping[str, Array], prefix: str) -> None:
        self._steps: list[tuple[int, Step]] = []
        self._allows_gaps = False
        for place, config in enumerate(configs):
            self._add(config, arrays, f"{prefix}{place}.")

    def check(self, n_features: int | None, budget: Budget) -> None:
        """Raise unless the steps can transform a row, and the last step returns `n_features` columns.

        n_features : the number of columns that the model reads; None if sequences are mappings, which no step can
            transform.
        """
        if not self._steps:
            return
        if n_features is None:
            raise ModelFileError(
                "the model file has a pipeline with steps before a model that reads mappings: expected no steps. The "
                "file may be damaged: use another copy of it"
            )
        budget.charge("a row of the inputs of this pipeline", 40 * max(width for width, _ in self._steps))
        row = np.zeros((1, self._steps[0][0]))
        for width, step in self._steps:
            _check_width(row, width)
            row = step(row)
        _check_width(row, n_features)

    def transform(self, tokens: UserData) -> UserData:
        """Return the transformed rows; if there are no steps, return the tokens unchanged."""
        if not self._steps:
            return tokens
        if hasattr(tokens, "tocsr"):
            tokens = tokens.toarray()
        X = check_table(tokens, self._steps[0][0], finite=not self._allows_gaps)
        for _, step in self._steps:
            X = step(X)
        return X

    def _add(self, config: Config, arrays: Mapping[str, Array], prefix: str) -> None:
        kind = config["class"]
        if kind == PASSTHROUGH:
            return
        if kind == "PerToken":
            self._add(config["transformer"], arrays, prefix)
        elif kind == "Pipeline":
            for place, step in enumerate(config["steps"]):
                self._add(step, arrays, f"{prefix}{place}.")
        else:
            if kind not in MAKERS:
                raise ModelFileError(
                    f"the pipeline has the transformer {shown(kind)}, which kernelcrf-tagger does not know: expected "
                    f"one of {', '.join(MAKERS)}. Open the file with kernelcrf.load"
                )
            sizes = {"d": read_count(config, "n_features", 1)}
            fitted = {
                name: read_fitted(config["fitted"], arrays, prefix, name, shapes, sizes)
                for name, shapes in FITTED[kind].items()
            }
            self._allows_gaps |= not self._steps and kind == "SimpleImputer"
            self._steps.append((sizes["d"], MAKERS[kind](config["parameters"], fitted)))


def _check_width(row: Floats, width: int) -> None:
    if row.shape[1] != width:
        raise ModelFileError(
            f"a step of the pipeline returns {row.shape[1]} columns: expected {width}, as many as the next step or "
            "the model reads. The file may be damaged: use another copy of it"
        )


def _scaler(parameters: Config, fitted: Mapping[str, Any]) -> Step:
    centre = fitted["mean_"] if read_flag(parameters, "with_mean") else None
    return _centred_and_scaled(centre, fitted["scale_"] if read_flag(parameters, "with_std") else None)


def _robust_scaler(parameters: Config, fitted: Mapping[str, Any]) -> Step:
    centre = fitted["center_"] if read_flag(parameters, "with_centering") else None
    return _centred_and_scaled(centre, fitted["scale_"] if read_flag(parameters, "with_scaling") else None)


def _centred_and_scaled(centre: Floats | None, scale: Floats | None) -> Step:
    def step(X: Floats) -> Floats:
        X = X if centre is None else X - centre
        return X if scale is None else X / scale

    return step


def _min_max_scaler(parameters: Config, fitted: Mapping[str, Any]) -> Step:
    limits = None
    if parameters.get("clip", False):
        low, high = parameters["feature_range"]
        limits = read_number({"low": low}, "low"), read_number({"high": high}, "high")

    def step(X: Floats) -> Floats:
        X = X * fitted["scale_"] + fitted["min_"]
        return X if limits is None else np.clip(X, *limits)

    return step


def _max_abs_scaler(parameters: Config, fitted: Mapping[str, Any]) -> Step:
    if parameters.get("clip", False):
        return lambda X: np.clip(X / fitted["scale_"], -1.0, 1.0)
    return _centred_and_scaled(None, fitted["scale_"])


def _pca(parameters: Config, fitted: Mapping[str, Any]) -> Step:
    components, mean = fitted["components_"], fitted["mean_"]
    if not read_flag(parameters, "whiten"):
        return lambda X: X @ components.T - mean @ components.T
    # As in scikit-learn, a component without variance does not become infinite.
    scale = np.sqrt(fitted["explained_variance_"])
    scale = np.maximum(scale, np.finfo(scale.dtype).eps)
    return lambda X: (X @ components.T - mean @ components.T) / scale


def _truncated_svd(parameters: Config, fitted: Mapping[str, Any]) -> Step:
    components = fitted["components_"]
    return lambda X: X @ components.T


def _imputer(parameters: Config, fitted: Mapping[str, Any]) -> Step:
    values, missing = fitted["statistics_"].astype(np.float64), read_number(parameters, "missing_values", finite=False)
    kept = np.ones(len(values), bool) if read_flag(parameters, "keep_empty_features") else ~np.isnan(values)

    def step(X: Floats) -> Floats:
        gaps = np.isnan(X) if np.isnan(missing) else np.equal(X, missing)
        return np.where(gaps, np.nan_to_num(values), X)[:, kept]

    return step


MAKERS: Mapping[str, Callable[[Config, Mapping[str, Any]], Step]] = {
    "StandardScaler": _scaler,
    "MinMaxScaler": _min_max_scaler,
    "MaxAbsScaler": _max_abs_scaler,
    "RobustScaler": _robust_scaler,
    "PCA": _pca,
    "TruncatedSVD": _truncated_svd,
    "SimpleImputer": _imputer,
}
