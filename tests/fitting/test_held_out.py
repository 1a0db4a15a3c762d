"""C="auto" and kernel="auto": what is best on held-out samples, against fits and likelihoods of its own."""

import warnings
from copy import copy
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize_scalar
from sklearn import config_context
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold

from clusters import Inline
from kernelcrf import ChainCRF, KernelClassifier, SegmentCRF, load
from kernelcrf.datasets import make_sequences
from kernelcrf.fitting import corpus, held_out, training
from kernelcrf.fitting.sequences import PIECE, LabelledSequences, divide
from kernelcrf.graphs.structure import Chains
from kernelcrf.metrics import span_f1
from kernelcrf.rules import HeldOut

SETTINGS = {"kernel": "rbf", "gamma": 0.5, "n_components": None, "tol": 1e-9, "random_state": 0}


@pytest.fixture(scope="module")
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
    keys = np.concatenate([keys for _, keys, _ in drawn])
    assert set(everything[1]) <= set(keys)
    assert max(everything[0].chains.lengths) <= PIECE
    assert 300 <= everything[0].chains.n_nodes < 300 + PIECE
    folds = divide(*whole.draw(1500), 1500, 300)
    assert len(folds) == 5
    for train, test in folds:
        assert not set(train.chains.numbers) & set(test.chains.numbers)
        assert 300 <= train.chains.n_nodes + test.chains.n_nodes < 300 + PIECE


@pytest.mark.parametrize(
    ("lengths", "n_held_out"), [([4] * 4, []), ([1000], [200] * 5), ([20] * 10, [40] * 5), ([20] * 50, [200])]
)
def test_few_sequences_are_divided_into_pieces_and_too_few_are_not(lengths, n_held_out):
    found = sequences(lengths).hold_out(10_000, 2_000)
    assert [test.chains.n_nodes for _, test in found] == n_held_out


@pytest.mark.parametrize("lengths", [[12_000] + [50] * 30, [50] * 30 + [12_000], [9_000] + [1] * 6])
def test_no_fold_is_empty_if_one_sequence_has_most_tokens(lengths):
    folds = sequences(lengths).hold_out(10_000, 2_000)
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
    crf = ChainCRF("rbf", constraints="BIO", n_components=10, random_state=0).fit(X, y)
    assert crf.certificate_.status == "optimal"


def curved(n=60, seed=0):
    """Sequences whose labels depend on a product of two columns, which no linear score can express."""
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(8, 2)) for _ in range(n)]
    return X, [(x[:, 0] * x[:, 1] > 0).astype(int) for x in X]


def straight(n=60, seed=0, slope=3.0, offset=-1.0):
    """Sequences whose labels have log odds that are linear in the first column."""
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(8, 2)) for _ in range(n)]
    return X, [(rng.random(8) < 1 / (1 + np.exp(-offset - slope * x[:, 0]))).astype(int) for x in X]


@pytest.mark.parametrize(("make", "kernel"), [(curved, "rbf"), (straight, "linear")])
def test_an_automatic_kernel_is_linear_unless_rbf_is_clearly_better(make, kernel):
    X, y = make()
    crf = ChainCRF(random_state=0, n_components=40).fit(X, y)
    assert crf.kernel_.kernel == kernel
    table = crf.search_
    chosen = table["chosen"].index(True)
    assert table["chosen"].count(True) == 1
    assert (table["kernel"][chosen], table["C"][chosen]) == (kernel, crf.C_)
    assert table["gamma"][chosen] == (crf.kernel_.gamma if kernel == "rbf" else None)
    assert {*table["kernel"]} == {"linear", "rbf"}
    assert len({gamma for gamma in table["gamma"] if gamma is not None}) == 3
    best = int(np.argmax(table["score"]))
    assert table["error"][best] == 0.0
    assert table["score"][best] - table["score"][chosen] <= table["error"][chosen]
    linear = max(score for score, name in zip(table["score"], table["kernel"], strict=True) if name == "linear")
    assert (linear < table["score"][best] - 0.1) == (kernel == "rbf")


@pytest.mark.parametrize(("right", "is_as_good"), [((8, 9, 8, 9), True), ((5, 6, 4, 6), False), ((5, 9, 9, 6), False)])
def test_a_simpler_kernel_must_predict_as_many_labels_rightly(right, is_as_good):
    """The log-likelihoods are equal up to noise, so that the right labels of the four blocks decide."""
    simple, best = (object.__new__(held_out._Candidate) for _ in range(2))
    for one, likelihoods, counts in ((simple, (-4.0, -5, -4, -5), right), (best, (-5.0, -4, -5, -3.9), (9, 9, 8, 9))):
        one._metric, one.best = None, (0,)
        tempered = np.repeat(np.array(likelihoods)[:, None], len(held_out.TEMPERATURES), axis=1)
        one._answers = {(0,): held_out._Answers(tempered, np.array(counts, float), [], [])}
    assert simple.is_as_good_as(best) == is_as_good
    assert best.is_as_good_as(best)


def test_the_accuracy_of_a_search_is_that_of_fits_to_four_fifths(data, monkeypatch):
    monkeypatch.setattr(held_out, "SEARCH_TOL", 1e-8)
    crf = ChainCRF(gamma=0.5, n_components=None, tol=1e-8, random_state=0).fit(data.X, data.y)
    table = crf.search_
    for kernel, C in (("linear", 1.0), ("rbf", 1.0)):
        k = next(k for k in range(len(table["C"])) if (table["kernel"][k], table["C"][k]) == (kernel, C))
        right = 0
        for r in range(5):
            train = [i for i in range(30) if i % 5 != r]
            one = ChainCRF(kernel, gamma=0.5, C=C, n_components=None, tol=1e-8, random_state=0)
            one.fit([data.X[i] for i in train], [data.y[i] for i in train])
            right += sum((a == b).sum() for a, b in zip(one.predict(data.X[r::5]), data.y[r::5], strict=True))
        assert table["accuracy"][k] == pytest.approx(right / sum(map(len, data.y)))


def test_a_given_kernel_gamma_or_C_is_kept():
    X, y = straight()
    assert {*ChainCRF("rbf", n_components=20, random_state=0).fit(X, y).search_["kernel"]} == {None}
    table = ChainCRF(gamma=0.3, n_components=20, random_state=0).fit(X, y).search_
    assert {*zip(table["kernel"], table["gamma"], strict=True)} == {("linear", None), ("rbf", 0.3)}
    assert ChainCRF(C=1.0, n_components=20, random_state=0).fit(X, y).search_["C"] == []
    sparse = ChainCRF(random_state=0).fit([sp.csr_array(x) for x in X], y)
    assert (sparse.kernel_.kernel, {*sparse.search_["kernel"]}) == ("linear", {None})


def test_scores_and_their_errors_are_those_of_fits_to_four_fifths(data, monkeypatch):
    monkeypatch.setattr(held_out, "SEARCH_TOL", 1e-10)
    table = ChainCRF("linear", C="auto", tol=1e-10, fit_intercept=True).fit(data.X, data.y).search_
    found = {}
    for C in table["C"]:
        tempered = np.empty((30, len(held_out.TEMPERATURES)))
        for r in range(5):
            train = [i for i in range(30) if i % 5 != r]
            crf = ChainCRF("linear", C=C, tol=1e-10, fit_intercept=True)
            crf.fit([data.X[i] for i in train], [data.y[i] for i in train])
            for k, temperature in enumerate(held_out.TEMPERATURES):
                tempered[r::5, k] = divided(crf, temperature).log_prob(data.X[r::5], data.y[r::5])
        found[C] = tempered[:, tempered.sum(axis=0).argmax()]
    n_tokens = sum(map(len, data.y))
    best = max(found, key=lambda C: found[C].sum())
    for C, score, error in zip(table["C"], table["score"], table["error"], strict=True):
        assert score == pytest.approx(found[C].sum() / n_tokens, rel=1e-6)
        assert error == pytest.approx(
            np.sqrt(30) * np.std(found[C] - found[best], ddof=1) / n_tokens, rel=1e-4, abs=1e-9
        )


def test_fewer_than_20_sequences_prefer_the_smallest_C_within_one_standard_error():
    X, y = straight(12, seed=2, slope=2.0, offset=0.0)
    table = ChainCRF("linear").fit(X, y).search_
    best, chosen = int(np.argmax(table["score"])), table["chosen"].index(True)
    assert table["C"] == sorted(table["C"])
    assert chosen < best
    short = np.array(table["score"][best]) - table["score"]
    assert all(short[chosen:best] <= table["error"][chosen:best])
    assert chosen == 0 or short[chosen - 1] > table["error"][chosen - 1]


def test_the_choice_is_the_same_for_any_number_of_threads_and_on_a_cluster():
    X, y = curved()
    one, two, there = (
        ChainCRF(random_state=0, n_components=30, **own).fit(X, y)
        for own in ({"n_jobs": 1}, {"n_jobs": 2}, {"engine": Inline(forgetful=False)})
    )
    assert one.search_ == two.search_
    assert one.search_["chosen"] == there.search_["chosen"]
    np.testing.assert_allclose(one.search_["score"], there.search_["score"], rtol=1e-6)


def test_files_store_what_was_compared(tmp_path):
    X, y = straight(30)
    crf = ChainCRF(gamma=0.3, random_state=0, n_components=20).fit(X, y)
    crf.save(tmp_path / "model.kcrf")
    assert load(tmp_path / "model.kcrf").search_ == crf.search_


def test_a_search_inside_a_search_sees_the_training_folds_only(monkeypatch):
    X, y = straight(40)
    seen = []

    def spy(problem, *arguments):
        seen.append({tuple(row) for row in problem.corpus.X.tolist()})
        return search(problem, *arguments)

    search = training.search_held_out
    monkeypatch.setattr(training, "search_held_out", spy)
    folds = list(KFold(2).split(X))
    GridSearchCV(ChainCRF("linear"), {"tol": [1e-2]}, cv=folds, refit=False).fit(X, y)
    assert seen == [{tuple(row) for i in train for row in X[i].tolist()} for train, _ in folds]


def test_groups_are_held_out_together_and_routed_to_both_searches(monkeypatch):
    X, y = straight(40)
    groups = [f"person {i % 8}" for i in range(40)]
    folds = []

    def spy(corpus_, *arguments):
        found = hold_out(corpus_, *arguments)
        folds.extend(found)
        return found

    hold_out = LabelledSequences.hold_out
    monkeypatch.setattr(LabelledSequences, "hold_out", spy)
    with config_context(enable_metadata_routing=True):
        crf = ChainCRF("linear").set_fit_request(groups=True)
        search = GridSearchCV(crf, {"tol": [1e-2]}, cv=GroupKFold(2), refit=False)
        search.fit(X, y, groups=groups)
    # Each half of the persons has four, and each of them is held out once.
    assert len(folds) == 8
    for train, test in folds:
        assert not set(train.groups) & set(test.groups)
        assert len(set(test.groups)) == 1


def test_groups_of_another_length_are_refused():
    with pytest.raises(ValueError, match=r"groups has shape \(3,\): expected \(12,\)"):
        ChainCRF("linear").fit(*straight(12), groups=["a"] * 3)


def test_few_sequences_are_held_out_by_stretches_of_neighbouring_tokens():
    whole = sequences([1000, 500])
    whole = replace(whole, X=np.arange(1500.0)[:, None])
    for r, (train, test) in enumerate(whole.hold_out(10_000, 2_000)):
        places = np.sort(test.X.ravel())
        np.testing.assert_array_equal(places, [*range(200 * r, 200 * r + 200), *range(1000 + 100 * r, 1100 + 100 * r)])
        assert not set(test.X.ravel()) & set(train.X.ravel())
        assert np.bincount(test.blocks(), test.chains.lengths).tolist() == [200, 100]


def rare_spans(n=60):
    """Tags that the inputs hardly tell apart, of which few are in spans."""
    rng = np.random.default_rng(1)
    y = [["B-X" if rng.random() < 0.1 else "O" for _ in range(10)] for _ in range(n)]
    return [np.array([[float(tag != "O")] for tag in one]) + rng.normal(size=(10, 1)) for one in y], y


def test_a_metric_of_labels_takes_the_place_of_the_probability():
    X, y = rare_spans(30)
    crf = ChainCRF("linear", C=HeldOut(scoring="span_f1"), tol=1e-2, max_iter=200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = crf.fit(X, y).search_
        expected = []
        for C in table["C"]:
            predicted = [None] * 30
            for r in range(5):
                train = [i for i in range(30) if i % 5 != r]
                fold = ChainCRF("linear", C=C, tol=1e-2).fit([X[i] for i in train], [y[i] for i in train])
                predicted[r::5] = fold.predict(X[r::5])
            expected.append(span_f1(y, predicted, zero_division=0))
    assert table["C"] == [0.01, 0.1, 1.0, 10.0, 100.0, 1000.0]
    np.testing.assert_allclose(table["score"], expected, atol=0.02)
    assert table["chosen"].index(True) == int(np.argmax(table["score"]))
    assert {*table["error"]} == {None}


def test_almost_no_predicted_spans_are_a_warning_that_names_three_ways_out():
    X, y = rare_spans(120)
    with pytest.warns(UserWarning, match=r"almost no spans: .*decoding='f1'.*scoring='span_f1'.*class_weight"):
        ChainCRF("linear").fit(X, y)


@pytest.mark.parametrize("estimator", [KernelClassifier, SegmentCRF])
def test_only_chains_have_a_scoring(estimator):
    with pytest.raises(
        ValueError, match=r"expected scoring=None, because \w+ cannot choose C by a metric; pass C='auto'"
    ):
        estimator("linear", C=HeldOut(scoring="flat_f1")).fit(*straight(12))


def test_a_scoring_of_probabilities_is_refused():
    with pytest.raises(ValueError, match="scoring='neg_log_loss': expected 'flat_accuracy'"):
        ChainCRF("linear", C=HeldOut(scoring="neg_log_loss")).fit(*straight(12))


def test_an_automatic_intercept_belongs_to_arrays_only():
    X, y = straight(12)
    words = [[{"w": str(int(row[0] > 0))} for row in x] for x in X]
    for made, has in ((X, True), ([sp.csr_array(x) for x in X], False), (words, False)):
        assert ChainCRF("linear", C=1.0).fit(made, y).intercept_.any() == has
        assert SegmentCRF("linear", C=1.0).fit(made, y).intercept_.any() == has
    rows, labels = np.concatenate(X), np.concatenate(y)
    assert KernelClassifier("linear").fit(rows, labels).intercept_.any()
    assert not KernelClassifier("linear").fit(sp.csr_array(rows), labels).intercept_.any()
