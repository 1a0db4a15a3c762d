"""The wheel of the tagger has the files that it needs and no others, which import nothing heavy."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import kernelcrf
from kernelcrf.decoding import RULES
from kernelcrf.persistence.fitted_transformers import FITTED
from kernelcrf.tagger import tagger, transformers

ROOT = Path(__file__).parents[2]
SOURCE = Path(kernelcrf.__file__).parent
SETTINGS = tomllib.loads((ROOT / "tagger" / "pyproject.toml").read_text(encoding="utf-8"))
FILES = SETTINGS["tool"]["hatch"]["build"]["hooks"]["custom"]["files"]
ALLOWED = {*sys.stdlib_module_names, "numpy", "safetensors"}


def imported(path):
    """Yield the top module of each absolute import of a file, and the path of each relative import."""
    for node in ast.walk(ast.parse((SOURCE / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name.partition(".")[0], None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.partition(".")[0], None
        elif isinstance(node, ast.ImportFrom):
            folder = Path(path).parents[node.level - 1]
            module = folder.joinpath(*(node.module or "").split("."))
            yield None, (module / "__init__.py" if (SOURCE / module).is_dir() else module.with_suffix(".py")).as_posix()


def test_the_wheel_has_what_its_files_import_and_no_more():
    needed, left = set(), ["tagger/tagger.py", "tagger/crfsuite.py", "persistence/error.py"]
    while left:
        path = left.pop()
        needed.add(path)
        packages = [f"{folder.as_posix()}/__init__.py" for folder in Path(path).parents if folder != Path()]
        found = {module for _, module in imported(path) if module is not None} | set(packages)
        left += found - needed - set(left)
    assert sorted(FILES) == sorted({*needed, "py.typed"})


@pytest.mark.parametrize("path", [path for path in FILES if path.endswith(".py")])
def test_shared_files_import_numpy_safetensors_and_each_other_alone(path):
    # SciPy makes CSR matrices for the library in functions that the tagger does not call.
    allowed = ALLOWED | ({"scipy"} if path == "arrays.py" else set())
    assert {top for top, _ in imported(path) if top is not None} <= allowed


def test_relative_imports_mark_the_files_that_both_wheels_have():
    relative = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.level
    }
    assert relative <= set(FILES)


def test_the_tagger_needs_no_other_package(tmp_path):
    hidden = ("scipy", "sklearn", "numba", "joblib", "pandas", "threadpoolctl", "tqdm")
    code = f"import sys; sys.modules.update(dict.fromkeys({hidden!r}))\n" + (
        "from kernelcrf.tagger.tagger import Tagger\n"
        f"tagger = Tagger.open({str(ROOT / 'tests' / 'golden' / 'v3' / 'dicts-rbf.kcrf')!r})\n"
        "print(len(tagger.tag([{'word': 'a', 'size': 0.5, 'up': True}] * 3)), len(tagger.spans([{}])))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["3", "1"]


def test_the_tagger_knows_the_rules_and_names_the_transformers_that_it_lacks():
    assert set(tagger.RULES) <= set(RULES)
    assert set(FITTED) - set(transformers.MAKERS) == {"QuantileTransformer"}
