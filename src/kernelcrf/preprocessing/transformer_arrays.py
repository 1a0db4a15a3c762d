"""Convert fitted transformers of scikit-learn to JSON and arrays, and read them back with checks.

A model file has no executable code. Only transformers of the classes in `FITTED` can be stored, because their fitted
state consists of a few arrays. They may be inside PerToken or a Pipeline. A transformer is stored as a JSON object with
the keys

    class            the name of its class
    parameters       the parameters of its constructor
    fitted           its fitted attributes that are numbers or None; fitted arrays are stored as tensors
    n_features       the number of columns of its inputs
    feature_names    the names of these columns, or null
    output           the container that was chosen with `set_output`, or null
    dtype            the type of the numbers that a SimpleImputer was fitted to; other transformers do not have this key

Besides `class`, PerToken has only the key `transformer`, and a Pipeline has only the key `steps`. The names of tensors
begin with the place of the transformer in the pipeline, such as "step 0.1.mean_".
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, QuantileTransformer, RobustScaler, StandardScaler
from sklearn.utils.validation import check_is_fitted

from kernelcrf.arrays import Array, Arrays, Config, UserData
from kernelcrf.estimators.stored import set_parameters
from kernelcrf.models.stored_parts import plain
from kernelcrf.persistence import Budget, ModelFileError
from kernelcrf.persistence.checks import read_count, read_number
from kernelcrf.persistence.fitted_transformers import FITTED, read_fitted
from kernelcrf.preprocessing.per_token import PerToken
from kernelcrf.readers.columns import names_to_config
from kernelcrf.readers.stored_values import names_from_config, string_names
from kernelcrf.validation import shown

STRATEGIES = ("mean", "median", "most_frequent", "constant")
DTYPES = ("float32", "float64", "int32", "int64")
CLASSES = {
    cls.__name__: cls
    for cls in (
        StandardScaler,
        MinMaxScaler,
        MaxAbsScaler,
        RobustScaler,
        QuantileTransformer,
        PCA,
        TruncatedSVD,
        SimpleImputer,
    )
}
OUTPUTS = (None, "default", "pandas", "polars")


def transformer_to_arrays(transformer: BaseEstimator, prefix: str) -> tuple[Config, Arrays]:
    """Convert a fitted transformer to a dict that JSON can store, and a dict of arrays.

    The names of the arrays begin with `prefix`.

    Raise TypeError if the transformer, or a part of it, cannot be stored.
    """
    if isinstance(transformer, str) and transformer == "passthrough":
        return {"class": transformer}, {}
    if type(transformer) is PerToken:
        check_is_fitted(transformer)
        config, arrays = transformer_to_arrays(transformer.transformer_, prefix)
        names = names_to_config(transformer.column_names_)
        return {"class": "PerToken", "transformer": config, "feature_names": names}, arrays
    if type(transformer) is Pipeline:
        steps, arrays = steps_to_arrays(transformer, prefix)
        return {"class": "Pipeline", "steps": steps}, arrays
    if CLASSES.get(type(transformer).__name__) is not type(transformer):
        raise TypeError(
            f"{shown(transformer)} cannot be written to a model file, which has no executable code: expected one of "
            f"{', '.join(CLASSES)}, or PerToken or a Pipeline of these. Save only the last step of the pipeline, or "
            "save the pipeline with skops.io.dump or joblib.dump. Load such files only if you trust them"
        )
    check_is_fitted(transformer)
    fitted = {name: getattr(transformer, name) for name in FITTED[type(transformer).__name__]}
    of_imputer = {"dtype": _dtype_of_imputer(transformer)} if isinstance(transformer, SimpleImputer) else {}
    if of_imputer and fitted["statistics_"].dtype == object:
        # Constants may be Python objects, which the imputer converts in each call.
        fitted["statistics_"] = fitted["statistics_"].astype(of_imputer["dtype"])
    arrays = {prefix + name: value for name, value in fitted.items() if np.ndim(value)}
    names = getattr(transformer, "feature_names_in_", None)
    config = {
        "class": type(transformer).__name__,
        "parameters": {name: plain(value, name) for name, value in transformer.get_params(deep=False).items()},
        "fitted": {name: plain(value, name) for name, value in fitted.items() if not np.ndim(value)},
        "n_features": int(transformer.n_features_in_),
        "feature_names": None if names is None else names.tolist(),
        "output": getattr(transformer, "_sklearn_output_config", {}).get("transform"),
        **of_imputer,
    }
    return config, arrays


def steps_to_arrays(steps: Pipeline, prefix: str) -> tuple[list[Config], Arrays]:
    """Convert the transformers of a fitted pipeline to a list of dicts that JSON can store, and a dict of arrays."""
    configs: list[Config] = []
    arrays: Arrays = {}
    for place, (name, transformer) in enumerate(steps.steps):
        step = "passthrough" if transformer is None else transformer
        config, step_arrays = transformer_to_arrays(step, f"{prefix}{place}.")
        configs.append({"name": name, **config})
        arrays |= step_arrays
    return configs, arrays


def transformer_from_arrays(config: Config, arrays: Mapping[str, Array], prefix: str) -> Any:
    """Return the fitted transformer that `transformer_to_arrays` converted; raise if the values are inconsistent."""
    name = config["class"]
    if name == "passthrough":
        return name
    if name == "PerToken":
        transformer = transformer_from_arrays(config["transformer"], arrays, prefix)
        result = PerToken(clone(transformer))
        result.transformer_ = transformer
        # Files of earlier versions have only the names of the transformer.
        known = names_from_config(config, None)
        result.column_names_ = getattr(transformer, "feature_names_in_", None) if known is None else known
        return result
    if name == "Pipeline":
        return Pipeline(list(steps_from_arrays(config["steps"], arrays, prefix)))
    if name not in CLASSES:
        raise ModelFileError(f"the file has the unknown transformer {shown(name)}: upgrade kernelcrf")
    if config["output"] not in OUTPUTS:
        raise ModelFileError(
            f"output is {shown(config['output'])}: expected one of {shown(OUTPUTS)}. The file may be damaged: use "
            "another copy of it"
        )
    transformer = CLASSES[name]()
    set_parameters(transformer, config["parameters"], {})
    transformer.n_features_in_ = read_count(config, "n_features", 1)
    if (names := names_from_config(config, transformer.n_features_in_)) is not None:
        if string_names(names) is None:
            raise ModelFileError(
                f"feature_names is {shown(names.tolist())}: expected strings, or null. The file may be damaged: use "
                "another copy of it"
            )
        transformer.feature_names_in_ = names
    sizes = {"d": transformer.n_features_in_}
    for attribute, shapes in FITTED[name].items():
        setattr(transformer, attribute, read_fitted(config["fitted"], arrays, prefix, attribute, shapes, sizes))
    if isinstance(transformer, SimpleImputer):
        _finish_imputer(transformer, config)
    return transformer.set_output(transform=config["output"])


def steps_from_arrays(configs: UserData, arrays: Mapping[str, Array], prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield the name and the fitted transformer of each step that `steps_to_arrays` converted."""
    for place, config in enumerate(configs):
        yield str(config["name"]), transformer_from_arrays(config, arrays, f"{prefix}{place}.")


def steps_bytes(steps: Pipeline) -> int:
    """Return the bytes of memory that the steps of a pipeline need to transform one row."""
    return _row_bytes(list(_leaves(steps.steps)))


def _row_bytes(transformers: Sequence[Any]) -> int:
    return 40 * max((int(transformer.n_features_in_) for transformer in transformers), default=0)


def check_steps(steps: Sequence[tuple[str, Any]], n_features: int, budget: Budget) -> None:
    """Raise unless the steps of a pipeline can transform a row, and the last step returns `n_features` columns."""
    transformers = list(_leaves(steps))
    # Numbers of columns are compared before a row is made, because a wrong number could need any amount of memory.
    for transformer in reversed(transformers):
        width = _n_columns_out(transformer)
        if width != n_features:
            raise ModelFileError(
                f"{shown(transformer)} returns {width} columns: expected {n_features}, which the next step needs. The "
                "file may be damaged: use another copy of it"
            )
        n_features = transformer.n_features_in_
    budget.charge("a row of the inputs of this pipeline", _row_bytes(transformers))
    row = np.zeros((1, n_features))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for transformer in transformers:
            row = transformer.transform(row)


def _leaves(steps: Sequence[tuple[str, Any]]) -> Iterator[Any]:
    """Yield the transformers of a pipeline in order, including those inside PerToken and inner pipelines."""
    for _, step in steps:
        inner = step.transformer_ if isinstance(step, PerToken) else step
        if isinstance(inner, Pipeline):
            yield from _leaves(inner.steps)
        elif not isinstance(inner, str):
            yield inner


def _n_columns_out(transformer: Any) -> int:
    if "components_" in vars(transformer):
        return len(transformer.components_)
    if isinstance(transformer, SimpleImputer) and not transformer.keep_empty_features:
        return int(np.sum(~np.isnan(transformer.statistics_)))
    return int(transformer.n_features_in_)


def _dtype_of_imputer(imputer: SimpleImputer) -> str:
    """Return the type of the numbers that an imputer was fitted to; raise TypeError if the imputer cannot be stored."""
    dtype = str(vars(imputer)["_fit_dtype"])
    if dtype not in DTYPES or imputer.add_indicator or imputer.strategy not in STRATEGIES:
        raise TypeError(
            f"{shown(imputer)}, fitted to values of type {dtype}, cannot be written to a model file: expected "
            f"add_indicator=False, a strategy among {', '.join(STRATEGIES)}, and values of the types "
            f"{', '.join(DTYPES)}. Change the imputer, or save the pipeline with skops.io.dump or joblib.dump"
        )
    return dtype


def _finish_imputer(imputer: SimpleImputer, config: Config) -> None:
    """Check the parameters of an imputer, and set the attributes that `fit` sets besides the statistics."""
    read_number(config["parameters"], "missing_values", finite=False)
    if config["dtype"] not in DTYPES or imputer.add_indicator or imputer.strategy not in STRATEGIES:
        raise ModelFileError(
            f"the file has {shown(imputer)}, fitted to values of type {shown(config['dtype'])}, which cannot be in a "
            "model file: expected a file written by save"
        )
    # The versions of scikit-learn differ in which of the two they read; both have the type of the data in `fit`.
    vars(imputer).update(dict.fromkeys(("_fit_dtype", "_fill_dtype"), np.dtype(config["dtype"])))
    imputer.indicator_ = None
