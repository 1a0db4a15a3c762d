"""The house holds together: no circle of imports between files, and the layers that the documentation names."""

import ast
import inspect
import re
import tomllib
from pathlib import Path

import networkx as nx
import pytest

import kernelcrf
from kernelcrf.decoding import RULES
from kernelcrf.formats import FORMATS
from kernelcrf.kernels.named_kernels import NAMED
from kernelcrf.penalties import PENALTIES
from kernelcrf.score import cliques
from kernelcrf.score.cliques import KINDS
from kernelcrf.solvers import STOPPING_RULES

ROOT = Path(__file__).parents[1]
SOURCE = Path(kernelcrf.__file__).parent
KINDS_BY_NAME = {name for name, value in vars(cliques).items() if name.isupper() and isinstance(value, str)}


def test_no_files_import_each_other_in_a_circle():
    """Imports for type checking and imports inside functions count too."""
    grimp = pytest.importorskip("grimp")
    modules = grimp.build_graph("kernelcrf", cache_dir=None)
    imports = nx.DiGraph(
        (importer, imported)
        for importer in modules.modules
        for imported in modules.find_modules_directly_imported_by(importer)
    )
    circles = [circle for circle in nx.strongly_connected_components(imports) if len(circle) > 1]
    assert [sorted(circle) for circle in circles] == []


def test_the_parameters_of_a_chain_fit_on_one_screen():
    """Options of a rule are fields of the rule's object, such as Landmarks(n, pivots), and not parameters."""
    assert len(inspect.signature(kernelcrf.ChainCRF).parameters) <= 26


def test_the_table_of_the_house_has_the_layers_that_are_checked():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    checked = [set(re.findall(r"kernelcrf\.(\w+)", layer)) for layer in reversed(layers)]
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    house = contributing[contributing.index("<!-- house -->") : contributing.index("<!-- end of house -->")]
    rooms = re.findall(r"^\| `(\w+)(?:/|\.py)` \|", house, re.MULTILINE)
    assert set(rooms) == {path.stem for path in SOURCE.iterdir() if not path.stem.startswith(("_", "py"))}
    places = [next(i for i, layer in enumerate(checked) if room in layer) for room in rooms]
    assert places == sorted(places)


def test_no_kernel_is_told_by_its_name_outside_of_kernels():
    """Code asks a kernel what it can do, so that a new kernel needs no change elsewhere."""
    found = [
        f"{path.relative_to(SOURCE).as_posix()}:{node.lineno}"
        for path in SOURCE.rglob("*.py")
        if path.parent.name != "kernels"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Compare)
        and any(isinstance(part, ast.Constant) and part.value in NAMED for part in ast.walk(node))
    ]
    assert found == []


def test_the_kind_of_a_clique_is_told_by_its_name_in_score_alone():
    """Code asks `term.kind` what it needs to know; a new kind of cliques needs no change elsewhere."""
    found = [
        f"{path.relative_to(SOURCE).as_posix()}:{node.lineno}"
        for path in SOURCE.rglob("*.py")
        if path.parent.name != "score"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Compare)
        for names in [{part.id for part in ast.walk(node) if isinstance(part, ast.Name)}]
        for parts in [{part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}]
        if names & KINDS_BY_NAME and parts & {"kind", "cliques"} and "model" not in parts and "self" not in names
    ]
    assert found == []


def test_theta_becomes_scores_in_one_place():
    """Only `score` multiplies features by weights and back; the fused loop is its declared optimisation."""
    pattern = re.compile(r"\.(transposed_times|times)\(")
    found = {
        path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if pattern.search(path.read_text("utf-8"))
    }
    assert found <= {"score/score.py", "score/features.py", "basis/kernel_weights.py", "basis/sparse_entries.py"}


def test_each_extension_has_one_registry():
    """A penalty, a decoding rule, a stopping rule, a file format and a kind of clique are named in one place each."""
    assert {penalty.name for penalty in PENALTIES.values()} == set(PENALTIES)
    assert {rule.name for rule in RULES.values()} == set(RULES)
    assert {rule.name for rule in STOPPING_RULES.values()} == set(STOPPING_RULES)
    assert {kind.name for kind in KINDS.values()} == set(KINDS)
    assert len(FORMATS) > 5


@pytest.mark.parametrize("name", ["ChainCRF", "SegmentCRF", "KernelClassifier", "GraphCRF", "MultiLabelCRF"])
def test_an_estimator_stands_on_few_classes(name):
    """A class is not cut into bases to keep its file short: the methods of an estimator are in one place."""
    estimator = getattr(kernelcrf, name)
    bases = [base for base in estimator.__mro__[1:] if base.__module__.startswith("kernelcrf.")]
    assert len(bases) <= 4
