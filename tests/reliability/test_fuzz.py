"""Fuzz every target on random mutations of its corpus; `python -m studies reliability.fuzz` goes on from there."""

import pytest

fuzz = pytest.importorskip("studies.reliability.fuzz", reason="fuzzing needs the limits of processes that POSIX has")
TARGETS = (
    "model_file",
    "model_header",
    "model_state",
    "checkpoint",
    "loaded",
    "columns",
    "jsonl",
    "crfsuite",
    "npz",
    "parquet",
    "parquet_table",
    "templates",
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("runs", [15, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("target", TARGETS)
def test_executions_end_quietly_or_with_the_librarys_own_error(target, runs):
    for find in fuzz.plain(target, runs, seed=0)[:1]:
        raise find


def test_all_targets_are_there():
    from studies.reliability import fuzz_targets

    assert tuple(fuzz_targets.TARGETS) == TARGETS
