"""Pipelines go to a file and come back by `save` and `load`; what a file cannot hold, or should not, is refused."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

import kernelcrf
from kernelcrf import ChainCRF, KernelClassifier, ModelFileError
from kernelcrf.datasets import make_sequences
from kernelcrf.persistence.fitted_transformers import FITTED
from kernelcrf.preprocessing import PerToken
from model_files import damaged, rewritten

DATA = make_sequences(12, random_state=0)
X, Y = [x * [1.0, 5.0] for x in DATA.X], DATA.y
FRAMES = [pd.DataFrame(x, columns=["a", "b"]) for x in X]
TRANSFORMERS = [
    StandardScaler(),
    StandardScaler(with_mean=False, with_std=False),
    MinMaxScaler(feature_range=(-1, 1), clip=True),
    MaxAbsScaler(),
    RobustScaler(with_centering=False),
    QuantileTransformer(n_quantiles=20, output_distribution="normal", random_state=0),
    PCA(1, whiten=True),
    TruncatedSVD(1, random_state=0),
    make_pipeline(StandardScaler(), "passthrough", PCA(0.9)),
    SimpleImputer(),
]


def made(transformer, sequences=X):
    return make_pipeline(PerToken(transformer), ChainCRF(n_components=8, random_state=0, C=1.0)).fit(sequences, Y)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.kcrf"


@pytest.mark.parametrize("transformer", TRANSFORMERS, ids=repr)
def test_a_loaded_pipeline_is_the_one_that_was_saved(transformer, path):
    pipe = made(transformer)
    kernelcrf.save(pipe, path)
    loaded = kernelcrf.load(path)
    assert [name for name, _ in loaded.steps] == ["pertoken", "chaincrf"]
    assert repr(loaded) == repr(pipe)
    for a, b in zip(pipe.predict_proba(X), loaded.predict_proba(X), strict=True):
        np.testing.assert_array_equal(a, b)
    old, new = (one[0].transformer_ for one in (pipe, loaded))
    for name in FITTED.get(type(transformer).__name__, ()):
        np.testing.assert_array_equal(getattr(old, name), getattr(new, name))
    assert loaded[0].get_feature_names_out().tolist() == pipe[0].get_feature_names_out().tolist()
    np.testing.assert_array_equal(clone(loaded).fit(X, Y)[-1].coef_, pipe[-1].coef_)
    kernelcrf.save(loaded, path)
    np.testing.assert_array_equal(kernelcrf.load(path)[-1].coef_, pipe[-1].coef_)


def test_each_transformer_that_can_be_stored_is_tested():
    assert set(FITTED) == {type(one).__name__ for one in TRANSFORMERS} - {"Pipeline"}


GAPS = [np.where(x > np.quantile(x, 0.9), np.nan, x) for x in X]


@pytest.mark.parametrize(
    "imputer",
    [
        SimpleImputer(),
        SimpleImputer(strategy="median"),
        SimpleImputer(strategy="most_frequent", copy=False),
        SimpleImputer(strategy="constant", fill_value=-1.0),
        SimpleImputer(strategy="constant"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_loaded_imputer_fills_in_the_same_values(imputer, dtype, path):
    sequences = [x.astype(dtype) for x in GAPS]
    steps = PerToken(imputer), PerToken(StandardScaler()), ChainCRF(n_components=8, random_state=0, C=1.0)
    pipe = make_pipeline(*steps).fit(sequences, Y)
    kernelcrf.save(pipe, path)
    loaded = kernelcrf.load(path)
    assert repr(loaded) == repr(pipe)
    for a, b in zip(pipe[:-1].transform(sequences), loaded[:-1].transform(sequences), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    for a, b in zip(pipe.predict_proba(sequences), loaded.predict_proba(sequences), strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_imputer_of_rows_of_integers_or_with_an_empty_column_is_kept(path):
    rows, labels = np.concatenate(X), np.concatenate(Y)
    empty = np.column_stack([rows, np.full(len(rows), np.nan)])
    whole = np.rint(rows).astype(np.int64)
    classifier = KernelClassifier(n_components=8, random_state=0)
    for imputer, table in (
        (SimpleImputer(missing_values=0, strategy="most_frequent"), whole),
        (SimpleImputer(missing_values=0, strategy="constant", fill_value=7), whole),
        (SimpleImputer(keep_empty_features=True), empty),
    ):
        pipe = make_pipeline(imputer, classifier).fit(table, labels)
        kernelcrf.save(pipe, path)
        np.testing.assert_array_equal(kernelcrf.load(path).predict_proba(table), pipe.predict_proba(table))
    with pytest.warns(UserWarning, match="Skipping features without any observed values"):
        pipe = make_pipeline(SimpleImputer(), classifier).fit(empty, labels)
    kernelcrf.save(pipe, path)
    with pytest.warns(UserWarning, match="Skipping features without any observed values"):
        np.testing.assert_array_equal(kernelcrf.load(path).predict(empty), pipe.predict(empty))


@pytest.mark.parametrize(
    ("change_config", "change_arrays", "message"),
    [
        (lambda own: own | {"dtype": "object"}, None, "fitted to values of type 'object'"),
        (lambda own: own["parameters"].update(add_indicator=True) or own, None, "add_indicator=True"),
        (lambda own: own["parameters"].update(strategy="max") or own, None, "strategy='max'"),
        (lambda own: own["parameters"].update(missing_values=[1]) or own, None, r"missing_values is \[1\]"),
        (None, lambda own: own | {"step 0.statistics_": np.array([1.0, np.inf])}, "step 0.statistics_"),
        (None, lambda own: own | {"step 0.statistics_": np.array([1.0, np.nan])}, "returns 1 columns: expected 2"),
    ],
)
def test_a_stored_imputer_that_is_not_valid_is_refused(change_config, change_arrays, message, path):
    kernelcrf.save(made(SimpleImputer(), GAPS), path)

    def change(config):
        config["steps"][0]["transformer"] = change_config(config["steps"][0]["transformer"])
        return config

    rewritten(path, None if change_config is None else change, change_arrays)
    with pytest.raises(ModelFileError, match=message):
        kernelcrf.load(path)


def test_names_and_containers_are_kept(path):
    pipe = make_pipeline(PerToken(StandardScaler()), ChainCRF(n_components=8, C=1.0)).set_output(transform="pandas")
    kernelcrf.save(pipe.fit(FRAMES, Y), path)
    loaded = kernelcrf.load(path)
    assert loaded[0].feature_names_in_.tolist() == loaded[-1].feature_names_in_.tolist() == ["a", "b"]
    reordered = loaded.predict([frame[["b", "a"]] for frame in FRAMES])
    assert [own.tolist() for own in reordered] == [own.tolist() for own in pipe.predict(FRAMES)]
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.predict([frame.rename(columns={"a": "z"}) for frame in FRAMES])


def test_rows_estimators_alone_and_pipelines_of_one_step_are_saved(path):
    rows, labels = np.concatenate(X), np.concatenate(Y)
    classifier = KernelClassifier(n_components=8, random_state=0)
    for model in (
        make_pipeline(StandardScaler(), PCA(2), classifier),
        make_pipeline("passthrough", classifier),
        make_pipeline(classifier),
        classifier,
    ):
        kernelcrf.save(model.fit(rows, labels), path)
        np.testing.assert_array_equal(kernelcrf.load(path).predict_proba(rows), model.predict_proba(rows))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            made(PowerTransformer()),
            r"PowerTransformer\(\) cannot be written .*expected one of StandardScaler, .*skops",
        ),
        (made(make_pipeline(StandardScaler(), FunctionTransformer())), "FunctionTransformer.* cannot be written"),
        (made(PCA(1, random_state=np.random.RandomState(0))), "random_state=RandomState"),
        (
            made(SimpleImputer(add_indicator=True)),
            r"SimpleImputer\(.*expected add_indicator=False",
        ),
        (GridSearchCV(made(StandardScaler()), {"chaincrf__C": [1.0]}), "pass its best_estimator_"),
        (StandardScaler(), r"model=StandardScaler\(\): expected ChainCRF"),
        (make_pipeline(PerToken(StandardScaler()), ChainCRF(C=1.0)), "not fitted"),
    ],
)
def test_what_a_file_cannot_hold_is_refused(model, message, path):
    with pytest.raises((TypeError, ValueError), match=message):
        kernelcrf.save(model, path)
    assert not path.exists()


def changed(name, value):
    """Return a function that sets an entry of the scaler in the header of a file."""

    def change(config):
        scaler = config["steps"][0]["transformer"]
        (scaler if name in scaler else scaler["parameters"])[name] = value
        return config

    return change


@pytest.mark.parametrize(
    ("change_config", "change_arrays", "message"),
    [
        (changed("class", "FunctionTransformer"), None, "unknown transformer 'FunctionTransformer'"),
        (changed("parameters", {"func": "print"}), None, r"sets the parameters \['func'\]"),
        (changed("output", "csv"), None, "output is 'csv'"),
        (changed("n_features", 3), None, "'step 0.mean_' is absent, or has the wrong type, shape or values"),
        (changed("n_features", True), None, "n_features is True"),
        (changed("feature_names", ["a"]), None, "expected 2 names"),
        (changed("feature_names", ["a", 1]), None, "expected strings"),
        (changed("fitted", 3), None, "model.kcrf: "),
        (lambda config: config | {"steps": [{}]}, None, "model.kcrf: "),
        (lambda config: config | {"last": {"name": "x"}}, None, "unknown estimator None"),
        (None, lambda own: own | {"step 0.scale_": np.array([1.0, np.nan])}, "step 0.scale_"),
        (None, lambda own: own | {"step 0.var_": np.ones((2, 2))}, "step 0.var_"),
        (None, lambda own: {name: array for name, array in own.items() if name != "step 0.mean_"}, "step 0.mean_"),
    ],
)
def test_a_file_that_is_well_formed_and_untrue_is_refused(change_config, change_arrays, message, path):
    kernelcrf.save(made(StandardScaler()), path)
    rewritten(path, change_config, change_arrays)
    with pytest.raises(ModelFileError, match=message):
        kernelcrf.load(path)


@pytest.mark.parametrize(
    ("transformer", "change_config", "change_arrays", "message"),
    [
        (MinMaxScaler(clip=True), changed("feature_range", "ab"), None, "model.kcrf: "),
        (
            PCA(2),
            None,
            lambda own: {n: a[:1] if n.startswith("step") and "mean" not in n else a for n, a in own.items()},
            r"PCA\(n_components=2\) returns 1 columns: expected 2",
        ),
    ],
)
def test_steps_that_cannot_transform_a_row_are_refused(transformer, change_config, change_arrays, message, path):
    kernelcrf.save(made(transformer), path)
    rewritten(path, change_config, change_arrays)
    with pytest.raises(ModelFileError, match=message):
        kernelcrf.load(path)


def test_a_damaged_file_is_refused_or_predicts(path):
    kernelcrf.save(made(make_pipeline(MinMaxScaler(clip=True), PCA(2))), path)
    blob, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(200):
        path.write_bytes(damaged(blob, rng))
        try:
            loaded = kernelcrf.load(path)
        except ModelFileError:
            continue
        assert isinstance(loaded, Pipeline)
