"""The list of faults names tests that exist; `python -m studies reliability.findings` runs them."""

import ast
from pathlib import Path

import pytest

from studies.reliability.findings import findings

ROOT = Path(__file__).parents[2]
TESTS = sorted({tuple(test.split("::")) for _, _, test, _ in findings()})


def functions(path):
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("path", sorted({path for path, _ in TESTS}))
def test_every_fault_has_a_test_that_exists(path):
    assert {name for own, name in TESTS if own == path} <= functions(ROOT / path)
