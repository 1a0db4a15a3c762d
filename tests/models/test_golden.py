"""Models that earlier versions saved are read, and predict what they predicted then (see `golden_models`)."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import kernelcrf
from golden_models import FOLDER, KINDS, STEPS, answers, inputs
from kernelcrf import ChainCRF
from kernelcrf.basis import Landmarks
from kernelcrf.formats import Templates
from kernelcrf.kernels import Polynomial
from kernelcrf.kernels.named_kernels import NAMED
from kernelcrf.persistence.model_file import VERSION
from kernelcrf.rules import Evidence
from kernelcrf.solvers import Restarts

FILES = sorted(FOLDER.glob("v*/*.kcrf"))


def plain(label):
    return [plain(part) for part in label] if isinstance(label, tuple | list) else label


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_golden_model_predicts_what_it_did(path: Path):
    expected = json.loads((path.parent / "predictions.json").read_text(encoding="utf-8"))[path.stem]
    model, X = kernelcrf.load(path), inputs(path.stem)
    exact = 1e-9 if path.stem != "single-precision" else 1e-4
    predicted = answers(model, X)
    for proba, before in zip(predicted["proba"], expected["proba"], strict=True):
        np.testing.assert_allclose(proba, before, rtol=0, atol=exact)
    assert plain(predicted["labels"]) == expected["labels"]
    crf = model[-1] if path.stem in STEPS else model
    assert crf.certificate_.status == "optimal"
    if crf.laplace:
        assert all(np.isfinite(part).all() for part in model.uncertainty(X, n_samples=2).epistemic)


def test_each_kind_and_each_kernel_by_name_has_a_golden_model_of_this_format_version():
    present = {path.stem for path in FILES if path.parent.name == f"v{VERSION}"}
    assert present == set(KINDS)
    assert set(NAMED) - {"poly"} <= {str(KINDS[name][0].get("kernel", "rbf")) for name in present}
    assert Templates.of(kernelcrf.load(FOLDER / f"v{VERSION}" / "templates.kcrf")).n_columns == 1
    with safe_open(FOLDER / f"v{VERSION}" / "dicts-many.kcrf", framework="numpy") as file:
        assert {"config.text", "config.lengths"} <= set(file.keys())
        assert "wort" not in file.metadata()["config"]


@pytest.mark.parametrize(
    ("stored", "weights"),
    [
        ({"all_possible_states": False, "all_possible_transitions": True, "min_freq": 0.0}, "observed"),
        ({"all_possible_states": True, "all_possible_transitions": True, "min_freq": 0.0}, "all"),
        ({"all_possible_states": True, "all_possible_transitions": False, "min_freq": 0.0}, ("all", "observed")),
        ({"all_possible_states": True, "all_possible_transitions": False, "min_freq": 3.0}, 3.0),
    ],
)
def test_a_file_of_0_1_says_which_weights_exist(stored, weights, tmp_path):
    assert load_with(stored, tmp_path / "m").weights == weights


@pytest.mark.parametrize(
    ("stored", "C"),
    [
        ({"C": 2.0, "optimize_kernel": False}, 2.0),
        ({"C": "evidence", "optimize_kernel": True}, Evidence(optimize_kernel=True)),
        (
            {"C": 2.0, "optimize_kernel": True, "n_restarts_optimizer": 3},
            Evidence(2.0, optimize_kernel=True, n_restarts=3),
        ),
    ],
)
def test_a_file_of_0_1_says_how_the_kernel_was_chosen(stored, C, tmp_path):
    crf = load_with(stored, tmp_path / "m")
    assert crf.C == C
    crf.save(tmp_path / "again")
    assert kernelcrf.load(tmp_path / "again").C == C


@pytest.mark.parametrize(("n", "solver"), [(0, "lbfgs"), (3, Restarts(3, "lbfgs"))])
def test_a_file_of_0_1_says_how_often_a_fit_was_repeated(n, solver, tmp_path):
    assert load_with({"n_restarts": n, "solver": "lbfgs"}, tmp_path / "m").solver == solver


@pytest.mark.parametrize("version", ["v1", "v2", "v3"])
def test_a_file_of_0_1_with_another_degree_has_a_polynomial(version, tmp_path):
    crf, X = kernelcrf.load(FOLDER / version / "poly.kcrf"), inputs("poly")
    assert crf.kernel == crf.kernel_.kernel == Polynomial(degree=2)
    crf.set_params(warm_start=True).fit(X, KINDS["poly"][2])
    assert crf.n_iter_ <= 1
    assert kernelcrf.load(FOLDER / version / "polynomial.kcrf").kernel == "polynomial"


@pytest.mark.parametrize("name", ["graph", "sets"])
def test_a_network_of_0_1_with_another_degree_has_a_polynomial(name, tmp_path):
    changes = {"kernel": "poly", "degree": 2, "coef0": 0.5, "edge_kernel": "poly"}
    model = load_with(changes, tmp_path / "m", name)
    assert model.kernel == model.edge_kernel == Polynomial(2, 0.5)


@pytest.mark.parametrize(("n", "pivots"), [(6, "greedy"), (None, "exact"), ("auto", "uniform")])
def test_a_file_of_0_1_says_by_which_rule_landmarks_were_chosen(n, pivots, tmp_path):
    crf = load_with({"n_components": n, "pivots": pivots}, tmp_path / "m")
    assert crf.n_components == Landmarks(n, pivots)


def test_a_file_of_0_1_with_scores_of_boundaries_and_no_intercept_predicts_the_same(tmp_path):
    X, y = inputs("linear"), KINDS["linear"][2]
    crf = ChainCRF("linear", C=1.0, fit_intercept="boundaries").fit(X, y)
    crf.save(tmp_path / "model")
    with safe_open(tmp_path / "model", framework="numpy") as file:
        config = json.loads(file.metadata()["config"])
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    bias = crf.model_.layout.slices["bias"]
    config["terms"] = [term for term in config["terms"] if term["name"] != "bias"]
    config["parameters"] |= {"boundaries": True, "fit_intercept": False}
    arrays["theta"] = np.delete(arrays["theta"], np.arange(bias.start, bias.stop))
    save_file(arrays, tmp_path / "model", metadata={"config": json.dumps(config)})
    found = kernelcrf.load(tmp_path / "model")
    assert found.fit_intercept == "boundaries"
    assert not found.intercept_.any()
    np.testing.assert_array_equal(found.start_scores_, crf.start_scores_)
    theta = crf.model_.theta.copy()
    theta[bias] = 0.0
    without = replace(crf.model_, theta=theta)
    for p, field in zip(found.predict_proba(X), X, strict=True):
        np.testing.assert_allclose(p, without.field([field], None, crf._engine).marginals(), atol=1e-12)
    found.set_params(warm_start=True).fit(X, y)
    assert found.certificate_.objective == pytest.approx(crf.certificate_.objective, rel=1e-3)
    with pytest.raises(ValueError, match="fit_intercept='boundaries'"):
        ChainCRF("linear", prior=tmp_path / "model", fit_intercept=False).fit(X, y)


def load_with(parameters, path, name="rbf"):
    """Return a golden model from a file that sets further parameters."""
    with safe_open(FOLDER / "v2" / f"{name}.kcrf", framework="numpy") as file:
        config = json.loads(file.metadata()["config"])
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    config["parameters"] |= parameters
    save_file(arrays, path, metadata={"config": json.dumps(config)})
    return kernelcrf.load(path)


def test_a_file_from_before_a_parameter_was_there_takes_its_default(tmp_path):
    with safe_open(FOLDER / "v1" / "rbf.kcrf", framework="numpy") as file:
        config = json.loads(file.metadata()["config"])
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    del config["parameters"]["tol"]
    save_file(arrays, tmp_path / "m", metadata={"config": json.dumps(config)})
    assert kernelcrf.load(tmp_path / "m").tol == 1e-4


@pytest.mark.parametrize("name", ["graph", "sets", "table"])
def test_a_file_of_an_earlier_version_is_written_in_the_new_form_and_starts_a_warm_fit(name, tmp_path):
    model, X = kernelcrf.load(FOLDER / "v2" / f"{name}.kcrf"), inputs(name)
    before = answers(model, X)
    model.save(tmp_path / "model")
    assert answers(kernelcrf.load(tmp_path / "model"), X) == before
    landmarks = getattr(model, "landmarks_", None)
    model.set_params(warm_start=True).fit(X, KINDS[name][2])
    np.testing.assert_array_equal(getattr(model, "landmarks_", None), landmarks)
    for proba, expected in zip(answers(model, X)["proba"], before["proba"], strict=True):
        np.testing.assert_allclose(proba, expected, atol=1e-2)


@pytest.mark.parametrize("version", ["v1", "v2", "v3"])
@pytest.mark.parametrize("name", ["edge-linear", "edge-rbf"])
def test_a_kernel_of_steps_of_0_1_becomes_an_input(version, name, tmp_path):
    crf, X = kernelcrf.load(FOLDER / version / f"{name}.kcrf"), inputs(name)
    of_steps = crf.inputs["steps"]
    assert (of_steps.kernel, of_steps.scores) == (name.removeprefix("edge-"), "steps")
    assert "edge_kernel" not in crf.get_params()
    before, coef = answers(crf, X), crf.edge_coef_
    crf.save(tmp_path / "model")
    again = kernelcrf.load(tmp_path / "model")
    assert answers(again, X) == before
    again.set_params(warm_start=True).fit(X, KINDS[name][2])
    assert again.n_iter_ <= 1
    np.testing.assert_allclose(again.edge_coef_, coef, atol=0.1)
    with pytest.raises(ValueError, match=r"inputs__steps__gamma=7\.0"):
        kernelcrf.load(FOLDER / "v3" / "edge-rbf.kcrf").set_params(inputs__steps__gamma=7.0, warm_start=True).fit(
            inputs("edge-rbf"), KINDS["edge-rbf"][2]
        )


@pytest.mark.parametrize("name", ["graph", "sets", "table"])
def test_a_warm_start_of_a_network_begins_at_the_optimum(name, tmp_path):
    model, X = kernelcrf.load(FOLDER / f"v{VERSION}" / f"{name}.kcrf"), inputs(name)
    weights = model.model_.theta
    model.set_params(warm_start=True).fit(X, KINDS[name][2])
    assert model.n_iter_ == 0
    np.testing.assert_array_equal(model.model_.theta, weights)
