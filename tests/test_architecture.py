"""The house holds together: no circle of imports between files, and the layers that the documentation names."""

import ast
import re
import tomllib
from pathlib import Path

import networkx as nx
import pytest

import kernelcrf
from kernelcrf.kernels.named_kernels import NAMED

ROOT = Path(__file__).parents[1]
SOURCE = Path(kernelcrf.__file__).parent


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


@pytest.mark.parametrize("name", ["ChainCRF", "SegmentCRF", "KernelClassifier", "GraphCRF", "MultiLabelCRF"])
def test_an_estimator_stands_on_few_classes(name):
    """A class is not cut into bases to keep its file short: the methods of an estimator are in one place."""
    estimator = getattr(kernelcrf, name)
    bases = [base for base in estimator.__mro__[1:] if base.__module__.startswith("kernelcrf.")]
    assert len(bases) <= 5
