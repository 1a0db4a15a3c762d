"""Scikit-learn's checks of estimators, of which the slow command runs some."""

import pytest

OF_64_BITS = ("check_estimator_sparse_array", "check_estimator_sparse_matrix")


def leave_sparse_checks_to_the_slow_command(checks, *estimators):
    """Return the mark of `parametrize_with_checks` in which checks of sparse X are slow for these estimators.

    Some indices have 64 bits there, for which the dual solver is compiled longer than all other checks take.
    """
    cases = []
    for case in checks.args[1]:
        estimator, check = getattr(case, "values", case)
        compiles = any(estimator is one for one in estimators) and check.func.__name__ in OF_64_BITS
        cases.append(pytest.param(estimator, check, marks=pytest.mark.slow) if compiles else case)
    return pytest.mark.parametrize(checks.args[0], cases, **checks.kwargs)
