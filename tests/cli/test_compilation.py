"""The command `compile`: every call that it makes works, and later processes compile nothing."""

import os
import subprocess
import sys

import pytest

from kernelcrf.cli import compilation

LATER = """
import numpy as np, scipy.sparse as sp
from kernelcrf import ChainCRF, GraphCRF, KernelClassifier, SegmentCRF
from kernelcrf.datasets import make_sequences
data = make_sequences(60, random_state=1)  # more tokens than landmarks
X, y = data.X, data.y
words = [[{"word": str(round(b, 1))} for _, b in x.tolist()] for x in X]
names = [np.array(["a", "b", "c"])[labels] for labels in y]
for model, inputs, labels in (
    (ChainCRF(), X, y),
    (ChainCRF("poly", laplace=True, C=1.0), [x.astype(np.float32) for x in X], y),
    (ChainCRF(decoding="marginal"), words, names),
    (ChainCRF(C=1.0), [sp.csr_array(x) for x in X], y),
    (SegmentCRF(C=1.0), X, y),
):
    model.fit(inputs, labels).predict_proba(inputs)
    model.distribution(inputs).k_best(2)
    model.predict(inputs[:1])
rows, classes = np.vstack(X), np.concatenate(y)
KernelClassifier().fit(rows, classes).predict(rows)
graphs = [(x, [[t, t + 1] for t in range(len(x) - 1)]) for x in X]
GraphCRF("linear").fit(graphs, y).predict(graphs)
"""


@pytest.mark.parametrize("part", compilation.PARTS.values())
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_all_calls_work(part):
    before = compiled_signatures()
    part()
    assert compiled_signatures() >= before
    assert compiled_signatures() > 10


def compiled_signatures():
    """The number of signatures of all loops for which this process has code."""
    modules = [module for name, module in sys.modules.items() if name.startswith("kernelcrf.inference.loops.")]
    loops = {id(loop): loop for module in modules for loop in vars(module).values() if hasattr(loop, "signatures")}
    return sum(len(loop.signatures) for loop in loops.values())


@pytest.mark.slow
def test_later_processes_compile_nothing(tmp_path):
    subprocess.run([sys.executable, "-m", "kernelcrf", "compile", str(tmp_path)], check=True, capture_output=True)
    before = len(list(tmp_path.rglob("*.nbc")))
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LATER], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert len(list(tmp_path.rglob("*.nbc"))) == before > 80


def test_a_wrong_call_says_how_to_call_it():
    done = subprocess.run([sys.executable, "-m", "kernelcrf", "compile", "a", "b"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "usage: python -m kernelcrf compile [FOLDER]" in done.stderr
