"""Fitted models are frozen, and their distributions say what the estimators return."""

import itertools
from copy import copy
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.exceptions import NotFittedError

from kernelcrf import ChainCRF, GraphCRF, KernelClassifier, MarkovNetwork, MultiLabelCRF
from kernelcrf.datasets import make_sequences
from kernelcrf.engines.local import LocalEngine
from kernelcrf.models.chain import ChainModel
from kernelcrf.models.label_sets import LabelSetModel, TableModel
from kernelcrf.models.network import GraphModel
from kernelcrf.models.rows import RowModel
from kernelcrf.readers.graphs import GraphSamples

RNG = np.random.default_rng(0)
DATA = make_sequences(15, random_state=0)
ROWS = RNG.normal(size=(40, 3))
SETS = (ROWS @ RNG.normal(size=(3, 3)) > 0).astype(int)
GRAPHS = [(RNG.normal(size=(3, 2)), [[0, 1], [1, 2]]) for _ in range(10)]
NODE_LABELS = [(x[0][:, 0] > 0).astype(int) for x in GRAPHS]
FITS = {
    ChainModel: lambda: ChainCRF(n_components=10, random_state=0, C=1.0).fit(DATA.X, DATA.y),
    RowModel: lambda: KernelClassifier(n_components=10, random_state=0).fit(ROWS, SETS[:, 0]),
    GraphModel: lambda: GraphCRF("linear", random_state=0).fit(GRAPHS, NODE_LABELS),
    LabelSetModel: lambda: MultiLabelCRF("linear", structure="full").fit(ROWS, SETS),
    TableModel: lambda: MarkovNetwork(structure="full").fit(SETS),
}
ENGINE = LocalEngine()


@pytest.fixture(scope="module")
def fits():
    return {kind: make() for kind, make in FITS.items()}


@pytest.mark.parametrize("kind", FITS)
def test_a_fit_is_one_frozen_model_and_attributes_are_read_from_it(kind, fits):
    estimator = fits[kind]
    assert set(vars(estimator)) - set(estimator.get_params(deep=False)) == {"model_"}
    assert type(estimator.model_) is kind
    with pytest.raises(FrozenInstanceError):
        estimator.model_.n_iter = 0
    with pytest.raises(AttributeError, match=f"n_iter_ of {type(estimator).__name__} cannot be set"):
        estimator.n_iter_ = 0
    new = type(estimator)()
    assert not hasattr(new, "certificate_")
    assert not hasattr(new, "n_features_in_")
    with pytest.raises(NotFittedError):
        _ = new.certificate_


@pytest.mark.parametrize("kind", FITS)
def test_a_model_comes_back_from_its_arrays(kind, fits):
    estimator = fits[kind]
    config, arrays = estimator.model_.to_arrays()
    config["estimator"] = type(estimator).__name__
    again = copy(estimator)
    again.model_ = kind.from_arrays(config, arrays)
    X = {ChainModel: DATA.X[:3], GraphModel: GRAPHS[:3], TableModel: SETS[:5]}.get(kind, ROWS[:5])
    for found, expected in zip(again.predict_proba(X), estimator.predict_proba(X), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_chain_distribution_is_that_of_enumeration(fits):
    crf = fits[ChainModel]
    short = [x[:3] for x in DATA.X[:4]]
    found = crf.model_.field(short, None, ENGINE)
    np.testing.assert_array_equal(found.marginals(), np.concatenate(crf.predict_proba(short)))
    s, w = found.s[:3], found.w
    scores = {
        y: s[np.arange(3), y].sum() + w[y[0], y[1]] + w[y[1], y[2]] for y in itertools.product(range(3), repeat=3)
    }
    log_z = logsumexp(list(scores.values()))
    labels, log_p = next(found.k_best(1))[0]
    assert tuple(labels) == max(scores, key=scores.get) == tuple(found.best()[:3])
    np.testing.assert_allclose(log_p, scores[tuple(labels)] - log_z)
    np.testing.assert_allclose(found.log_partition()[0], log_z)
    np.testing.assert_allclose(found.entropy()[0], log_z - sum(np.exp(v - log_z) * v for v in scores.values()))


def test_a_tempered_model_has_scores_over_the_temperature_and_no_certificate(fits):
    model = fits[ChainModel].model_
    cool, warm = (own.field(DATA.X[:2], None, ENGINE) for own in (model, model.divide_weights(2.0)))
    np.testing.assert_allclose(warm.s, cool.s / 2, atol=1e-12)
    np.testing.assert_allclose(warm.w, cool.w / 2)
    assert model.divide_weights(2.0).certificate.status == "tempered"


def test_distributions_of_networks_say_what_estimators_return(fits):
    crf, sets = fits[GraphModel], fits[LabelSetModel]
    found = crf.model_.field(GraphSamples.read(GRAPHS[:2], directed=False), "exact", ENGINE)
    np.testing.assert_array_equal(found.entropy(), crf.distribution(GRAPHS[:2]).entropy())
    (block,) = sets.model_.fields(ROWS[:4], ENGINE)
    np.testing.assert_array_equal(block.best(), sets.predict(ROWS[:4]))
    total = logsumexp([block.log_prob(np.tile(y, (4, 1))) for y in itertools.product((0, 1), repeat=3)], axis=0)
    np.testing.assert_allclose(total, 0, atol=1e-12)


def test_metadata_belong_to_the_model(fits):
    crf = copy(fits[ChainModel])
    crf.metadata_ = {"unit": "token"}
    assert crf.model_.metadata == {"unit": "token"}
    assert fits[ChainModel].metadata_ == {}
    assert replace(crf.model_, metadata={}).metadata == {}
