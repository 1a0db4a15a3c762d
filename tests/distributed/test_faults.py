"""Faults of a cluster in mid-fit: run by `pytest -m slow`; `python -m studies reliability.cluster_faults` has more."""

import sys

import pytest

pytest.importorskip("distributed")
cluster_faults = pytest.importorskip("trials.cluster_faults")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
    pytest.mark.skipif(sys.platform == "win32", reason="a process is not killed by a signal there"),
]


def check(trial):
    print(f"\n{trial.tried}: {trial.holds}")
    assert trial.times
    assert not trial.failures, trial.failures


@pytest.mark.parametrize("size", ["small", "large"])
def test_fits_survive_kills_at_random_moments(size):
    check(cluster_faults.kills(size, 20))


def test_a_worker_that_is_stopped_is_replaced():
    check(cluster_faults.stopped(1))


def test_a_slow_worker_costs_what_its_share_costs():
    check(cluster_faults.slow(1))


@pytest.mark.parametrize("what", ["client", "scheduler"])
def test_a_fit_goes_on_from_its_checkpoint_on_a_new_cluster(what):
    check(cluster_faults.lost(what, 1))


def test_workers_come_and_go():
    check(cluster_faults.scaling(1))
