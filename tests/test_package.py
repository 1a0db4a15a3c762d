import subprocess
import sys

import pytest

import kernelcrf


def loaded_by(statement: str, *modules: str) -> set[str]:
    """Which of the modules a fresh interpreter holds after the statement."""
    code = f"import sys; {statement}; print(*({set(modules)!r} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(out.stdout.split())


def test_import_loads_nothing_heavy():
    heavy = ("numpy", "scipy", "sklearn", "numba", "joblib", "pandas", "polars", "tqdm", "safetensors")
    assert loaded_by("import kernelcrf", *heavy) == set()


def test_estimators_load_no_engine_frames_plotting_command_line_clustering_or_crfsuite():
    absent = ("dask", "distributed", "pyarrow", "polars", "matplotlib", "typer", "sklearn.cluster")
    # scikit-learn loads pandas where it is installed, and pandas loads pyarrow. With None, `import pandas` fails.
    statement = "sys.modules['pandas'] = None; import kernelcrf; kernelcrf.metrics.span_f1; "
    statement += (
        "from kernelcrf import ChainCRF, load; import kernelcrf.readers.frames; from kernelcrf.crfsuite import CRF"
    )
    absent += ("pycrfsuite", "sklearn_crfsuite")
    # Packages for users, such as metrics, need no import of their own.
    present = {"sklearn.base", "numba", "kernelcrf.metrics"}
    assert loaded_by(statement, *present, *absent) == present


def test_parts_of_libraries_that_few_models_need_are_loaded_with_these_models():
    parts = ("metrics", "gaussian_process", "feature_extraction", "preprocessing", "callback")
    rare = {"scipy.cluster", "scipy.stats", *(f"sklearn.{part}" for part in parts)}
    before = loaded_by("import sklearn.base", *rare)
    assert loaded_by("import sklearn.base; from kernelcrf import ChainCRF", *rare) == before


def test_every_public_name_is_listed_and_there():
    assert set(kernelcrf.__all__) <= set(dir(kernelcrf))
    assert all(getattr(kernelcrf, name).__name__ == name for name in ("ChainCRF", "ModelFileError", "load"))
    assert "ChainCRF" in vars(kernelcrf)


def test_packages_for_users_are_listed():
    assert {"datasets", "metrics", "plotting", "preprocessing"} <= set(dir(kernelcrf))


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'kernelcrf' has no attribute 'TreeCRF'"):
        _ = kernelcrf.TreeCRF
