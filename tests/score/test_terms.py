import json

import numpy as np
import pytest

from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.kernels.labels import LabelKernel
from kernelcrf.score.cliques import TOKENS
from kernelcrf.score.layout import Layout
from kernelcrf.score.terms import NamedInput, Term, chain_terms
from objectives import random_objective


def test_theta_splits_into_terms_and_joins_again():
    layout = random_objective(0, edge_inputs=2).layout
    theta = np.arange(layout.size, dtype=float)
    weights = layout.split(theta)
    assert {name: W.shape for name, W in weights.items()} == {
        "node": (4, 3),
        "edge": (1, 9),
        "bias": (1, 3),
        "inputs__steps": (2, 9),
    }
    np.testing.assert_array_equal(layout.join(weights), theta)


def test_each_term_has_its_own_prior_variance():
    layout = random_objective(0).layout
    g = np.random.default_rng(1).normal(size=layout.size)
    norms = layout.squared_dual_norms(g)
    for name, C in (("node", 1.5), ("edge", 0.7), ("bias", 2.0)):
        np.testing.assert_allclose(layout.times_lam(np.ones(layout.size))[layout.slices[name]], 1 / C)
        assert norms[name] == pytest.approx(C * (g[layout.slices[name]] ** 2).sum())


@pytest.mark.parametrize("C", [0.0, -1.0, np.inf, np.nan])
def test_a_term_without_a_prior_is_refused(C):
    with pytest.raises(ValueError, match=r"C=.*: expected a finite number >= 1e-300"):
        Term("bias", TOKENS, LabelKernel("delta", 2), C)


def test_a_kernel_without_inputs_and_names_that_are_equal_are_refused():
    k_y = LabelKernel("delta", 2)
    with pytest.raises(ValueError, match="pass both or neither"):
        Term("words", TOKENS, k_y, 1.0, InputKernel("linear"))
    twice = Term("bias", TOKENS, k_y, 1.0)
    with pytest.raises(ValueError, match="a different name for each term"):
        Layout((twice, twice))


def test_a_layout_goes_through_the_config_of_files():
    terms = chain_terms(
        3, InputKernel("rbf", gamma=0.5), C=2.0, C_bias=0.5, label_kernel="centred",
        inputs={"steps": NamedInput(InputKernel("linear"), 1.0, "steps")},
    )  # fmt: skip
    layout = Layout.of(terms, {"node": 4, "inputs__steps": 2})
    config = json.loads(json.dumps(layout.to_config()))
    assert [one["L"] for one in config["label_kernels"]] == [3, 9]
    assert [(one["name"], one["cliques"], one["label_kernel"], one["n"]) for one in config["terms"]] == [
        ("node", "tokens", 0, 4),
        ("edge", "steps", 1, 1),
        ("bias", "tokens", 0, 1),
        ("inputs__steps", "steps", 1, 2),
    ]
    again = Layout.from_config(config, dict.fromkeys(layout.slices))
    assert again.to_config() == config
    assert [(term.cliques, term.input, term.shape) for term in again.terms] == [
        (term.cliques, term.input, term.shape) for term in layout.terms
    ]
