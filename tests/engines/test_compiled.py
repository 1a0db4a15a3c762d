"""Compiled code is stored where there is a place for it, found where nobody can write, and used without a place."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from numba.core.caching import FunctionCache

import kernelcrf
from kernelcrf.engines import compiled as module
from kernelcrf.engines.compiled import Folder, StoredCode, compiled
from kernelcrf.inference.loops import fused, scaled

FIT = (
    "from kernelcrf import ChainCRF\n"
    "from kernelcrf.datasets import make_sequences\n"
    "data = make_sequences(3, random_state=0)\n"
    "print(ChainCRF('linear', C=1.0).fit(data.X, data.y).certificate_.status)"
)


LOOP = "import numpy as np\nfrom kernelcrf.inference.loops.scaled import draw\nprint(draw(np.array([1.0, 2.0]), 1.5))"


@pytest.fixture(autouse=True)
def told_anew():
    for once in (module._warn, module._announce, module._can_write, module._names_in):
        once.cache_clear()
    yield
    for once in (module._warn, module._announce, module._can_write, module._names_in):
        once.cache_clear()


def test_a_function_is_compiled_and_stored(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module.numba.config, "CACHE_DIR", str(tmp_path))
    assert compiled(double)(21.0) == 42.0
    assert [path.suffix for path in sorted(tmp_path.rglob("*.nb*"))] == [".nbc", ".nbi"]
    assert (
        capsys.readouterr().err == "kernelcrf compiles its loops for this machine, once, which takes up to a minute.\n"
    )
    module._announce.cache_clear()
    again = compiled(double)
    assert again(21.0) == 42.0
    assert again.stats.cache_hits
    assert capsys.readouterr().err == ""


def test_without_the_compiler_loops_are_plain_python():
    plain = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([sys.executable, "-c", FIT], env=plain, capture_output=True, text=True)
    assert done.stdout == "optimal\n", done.stderr


@pytest.mark.parametrize("stored", [True, False])
def test_an_installation_that_nobody_can_write_to_uses_its_stored_code(stored, tmp_path):
    """Root can write everywhere: a file in the place of a folder refuses it, too."""
    package = tmp_path / "kernelcrf"
    shutil.copytree(Path(kernelcrf.__file__).parent, package)
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "HOME": str(tmp_path / "home")}
    command = [sys.executable, "-W", "default", "-c", LOOP]
    if stored:
        subprocess.run(command, env=environment, check=True, capture_output=True)
    else:
        for code in package.rglob("*.nb?"):
            code.unlink()
    blocked = "import tempfile\ndef refuse(*_, **__):\n    raise PermissionError\ntempfile.TemporaryFile = refuse\n"
    command[-1] = blocked + LOOP
    before = {path: path.stat().st_mtime_ns for path in package.rglob("*.nb?")}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert done.stdout == "1\n"
    assert {path: path.stat().st_mtime_ns for path in package.rglob("*.nb?")} == before
    if stored:
        assert done.stderr == ""
    else:
        assert done.stderr.startswith("kernelcrf compiles its loops for this machine, once")
        assert done.stderr.count("compiled code cannot be stored") == 1
        assert "run `python -m kernelcrf compile` once as a user who can write" in done.stderr


def test_without_a_folder_for_code_each_process_compiles_and_is_told_why(monkeypatch):
    monkeypatch.setattr(Folder, "from_function", lambda *_: None)
    with pytest.warns(RuntimeWarning, match="set NUMBA_CACHE_DIR to a folder that can be written to") as told:
        assert [compiled(double)(x) for x in (21.0, 1.5)] == [42.0, 3.0]
    assert len(told) == 1


def test_a_full_disk_below_the_cache_is_no_error(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FunctionCache, "load_overload", lambda *_: None)
    monkeypatch.setattr(FunctionCache, "save_overload", full)
    with pytest.warns(RuntimeWarning, match="No space left on device"):
        assert compiled(double)(21.0) == 42.0


def test_other_errors_of_the_cache_are_told(monkeypatch):
    def broken(*_):
        raise RuntimeError("another reason")

    monkeypatch.setattr(FunctionCache, "__init__", broken)
    with pytest.raises(RuntimeError, match="another reason"):
        compiled(double)


def test_code_depends_on_the_sources_of_all_functions_that_are_called():
    """An upgrade may change a loop whose callers are in files that stay the same."""
    names = {Path(path).name for path in module._sources(fused.evaluate.py_func, {})}
    assert names == {"fused.py", "scaled.py", "tangents.py"}
    assert {Path(path).name for path in module._sources(scaled.forward.py_func, {})} == {"scaled.py"}


def test_the_stamp_follows_a_function_that_is_called(monkeypatch):
    before = Folder(fused.evaluate.py_func, "").get_source_stamp()
    digest = module._digest
    monkeypatch.setattr(module, "_digest", lambda path: b"new" if path.endswith("scaled.py") else digest(path))
    assert Folder(fused.evaluate.py_func, "").get_source_stamp() != before
    assert isinstance(fused.evaluate._cache, StoredCode)


def double(x):
    return 2 * x
