"""MultiLabelCRF on rows in parts is MultiLabelCRF on all rows."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from clusters import Inline
from kernelcrf import Input, MultiLabelCRF
from kernelcrf.distributed import RawSequences, SequenceSources

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")

SETTINGS = {"kernel": "linear", "structure": "tree", "C": 1.0, "tol": 1e-9, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    Y = (X @ rng.normal(size=(3, 4)) + rng.normal(size=(120, 4)) > 0).astype(int)
    Y[:, 1] = np.where(rng.random(120) < 0.8, Y[:, 0], Y[:, 1])
    Y[:, 3] = np.where(rng.random(120) < 0.8, 1 - Y[:, 2], Y[:, 3])
    return X, Y


def agree(model, X, y, **fit):
    here = clone(model).fit(X, y, **fit)
    there = clone(model).set_params(engine=Inline(forgetful=False)).fit(X, y, **fit)
    assert there.certificate_.objective == pytest.approx(here.certificate_.objective, rel=1e-9)
    assert there.edges_.tolist() == here.edges_.tolist()
    np.testing.assert_allclose(there.interactions_, here.interactions_, atol=1e-4)
    np.testing.assert_array_equal(there.predict(X), here.predict(X))
    return here, there


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"structure": "auto", "solver": "newton-cg"},
        {"structure": [(0, 3)], "edge_kernel": "linear"},
        {"kernel": "rbf", "n_components": 12, "certify_full": True, "laplace": True},
        {"kernel": "auto", "inputs": {"a": Input("rbf", columns=[0], n_components=6), "b": Input("linear")}},
        {"C": "auto", "structure": "none"},
    ],
    ids=str,
)
def test_a_fit_is_that_of_one_machine(data, settings):
    here, there = agree(MultiLabelCRF(**SETTINGS | settings), *data)
    assert there.C_ == here.C_
    if settings.get("laplace"):
        assert there.certificate_.gap_full == pytest.approx(here.certificate_.gap_full, rel=1e-4, abs=1e-6)
        assert there.log_marginal_likelihood() == pytest.approx(here.log_marginal_likelihood(), rel=1e-7)
    if settings.get("structure") == "auto":
        assert there.search_.left_out == pytest.approx(here.search_.left_out, rel=1e-4)


def test_forms_of_labels(data):
    X, Y = data
    model = MultiLabelCRF(**SETTINGS)
    agree(model, X, sp.csr_array(Y), sample_weight=np.linspace(0, 2, len(X)))
    agree(model, pd.DataFrame(X, columns=["a", "b", "c"]), pd.DataFrame(Y.astype(bool)))
    agree(model, X, np.where(np.arange(480).reshape(Y.shape) % 7 == 3, -1, Y), sample_weight=np.ones(120))
    here, there = agree(model, X, np.where(Y[:, 0] == 1, "yes", "no"))
    assert there.classes_.tolist() == here.classes_.tolist() == ["no", "yes"]


def test_a_value_may_be_absent_from_a_part(data):
    """The values of a label come from all parts."""
    X, Y = data
    order = np.argsort(Y[:, 0], kind="stable")
    agree(MultiLabelCRF(**SETTINGS), X[order], 2 * Y[order] - 1)


def test_a_prior_and_a_warm_start(data):
    X, Y = data
    old = MultiLabelCRF(**SETTINGS).fit(X[:60], Y[:60])
    agree(MultiLabelCRF(kernel="linear", structure="tree", prior=old, tol=1e-9), X[60:], Y[60:])
    model = MultiLabelCRF(**SETTINGS, warm_start=True, engine=Inline(forgetful=False)).fit(X, Y)
    assert model.set_params(tol=1e-7).fit(X, Y).n_iter_ <= 1


def test_what_cannot_be_read_is_named(data):
    X, Y = data
    model = MultiLabelCRF(**SETTINGS, engine=Inline())
    with pytest.raises(ValueError, match="y has probabilities of labels, which cannot be combined with data on a clus"):
        model.fit(X, np.clip(Y, 0.1, 0.9))
    with pytest.raises(ValueError, match="Only binary classification is supported"):
        model.fit(X, Y + np.arange(120)[:, None] % 2)
    with pytest.raises(ValueError, match="base_scores cannot be combined with data on a cluster"):
        model.fit(X, Y, base_scores=np.zeros(Y.shape))
    with pytest.raises(ValueError, match=r"X has 120 rows and y has shape \(3, 4\)"):
        model.fit(X, Y[:3])
    parts = [partial(RawSequences, X[:60], Y[:60]), partial(RawSequences, X[60:], Y[60:, :3])]
    with pytest.raises(ValueError, match=r"y has the shapes .* in different parts"):
        model.fit(SequenceSources(parts))


def test_dask_arrays_and_frames(client, data):
    da, dd = pytest.importorskip("dask.array"), pytest.importorskip("dask.dataframe")
    X, Y = data
    model = MultiLabelCRF(**SETTINGS | {"solver": "lbfgs", "tol": 1e-3})  # all stop at the same iteration
    here = clone(model).fit(X, Y)
    frame = dd.from_pandas(pd.DataFrame(np.hstack((X, Y)), columns=list("abcpqrs")), npartitions=3)
    arrays = [da.from_array(one, chunks=(50, -1)) for one in (X, Y)]
    for there in (clone(model).fit(*arrays), clone(model).fit(frame, list("pqrs"))):
        assert there.certificate_.objective == pytest.approx(here.certificate_.objective, rel=1e-9)
    assert there.feature_names_in_.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="y='z' is not a column"):
        MultiLabelCRF(**SETTINGS).fit(frame, ["p", "z"])
