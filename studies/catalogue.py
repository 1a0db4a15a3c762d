"""The studies: their groups, the pages that show their results, and how to import them."""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from studies.common import ROOT

# The pages with results, in a folder of docs/ for each group, and the studies whose sections they have.
FOLDERS = {"accuracy": "results", "speed": "benchmarks", "reliability": "reliability"}
SUBJECTS = {
    "accuracy": {
        "letters": "letters max_margin label_efficiency_letters active_learning",
        "signals": "activity streams segments",
        "proteins": "proteins",
        "text": "tagging_tasks few_labels several_inputs lexicon elastic_net spans costs",
        "parsers": "parsers references",
        "music": "chorales chords",
        "speech": "prosody figure_1",
        "gpstruct": "gpstruct",
        "label_sets": "multilabel structure hidden",
        "probabilities": "calibration conformal certified",
        "choosing": "defaults evidence variances leave_one_out",
        "updates": "updates adaptation annotators",
    },
    "speed": {
        "training": "training penalties elastic missing_labels",
        "kernels": "evaluation letters classifier growth stored_features inputs solvers basis",
        "tagging": "tagging streaming streams",
        "inference": "chain_inference segments graphs",
        "startup": "startup getting_started shipping",
    },
    "reliability": {
        "findings": "findings",
        "trials": "certificates numerics concurrency interruption cluster_faults",
        "files": "files crfsuite_models compatibility",
        "tests": "mutation branches",
    },
}
# Studies whose tables are on other pages, and those that `run` leaves out unless they are asked for by their command.
ELSEWHERE = {"speed": "cluster"}
ON_DEMAND = {"accuracy": "pictures primer_pictures", "speed": "commits", "reliability": "fuzz drop_in"}
# Trials of the tests themselves, which run them many times: `run` leaves them out unless they are named.
OF_TESTS = ("reliability.compatibility", "reliability.mutation", "reliability.branches")
# Studies of speed that measure CPU time and memory of single processes, which other studies may run beside.
CPU_TIME = ("speed.elastic", "speed.penalties", "speed.shipping", "speed.stored_features", "speed.streams")
# Trials that the tests run too, with smaller numbers.
IN_TESTS = ("numerics", "concurrency", "interruption", "cluster_faults")


def names(group: str, *, on_demand: bool = True) -> list[str]:
    """Return the names of the studies of a group, such as "speed.letters"."""
    found = [*SUBJECTS[group].values(), ELSEWHERE.get(group, ""), ON_DEMAND[group] if on_demand else ""]
    return [f"{group}.{name}" for name in " ".join(found).split()]


def module_name(name: str) -> str:
    """Return the name of the module of a study."""
    group, _, study = name.partition(".")
    return f"trials.{study}" if study in IN_TESTS else f"studies.{group}.{study}"


def load_module(name: str) -> ModuleType:
    """Import a study; some trials live with the tests."""
    sys.path.append(str(ROOT / "tests"))
    return import_module(module_name(name))


def title(name: str) -> str:
    """Return the first line of a study's docstring without importing the study."""
    sys.path.append(str(ROOT / "tests"))
    spec = find_spec(module_name(name))
    assert spec is not None
    assert spec.origin is not None
    doc = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8")))
    return (doc or "").splitlines()[0]
