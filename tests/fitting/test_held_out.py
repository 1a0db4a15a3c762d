"""C="auto": the power of 10 with which held-out samples are likeliest, against fits and likelihoods of its own."""

from copy import copy

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from clusters import Inline
from kernelcrf import ChainCRF
from kernelcrf.datasets import make_sequences
from kernelcrf.fitting import corpus, held_out
from kernelcrf.fitting.sequences import PIECE, LabelledSequences, divide
from kernelcrf.graphs.structure import Chains

SETTINGS = {"kernel": "rbf", "gamma": 0.5, "n_components": None, "tol": 1e-9, "random_state": 0}


@pytest.fixture
def data():
    return make_sequences(30, random_state=0)


def sequences(lengths, n_features=2, n_labels=3):
    chains, rng = Chains.from_lengths(lengths), np.random.default_rng(0)
    n = chains.n_nodes
    return LabelledSequences(rng.normal(size=(n, n_features)), chains, rng.integers(n_labels, size=n), n_labels)


def held_out_likelihood(data, C, folds=range(5)):
    """The highest log-likelihood, over all temperatures within the bounds of the search, by a search of SciPy's."""
    fitted = []
    for r in folds:
        train, test = (
            [(x, y) for i, (x, y) in enumerate(zip(data.X, data.y, strict=True)) if (i % 5 == r) == out]
            for out in (False, True)
        )
        fitted.append((ChainCRF(**{**SETTINGS, "C": C}).fit(*zip(*train, strict=True)), tuple(zip(*test, strict=True))))

    def loss(log_temperature):
        return -sum(divided(crf, np.exp(log_temperature)).log_prob(*test).sum() for crf, test in fitted)

    return -minimize_scalar(loss, bounds=np.log(held_out.TEMPERATURES[[0, -1]]), method="bounded").fun


def divided(crf, temperature):
    crf = copy(crf)
    crf.model_ = crf.model_.divide_weights(temperature)
    return crf


def test_the_chosen_C_is_the_best_of_its_neighbours(data, monkeypatch):
    monkeypatch.setattr(held_out, "SEARCH_TOL", 1e-9)
    C = ChainCRF(C="auto", **SETTINGS).fit(data.X, data.y).C_
    values = {factor: held_out_likelihood(data, C * factor) for factor in (0.1, 1.0, 10.0)}
    assert max(values, key=values.get) == 1.0


@pytest.mark.parametrize("few", [50, 20])
def test_the_log_likelihood_is_that_of_the_held_out_sequences(few, data, monkeypatch):
    """30 sequences are held out in turn if they are few, and otherwise every fifth of them is."""
    seen = {}
    monkeypatch.setattr(corpus, "FEW", few)
    monkeypatch.setattr(held_out, "SEARCH_TOL", 1e-9)
    monkeypatch.setattr(held_out, "highest", lambda likelihood, _: seen.update(found=likelihood((1,))) or (1,))
    ChainCRF(C="auto", **SETTINGS).fit(data.X, data.y)
    expected = held_out_likelihood(data, 10.0, range(5) if few == 50 else [4])
    # The landmarks are inputs of the first fold's training sequences, which span a little less than all inputs do.
    assert seen["found"] == pytest.approx(expected, rel=1e-4 if few == 20 else 2e-2)


def test_pieces_do_not_depend_on_how_the_data_are_divided():
    whole = sequences([3, 250, 0, 90, 1, 120, 40, 7])
    everything = whole.draw(300)
    parts = [whole.only(np.arange(8) < 3), whole.only(np.arange(8) >= 3)]
    drawn = [part.draw(300) for part in parts]
    keys = np.concatenate([keys for _, keys in drawn])
    assert set(everything[1]) <= set(keys)
    assert max(everything[0].chains.lengths) <= PIECE
    assert 300 <= everything[0].chains.n_nodes < 300 + PIECE
    folds = divide(*whole.draw(1500), 1500)
    assert len(folds) == 5
    for train, test in folds:
        assert not set(train.chains.numbers) & set(test.chains.numbers)
        assert 300 <= train.chains.n_nodes + test.chains.n_nodes < 300 + PIECE


@pytest.mark.parametrize(
    ("lengths", "n_held_out"), [([4] * 4, []), ([1000], [200] * 5), ([20] * 10, [40] * 5), ([20] * 50, [200])]
)
def test_few_sequences_are_divided_into_pieces_and_too_few_are_not(lengths, n_held_out):
    found = sequences(lengths).hold_out(10_000)
    assert [test.chains.n_nodes for _, test in found] == n_held_out


@pytest.mark.parametrize("lengths", [[12_000] + [50] * 30, [50] * 30 + [12_000], [9_000] + [1] * 6])
def test_no_fold_is_empty_if_one_sequence_has_most_tokens(lengths):
    folds = sequences(lengths).hold_out(10_000)
    assert len(folds) == 5
    assert all(train.chains.n_nodes and test.chains.n_nodes for train, test in folds)
    assert len({*folds[0][0].chains.numbers, *folds[0][1].chains.numbers}) > len(lengths) / 2


def test_with_too_few_sequences_C_is_1():
    data = make_sequences(3, random_state=0)
    assert ChainCRF(C="auto", random_state=0).fit(data.X, data.y).C_ == 1.0


def test_a_cluster_finds_the_same_C(data):
    here = ChainCRF(C="auto", **SETTINGS).fit(data.X, data.y)
    there = ChainCRF(C="auto", **SETTINGS, engine=Inline(forgetful=False)).fit(data.X, data.y)
    assert there.C_ == here.C_
    assert there.certificate_.objective == pytest.approx(here.certificate_.objective, rel=1e-8)


def test_an_interrupted_fit_goes_on_with_the_same_C(data, tmp_path):
    settings = {**SETTINGS, "n_components": 20, "checkpoint": tmp_path / "run"}
    whole = ChainCRF(**{**settings, "checkpoint": None}).fit(data.X, data.y)
    with pytest.warns(UserWarning, match="max_iter"):
        ChainCRF(**settings, max_iter=4).fit(data.X, data.y)
    again = ChainCRF(**settings).fit(data.X, data.y)
    assert again.C_ == whole.C_ != 1.0
    assert again.certificate_.objective == pytest.approx(whole.certificate_.objective, rel=1e-8)


def test_constraints_hold_within_pieces():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(150, 2)) for _ in range(8)]
    y = [["B" if t % 3 == 0 else "I" for t in range(150)] for _ in X]
    crf = ChainCRF(constraints="BIO", n_components=10, random_state=0).fit(X, y)
    assert crf.certificate_.status == "optimal"
