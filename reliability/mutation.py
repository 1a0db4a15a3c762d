"""Mutation testing: changes of the mathematics that no test notices.

Of each file of the mathematics mutants are chosen at random, by a fixed seed, from as many lines as can be, and the
tests that belong to the file are run on each (`reliability/mutants.py`), by the operators of cosmic-ray without those
that change bits or identities, which fail anywhere. Numba's loops run as plain Python. A mutant survives where all of
these tests pass; it counts as a failure unless `reliability/survivors.json` says why no test can, or need, tell it from
the source.

What is on file is a sample: four mutants a file (`--count 4`) or a few more. *Failed before* counts the mutants that
survived when they were first run.

`--minutes` ends a run early, and the next goes on; `--again` runs the survivors once more, after tests were added.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import common
import mutants
from common import Find, Trial

OUTCOMES = common.RESULTS / "mutants.jsonl"
SURVIVORS = Path(__file__).parent / "survivors.json"
FINDS = (
    Find(
        "Under NUMBA_DISABLE_JIT=1, Numba's own switch for debugging, the library could not be imported.",
        "loops are plain Python there.",
        "tests/engines/test_compiled.py::test_without_the_compiler_loops_are_plain_python",
    ),
    Find(
        "A line search whose step of one is not finite gave up.",
        "it cuts the step.",
        "test_where_the_value_is_infinite_the_step_is_cut",
    ),
)
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
    "certificate.py": ["tests/test_certificate.py", "tests/test_fitting.py"],
    "inference/chain.py": [*CHAIN, "tests/inference/test_batch.py"],
    "inference/batch.py": ["tests/inference/test_batch.py", *CHAIN, "tests/inference/test_tangents.py"],
    "inference/scaled.py": [*CHAIN, "tests/inference/test_extremes.py", "tests/inference/test_tangents.py"],
    "inference/logspace.py": [*CHAIN, "tests/inference/test_extremes.py"],
    "inference/feasibility.py": ["tests/inference/test_feasibility.py", "tests/inference/test_decoding.py"],
    "inference/tangents.py": ["tests/inference/test_tangents.py", "tests/inference/test_batch.py"],
    "inference/decoding.py": ["tests/inference/test_decoding.py", "tests/inference/test_feasibility.py"],
    "inference/enumerate.py": ["tests/inference/test_enumerate.py", "tests/inference/test_chain.py"],
    "inference/clique_tree.py": GRAPH,
    "inference/assembly.py": GRAPH,
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
    "inference/loops/fused.py": ["tests/partitions/test_fused.py"],
    "basis/choice.py": ["tests/basis/test_choice.py", "tests/basis/test_features.py"],
    "basis/centres.py": ["tests/basis/test_centres.py", "tests/basis/test_choice.py"],
    "basis/distinct.py": ["tests/basis/test_distinct.py"],
    "basis/entries.py": ["tests/basis/test_entries.py", "tests/estimators/test_feature_dicts.py"],
    "basis/factor.py": BASIS,
    "basis/panels.py": BASIS,
    "basis/residuals.py": BASIS,
    "basis/features.py": ["tests/basis/test_features.py", "tests/basis/test_folded.py"],
    "basis/folded.py": ["tests/basis/test_folded.py"],
    "basis/pivots.py": ["tests/basis/test_choice.py", "tests/basis/test_features.py", "tests/basis/test_pivots.py"],
    "solvers/__init__.py": [*SOLVE, "tests/solvers/test_dual.py"],
    "solvers/block_jacobi.py": SOLVE,
    "solvers/cholesky.py": SOLVE,
    "solvers/conjugate_gradients.py": SOLVE,
    "solvers/dual.py": ["tests/solvers/test_dual.py"],
    "solvers/ascent.py": [f"tests/solvers/test_dual.py::test_{name}" for name in QUICK],
    "solvers/lbfgs.py": SOLVE,
    "solvers/line_search.py": ["tests/solvers/test_line_search.py", *SOLVE],
    "solvers/loop.py": [*SOLVE, "tests/test_fitting.py"],
    "solvers/newton.py": SOLVE,
    "solvers/newton_cg.py": SOLVE,
    "solvers/preconditioners.py": ["tests/solvers/test_preconditioners.py", *SOLVE],
    "solvers/subspace.py": SOLVE,
}
COMPILED = ("inference/loops/", "basis/distinct.py", "basis/entries.py", "solvers/ascent.py")
PARTS = ("objective.py", "certificate.py", "inference/loops/", "inference/", "basis/", "solvers/")


def trials(options: argparse.Namespace) -> Iterator[Trial]:
    until = time.monotonic() + 60 * options.minutes
    tried = [row["file"] for row in outcomes().values()]
    # Where a run may end early, files of which least is known come first.
    for file in sorted(TESTS, key=tried.count):
        if file.startswith(options.only) and time.monotonic() < until:
            try_file(file, options, until)
    yield from table()


def try_file(file: str, options: argparse.Namespace, until: float) -> None:
    """Run the mutants of a file that have not been run yet; of files with loops, in a process without the compiler."""
    plain = file.startswith(COMPILED)
    if plain and os.environ.get("NUMBA_DISABLE_JIT") != "1":
        import subprocess

        arguments = ["--count", str(options.count), "--minutes", str(max(0.0, (until - time.monotonic()) / 60))]
        arguments += ["--only", file, "--again", str(options.again)]
        command = [sys.executable, __file__, "--inner", *arguments]
        subprocess.run(command, env=os.environ | {"NUMBA_DISABLE_JIT": "1"}, check=True)
        return
    known, asked = outcomes(), mutants.chosen(file, options.count, 0)
    left = [
        one for one in asked[0] if one.name not in known or (options.again and known[one.name]["outcome"] == "survived")
    ]
    if not left:
        return
    mutants.preload()
    seconds = unchanged(tuple(TESTS[file]))
    OUTCOMES.parent.mkdir(exist_ok=True)
    for one in left:
        if time.monotonic() > until:
            return
        state, took = mutants.outcome(one, TESTS[file], 5 * seconds + 10)
        row = {"file": file, "mutant": one.name, "operator": one.operator, "of": asked[1], "outcome": state}
        with OUTCOMES.open("a", encoding="utf-8") as out:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
        print(f"{state} {took:.1f} s {one.name}", flush=True)


@cache
def unchanged(tests: tuple[str, ...]) -> float:
    """How long the tests take on the source as it is, on which they must pass."""
    state, seconds = mutants.outcome(None, list(tests), 600)
    if state != "survived":
        raise SystemExit(f"{' '.join(tests)} fail on the source as it is")
    return seconds


def outcomes() -> dict[str, dict[str, Any]]:
    """What is on file, by mutant; the last word counts."""
    lines = OUTCOMES.read_text(encoding="utf-8").splitlines() if OUTCOMES.exists() else []
    return {row["mutant"]: row for row in map(json.loads, lines)}


def reason(name: str) -> str:
    """Why a survivor need not be told from the source: the first of the list whose expression finds it."""
    known: dict[str, str] = json.loads(SURVIVORS.read_text(encoding="utf-8"))
    return next((why for pattern, why in known.items() if re.search(pattern, name)), "")


def table() -> Iterator[Trial]:
    """A row for each part."""
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
            f"{len(own) - len(survived):,} killed ({late} of them by going on without end); "
            f"{len(explained)} survivors explained",
            times=len(own),
        )
        trial.failures = [name for name in survived if name not in explained]
        files = {row["file"] for row in own}
        before = [row for row in first().values() if row["file"] in files and row["outcome"] == "survived"]
        trial.before = f"{len(before)} survived"
        yield trial


def first() -> dict[str, dict[str, Any]]:
    """What is on file, by mutant; the first word counts: before tests were added."""
    lines = OUTCOMES.read_text(encoding="utf-8").splitlines() if OUTCOMES.exists() else []
    return {row["mutant"]: row for row in reversed(list(map(json.loads, lines)))}


if __name__ == "__main__":
    if "--inner" in sys.argv:
        sys.argv.remove("--inner")
        parser = argparse.ArgumentParser()
        for name, kind in (("count", int), ("minutes", float), ("only", str), ("again", int)):
            parser.add_argument(f"--{name}", type=kind)
        options = parser.parse_args()
        try_file(options.only, options, time.monotonic() + 60 * options.minutes)
    else:
        common.run(__doc__ or "", __file__, trials, count=15, minutes=600.0, only="", again=0)
