import numpy as np
import pytest

from bases import KERNELS, inputs
from kernelcrf.basis.centres import Lloyd
from kernelcrf.basis.choice import RULES, choose_basis, find_rule
from kernelcrf.basis.pivots import Gradient, Random


def test_the_default_is_lloyd_where_means_stand_for_inputs_and_random_elsewhere():
    for name in KERNELS:
        expected = Lloyd() if name in ("rbf", "poly", "cosine") else Random()
        assert find_rule("auto", KERNELS[name], sparse=False) == expected
        assert find_rule("auto", KERNELS[name], sparse=True) == Random()


def test_names_find_rules_and_rules_stay_themselves():
    for name, kind in RULES.items():
        assert find_rule(name, KERNELS["rbf"], sparse=False) == kind()
    rule = Gradient(np.zeros(5))
    assert find_rule(rule, KERNELS["rbf"], sparse=False) is rule


def test_the_seed_decides():
    X, kernel = inputs(60), KERNELS["rbf"]
    first, second, other = (choose_basis(kernel, X, 9, "random", random_state=s).indices for s in (0, 0, 1))
    np.testing.assert_array_equal(first, second)
    assert set(first) != set(other)
    shared = np.random.RandomState(0)
    a, b = (choose_basis(kernel, X, 9, "random", random_state=shared).indices for _ in range(2))
    assert set(a) != set(b)


def test_more_atoms_than_inputs_are_all_inputs():
    assert choose_basis(KERNELS["rbf"], inputs(20), 50, "random", random_state=0).n == 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"n_components": 3, "rule": "best"},
            r"rule='best': expected 'auto', 'exact', 'greedy'.*Gradient\(scores\)",
        ),
        ({"n_components": 0}, "n_components=0: expected an integer >= 1 or None"),
        ({"n_components": None}, r"n_components=None: expected a number of landmarks.*'exact'"),
        (
            {"n_components": 3, "rule": "exact"},
            "n_components=3, but the rule 'exact' makes all 20 distinct inputs landmarks",
        ),
        ({"n_components": 3, "tol": 1.0}, "tol=1.0: expected a finite number >= 0 and below 1; a share of the trace"),
        ({"n_components": 3, "tol": -0.1}, "tol=-0.1: expected .*a share of the trace"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        choose_basis(KERNELS["rbf"], inputs(20), **arguments)


def test_a_start_that_does_not_fit_is_named():
    start = choose_basis(KERNELS["rbf"], inputs(20), 5, random_state=0)
    with pytest.raises(ValueError, match="start is a basis for 20 inputs, but X has 21 rows"):
        choose_basis(KERNELS["rbf"], inputs(21), 6, start=start)
    with pytest.raises(ValueError, match="n_components=4, but start has 5 landmarks"):
        choose_basis(KERNELS["rbf"], inputs(20), 4, start=start)
