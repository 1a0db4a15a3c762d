"""The list of faults that were reported names tests that exist; `python reliability/findings.py` runs them."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "reliability"))

import findings  # noqa: E402


def functions(path):
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("path", sorted({test.partition("::")[0] for _, _, test in findings.findings()}))
def test_every_fault_has_a_test_that_exists(path):
    named = {test.partition("::")[2] for _, _, test in findings.findings() if test.partition("::")[0] == path}
    assert named <= functions(ROOT / path)
