"""Guard against slowness: ratios and numbers of studies/speed at small size, with bounds above the noise."""

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from kernelcrf import ChainCRF
from studies.speed import evaluation, penalties


@pytest.mark.skipif(
    all(one["internal_api"] != "openblas" for one in threadpool_info() if one["user_api"] == "blas"),
    reason="the bounds are those of OpenBLAS",
)
@pytest.mark.parametrize(("n_labels", "bound"), [(2, 1.5), (9, 2.0)])
def test_an_evaluation_stays_close_to_the_bare_products(n_labels, bound):
    F = np.random.default_rng(0).normal(size=(20_000, 256))
    best = {"evaluate": np.inf, "hessian": np.inf}
    for _ in range(5):
        found = evaluation.ratios(F, n_labels, length=20, rounds=3)
        best = {name: min(value, found[name]) for name, value in best.items()}
        if max(best.values()) < bound:
            return
    assert best["evaluate"] < bound
    assert best["hessian"] < bound


def test_a_large_C_needs_a_limited_number_of_passes(data_folder):
    X, y = penalties.data("WNUT-17", 200)
    for C, most in ((1.0, 30), (100.0, 150)):
        crf = ChainCRF("linear", C=C, tol=1e-3, random_state=0).fit(X, y)
        assert crf.certificate_.status == "optimal"
        assert crf.gap_curve_[-1, 1] < most
