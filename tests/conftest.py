import os
import signal
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import settings

from selection import choose_cases

SMOKE = (
    "basis/test_features.py",
    "cli/test_cli.py",
    "distributed/test_dask.py",
    "docs/test_coming_from.py",
    "estimators/test_chain.py",
    "models/test_saving.py",
    "models/test_saving_all.py",
    "inference/test_chain.py",
    "inference/test_clique_tree.py",
    "kernels/test_inputs.py",
    "metrics/test_metrics.py",
    "plotting/test_plotting.py",
    "solvers/test_dual.py",
    "solvers/test_solvers.py",
    "test_objective.py",
    "test_package.py",
    "test_readme.py",
)
"""Files that together show, in a few minutes, that an installed package works: every estimator, solver and way in."""

FIRST = (
    "test_prior.py",
    "certificates",
    "estimators",
    "fitting",
    "reliability",
    "cli",
    "docs",
    "distributed",
    "models",
    "readers",
    "test_unchanged.py",
    "test_odd_parameters.py",
    "test_certificate.py",
)
"""Folders and files that take long, so that all workers are busy to the end; clusters find most loops compiled."""

settings.register_profile("kernelcrf", deadline=None, max_examples=15, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile("kernelcrf")


def pytest_configure(config):
    """Hashes wrap around: what compiled loops do without a word, NumPy's numbers warn of."""
    if os.environ.get("NUMBA_DISABLE_JIT") == "1":
        config.addinivalue_line("filterwarnings", "ignore:overflow encountered in scalar:RuntimeWarning")


def pytest_collection_modifyitems(items):
    """Mark the tests of `SMOKE`, and put those of `FIRST` first."""
    folder = Path(__file__).parent

    def place(item):
        path = item.path.relative_to(folder).as_posix()
        return next((i for i, start in enumerate(FIRST) if path.startswith(start)), len(FIRST))

    items.sort(key=place)
    _leave_cases_to_the_slow_command(items)
    for item in items:
        if item.path.relative_to(folder).as_posix() in SMOKE and not item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.smoke)


def _leave_cases_to_the_slow_command(items):
    """Mark as slow all but a few cases of the tests that are marked `few`."""
    tests = defaultdict(list)
    for item in items:
        if item.get_closest_marker("few") and not item.get_closest_marker("slow"):
            tests[item.path, item.cls, item.originalname].append(item)
    for cases in tests.values():
        marker = cases[0].get_closest_marker("few")
        # Cases with the same value of a parameter hold the same object, which need not be hashable.
        values = [{name: id(value) for name, value in case.callspec.params.items()} for case in cases]
        chosen = choose_cases(values, *marker.args)
        for place in set(range(len(cases))) - set(chosen):
            cases[place].add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def data_folder():
    """The folder of real data; tests that want it skip where it is absent."""
    folder = os.environ.get("KERNELCRF_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("KERNELCRF_DATA names no folder of real data")
    return Path(folder)


@pytest.fixture
def two_threads_of_blas():
    """Give BLAS two threads, whatever the environment says, in tests of what the library does with them."""
    from threadpoolctl import threadpool_limits

    from kernelcrf.engines import local

    # Not as a context: that would keep all other threads from setting limits (threadpoolctl 3.8).
    limit = threadpool_limits(2, "blas")
    local._let_others_set_limits()
    yield
    limit.restore_original_limits()


@pytest.fixture
def interruptible():
    """A shell may have started the tests with the signal ignored, which processes of theirs would inherit."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
