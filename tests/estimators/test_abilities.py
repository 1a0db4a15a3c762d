"""What one estimator can do, all can: each cell of the table in docs/estimators.md that is true is tried here."""

import inspect
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from chain_fits import of_tokens_and_steps
from kernelcrf import (
    ChainCRF,
    GraphCRF,
    Input,
    KernelClassifier,
    LabelFeatures,
    MarkovNetwork,
    MultiLabelCRF,
    SegmentCRF,
)
from kernelcrf.basis.landmarks import Landmarks
from kernelcrf.decoding import ExpectedCost
from kernelcrf.estimators.parameters import declared_parameters
from kernelcrf.fitting.corpus import Problem
from kernelcrf.fitting.fit import Settings, fit
from kernelcrf.fitting.graphs import LabelledGraphs
from kernelcrf.fitting.laplace import laplace
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.kernels.joint_labels import Contrasts, interactions
from kernelcrf.penalties import ElasticNet, GroupLasso
from kernelcrf.rules import Evidence
from kernelcrf.score.terms import Term

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(60, 2))
CLASSES = (np.sin(2 * ROWS[:, 0]) + ROWS[:, 1] > 0).astype(int)
SETS = np.column_stack((CLASSES, CLASSES ^ (RNG.random(60) < 0.2), ROWS[:, 1] > 0.3)).astype(int)
RING = [[0, 1], [1, 2], [2, 3], [3, 0]]
GRAPHS = [(ROWS[4 * i : 4 * i + 4], RING) for i in range(15)]
SEQUENCES, LABELS = np.split(ROWS, 15), np.split(CLASSES, 15)
TABLE = np.column_stack((SETS, RNG.integers(3, size=60)))

CASES = {
    "ChainCRF": (ChainCRF(gamma=0.5, random_state=0, C=1.0), SEQUENCES, LABELS),
    "SegmentCRF": (SegmentCRF(gamma=0.5, random_state=0, C=1.0), SEQUENCES, LABELS),
    "KernelClassifier": (KernelClassifier(gamma=0.5, random_state=0), ROWS, CLASSES),
    "GraphCRF": (GraphCRF(gamma=0.5, random_state=0), GRAPHS, LABELS),
    "MultiLabelCRF": (MultiLabelCRF(gamma=0.5, structure="full", random_state=0), ROWS, SETS),
    "MarkovNetwork": (MarkovNetwork(structure="full"), TABLE, None),
}
WITH_INPUTS = [name for name in CASES if name != "MarkovNetwork"]
ALL = pytest.mark.parametrize("name", CASES)
OF_INPUTS = pytest.mark.parametrize("name", WITH_INPUTS)


def fitted(name, **parameters):
    model, X, y = CASES[name]
    return clone(model).set_params(**parameters).fit(X, y)


@ALL
def test_C_by_evidence_is_near_the_greatest_evidence(name):
    model = fitted(name, C="evidence", n_components=8) if name in WITH_INPUTS else fitted(name, C="evidence")
    shape = {"n_components": 8} if name in WITH_INPUTS else {}
    beside = [fitted(name, C=model.C_ * factor, laplace=True, **shape) for factor in (0.5, 2.0)]
    assert all(model.log_marginal_likelihood() > one.log_marginal_likelihood() for one in beside)


@ALL
def test_C_by_held_out_samples_is_a_power_of_10(name):
    model = fitted(name, C="auto", n_components=8) if name in WITH_INPUTS else fitted(name, C="auto")
    assert model.C_ in 10.0 ** np.arange(-3, 5)
    assert model.certificate_.status == "optimal"


@OF_INPUTS
def test_the_kernel_by_evidence_has_more_of_it(name):
    before = fitted(name, gamma=5.0, n_components=8, laplace=True).log_marginal_likelihood()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = fitted(name, gamma=5.0, n_components=8, C=Evidence(1.0, optimize_kernel=True))
    assert model.log_marginal_likelihood() > before + 0.5


@OF_INPUTS
@pytest.mark.parametrize("n", [5, 20])
def test_gap_full_covers_the_distance_to_the_exact_optimum(name, n):
    exact = fitted(name, n_components=None, tol=1e-9).certificate_.objective
    found = fitted(name, n_components=n, certify_full=True, tol=1e-9).certificate_
    truth = found.objective - exact
    assert 0 < truth <= found.gap_full <= 5 * truth
    assert found.gap_in_span < 0.01 * truth


@pytest.mark.parametrize("inference", ["loopy", "gibbs"])
def test_gap_full_covers_the_distance_of_objectives_on_graphs_that_are_not_exact(inference):
    settings = {"inference": inference, "edge_kernel": "rbf", "tol": 1e-6}
    exact = fitted("GraphCRF", n_components=None, **settings).certificate_
    found = fitted("GraphCRF", n_components=8, certify_full=True, **settings).certificate_
    assert found.objective - exact.objective <= found.gap_full
    assert found.objective - found.gap_full <= exact.objective + exact.gap_in_span


def test_a_fit_without_inputs_has_the_whole_space_for_its_span():
    certificate = fitted("MarkovNetwork", certify_full=True).certificate_
    assert certificate.gap_full == pytest.approx(certificate.gap_in_span, abs=1e-9)


@OF_INPUTS
def test_a_basis_grows_to_what_the_tolerance_needs(name):
    exact = fitted(name, gamma=3.0, n_components=None, tol=1e-8).certificate_.objective
    found = fitted(name, gamma=3.0, n_components="auto", tol=1e-2).certificate_
    assert found.status == "optimal"
    assert found.objective - exact <= found.gap_full <= 1e-2 * found.objective


def test_bases_of_tokens_and_of_steps_grow_together():
    def fit(n_components, tol):
        inputs = of_tokens_and_steps("rbf", "rbf", gamma=3.0, n_components=n_components)
        return fitted("ChainCRF", inputs=inputs, gamma="scale", C=5.0, tol=tol).certificate_

    exact, found = fit(None, 1e-8).objective, fit("auto", 3e-2)
    assert found.status == "optimal"
    assert found.objective - exact <= found.gap_full <= 3e-2 * found.objective


@ALL
def test_a_warm_start_ends_at_the_same_optimum(name):
    settings = {"tol": 1e-8} if name == "MarkovNetwork" else {"tol": 1e-8, "n_components": 12}
    model, X, y = CASES[name]
    cold = fitted(name, **settings)
    warm = clone(model).set_params(**settings, warm_start=True).fit(X, y)
    again = warm.fit(X, y)
    assert again.n_iter_ <= 1 < cold.n_iter_
    assert again.certificate_.objective == pytest.approx(cold.certificate_.objective, rel=1e-7)
    other = warm.set_params(C=2.0).fit(X, y).certificate_
    assert other.objective == pytest.approx(fitted(name, **settings, C=2.0).certificate_.objective, rel=1e-5)


def test_a_warm_start_goes_on_after_a_structure_search():
    settings = {"structure": "auto", "n_components": 12, "tol": 1e-8, "edge_kernel": "linear"}
    model = fitted("MultiLabelCRF", **settings, warm_start=True)
    edges, objective = model.edges_.tolist(), model.certificate_.objective
    again = model.fit(ROWS, SETS)
    assert again.edges_.tolist() == edges
    assert again.certificate_.objective == pytest.approx(objective, rel=1e-7)


@ALL
def test_a_fit_that_was_cut_short_goes_on_from_its_checkpoint(name, tmp_path):
    whole = fitted(name, tol=1e-9)
    with pytest.warns(match="max_iter"):
        fitted(name, tol=1e-9, max_iter=2, checkpoint=tmp_path / "run")
    went_on = fitted(name, tol=1e-9, checkpoint=tmp_path / "run")
    assert went_on.certificate_.objective == pytest.approx(whole.certificate_.objective, rel=1e-8)
    with pytest.raises(ValueError, match="differs in C "):
        fitted(name, tol=1e-9, C=3.0, checkpoint=tmp_path / "run")


def test_a_checkpoint_of_other_graphs_is_refused(tmp_path):
    fitted("GraphCRF", checkpoint=tmp_path / "run")
    path = [(rows, RING[:3]) for rows, _ in GRAPHS]
    with pytest.raises(ValueError, match="differs in the graphs"):
        GraphCRF(gamma=0.5, random_state=0, checkpoint=tmp_path / "run").fit(path, LABELS)


@ALL
def test_the_evidence_is_there_with_laplace(name):
    model = fitted(name, laplace=True)
    assert np.isfinite(model.log_marginal_likelihood())
    assert model.log_marginal_likelihood_error_ == 0.0


def test_the_evidence_of_a_network_is_that_of_a_dense_hessian():
    """The Hessian by differences of the gradient, with terms that share their inputs and terms without."""
    kernel = InputKernel("rbf", gamma=0.5)
    terms = [Term(f"label {j}", f"label {j}", Contrasts(2), 1.5, kernel, "rows") for j in range(3)]
    terms.append(Term("pair", "pair", interactions(2, 2), 0.7))
    cliques = {f"label {j}": np.array([[j]]) for j in range(3)} | {"pair": np.array([[0, 1]])}
    data = LabelledGraphs(np.full(3, 2), cliques, SETS.astype(np.int32), {"rows": ROWS})
    found = fit(Problem(terms, data), Settings(landmarks=Landmarks(6), random_state=0, tol=1e-12))
    objective, theta, step = found.objective, found.theta, 1e-5
    gradients = [[objective.evaluate(theta + sign * step * e).gradient for sign in (1, -1)] for e in np.eye(len(theta))]
    H = np.array([(up - down) / (2 * step) for up, down in gradients])
    scale = np.concatenate([np.full(term.size, np.sqrt(term.C)) for term in found.layout.terms])
    expected = -found.certificate.objective - 0.5 * np.linalg.slogdet(scale[:, None] * H * scale)[1]
    ours = laplace(objective, found.solution.evaluation)
    assert ours.log_evidence == pytest.approx(expected, abs=1e-5)
    inverse = np.linalg.inv(H)
    chosen = np.concatenate([np.full(term.size, term.input is not None) for term in found.layout.terms])
    gamma = chosen.sum() - np.diag(inverse)[chosen].sum() / 1.5
    assert ours.determined(chosen) == pytest.approx(gamma, abs=1e-5)
    assert ours.determined(np.ones_like(chosen)) == pytest.approx(ours.n_effective, abs=1e-9)
    sampled = laplace(objective, found.solution.evaluation, most_exact=0, n_draws=100)
    assert sampled.determined(chosen) == pytest.approx(gamma, rel=0.2)


@OF_INPUTS
@pytest.mark.parametrize("penalty", [ElasticNet(0.2), GroupLasso(0.2)], ids=str)
def test_a_penalty_makes_weights_zero_and_keeps_the_certificate(name, penalty):
    model, X, y = CASES[name]
    options = {"kernel": "linear", "C": 5.0, "tol": 1e-8}
    noisy = np.random.default_rng(1).normal(size=(60, 6))

    def widen(part, k):
        return np.hstack([part, noisy[k : k + len(part)]])

    if name == "GraphCRF":
        wide = [(widen(rows, 4 * i), edges) for i, (rows, edges) in enumerate(X)]
    else:
        wide = widen(X, 0) if isinstance(X, np.ndarray) else [widen(rows, 4 * i) for i, rows in enumerate(X)]
    plain, sparse = (clone(model).set_params(**options, penalty=one).fit(wide, y) for one in (None, penalty))
    assert sparse.certificate_.status == "optimal"
    layout = sparse.model_.layout
    assert (sparse.model_.theta == 0).sum() > (plain.model_.theta == 0).sum()
    # The weights of the fit without this penalty are a candidate, and theirs is the smallest objective without it.
    most = plain.certificate_.objective + layout.extra(plain.model_.theta)
    assert plain.certificate_.objective < sparse.certificate_.objective <= most * (1 + 1e-7)


@OF_INPUTS
def test_two_inputs_equal_their_columns_side_by_side(name):
    """`test_inputs.py` and `test_named_inputs.py` try all that goes with several inputs."""
    inputs = {"first": Input("linear", columns=[0]), "second": Input("linear", columns=[1])}
    joined = fitted(name, kernel="linear", gamma="scale", tol=1e-9).certificate_
    apart = fitted(name, inputs=inputs, gamma="scale", tol=1e-9).certificate_
    assert apart.objective == pytest.approx(joined.objective, rel=1e-8)


@ALL
def test_an_update_without_new_data_is_the_earlier_model(name):
    """`test_prior.py` and `test_updates.py` try all that goes with a prior."""
    model, X, y = CASES[name]
    old = fitted(name, laplace=True)
    new = clone(model).set_params(prior=old).fit(X, y, sample_weight=np.zeros(len(X)))
    assert new.model_ is old.model_
    # With tiny prior variances, the weights stay at their prior means.
    tiny = {name: 1e-12 for name in ("C", "C_label") if name in model.get_params()}
    near = fitted(name, prior=old, **tiny)
    assert near.certificate_.status == "optimal"
    np.testing.assert_allclose(near.model_.theta[: len(old.model_.theta)], old.model_.theta, atol=1e-6)


def test_classes_of_nodes_have_weights():
    """A weight of a class is a weight of graphs: with the same weights given by graph, the fit is the same."""
    balanced = fitted("GraphCRF", class_weight={0: 1.0, 1: 3.0}, tol=1e-8)
    means = [np.mean(1 + 2 * labels) for labels in LABELS]
    by_hand = clone(CASES["GraphCRF"][0]).set_params(tol=1e-8).fit(GRAPHS, LABELS, means)
    assert balanced.certificate_.objective == pytest.approx(by_hand.certificate_.objective, rel=1e-7)


def table():
    """The table of docs/estimators.md: ability and estimator to whether the one has the other."""
    page = (Path(__file__).parents[2] / "docs" / "estimators.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    names, notes = rows[0][1:], set(re.findall(r"^- (\([a-z]+\))", page, re.M))
    cells = {}
    for ability, *answers in rows[2:]:
        for name, answer in zip(names, answers, strict=True):
            assert set(re.findall(r"\([a-z]+\)", answer)) <= notes
            assert answer.startswith("yes") or "(" in answer, f"{ability} of {name} gives no reason"
            cells[ability, name] = answer.startswith("yes")
    return cells


def _streams_end_as_the_whole(name):
    """Whether a stream gives the probabilities of the whole sequence; `tests/streams` tries all that goes with it."""
    live, x = fitted(name).stream(lag=4), CASES[name][1][0]
    live.extend(x)
    return np.allclose(live.finish().lagged.probabilities, fitted(name).predict_proba([x])[0])


def takes_targets(name, parameter):
    """Whether an estimator takes probabilities of labels as y, or one weight per label as sample_weight."""
    model, X, y = CASES[name]
    soft = {"MultiLabelCRF": 0.8 * SETS + 0.1, "KernelClassifier": 0.8 * np.eye(2)[CLASSES] + 0.1, "MarkovNetwork": y}
    weights = {"MultiLabelCRF": SETS + 0.5, "KernelClassifier": CLASSES + 0.5, "MarkovNetwork": TABLE + 0.5}
    targets, sample_weight = y, None
    if parameter == "y":
        targets = soft.get(name, [0.8 * np.eye(2)[labels] + 0.1 for labels in LABELS])
    else:
        sample_weight = weights.get(name, [labels + 0.5 for labels in LABELS])
    try:
        fitted = clone(model).set_params(tol=1e-3).fit(X, targets, sample_weight=sample_weight)
    except (ValueError, TypeError):
        return False
    assert fitted.certificate_.status == "optimal"
    return targets is not None


@pytest.mark.parametrize(("ability", "name"), table())
def test_the_table_of_abilities_is_true(ability, name):
    model = CASES[name][0]
    parameter = "" if (named := re.match(r"\[?`(\w+)", ability)) is None else named[1]
    if ability.startswith("model files of"):
        known = hasattr(model, "from_crfsuite") and hasattr(model, "from_wapiti")
    elif parameter == "k_best":
        known = "where" in inspect.signature(fitted(name).distribution(CASES[name][1]).k_best).parameters
    elif parameter == "Input":
        _, X, y = CASES[name]
        inputs = {"tokens": Input("linear", columns=[0]), "steps": Input("linear", columns=[1], scores="steps")}
        try:
            known = clone(model).set_params(inputs=inputs, gamma="scale").fit(X, y).certificate_.status == "optimal"
        except ValueError:
            known = False
    elif parameter == "uncertainty":
        known = callable(getattr(model, "uncertainty", None))
    elif parameter == "stream":
        known = hasattr(model, "stream") and _streams_end_as_the_whole(name)
    elif parameter == "label_kernel":
        try:
            known = fitted(name, label_kernel=LabelFeatures({0: [1.0], 1: [1.0]})).certificate_.status == "optimal"
        except ValueError:
            known = False
    elif parameter == "base_scores":
        methods = model.fit, getattr(model, "predict", model.fit), model.distribution
        known = all("base_scores" in inspect.signature(method).parameters for method in methods)
    elif "optimize_kernel" in ability:
        by_evidence = clone(model).set_params(C=Evidence(optimize_kernel=True))
        try:
            by_evidence._validate_params()
            known = True
        except ValueError:
            known = False
    elif parameter in ("y", "sample_weight"):
        known = takes_targets(name, parameter)
    elif parameter == "decoding":
        _, X, y = CASES[name]
        try:
            clone(model).set_params(tol=0.5).fit(X, y).distribution(X).decode(ExpectedCost())
            known = True
        except ValueError:
            known = False
    elif "boundaries" in ability:
        known = "boundaries" in str(declared_parameters(type(model)).get("fit_intercept"))
    elif parameter == "C":
        known = "evidence" in str(declared_parameters(type(model))["C"])
    elif parameter == "n_components":
        known = "auto" in str(declared_parameters(type(model)).get("n_components"))
    else:
        known = parameter in model.get_params()
    assert known == table()[ability, name]
