import numpy as np
import pytest

from kernelcrf.kernels.cliques import CliqueKernel, LabelKernel
from kernelcrf.parameters import Layout, TemplateBlock
from objectives import random_objective


def test_theta_splits_into_blocks_and_joins_again():
    layout = random_objective(0, edge_inputs=2).layout
    theta = np.arange(layout.size, dtype=float)
    weights = layout.split(theta)
    assert {name: W.shape for name, W in weights.items()} == {
        "node": (4, 3),
        "edge": (1, 3, 3),
        "bias": (1, 3),
        "steps": (2, 3, 3),
    }
    np.testing.assert_array_equal(layout.join(weights), theta)


def test_each_template_has_its_own_prior_variance():
    layout = random_objective(0).layout
    g = np.random.default_rng(1).normal(size=layout.size)
    norms = layout.squared_dual_norms(g)
    for name, C in (("node", 1.5), ("edge", 0.7), ("bias", 2.0)):
        np.testing.assert_allclose(layout.times_lam(np.ones(layout.size))[layout.slices[name]], 1 / C)
        assert norms[name] == pytest.approx(C * (g[layout.slices[name]] ** 2).sum())


@pytest.mark.parametrize("C", [0.0, -1.0, np.inf, np.nan])
def test_a_template_without_a_prior_is_refused(C):
    with pytest.raises(ValueError, match=r"C=.*: expected a finite number >= 1e-300"):
        TemplateBlock(CliqueKernel("node", 1, LabelKernel("delta", 2), None), 1, C)


def test_a_template_without_labels_and_names_that_are_equal_are_refused():
    k_y = LabelKernel("delta", 2)
    with pytest.raises(ValueError, match="Lemma 12"):
        TemplateBlock(CliqueKernel("x alone", 0, k_y, None), 1, 1.0)
    twice = TemplateBlock(CliqueKernel("node", 1, k_y, None), 1, 1.0)
    with pytest.raises(ValueError, match="names that differ"):
        Layout((twice, twice)).split(np.zeros(4))
