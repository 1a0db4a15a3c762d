"""Leave-one-out predictions: Newton steps beside dense matrices, and bounds beside true refits."""

import copy
import itertools

import numpy as np
import pytest

from chain_fits import of_tokens_and_steps
from kernelcrf import ChainCRF, Input, load
from kernelcrf.datasets import make_sequences
from kernelcrf.fitting.leave_one_out import invert_hessian, leave_one_out, newton_steps
from kernelcrf.fitting.left_out import left_out
from kernelcrf.penalties import ElasticNet
from kernelcrf.solvers import Newton, minimise
from kernelcrf.solvers.preconditioners import Preconditioning
from objectives import random_objective

SIMILAR = [[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 2.0]]
KINDS = [
    {},
    {"label_kernel": SIMILAR},
    {"label_kernel": "centred", "weighted": True},
    {"edge_inputs": 2, "weighted": True},
    {"second": "sparse"},
    {"second": "dense", "C": (30.0, 0.7, 5.0), "n_parts": 1},
]


def part_of(one, theta):
    """Return gradient, Hessian and loss of a sequence by enumeration of its labelings, and its largest distance."""
    partition, layout = one.alone, one.objective.layout
    T, L = partition.n_nodes, partition.n_labels
    tied = partition.scores(layout, theta)[1].ndim == 2
    Phi, labelings = [], list(itertools.product(range(L), repeat=T))
    for z in labelings:
        q = np.zeros((L, L) if tied else (T, L, L))
        for t in range(1, T):
            q[(z[t - 1], z[t]) if tied else (t, z[t - 1], z[t])] += 1
        Phi.append(partition.pull_back(layout, np.eye(L)[list(z)], q))
    Phi, y = np.array(Phi), labelings.index(tuple(partition.labels))
    scores = Phi @ theta
    p = np.exp(scores - np.logaddexp.reduce(scores))
    mean = p @ Phi
    C = 1 / layout.times_lam(np.ones(len(theta)))
    farthest = max(np.sqrt((C * (Phi - row) ** 2).sum(axis=1)).max() for row in Phi)
    return mean - Phi[y], (Phi - mean).T * p @ (Phi - mean), -np.log(p[y]), farthest


@pytest.mark.parametrize("kind", KINDS)
def test_newton_steps_and_widths_are_those_of_dense_matrices(kind):
    objective = random_objective(0, **kind)
    theta = minimise(objective, Newton(), np.zeros(objective.layout.size), tol=1e-3).theta
    at, sequences = objective.evaluate(theta, curvature=True), left_out(objective)
    g, lam = objective.layout.times_lam(theta), objective.layout.times_lam(np.ones(len(theta)))
    parts = [part_of(one, theta) for one in sequences]
    g = g + sum(one.weight * part[0] for one, part in zip(sequences, parts, strict=True))
    H = np.diag(lam) + sum(one.weight * part[1] for one, part in zip(sequences, parts, strict=True))
    inverse = invert_hessian(objective, at)
    np.testing.assert_allclose(inverse, np.linalg.inv(H), rtol=1e-6, atol=1e-8)
    precondition = Preconditioning.of(objective).at(at).inverse
    exact = list(newton_steps(at, sequences, 1e-6, inverse, precondition))
    by_passes = list(newton_steps(at, sequences, 1e-6, None, precondition))
    assert len(exact) == len(by_passes) == len(sequences)
    for one, (g_i, H_i, _, farthest), first, second in zip(sequences, parts, exact, by_passes, strict=True):
        step = np.linalg.solve(H - one.weight * H_i, one.weight * g_i - g)
        np.testing.assert_allclose(first, step, atol=1e-6 * np.abs(step).max())
        np.testing.assert_allclose(second, step, atol=0.02 * np.abs(step).max())
        assert farthest <= one.width


def optimum(objective):
    """Return the minimum of an objective, as exactly as rounding allows."""
    theta = minimise(objective, Newton(), np.zeros(objective.layout.size), tol=1e-9).theta
    for _ in range(2):
        at = objective.evaluate(theta, curvature=True)
        H = np.column_stack([objective.hessian_product(at, e) for e in np.eye(len(theta))])
        theta = theta - np.linalg.solve(H, at.gradient)
    return theta


@pytest.mark.few(len(KINDS))
@pytest.mark.parametrize("seed", range(30))
def test_bounds_cover_true_refits_on_random_problems(seed):
    kind = KINDS[seed % len(KINDS)]
    objective = random_objective(seed, lengths=(3, 1, 0, 4, 2), strength=1 + seed % 3, **kind)
    rough = minimise(objective, Newton(), np.zeros(objective.layout.size), tol=(0.1, 1e-3, 1e-6)[seed % 3]).theta
    options = {"most_exact": 0} if seed % 2 else {}
    once = leave_one_out(objective, rough, refit=False, **options)
    refitted = leave_one_out(objective, rough, tol=1e-3, **options)
    assert not once.refitted.any()
    np.testing.assert_array_less(refitted.error, 1e-3)
    for k, one in enumerate(left_out(objective)):
        truth = -part_of(one, optimum(one.others))[2] if one.alone.n_nodes else 0.0
        assert abs(once.log_prob[k] - truth) <= once.error[k] + 1e-12
        assert abs(refitted.log_prob[k] - truth) <= refitted.error[k] + 1e-12


def test_a_small_step_needs_no_refit():
    objective = random_objective(1, C=(0.01, 0.01, 0.01), lengths=(3,) * 20)
    theta = minimise(objective, Newton(), np.zeros(objective.layout.size), tol=1e-8).theta
    found = leave_one_out(objective, theta)
    assert not found.refitted.any()
    assert (found.error < 0.01).all()


@pytest.fixture(scope="module")
def data():
    return make_sequences(8, random_state=0)


@pytest.mark.few
@pytest.mark.parametrize(
    "parameters",
    [
        {"inputs": of_tokens_and_steps(n_components=10), "fit_intercept": "boundaries", "C": 100.0},
        {"kernel": "linear", "label_kernel": SIMILAR, "class_weight": "balanced"},
        {"constraints": [(i, j) for i in range(3) for j in range(3) if (i, j) != (0, 2)]},
        {"inputs": {"a": Input(columns=[0], n_components=10), "b": Input("linear", columns=[1], scores="steps")}},
        {"inputs": {"a": Input(columns=[0], n_components=10), "b": Input("linear", columns=[1], scores="starts")}},
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_log_probabilities_are_those_of_models_fitted_without_the_sequence(data, parameters, weighted):
    X, y = data.X, data.y
    if "constraints" in parameters:
        y = [np.where(labels == 0, 1, labels) for labels in y]
        y[0] = np.zeros_like(y[0])
    weights = np.array([1.0, 2.0, 0.0, 0.5, 1.0, 1.0, 3.0, 1.0]) if weighted else None
    crf = ChainCRF(**({"C": 3.0, "classes": [0, 1, 2], "random_state": 0} | parameters)).fit(X, y, weights)
    found = crf.loo_log_prob(X, y, weights, tol=1e-3)
    assert (found.error <= 1e-3).all()
    once = crf.loo_log_prob(np.concatenate(X), np.concatenate(y), weights, list(map(len, X)), refit=False)
    class_weight = parameters.get("class_weight")
    for i in range(len(X)):
        others = np.ones(len(X)) if weights is None else weights.copy()
        others[i] = 0.0
        if class_weight is not None:
            # The weights of classes are those of all sequences, also of those that are left out.
            n = np.bincount(np.concatenate([y[j] for j in range(8) if weights is None or weights[j]]), minlength=3)
            others *= [(n.sum() / (3 * n))[own].mean() for own in y]
        again = copy.deepcopy(crf).set_params(warm_start=True, class_weight=None, solver="newton-cg", tol=1e-10)
        again.fit(X, y, others)
        assert found.log_prob[i] == pytest.approx(again.log_prob(X[i : i + 1], y[i : i + 1])[0], abs=1e-3)
        # The refit has an error, too, for which `score_bounds` has bounds.
        low, high = np.array(again.distribution(X[i : i + 1]).score_bounds(y[i : i + 1]).log_loss) * len(y[i])
        for one in (found, once):
            assert low - one.error[i] <= -one.log_prob[i] <= high + one.error[i]


def test_a_sequence_of_weight_0_changes_nothing(data):
    weights = [1.0] * 7 + [0.0]
    crf = ChainCRF("linear", C=1.0, tol=1e-10, solver="newton-cg").fit(data.X, data.y, weights)
    found = crf.loo_log_prob(data.X, data.y, weights)
    assert found.log_prob[7] == pytest.approx(crf.log_prob(data.X, data.y)[7], abs=1e-5)
    assert found.error[7] <= 1e-5


def test_without_its_only_sequence_a_model_knows_nothing(data):
    crf = ChainCRF("linear", C=1.0).fit(data.X[:1], data.y[:1])
    found = crf.loo_log_prob(data.X[:1], data.y[:1])
    np.testing.assert_allclose(found.log_prob, -len(data.y[0]) * np.log(len(crf.classes_)), atol=0.01)


def test_float32_inputs_are_certified_too(data):
    X = [x.astype(np.float32) for x in data.X]
    crf = ChainCRF(C=10.0, n_components=20, random_state=0).fit(X, data.y)
    found = crf.loo_log_prob(X, data.y)
    assert (found.error <= 0.01).all()


def test_other_data_and_models_without_a_certificate_are_refused(data, tmp_path):
    crf = ChainCRF("linear", C=1.0).fit(data.X, data.y)
    with pytest.raises(ValueError, match=r"expected .* as in the fit\. Pass the X, y, sample_weight"):
        crf.loo_log_prob(data.X[1:], data.y[1:])
    with pytest.raises(ValueError, match="as in the fit"):
        crf.loo_log_prob(data.X, data.y, [2.0] + [1.0] * 7)
    missing = [[None, *labels[1:].tolist()] for labels in data.y]
    half = ChainCRF("linear", C=1.0).fit(data.X, missing)
    with pytest.raises(ValueError, match="y has missing labels"):
        half.loo_log_prob(data.X, missing)
    sparse = ChainCRF("linear", C=1.0, penalty=ElasticNet(0.1)).fit(data.X, data.y)
    with pytest.raises(ValueError, match="needs a differentiable penalty"):
        sparse.loo_log_prob(data.X, data.y)
    crf.save(tmp_path / "small.kcrf", dtype="float32")
    with pytest.raises(ValueError, match="not saved with dtype='float32'"):
        load(tmp_path / "small.kcrf").loo_log_prob(data.X, data.y)
    crf.save(tmp_path / "model.kcrf")
    again = load(tmp_path / "model.kcrf").loo_log_prob(data.X, data.y)
    np.testing.assert_allclose(again.log_prob, crf.loo_log_prob(data.X, data.y).log_prob, atol=1e-6)


def test_data_on_a_cluster_are_refused(data):
    dask = pytest.importorskip("dask")
    crf = ChainCRF("linear", C=1.0).fit(data.X, data.y)
    with pytest.raises(ValueError, match="data on a cluster: expected sequences in this process"):
        crf.loo_log_prob([dask.delayed(data.X)], [dask.delayed(data.y)])
