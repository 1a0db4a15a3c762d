"""Compiled code is kept where there is a place for it, and used where there is none."""

import logging
import os
import subprocess
import sys

import pytest
from numba.core.caching import CompileResultCacheImpl, FunctionCache

from kernelcrf.engines import compiled as module
from kernelcrf.engines.compiled import compiled


@pytest.fixture(autouse=True)
def told_anew():
    module._log_once.cache_clear()
    yield
    module._log_once.cache_clear()


def test_a_function_is_compiled_and_kept():
    loop = compiled(double)
    assert loop(21.0) == 42.0
    assert isinstance(loop._cache, FunctionCache)


def test_without_the_compiler_loops_are_plain_python():
    code = (
        "from kernelcrf import ChainCRF\n"
        "from kernelcrf.datasets import make_sequences\n"
        "data = make_sequences(3, random_state=0)\n"
        "print(ChainCRF('linear', C=1.0).fit(data.X, data.y).certificate_.status)"
    )
    plain = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=plain, capture_output=True, text=True)
    assert done.stdout == "optimal\n", done.stderr


def test_without_a_folder_for_code_it_is_compiled_anew(monkeypatch, caplog):
    monkeypatch.setattr(CompileResultCacheImpl, "_locator_classes", [])
    with caplog.at_level(logging.INFO, "kernelcrf"):
        assert compiled(double)(21.0) == 42.0
        assert compiled(double)(1.5) == 3.0
    assert [record.message for record in caplog.records] == [
        "compiled code cannot be stored, so each process compiles again: set NUMBA_CACHE_DIR to a writable folder"
    ]


def test_a_full_disk_below_the_cache_is_no_error(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FunctionCache, "load_overload", lambda *_: None)
    monkeypatch.setattr(FunctionCache, "save_overload", full)
    assert compiled(double)(21.0) == 42.0


def test_other_errors_of_the_cache_are_told(monkeypatch):
    def broken(*_):
        raise RuntimeError("another reason")

    monkeypatch.setattr(FunctionCache, "__init__", broken)
    with pytest.raises(RuntimeError, match="another reason"):
        compiled(double)


def double(x):
    return 2 * x
