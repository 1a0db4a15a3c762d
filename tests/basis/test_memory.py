"""Peak memory of a large basis, in a process of its own."""

import subprocess
import sys

import pytest

CODE = """
import resource
import numpy as np
from kernelcrf.basis.distinct_inputs import distinct
from kernelcrf.basis.features import make_features
from kernelcrf.engines.local import LocalEngine
from kernelcrf.kernels.inputs import InputKernel

X = np.random.default_rng(0).standard_normal(({rows}, 64), dtype=np.float32)
kernel = InputKernel("rbf", gamma=0.01)
features = make_features(kernel, distinct(X).inputs, {n}, "{rule}", random_state=0, engine=LocalEngine(-1))
assert features.F.shape == ({rows}, {n}) and features.F.dtype == np.float32
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def peak_bytes(rows, n, rule):
    code = CODE.format(rows=rows, n=n, rule=rule)
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(out.stdout)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes on Linux only")
@pytest.mark.parametrize("rule", ["random", "lloyd"])
def test_a_million_inputs_need_their_features_and_less_than_a_gigabyte(rule):
    """Inputs and the interpreter are in that gigabyte."""
    rows, n = 1_000_000, 500
    assert peak_bytes(rows, n, rule) < 4 * rows * n + 1e9
