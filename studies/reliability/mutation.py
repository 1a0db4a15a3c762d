"""Mutation testing: changes of the mathematics that no test notices.

A tool makes small random changes in the code (mutants). The tests should fail on each. Mutants are drawn by a fixed
seed from each file of the mathematics, spread over its lines, and the tests that belong to the file run on each.
Changes that put in bit operators or `is` are left out, since any test notices them. Numba's loops run as plain Python.

A mutant survives if all of these tests pass. It counts as a failure unless `studies/reliability/survivors.json` says
why no test can notice the change, or why none has to. The mutants in the table are a sample of all possible changes.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from studies import common
from studies.common import Trial
from studies.reliability import mutants

OUTCOMES = Path(__file__).parent / "results" / "mutants.jsonl"
SURVIVORS = Path(__file__).parent / "survivors.json"
# `minutes` ends a run early, and the next one goes on; `again` 1 runs the survivors once more, after tests were added.
OPTIONS = {"count": 15, "minutes": 600.0, "only": "", "again": 0}
CHAIN = ["tests/inference/test_chain.py", "tests/inference/test_feasibility.py"]
GRAPH = ["tests/inference/test_clique_tree.py", "tests/partitions/test_graphs.py"]
SOLVE = ["tests/solvers/test_directions.py", "tests/solvers/test_solvers.py"]
# The others of their file go to the optimum, which takes minutes without the compiler.
QUICK = (
    "theta_and_value_are_those_of_the_distributions",
    "marginals_of_a_sequence_are_those_of_inference_at_any_level_of_scores",
    "steps_that_scaled_messages_cannot_hold_are_told",
    "every_pass_raises_the_dual_and_stays_below_the_optimum",
    "a_start_at_the_optimum_ends_at_once",
    "a_run_out_of_passes_says_so",
)
BASIS = [f"tests/basis/test_{name}.py" for name in ("choice", "features", "pivots", "factor")]
TESTS: dict[str, list[str]] = {
    "objective.py": ["tests/test_objective.py", "tests/test_certificate.py", "tests/partitions/test_chains.py"],
    "certificate.py": ["tests/test_certificate.py", "tests/fitting/test_fit.py"],
    "inference/chain.py": [*CHAIN, "tests/inference/test_batch.py"],
    "inference/batch.py": ["tests/inference/test_batch.py", *CHAIN, "tests/inference/test_tangents.py"],
    "inference/scaled.py": [*CHAIN, "tests/inference/test_extremes.py", "tests/inference/test_tangents.py"],
    "inference/logspace.py": [*CHAIN, "tests/inference/test_extremes.py"],
    "inference/feasibility.py": ["tests/inference/test_feasibility.py", "tests/inference/test_decoding.py"],
    "inference/tangents.py": ["tests/inference/test_tangents.py", "tests/inference/test_batch.py"],
    "inference/decoding.py": ["tests/inference/test_decoding.py", "tests/inference/test_feasibility.py"],
    "inference/enumerate.py": ["tests/inference/test_enumerate.py", "tests/inference/test_chain.py"],
    "inference/clique_tree.py": GRAPH,
    "inference/tree_program.py": GRAPH,
    "inference/loss.py": ["tests/inference/test_loss.py", *GRAPH, "tests/inference/test_gibbs.py"],
    "inference/loopy.py": ["tests/inference/test_loopy.py", "tests/partitions/test_graphs.py"],
    "inference/gibbs.py": ["tests/inference/test_gibbs.py", "tests/partitions/test_graphs.py"],
    "inference/loops/scaled.py": ["tests/inference/test_chain.py", "tests/inference/test_feasibility.py"],
    "inference/loops/logspace.py": [*CHAIN, "tests/inference/test_tangents.py"],
    "inference/loops/tangents.py": ["tests/inference/test_tangents.py"],
    "inference/loops/decoding.py": ["tests/inference/test_decoding.py", "tests/inference/test_feasibility.py"],
    "inference/loops/clique_tree.py": ["tests/inference/test_clique_tree.py"],
    "inference/loops/loopy.py": ["tests/inference/test_loopy.py"],
    "inference/loops/gibbs.py": ["tests/inference/test_gibbs.py"],
    "inference/loops/fused.py": ["tests/partitions/test_fused_chains.py"],
    "basis/choice.py": ["tests/basis/test_choice.py", "tests/basis/test_features.py"],
    "basis/centres.py": ["tests/basis/test_centres.py", "tests/basis/test_choice.py"],
    "basis/distinct_inputs.py": ["tests/basis/test_distinct_inputs.py"],
    "basis/sparse_entries.py": ["tests/basis/test_sparse_entries.py", "tests/readers/test_feature_dicts.py"],
    "basis/factor.py": BASIS,
    "basis/panels.py": BASIS,
    "basis/builder.py": BASIS,
    "basis/local_builder.py": BASIS,
    "basis/features.py": ["tests/basis/test_features.py", "tests/basis/test_kernel_weights.py"],
    "basis/kernel_weights.py": ["tests/basis/test_kernel_weights.py"],
    "basis/pivots.py": ["tests/basis/test_choice.py", "tests/basis/test_features.py", "tests/basis/test_pivots.py"],
    "solvers/__init__.py": [*SOLVE, "tests/solvers/test_dual.py"],
    "solvers/dual.py": ["tests/solvers/test_dual.py"],
    "solvers/ascent_loops.py": [f"tests/solvers/test_dual.py::test_{name}" for name in QUICK],
    "solvers/lbfgs.py": SOLVE,
    "solvers/linear_systems.py": SOLVE,
    "solvers/line_search.py": ["tests/solvers/test_line_search.py", *SOLVE],
    "solvers/loop.py": [*SOLVE, "tests/fitting/test_fit.py"],
    "solvers/newton.py": SOLVE,
    "solvers/preconditioners.py": ["tests/solvers/test_preconditioners.py", *SOLVE],
}
COMPILED = ("inference/loops/", "basis/distinct_inputs.py", "basis/sparse_entries.py", "solvers/ascent_loops.py")
PARTS = ("objective.py", "certificate.py", "inference/loops/", "inference/", "basis/", "solvers/")


def trials(options: argparse.Namespace) -> Iterator[Trial]:
    until = time.monotonic() + 60 * options.minutes
    tried = [row["file"] for row in outcomes().values()]
    # If the run ends early, the files with the fewest mutants on file have come first.
    for file in sorted(TESTS, key=tried.count):
        if file.startswith(options.only) and time.monotonic() < until:
            # Machine code cannot be mutated: files of compiled loops run in a process without the compiler.
            plain = {"NUMBA_DISABLE_JIT": "1"} if file.startswith(COMPILED) else {}
            minutes = (until - time.monotonic()) / 60
            common.in_process(try_file, file, options.count, options.again, minutes, **plain)
    yield from rows_of_table()


def try_file(file: str, count: int, again: int, minutes: float) -> None:
    """Run the mutants of a file that have not been run yet."""
    until, known, asked = time.monotonic() + 60 * minutes, outcomes(), mutants.choose_mutants(file, count, 0)
    left = [one for one in asked[0] if one.name not in known or (again and known[one.name]["outcome"] == "survived")]
    if not left:
        return
    mutants.preload()
    seconds = unchanged(tuple(TESTS[file]))
    OUTCOMES.parent.mkdir(exist_ok=True)
    for one in left:
        if time.monotonic() > until:
            return
        state, took = mutants.run_tests(one, TESTS[file], 5 * seconds + 10)
        row = {"file": file, "mutant": one.name, "operator": one.operator, "of": asked[1], "outcome": state}
        with OUTCOMES.open("a", encoding="utf-8") as out:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
        print(f"{state} {took:.1f} s {one.name}", file=sys.stderr, flush=True)


@cache
def unchanged(tests: tuple[str, ...]) -> float:
    """Return the seconds of the tests on the unchanged source, on which they must pass."""
    state, seconds = mutants.run_tests(None, list(tests), 600)
    if state != "survived":
        raise SystemExit(f"{' '.join(tests)} fail on the unchanged source")
    return seconds


def outcomes() -> dict[str, dict[str, Any]]:
    """Return the last outcome of each mutant on file."""
    lines = OUTCOMES.read_text(encoding="utf-8").splitlines() if OUTCOMES.exists() else []
    return {row["mutant"]: row for row in map(json.loads, lines)}


def reason(name: str) -> str:
    """Return why a survivor need not be told from the source, or an empty string."""
    known: dict[str, str] = json.loads(SURVIVORS.read_text(encoding="utf-8"))
    return next((why for pattern, why in known.items() if re.search(pattern, name)), "")


def rows_of_table() -> Iterator[Trial]:
    """Return one row per part."""
    rows = list(outcomes().values())
    for part in PARTS:
        own = [row for row in rows if next(p for p in PARTS if row["file"].startswith(p)) == part]
        if not own:
            continue
        total = sum({row["file"]: row["of"] for row in own}.values())
        survived = [row["mutant"] for row in own if row["outcome"] == "survived"]
        explained = [name for name in survived if reason(name)]
        late = sum(row["outcome"] == "late" for row in own)
        trial = Trial(
            f"mutants of `{part}`, at random, of {total:,} changes",
            f"{len(own) - len(survived):,} killed ({late or 'none'} of them by a time limit); "
            f"{len(explained)} {'survivor' if len(explained) == 1 else 'survivors'} explained",
            times=len(own),
        )
        trial.failures = [name for name in survived if name not in explained]
        yield trial
