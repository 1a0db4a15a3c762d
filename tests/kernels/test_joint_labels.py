"""Label kernels whose factors are applied without being formed, against dense matrices from their definitions."""

import json
from functools import reduce
from itertools import product

import numpy as np
import pytest

from kernelcrf.kernels.durations import DurationKernel
from kernelcrf.kernels.joint_labels import (
    Contrasts,
    Product,
    Reversible,
    interactions,
    label_kernels_from_config,
    label_kernels_to_config,
)
from kernelcrf.kernels.labels import LabelKernel


def centring(L):
    return np.eye(L) - 1.0 / L


def reversals(L, nodes):
    labelings = list(product(range(L), repeat=nodes))
    return np.array([[0.5 * (y == z) + 0.5 * (y == z[::-1]) for z in labelings] for y in labelings])


SIMILAR = np.array([[1.0, 0.5, 0.1], [0.5, 2.0, 0.0], [0.1, 0.0, 1.0]])
CASES = {
    "one contrast": (Contrasts(2), centring(2), 1),
    "contrasts": (Contrasts(5), centring(5), 4),
    "no contrast": (Contrasts(1), np.zeros((1, 1)), 0),
    "pairs": (Reversible(3, 2), reversals(3, 2), 6),
    "paths": (Reversible(3, 3), reversals(3, 3), 18),
    "interactions": (interactions(2, 3, 4), reduce(np.kron, map(centring, (2, 3, 4))), 6),
    "one value": (interactions(3, 1), np.zeros((3, 3)), 0),
    "product": (Product((LabelKernel.of(SIMILAR, 3), Contrasts(2))), np.kron(SIMILAR, centring(2)), 3),
}


@pytest.fixture(params=CASES, ids=str)
def case(request):
    return CASES[request.param]


def test_the_kernel_is_that_of_its_definition(case):
    k_y, gram, rank = case
    assert (k_y.L, k_y.rank) == (len(gram), rank)
    assert k_y.factor.shape == (len(gram), rank)
    np.testing.assert_allclose(k_y.gram, gram, atol=1e-14)
    assert k_y.norm == pytest.approx(np.linalg.norm(gram, 2), abs=1e-14)


def test_adjoint_is_the_transpose(case):
    k_y, _, rank = case
    rng = np.random.default_rng(0)
    Z, R = rng.normal(size=(2, 7, rank)), rng.normal(size=(2, 7, k_y.L))
    np.testing.assert_allclose(k_y.expand(Z), Z @ k_y.factor.T, atol=1e-14)
    np.testing.assert_allclose(k_y.adjoint(R), R @ k_y.factor, atol=1e-14)


def test_float32_stays_float32(case):
    k_y, _, rank = case
    assert k_y.expand(np.ones((3, rank), np.float32)).dtype == np.float32
    assert k_y.adjoint(np.ones((3, k_y.L), np.float32)).dtype == np.float32


@pytest.mark.parametrize(
    "k_y",
    [
        LabelKernel("delta", 3),
        LabelKernel.of(np.eye(3) + 0.5, 3),
        Contrasts(4),
        Reversible(3, 2),
        interactions(2, 3),
        Product((LabelKernel("centred", 2), Contrasts(3))),
        DurationKernel(4, 2, smooth=True),
    ],
    ids=lambda k_y: type(k_y).__name__,
)
def test_a_kernel_goes_through_the_config_of_files(k_y):
    configs, places = label_kernels_to_config([k_y, k_y])
    kernels = label_kernels_from_config(json.loads(json.dumps(configs)))
    again = kernels[places[0]]
    assert places[0] == places[1] == len(kernels) - 1
    assert type(again) is type(k_y)
    np.testing.assert_array_equal(again.factor, k_y.factor)


def test_a_matrix_is_stored_once_for_all_products_that_have_it_as_a_factor():
    kernels = [LabelKernel.of(np.eye(3) + 0.1 * i, 3) for i in range(1, 5)]
    pairs = [Product((a, b)) for a in kernels for b in kernels]
    configs, places = label_kernels_to_config([*kernels, *pairs, *pairs])
    assert [len([one for one in configs if one["kind"] == kind]) for kind in ("matrix", "product")] == [4, 16]
    again = label_kernels_from_config(configs)
    assert again[places[5]].factors[0] is again[places[0]]


@pytest.mark.parametrize(
    "config",
    [
        {"kind": "other", "L": 2},
        {"kind": "contrasts", "L": 0},
        {"kind": "contrasts", "L": True},
        {"kind": "reversible", "n_labels": 10**9, "nodes": 10**9},
        {"kind": "product"},
        {"kind": "product", "factors": [1]},
        {"kind": "product", "factors": [0] * 33},
        {"kind": "product", "factors": [2]},
    ],
)
def test_a_config_that_is_no_kernel_is_refused(config):
    with pytest.raises(ValueError, match="expected"):
        label_kernels_from_config([{"kind": "delta", "L": 2}, {"kind": "product", "factors": [0]}, config])
