from dataclasses import replace

import numpy as np
import pytest

from clusters import Inline, Known
from kernelcrf.distributed.partition import DistributedPartition
from kernelcrf.engines.local import LocalEngine
from kernelcrf.objective import Objective
from kernelcrf.score.layout import Layout
from kernelcrf.solvers import SOLVERS
from kernelcrf.solvers.loop import minimise
from kernelcrf.solvers.preconditioners import Preconditioning
from objectives import random_objective


def shared(local):
    """The same objective with its partitions on a cluster."""
    cluster = Inline()
    return Objective(
        local.layout, [DistributedPartition(cluster, [Known(part) for part in local.partitions])], LocalEngine(1)
    )


@pytest.fixture(params=[{}, {"weighted": True, "edge_inputs": 2}, {"missing": 0.4}, {"label_kernel": "centred"}])
def pair(request):
    local = random_objective(3, n_parts=3, **request.param)
    return local, shared(local)


def test_facts_are_those_of_the_parts(pair):
    local, remote = pair
    partition = remote.partitions[0]
    assert partition.n_nodes == sum(part.n_nodes for part in local.partitions)
    assert (remote.precision, remote.is_convex) == (local.precision, local.is_convex)
    assert {name: features.is_sparse for name, features in partition.features.items()} == {
        name: features.is_sparse for name, features in local.partitions[0].features.items()
    }


@pytest.mark.parametrize("curvature", [True, False])
def test_values_gradients_and_products_are_sums_over_the_parts(pair, curvature):
    local, remote = pair
    rng = np.random.default_rng(0)
    theta, v = rng.normal(size=(2, local.layout.size))
    here, there = (objective.evaluate(theta, curvature=curvature) for objective in pair)
    assert there.value == pytest.approx(here.value, rel=1e-13)
    np.testing.assert_allclose(there.gradient, here.gradient, atol=1e-12)
    np.testing.assert_allclose(remote.block_product(there, v), local.block_product(here, v), atol=1e-12)
    assert remote.entropy(there) == pytest.approx(local.entropy(here), rel=1e-12)
    if curvature:
        np.testing.assert_allclose(remote.hessian_product(there, v), local.hessian_product(here, v), atol=1e-12)


def test_a_line_is_that_of_the_parts(pair):
    local, _ = pair
    rng = np.random.default_rng(1)
    theta, v = rng.normal(size=(2, local.layout.size))
    here, there = (objective.ray(objective.evaluate(theta), v) for objective in pair)
    np.testing.assert_allclose(there.along(0.3), here.along(0.3), rtol=1e-12)
    points = [ray.point(0.3, curvature=True) for ray in (here, there)]
    np.testing.assert_allclose(points[1].gradient, points[0].gradient, atol=1e-12)
    onward = [objective.ray(point, v).along(-0.2) for objective, point in zip(pair, points, strict=True)]
    np.testing.assert_allclose(onward[1], onward[0], rtol=1e-12)


def test_preconditioners_are_the_same(pair):
    local, _ = pair
    rng = np.random.default_rng(2)
    theta, v = rng.normal(size=(2, local.layout.size))
    here, there = (Preconditioning.of(one).at(one.evaluate(theta)).inverse(v) for one in pair)
    np.testing.assert_allclose(there, here, rtol=1e-10)


@pytest.mark.parametrize("name", [name for name in SOLVERS if name != "dual"])
def test_every_solver_finds_the_same_optimum(name):
    local = random_objective(5, n_parts=3)
    here, there = (
        minimise(one, SOLVERS[name](), np.zeros(local.layout.size), tol=1e-6, max_iter=500)
        for one in (local, shared(local))
    )
    assert there.certificate.objective == pytest.approx(here.certificate.objective, rel=1e-12)
    assert there.n_iter == here.n_iter


def test_columns_of_features_are_dropped_on_the_workers(pair):
    term, columns = pair[0].layout.terms[0], np.array([0, 2])
    layout = Layout((replace(term, n=2), *pair[0].layout.terms[1:]))
    here, there = (
        Objective(layout, [part.with_columns(term, columns) for part in one.partitions], one.engine).evaluate(
            np.ones(layout.size)
        )
        for one in pair
    )
    assert there.value == pytest.approx(here.value, rel=1e-12)
    np.testing.assert_allclose(there.gradient, here.gradient, atol=1e-10)
