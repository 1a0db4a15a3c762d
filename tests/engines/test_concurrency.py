"""Many threads on one model, many fits at once, and memory that stays what it was."""

import pytest

from trials import concurrency


@pytest.mark.usefixtures("two_threads_of_blas")
def test_predictions_from_many_threads_have_the_bits_of_one():
    trial = concurrency.predictions(n_threads=16, rounds=1)
    assert trial.times > 100
    assert trial.failures == []


@pytest.mark.usefixtures("two_threads_of_blas")
def test_fits_in_many_threads_have_the_bits_of_one():
    assert concurrency.fits(n_threads=6, rounds=2).failures == []


@pytest.mark.usefixtures("two_threads_of_blas")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_children_of_a_process_that_has_fitted():
    assert concurrency.forked(rounds=1).failures == []


def test_no_more_threads_than_allowed():
    assert concurrency.limits((3,), ("2",), (0,)).failures == []


def test_memory_over_fits_and_predictions():
    for trial in concurrency.memory(30, 500):
        assert trial.failures == []
