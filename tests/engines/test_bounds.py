import numpy as np
import pytest

from kernelcrf.engines.bounds import all_within


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(0,), (1,), (3, 5), (2, 3, 4)])
def test_bounds_are_those_of_min_and_max(dtype, shape):
    values = np.random.default_rng(0).uniform(-1, 1, shape).astype(dtype)
    assert all_within(values, -1.0, 1.0)
    for wrong in [1.5, -1.5, np.inf, -np.inf, np.nan] if values.size else []:
        changed = values.copy()
        changed.flat[-1] = wrong
        assert not all_within(changed, -1.0, 1.0)
        assert all_within(changed.T, -np.inf, np.inf) == (not np.isnan(wrong))
