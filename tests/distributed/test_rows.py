"""KernelClassifier on rows in parts."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from clusters import Inline
from kernelcrf import Input, KernelClassifier
from kernelcrf.distributed import DaskEngine, RawSequences, SequenceSources

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")

PLAIN = {"C": 1.0, "n_components": 20, "random_state": 0, "tol": 1e-9, "solver": "lbfgs"}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 3))
    return X, np.where(np.sin(2 * X[:, 0]) > 0.3 * X[:, 1], "yes", np.where(X[:, 2] > 1, "maybe", "no"))


def agree(model, X, y, **fit):
    here = clone(model).fit(X, y, **fit)
    there = clone(model).set_params(engine=Inline(forgetful=False)).fit(X, y, **fit)
    assert there.certificate_.objective == pytest.approx(here.certificate_.objective, rel=1e-9)
    assert there.classes_.tolist() == here.classes_.tolist()
    assert there.n_features_in_ == here.n_features_in_
    np.testing.assert_array_equal(there.predict(X), here.predict(X))
    return here, there


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"kernel": "linear"},
        {"class_weight": "balanced"},
        {"class_weight": {"yes": 0.0, "no": 2.0}},
        {"classes": ["maybe", "never", "no", "yes"]},
        {"kernel": "poly"},
        {"laplace": True},
        {"C": "auto", "n_components": 8},
        {"n_components": None, "certify_full": True},
    ],
    ids=str,
)
def test_a_fit_is_that_of_one_machine(rows, settings):
    here, there = agree(KernelClassifier(**{**PLAIN, **settings}), *rows)
    assert there.C_ == here.C_
    if settings.get("certify_full"):
        assert there.certificate_.gap_full == pytest.approx(here.certificate_.gap_full, rel=1e-4, abs=1e-6)


def test_forms_of_rows(rows):
    X, y = rows
    model = KernelClassifier(**PLAIN)
    agree(model, sp.csr_array(np.where(np.abs(X) > 0.5, X, 0)), y)
    here, there = agree(model, pd.DataFrame(X, columns=["a", "b", "c"]), pd.Series(y))
    assert there.feature_names_in_.tolist() == here.feature_names_in_.tolist() == ["a", "b", "c"]
    agree(model, X, y, sample_weight=np.linspace(0, 2, len(X)))
    agree(model, X.astype(np.float32).tolist(), y.tolist())
    # -1 among integers, and None, are missing labels.
    numbers = np.where(y == "yes", 1, np.where(y == "no", 0, 2))
    agree(model, X, np.where(np.arange(90) % 4 == 1, -1, numbers))
    agree(model, X, [None if k % 4 == 1 else label for k, label in enumerate(y.tolist())])
    # Labels that are signs.
    agree(model, X, np.where(y == "yes", 1, -1))


def test_a_warm_start_goes_on(rows):
    model = KernelClassifier(**PLAIN, warm_start=True, engine=Inline(forgetful=False)).fit(*rows)
    first = model.n_iter_
    assert model.fit(*rows).n_iter_ < first / 2
    with pytest.raises(ValueError, match="expected the same classes for a warm start"):
        model.fit(rows[0], np.where(rows[1] == "yes", "a", "b"))


def test_several_inputs(rows):
    X, y = rows
    inputs = {"a": Input("rbf", columns=[0, 2], n_components=9), "b": Input("linear", columns=[1])}
    settings = {**PLAIN, "inputs": inputs, "n_components": 500}
    here, there = agree(KernelClassifier(**settings), X, y, sample_weight=np.linspace(0, 2, len(X)))
    assert there.kernel_["a"].gamma == pytest.approx(here.kernel_["a"].gamma, rel=1e-12)
    words = [{f"w{value:.0f}": 1.0} for value in X[:, 0]]
    inputs = {"words": Input("linear"), "numbers": Input("rbf", n_components=9)}
    agree(KernelClassifier(**{**PLAIN, "inputs": inputs, "n_components": 500}), {"words": words, "numbers": X}, y)


def test_a_prior_is_updated_with_new_classes(rows):
    X, y = rows
    first = y != "maybe"
    old = KernelClassifier(**{**PLAIN, "n_components": 10}).fit(X[first][:40], y[first][:40])
    model = KernelClassifier(prior=old, n_components=20, random_state=0, tol=1e-9, solver="lbfgs")
    _, there = agree(model, X, y)
    assert there.classes_.tolist() == ["maybe", "no", "yes"]
    engine = Inline(forgetful=False)
    same = KernelClassifier(prior=old, engine=engine).fit(X, [None] * len(X))
    np.testing.assert_array_equal(same.coef_, old.coef_)


def on_cluster(X, y=None, sample_weight=None, **settings):
    KernelClassifier(**{**PLAIN, **settings}, engine=Inline()).fit(X, y, sample_weight)


def test_what_cannot_be_read_is_named(rows):
    X, y = rows
    with pytest.raises(ValueError, match=r"X has 90 rows and y has shape \(3,\)"):
        on_cluster(X, y[:3])
    with pytest.raises(ValueError, match="expected one label per row"):
        on_cluster(X)
    with pytest.raises(ValueError, match="X has no rows"):
        on_cluster(X[:0], y[:0])
    with pytest.raises(ValueError, match="X contains NaN"):
        on_cluster(np.where(X > 2, np.nan, X), y)
    with pytest.raises(ValueError, match="y has one class, 'yes'"):
        on_cluster(X, np.full(90, "yes"))
    with pytest.raises(ValueError, match="sample_weight is 0 for every row with a known label"):
        on_cluster(X, [None if k % 2 else label for k, label in enumerate(y.tolist())], np.arange(90) % 2)
    with pytest.raises(ValueError, match="class_weight gives every row the weight 0"):
        on_cluster(X, y, class_weight=dict.fromkeys(("yes", "no", "maybe"), 0.0))
    with pytest.raises(ValueError, match="base_scores cannot be combined with data on a cluster"):
        KernelClassifier(engine=Inline()).fit(X, y, base_scores=np.zeros((90, 3)))
    parts = [partial(RawSequences, X[:40], y[:40]), partial(RawSequences, X[40:, :2], y[40:])]
    with pytest.raises(ValueError, match="3 features in one part and 2 features in another"):
        on_cluster(SequenceSources(parts))


def test_dask_arrays_and_frames(client, rows):
    da, dd = pytest.importorskip("dask.array"), pytest.importorskip("dask.dataframe")
    import dask

    X, y = rows
    weights = np.linspace(1, 2, 90)
    model = KernelClassifier(**{**PLAIN, "tol": 1e-3})  # both stop at the same iteration
    here = clone(model).fit(X, y, weights)

    def check(there):
        assert there.certificate_.objective == pytest.approx(here.certificate_.objective, rel=1e-9)
        np.testing.assert_array_equal(there.predict_proba(X).argmax(axis=1), here.predict_proba(X).argmax(axis=1))

    arrays = [da.from_array(one, chunks=(25, *one.shape[1:])) for one in (X, y, weights)]
    check(clone(model).fit(*arrays))
    check(clone(model).set_params(engine=DaskEngine(client, n_partitions=3)).fit(X, y, weights))
    with dask.config.set({"dataframe.convert-string": False}):
        table = pd.DataFrame(X, columns=["a", "b", "c"]).assign(label=y, weight=weights)
        frame = dd.from_pandas(table, npartitions=3)
        there = clone(model).fit(frame, "label", "weight")
        assert there.feature_names_in_.tolist() == ["a", "b", "c"]
        assert there.certificate_.objective == pytest.approx(here.certificate_.objective, rel=1e-9)
        there = clone(model).fit(frame[["a", "b", "c"]], frame["label"], frame["weight"])
        assert there.certificate_.objective == pytest.approx(here.certificate_.objective, rel=1e-9)
        with pytest.raises(ValueError, match=r"y=.tag. is not a column of the dask\.dataframe X"):
            clone(model).fit(frame, "tag")
        with pytest.raises(TypeError, match="X is a Dask collection, but y is of type ndarray"):
            clone(model).fit(frame, y)
        with pytest.raises(ValueError, match="X has 4 partitions, but sample_weight has 2"):
            clone(model).fit(*arrays[:2], da.from_array(weights, chunks=50))
