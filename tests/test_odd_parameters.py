"""No value of a parameter, however odd, ends in an error of NumPy or SciPy: it works, or it is refused by name."""

import traceback
import warnings
from pathlib import Path

import numpy as np
import pytest

import kernelcrf
from odd_values import odd_values
from parameter_targets import models as fitted_models
from parameter_targets import of_estimators, of_functions, of_methods, of_objects

PACKAGE = str(Path(kernelcrf.__file__).parent)
LONGEST = 400
VALUES_PER_PARAMETER = {"estimators": 22, "methods": 60, "objects": 60, "functions": 60}
FEWEST_CALLS = {"estimators": 2000, "methods": 2000, "objects": 1500, "functions": 2000}


@pytest.fixture(scope="module")
def models():
    return fitted_models()


def finite(result):
    """Whether the numbers of a result are finite; results without numbers are."""
    for part in result if isinstance(result, list) else [result]:
        try:
            numbers = np.asarray(part, np.float64)
        except (TypeError, ValueError):
            continue
        if part is not None and not np.isfinite(numbers).all():
            return False
    return True


def complaint(error, parameter):
    """What is wrong with an error, or None."""
    message = str(error)
    if parameter in ("path", "checkpoint") and isinstance(error, OSError):
        return None
    if not isinstance(error, (ValueError, TypeError)):
        return f"is a {type(error).__name__}"
    if not traceback.extract_tb(error.__traceback__)[-1].filename.startswith(PACKAGE):
        return "comes from elsewhere"
    if parameter not in message and parameter != "path":
        return "does not name the parameter"
    return None if message.isprintable() and len(message) <= LONGEST else "is long, or not one line"


def outcome(call, value, parameter):
    """What is wrong with the call, or None."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = call(value)
        except Exception as error:
            wrong = complaint(error, parameter)
            return None if wrong is None else f"the error {wrong}: {str(error)[:200]!r}"
    return None if finite(result) else "the result is not finite"


@pytest.mark.parametrize("share", [0.15, pytest.param(1.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("group", FEWEST_CALLS)
def test_odd_values_work_or_are_refused_by_name(group, share, models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    targets = {
        "estimators": lambda: of_estimators(models),
        "methods": lambda: of_methods(models, tmp_path),
        "objects": of_objects,
        "functions": lambda: of_functions(tmp_path),
    }[group]()
    rng = np.random.default_rng(0)
    calls, found = 0, []
    for where, parameter, call in targets:
        values = odd_values()
        for k in rng.choice(len(values), round(share * VALUES_PER_PARAMETER[group]), replace=False).tolist():
            calls += 1
            if wrong := outcome(call, values[k], parameter):
                found.append(f"{where}: {parameter} = odd_values()[{k}], a {type(values[k]).__name__}: {wrong}")
    assert found == []
    assert calls >= share * FEWEST_CALLS[group]
