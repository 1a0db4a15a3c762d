"""The targets of fuzzing, on mutations of their corpus at random; `python reliability/fuzz.py` goes on from there."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "reliability"))

fuzz = pytest.importorskip("fuzz", reason="fuzzing wants the limits of processes that POSIX has")
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
@pytest.mark.parametrize("target", TARGETS)
def test_two_thousand_executions_end_quietly_or_with_the_librarys_own_error(target):
    for find in fuzz.plain(target, 2000, seed=0)[:1]:
        raise find


def test_all_targets_are_there():
    import fuzz_targets

    assert tuple(fuzz_targets.TARGETS) == TARGETS
