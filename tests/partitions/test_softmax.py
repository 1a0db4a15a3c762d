"""Tokens without edges, against chains whose edges have weights of zero."""

from dataclasses import replace

import numpy as np
import pytest

from kernelcrf.partitions.softmax import Softmax
from kernelcrf.score.cliques import TOKENS
from kernelcrf.score.layout import Layout
from objectives import entropy_side, gradient_side, random_objective


@pytest.mark.parametrize("lengths", [(1,) * 8, (3, 0, 1, 4)], ids=["rows", "sequences"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("strength", [1.0, 300.0])
def test_tokens_without_edges_are_chains_with_edges_of_zero(lengths, weighted, strength):
    chains = random_objective(0, lengths=lengths, weighted=weighted, strength=strength)
    alone = replace(chains, layout=Layout(tuple(term for term in chains.layout.terms if term.cliques == TOKENS)))
    rng = np.random.default_rng(1)
    theta, v = (
        {
            name: rng.normal(size=block.size)
            for name, block in zip(
                alone.layout.slices, alone.layout.split(np.zeros(alone.layout.size)).values(), strict=True
            )
        }
        for _ in range(2)
    )
    edge = {"edge": np.zeros(9)}
    at = alone.evaluate(alone.layout.join(theta), curvature=True)
    reference = chains.evaluate(chains.layout.join(theta | edge), curvature=True)
    nodes = np.concatenate([np.arange(chains.layout.size)[chains.layout.slices[name]] for name in alone.layout.slices])
    scale = strength
    assert at.value == pytest.approx(reference.value, rel=1e-11)
    np.testing.assert_allclose(at.gradient, reference.gradient[nodes], atol=1e-9 * scale)
    direction = alone.layout.join(v)
    there = chains.layout.join(v | edge)
    for product in ("hessian_product", "block_product"):
        found = getattr(alone, product)(at, direction)
        np.testing.assert_allclose(found, getattr(chains, product)(reference, there)[nodes], atol=1e-9 * scale**2)
    assert gradient_side(alone, at) == pytest.approx(entropy_side(alone, at), rel=1e-9, abs=1e-6 * scale**2)
    ray, value = alone.ray(at, direction), alone.evaluate(alone.layout.join(theta) + 0.3 * direction)
    assert ray.along(0.3)[0] == pytest.approx(value.value, rel=1e-11)


def test_scores_beyond_the_range_are_named():
    with pytest.raises(ValueError, match="scores of row 1 overflow float64"):
        Softmax.of(np.array([[0.0, 1.0], [np.inf, 0.0]]))
