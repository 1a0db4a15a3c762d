"""Parameters of estimators: numbers of NumPy count, None is one job, and what excludes each other is named together."""

import inspect

import numpy as np
import pytest

import kernelcrf
from kernelcrf import (
    ChainCRF,
    ConformalLabellings,
    ConformalLabels,
    ConformalSpans,
    GraphCRF,
    MarkovNetwork,
    MultiLabelCRF,
    TemperatureScaling,
)
from kernelcrf.estimators.parameters import declared_parameters
from kernelcrf.fitting.checkpoints import Checkpoint
from kernelcrf.rules import Evidence
from kernelcrf.validation import ParameterError
from parameter_targets import FITS, GRAPHS, X, y


@pytest.mark.parametrize("estimator", [*FITS, TemperatureScaling, ConformalLabels, ConformalLabellings, ConformalSpans])
def test_every_parameter_is_declared(estimator):
    assert set(declared_parameters(estimator)) == set(inspect.signature(estimator).parameters)


@pytest.mark.parametrize("estimator", FITS)
def test_defaults_and_numbers_of_numpy_are_accepted(estimator):
    given, data = FITS[estimator]
    numpy = {"C": np.float32(1), "tol": np.float64(1e-2), "max_iter": np.int32(30), "laplace": np.bool_(False)}
    numpy |= {"n_components": np.int64(4)} if "n_components" in given else {}
    plain, other = estimator(**given).fit(*data), estimator(**{**given, **numpy, "n_jobs": None}).fit(*data)
    assert other.certificate_.objective == plain.certificate_.objective


@pytest.mark.parametrize("estimator", FITS)
def test_a_wrong_value_is_refused_before_the_data_are_read(estimator):
    for name, value in (("C", -1.0), ("n_jobs", 0), ("max_iter", 2.5), ("tol", 1.0), ("solver", ["lbfgs"])):
        with pytest.raises(ParameterError, match=rf"^{name}=.*: expected"):
            estimator(**{name: value}).fit(None, None)
    if "n_components" in FITS[estimator][0]:
        with pytest.raises(ParameterError, match=r"^n_components=2.5: expected an integer >= 1"):
            estimator(n_components=2.5).fit(None, None)


@pytest.mark.parametrize(
    ("model", "first", "second"),
    [
        (MultiLabelCRF(n_components="auto"), "n_components='auto'", "structure='auto'"),
        (GraphCRF(checkpoint="run", cliques="auto"), "checkpoint='run'", "cliques='auto'"),
        (MarkovNetwork(checkpoint="run"), "checkpoint='run'", "structure='auto'"),
        (MultiLabelCRF(checkpoint="run", structure="full", C="evidence"), "checkpoint='run'", "C='evidence'"),
        (GraphCRF(inference="gibbs", C="evidence"), "inference='gibbs'", "C='evidence'"),
        (
            GraphCRF(inference="loopy", C=Evidence(1.0, optimize_kernel=True)),
            "inference='loopy'",
            r"C=Evidence\(C=1.0, optimize_kernel=True, n_restarts=0\)",
        ),
        (ChainCRF(checkpoint=Checkpoint("run"), C="evidence"), "checkpoint=", "C='evidence'"),
        (
            ChainCRF(checkpoint="run", C=Evidence(1.0, optimize_kernel=True)),
            "checkpoint='run'",
            r"C=Evidence\(C=1.0, optimize_kernel=True, n_restarts=0\)",
        ),
        (GraphCRF(edge_kernel="rbf", cliques=("skips",)), "edge_kernel='rbf'", r"cliques=\('skips',\)"),
        (GraphCRF(inference="loopy", cliques="auto"), "inference='loopy'", "cliques='auto'"),
        (GraphCRF(inference="gibbs", laplace=True), "inference='gibbs'", "laplace=True"),
    ],
)
def test_parameters_that_exclude_each_other_are_named_together(model, first, second):
    with pytest.raises(ParameterError, match=f"^{first}.*cannot be combined with {second}: "):
        model.fit(GRAPHS if isinstance(model, GraphCRF) else X, y)


@pytest.mark.parametrize(
    "metadata", [None, 3, "text", [1], {1: 2}, {"a": object()}, {"a": {"b": {1}}}, {"a": np.int64(1)}]
)
def test_metadata_that_a_file_cannot_hold_is_named(metadata, tmp_path):
    given, data = FITS[ChainCRF]
    model = ChainCRF(**given).fit(*data)
    model.metadata_ = metadata
    with pytest.raises(ParameterError, match=r"metadata_=.*: expected a dict from names to plain values"):
        model.save(tmp_path / "model")
    model.metadata_ = {"a": [1, {"b": None}], "c": 1.5}
    model.save(tmp_path / "model")
    assert kernelcrf.load(tmp_path / "model").metadata_ == model.metadata_
