"""Make mutants of a source file by the operators of cosmic-ray, and run tests on them.

In a mutant one operator, number, comparison or statement of the source is replaced. A process that has loaded other
libraries, but not this one, forks for each mutant. The child imports the mutated module in place of the file and runs
the tests that are named for it, up to the first that fails.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.util
import os
import random
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from studies.common import ROOT

SOURCE = ROOT / "src" / "kernelcrf"
KILLED, SURVIVED = 0, 1
# Mutants of bits and identities fail wherever they are run, and flatter the tests.
SENSELESS = [
    "Variable",
    "Decorator",
    "Shift",
    "Bit",
    "Mod",
    "Pow",
    "FloorDiv",
    "Invert",
    "_Is_Eq",
    "_Is_Lt",
    "_Is_Gt",
    "_Is_Not",
    "Eq_Is",
    "IsNot_Eq",
    "IsNot_Lt",
    "IsNot_Gt",
    "IsNot_Not",
    "Lt_Is",
    "LtE_Is",
    "Gt_Is",
    "GtE_Is",
    "UAdd",
    "Delete_Not",
]


@dataclass(frozen=True)
class Mutant:
    """Hold the source of a file with one change, in `line`."""

    file: str
    operator: str
    occurrence: int
    line: int
    before: str
    after: str
    source: str

    @property
    def name(self) -> str:
        """Name the place and the change."""
        return f"{self.file}:{self.line} `{self.before}` -> `{self.after}`"


def choose_mutants(file: str, count: int, seed: int) -> tuple[list[Mutant], int]:
    """Return `count` mutants of a file, spread over its lines, and the number of changes to choose from.

    Changes of annotations do not change the program, and are skipped.
    """
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator, operator_names

    source, rng = (SOURCE / file).read_text(encoding="utf-8"), random.Random(f"{file} {seed}")
    lines, meaning, tree = source.splitlines(), _meaning(source), get_ast(source)
    by_line: dict[int, list[tuple[str, int]]] = {}
    for name in sorted(operator_names()):
        if not name.startswith("core/") or any(word in name for word in SENSELESS):
            continue
        places = [place for node in ast_nodes(tree) for place in get_operator(name)().mutation_positions(node)]
        for occurrence, ((line, _), _) in enumerate(places):
            by_line.setdefault(line, []).append((name, occurrence))
    total = sum(map(len, by_line.values()))
    waiting = [rng.sample(group, len(group)) for group in by_line.values()]
    found: dict[str, Mutant] = {}
    while len(found) < count and (waiting := [group for group in waiting if group]):
        for group in rng.sample(waiting, len(waiting)):
            name, occurrence = group.pop()
            changed = mutate_code(source, get_operator(name)(), occurrence)
            if changed is None or len(found) == count or not _is_other(changed, meaning):
                continue
            after = changed.splitlines()
            at = next(i for i, (old, new) in enumerate(zip(lines, after, strict=False)) if old != new)
            found[changed] = Mutant(file, name, occurrence, at + 1, lines[at].strip(), after[at].strip(), changed)
    return list(found.values()), total


def run_tests(
    mutant: Mutant | None, tests: list[str], seconds: float
) -> tuple[Literal["killed", "survived", "late"], float]:
    """Run tests on a mutant (None: on the unchanged source) in a child of this process; also return its seconds."""
    started = time.perf_counter()
    child = os.fork()
    if child == 0:
        _run(mutant, tests)
    while time.perf_counter() - started < seconds:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return ("survived" if code == SURVIVED else "killed"), time.perf_counter() - started
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "late", seconds


def preload() -> None:
    """Import what every child needs, except the library itself."""
    names = "numpy scipy.linalg scipy.optimize scipy.sparse.linalg sklearn.metrics.pairwise numba pytest hypothesis"
    for name in f"{names} sklearn.gaussian_process sklearn.feature_extraction sklearn.cluster".split():
        importlib.import_module(name)
    for name in [name for name in sys.modules if name.split(".")[0] == "kernelcrf"]:
        del sys.modules[name]


def _run(mutant: Mutant | None, tests: list[str]) -> None:
    os.setpgid(0, 0)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    if mutant is not None:
        sys.meta_path.insert(0, _Finder(mutant))
    code = KILLED
    try:
        import pytest

        os.chdir(ROOT)
        options = [
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "--hypothesis-seed=0",
            "-W",
            "ignore::pytest.PytestAssertRewriteWarning",
        ]
        if os.environ.get("NUMBA_DISABLE_JIT") == "1":
            # Loops divide by zero in silence, as compiled code does.
            options += ["-W", "ignore::RuntimeWarning"]
        code = SURVIVED if pytest.main([*options, *tests]) == 0 else KILLED
    finally:
        os._exit(code)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import the mutated source in place of its module."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant
        self.module = ".".join(("kernelcrf", *Path(mutant.file).with_suffix("").parts))
        self.package = self.module.endswith(".__init__")
        self.module = self.module.removesuffix(".__init__")

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self.module:
            return None
        place = str(SOURCE / self.mutant.file)
        return importlib.util.spec_from_file_location(
            name, place, loader=self, submodule_search_locations=[str(Path(place).parent)] if self.package else None
        )

    def exec_module(self, module: Any) -> None:
        exec(compile(self.mutant.source, str(SOURCE / self.mutant.file), "exec"), module.__dict__)


class _Bare(ast.NodeTransformer):
    """Remove annotations, which the interpreter ignores."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        for argument in ast.walk(node.args):
            if isinstance(argument, ast.arg):
                argument.annotation = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)


def _is_other(changed: str, meaning: str) -> bool:
    try:
        return _meaning(changed) != meaning
    except SyntaxError:
        return False


def _meaning(source: str) -> str:
    tree = ast.parse(source)
    tree.body = [one for one in tree.body if not (isinstance(one, ast.If) and "TYPE_CHECKING" in ast.dump(one.test))]
    return ast.dump(_Bare().visit(tree))
