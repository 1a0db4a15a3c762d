"""Save and load fitted estimators, and pipelines with an estimator as their last step.

The transformers of scikit-learn are imported only if a pipeline is saved or loaded, because this import takes 0.1 s.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from sklearn.pipeline import Pipeline

from kernelcrf.arrays import Arrays, Config, UserData
from kernelcrf.estimators.base import Estimator
from kernelcrf.estimators.candidates import CandidateCRF
from kernelcrf.estimators.chain import ChainCRF
from kernelcrf.estimators.classifier import KernelClassifier
from kernelcrf.estimators.graph import GraphCRF
from kernelcrf.estimators.markov_network import MarkovNetwork
from kernelcrf.estimators.multilabel import MultiLabelCRF
from kernelcrf.estimators.parameters import STORED_DTYPE
from kernelcrf.estimators.segments import SegmentCRF
from kernelcrf.estimators.stored import to_stored
from kernelcrf.persistence import Budget, ModelFileError, PathLike, local_copy, read, write
from kernelcrf.persistence.crfsuite.model_file import begins_like_crfsuite, refuse_suffix
from kernelcrf.persistence.error import CONTENT_ERRORS
from kernelcrf.persistence.wapiti import begins_like_wapiti
from kernelcrf.validation import PATH, shown, validated

Model = ChainCRF | SegmentCRF | KernelClassifier | GraphCRF | MarkovNetwork | MultiLabelCRF | CandidateCRF
ESTIMATORS: dict[str, type[Model]] = {cls.__name__: cls for cls in get_args(Model)}
PIPELINE, STEP = "Pipeline", "step "


def split_pipeline(model: UserData) -> tuple[Pipeline | None, Model]:
    """Split a pipeline into its transformers and its last step, which must be an estimator of this library.

    If the pipeline has only one step, or if `model` is an estimator, None is returned instead of the transformers.
    """
    is_pipeline = isinstance(model, Pipeline)
    last = model[-1] if is_pipeline else model
    if not isinstance(last, Estimator):
        raise TypeError(
            f"model={shown(model)}: expected {', '.join(ESTIMATORS)}, or a Pipeline that ends with one of them. For a "
            "search such as GridSearchCV, pass its best_estimator_; for TemperatureScaling, pass its estimator_"
        )
    return (model[:-1] if is_pipeline and len(model) > 1 else None), last


def transform_inputs(model: UserData, X: UserData) -> tuple[Model, UserData]:
    """Return the last step of a pipeline, and the result of applying all other steps to the inputs X."""
    steps, estimator = split_pipeline(model)
    return estimator, X if steps is None else steps.transform(X)


@validated(path=PATH, dtype=STORED_DTYPE)
def save(model: UserData, path: PathLike, *, dtype: str | None = None) -> None:
    """Write a fitted estimator, or a pipeline that ends with one, to a file or a URL that `load` reads.

    The file contains no executable code. The transformers that can be stored are StandardScaler, MinMaxScaler,
    MaxAbsScaler, RobustScaler, QuantileTransformer, PCA, TruncatedSVD, and SimpleImputer for numbers without
    add_indicator. They may be inside PerToken or a Pipeline. If the name ends with ".crfsuite", a linear ChainCRF is
    written as a model of CRFsuite, see `ChainCRF.save`.

    dtype : "float32" or "float16" rounds the weights to 32 or 16 bits, so that the file is smaller; None keeps them as
        they are. Weights of 16 bits have three digits: compare the predictions of the loaded and of the original
        estimator on held-out data.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from kernelcrf import ChainCRF, load, save
    >>> from kernelcrf.datasets import make_sequences
    >>> from kernelcrf.preprocessing import PerToken
    >>> data = make_sequences(20, random_state=0)
    >>> pipe = make_pipeline(PerToken(StandardScaler()), ChainCRF(n_components=50, random_state=0))
    >>> save(pipe.fit(data.X, data.y), "pipeline.kcrf")
    >>> load("pipeline.kcrf").score(data.X, data.y) == pipe.score(data.X, data.y)
    True
    """
    steps, estimator = split_pipeline(model)
    if steps is None:
        estimator.save(path, dtype=dtype)
        return
    from kernelcrf.preprocessing.transformer_arrays import steps_bytes, steps_to_arrays

    refuse_suffix(path, PIPELINE)
    config, arrays = to_stored(estimator, dtype)
    configs, step_arrays = steps_to_arrays(steps, STEP)
    config = {"estimator": PIPELINE, "steps": configs, "last": {"name": model.steps[-1][0], **config}}
    write(path, config, arrays | step_arrays, answer_bytes=estimator.model_.answer_bytes + steps_bytes(steps))


@validated(path=PATH)
def load(path: PathLike) -> Any:
    """Return the fitted estimator or pipeline that `save` wrote to a file, or to a URL that fsspec supports.

    If the file is a model of CRFsuite, return a ChainCRF with the weights of this model. The ChainCRF takes the same
    feature dicts and lists of names as python-crfsuite. Its certificate has the status "imported", because a file of
    CRFsuite says nothing about the fit.

    The file may come from anyone: if it is damaged, or claims more memory than its size justifies, ModelFileError is
    raised. A file does not choose the number of threads: the loaded estimator has n_jobs=1, which `set_params` changes.

    Examples
    --------
    >>> from kernelcrf import ChainCRF, load
    >>> from kernelcrf.datasets import make_sequences
    >>> data = make_sequences(20, random_state=0)
    >>> ChainCRF(n_components=50, random_state=0).fit(data.X, data.y).save("model.kcrf")
    >>> load("model.kcrf").predict(data.X[:1])[0][:5]
    array([1, 2, 2, 2, 2])
    """
    with local_copy(path) as copy:
        return _load(copy)


def _load(path: PathLike) -> Any:
    if Path(path).is_file() and begins_like_crfsuite(path):
        return ChainCRF.from_crfsuite(path)
    if Path(path).is_file() and begins_like_wapiti(path):
        return ChainCRF.from_wapiti(path)
    content = config, arrays, budget = read(path)
    try:
        if config.get("estimator") != PIPELINE:
            return _load_estimator(*content)
        from kernelcrf.preprocessing.transformer_arrays import check_steps, steps_from_arrays

        steps = list(steps_from_arrays(config["steps"], arrays, STEP))
        model_arrays = {name: array for name, array in arrays.items() if not name.startswith(STEP)}
        estimator = _load_estimator(config["last"], model_arrays, budget)
        check_steps(steps, estimator.n_features_in_, budget)
        return Pipeline([*steps, (str(config["last"]["name"]), estimator)])
    except CONTENT_ERRORS as error:
        raise ModelFileError(f"{path}: {error}") from None


def _load_estimator(config: Config, arrays: Arrays, budget: Budget) -> Model:
    name = config.get("estimator")
    if not isinstance(name, str) or name not in ESTIMATORS:
        raise ModelFileError(
            f"the file has the unknown estimator {name!r}: expected one of {', '.join(ESTIMATORS)}; upgrade kernelcrf"
        )
    return ESTIMATORS[name].from_arrays(config, arrays, budget)
