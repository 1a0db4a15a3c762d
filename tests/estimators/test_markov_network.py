import ctypes
import itertools
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import KBinsDiscretizer

from kernelcrf import MarkovNetwork


def drawn(seed, m, n=6, edges=((0, 1), (1, 2), (3, 4)), strength=1.5):
    """Rows of a binary network with known edges, and all rows with their probabilities."""
    rows = np.array(list(itertools.product((0, 1), repeat=n)))
    signs = 2 * rows - 1
    score = sum(strength / 2 * signs[:, u] * signs[:, v] for u, v in edges)
    p = np.exp(score - score.max())
    p /= p.sum()
    return rows[np.random.default_rng(seed).choice(len(rows), size=m, p=p)], rows, p


@pytest.mark.parametrize("structure", ["none", "tree", "full", "auto", [(0, 1), (4, 3)]], ids=str)
def test_probabilities_sum_to_one_and_rows_come_from_them(structure):
    X, rows, _ = drawn(0, 300)
    model = MarkovNetwork(structure=structure).fit(X)
    p = np.exp(model.score_samples(rows))
    assert p.sum() == pytest.approx(1, abs=1e-9)
    assert model.score(X) == pytest.approx(model.score_samples(X).sum())
    draws = model.sample(20_000, random_state=0)
    assert np.abs(draws.mean(axis=0) - p @ rows).max() < 0.02
    hidden = rows[:5].astype(float)
    hidden[:, 2] = np.nan
    agree = [(np.delete(rows, 2, axis=1) == np.delete(row, 2)).all(axis=1) for row in rows[:5]]
    np.testing.assert_allclose(model.score_samples(hidden), [np.log(p[a].sum()) for a in agree], atol=1e-9)
    filled = model.impute(hidden)
    for row, a in zip(filled, agree, strict=True):
        np.testing.assert_array_equal(row, rows[a][p[a].argmax()])
    np.testing.assert_allclose(
        model.predict_proba(hidden)[2][:, 1], [p[a & (rows[:, 2] == 1)].sum() / p[a].sum() for a in agree], atol=1e-9
    )


def test_the_edges_are_found_and_the_gain_of_all_others_is_bounded():
    for seed in range(5):
        X, _, _ = drawn(seed, 1000)
        model = MarkovNetwork().fit(X)
        assert {tuple(pair) for pair in model.edges_.tolist()} == {(0, 1), (1, 2), (3, 4)}
        full = MarkovNetwork(structure="full", tol=1e-9).fit(X)
        assert model.search_.lower_bound <= full.certificate_.objective <= model.certificate_.objective


def test_it_comes_near_the_truth():
    X, rows, p = drawn(0, 20_000)
    model = MarkovNetwork(C=10.0).fit(X)
    q = np.exp(model.score_samples(rows))
    assert (p * np.log(p / q)).sum() < 0.01


def test_missing_values_are_summed_over():
    X, _, _ = drawn(0, 800)
    holes = X.astype(float)
    holes[np.random.default_rng(1).random(X.shape) < 0.2] = np.nan
    model = MarkovNetwork(structure="tree").fit(holes)
    whole = MarkovNetwork(structure="tree").fit(X)
    assert np.abs(np.exp(model.score_samples(X)) - np.exp(whole.score_samples(X))).max() < 0.03


def test_close_values_share_strength_under_a_kernel_of_numbers():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 12, size=150)
    X = np.column_stack((a, np.clip(a + rng.integers(-1, 2, size=150), 0, 11)))
    fresh = rng.integers(0, 12, size=2000)
    X_new = np.column_stack((fresh, np.clip(fresh + rng.integers(-1, 2, size=2000), 0, 11)))
    plain = MarkovNetwork(structure="full", C=5.0).fit(X)
    smooth = MarkovNetwork("rbf", gamma=0.2, structure="full", C=5.0).fit(X)
    assert smooth.score(X_new) > plain.score(X_new)


def test_frames_of_words_and_numbers():
    frame = pd.DataFrame({"sky": ["grey", "blue", "grey", "blue"] * 20, "wet": [1, 0, 1, 0] * 20})
    model = MarkovNetwork(structure="full").fit(frame)
    assert [values.tolist() for values in model.categories_] == [["blue", "grey"], [0, 1]]
    assert model.impute(pd.DataFrame({"sky": ["grey"], "wet": [None]})).tolist() == [["grey", 1]]
    assert model.sample(3, random_state=0).shape == (3, 2)
    with pytest.raises(ValueError, match="kernel='rbf' compares numbers"):
        MarkovNetwork("rbf").fit(frame)
    model = MarkovNetwork(structure="full").fit(frame.to_numpy())
    with pytest.raises(ValueError, match=r"X\[0, 0\] is 'red': expected one of"):
        model.score_samples([["red", 1]])
    with pytest.raises(ValueError, match="X has 3 columns: expected 2"):
        model.score_samples([["grey", 1, 2]])
    with pytest.raises(ValueError, match="variable 1 of X has only missing values"):
        MarkovNetwork().fit([["a", None], ["b", None]])
    with pytest.raises(ValueError, match="values of different types"):
        MarkovNetwork().fit([["a", 1], [2, 0]])


def test_the_evidence_is_that_of_an_integral():
    """One binary variable: log of the integral of p(rows | w) N(w; 0, C) over its one weight."""
    X = np.array([[0]] * 30 + [[1]] * 50)
    model = MarkovNetwork(structure="none", C=1.5, laplace=True, tol=1e-12).fit(X)
    w = np.linspace(-12, 12, 200_001)
    score = np.log1p(np.exp(-np.sqrt(2) * w)), np.log1p(np.exp(np.sqrt(2) * w))
    log_p = -50 * score[0] - 30 * score[1] - w**2 / 3 - 0.5 * np.log(2 * np.pi * 1.5)
    integral = np.log(np.exp(log_p - log_p.max()).sum() * (w[1] - w[0])) + log_p.max()
    assert model.log_marginal_likelihood() == pytest.approx(integral, abs=0.01)
    with pytest.raises(AttributeError, match="fit with laplace=True"):
        MarkovNetwork(structure="none").fit(X).log_marginal_likelihood()


@pytest.mark.parametrize("kernel", ["rbf", "linear", "laplacian"])
def test_an_offset_of_the_values_changes_nothing(kernel):
    rows = np.random.default_rng(0).integers(4, size=(80, 3)).astype(float)
    here, far = (MarkovNetwork(kernel, structure="full").fit(X) for X in (rows, rows + 2.0**40))
    np.testing.assert_allclose(far.score_samples(rows + 2.0**40), here.score_samples(rows), rtol=1e-6)


def test_values_whose_kernel_overflows_are_refused():
    rows = 1e100 * np.random.default_rng(0).integers(4, size=(30, 3))
    with pytest.raises(ValueError, match=r"overflows on the values of variable 0.*scale them, or use kernel='delta'"):
        MarkovNetwork("linear").fit(rows)


def test_continuous_columns_are_refused_with_the_way_out():
    X = np.random.default_rng(0).normal(size=(60, 3))
    with pytest.raises(ValueError, match=r"variable 0 of X is continuous, with 60 different .* 60 rows.*KBinsDisc"):
        MarkovNetwork().fit(X)
    binned = KBinsDiscretizer(4, encode="ordinal", quantile_method="averaged_inverted_cdf").fit_transform(X)
    assert [len(values) for values in MarkovNetwork().fit(binned).categories_] == [4, 4, 4]
    # Measurements on a grid, and numbers that name something, are discrete.
    on_grid = np.column_stack((np.arange(500) % 30 / 10, np.arange(500) % 30))
    assert MarkovNetwork(structure="none").fit(on_grid).n_features_in_ == 2
    assert MarkovNetwork(structure="none").fit(np.arange(60.0)[:, None]).n_features_in_ == 1


def test_memory_is_that_of_the_tables_of_pairs():
    """A pair of variables with k values has k^2 numbers; a matrix of k^2 rows and columns would take 20 MB."""
    k = 40
    X = np.column_stack((np.arange(4 * k) % k, np.arange(4 * k) * 3 % k))
    MarkovNetwork(structure="full", tol=1e-2).fit(X[:3])  # compiling takes memory too
    tracemalloc.start()
    try:
        model = MarkovNetwork(structure="full", tol=1e-2).fit(X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert model.potentials_[0].shape == (k, k)
    assert peak < 5e6
    p = np.exp(model.score_samples(list(itertools.product(range(k), repeat=2))))
    assert p.sum() == pytest.approx(1, abs=1e-9)


def test_a_variable_with_one_value_has_no_interactions():
    X, _, _ = drawn(0, 200, n=3, edges=((0, 1),))
    alone = MarkovNetwork(structure="full", tol=1e-9).fit(X)
    beside = MarkovNetwork(structure="full", tol=1e-9).fit(np.column_stack((X, np.full(200, 7))))
    assert beside.certificate_.objective == pytest.approx(alone.certificate_.objective, rel=1e-8)
    for (_, v), table in zip(beside.edges_.tolist(), beside.potentials_, strict=True):
        assert v != 3 or not table.any()
    assert MarkovNetwork(structure="full").fit(np.full((5, 2), "a")).score_samples([["a", "a"]]) == 0


def test_a_very_smooth_kernel_has_no_negative_eigenvalue():
    """Values of the kernel differ by 1e-9, and rounding errors of centring exceed a smaller eigenvalue."""
    X = np.random.default_rng(0).integers(0, 5, size=(30, 2)).astype(float)
    for gamma in (1e-9, 1e-10, 1e-11):
        assert MarkovNetwork(kernel="rbf", gamma=gamma, structure="full").fit(X).certificate_.status == "optimal"


def test_a_kernel_that_takes_all_values_for_one_is_refused():
    with pytest.raises(ValueError, match="kernel='cosine' does not distinguish the values of variable 0"):
        MarkovNetwork("cosine").fit([[1, 2], [2, 3], [3, 1]])


def test_the_evidence_of_constant_columns_prints_nothing(capfd):
    model = MarkovNetwork(laplace=True).fit([["a", "b"], ["a", "b"]])
    assert model.log_marginal_likelihood() == 0.0
    ctypes.CDLL(None).fflush(None)
    assert capfd.readouterr() == ("", "")


def test_the_bound_of_a_search_is_that_of_the_C_that_was_chosen():
    a = np.tile([0, 1, 2, 3], 100)
    b = a.copy()
    b[:4] = [1, 2, 3, 0]
    X = np.column_stack((a, b, np.repeat([0, 1], 200)))
    network = MarkovNetwork(C="evidence", tol=1e-8).fit(X)
    full = MarkovNetwork(C=network.C_, structure="full", tol=1e-8).fit(X)
    assert network.search_.lower_bound <= full.certificate_.objective * (1 + 1e-9)
    assert network.search_.lower_bound >= network.certificate_.objective * (1 - 1e-3)
