"""Every parameter of the library that takes a value from a user, as a function of that value.

Each generator yields triples (where, parameter, call): `call(value)` uses the value as that parameter, on data so small
that a call takes milliseconds, and returns numbers that must be finite, or None.
"""

from __future__ import annotations

import inspect
from copy import copy
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import kernelcrf
from kernelcrf import (
    ChainCRF,
    ConformalLabellings,
    ConformalLabels,
    ConformalSpans,
    GraphCRF,
    KernelClassifier,
    MarkovNetwork,
    MultiLabelCRF,
    SegmentCRF,
    TemperatureScaling,
    formats,
    metrics,
)
from kernelcrf.basis import Landmarks
from kernelcrf.basis.centres import KMeans, Lloyd
from kernelcrf.basis.choice import choose_basis, find_rule
from kernelcrf.basis.pivots import Gradient, Greedy, Random
from kernelcrf.datasets import make_sequences
from kernelcrf.distributed import DaskEngine
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting.checkpoints import Checkpoint
from kernelcrf.kernels import Polynomial
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.kernels.labels import LabelKernel
from kernelcrf.plotting import GapDisplay, LabelGraphDisplay
from kernelcrf.readers.frames import from_frame
from kernelcrf.solvers import LBFGS, BlockJacobi, Dual, Newton, NewtonCG, Restarts, Subspace

SEQUENCES = make_sequences(4, mean_length=3, random_state=0)
X, y = SEQUENCES.X, SEQUENCES.y
ROWS, LABELS = np.vstack(X), np.concatenate(y)
GRAPHS = [(x, [[t, t + 1] for t in range(len(x) - 1)]) for x in X]
SETS = (ROWS[:, :1] + np.array([[-0.5, 0.0, 0.5]]) > 0).astype(int)
TABLE = np.column_stack((LABELS, (LABELS > 0).astype(int), SETS[:, 0]))

FITS = {
    ChainCRF: ({"C": 1.0, "n_components": 4, "random_state": 0, "max_iter": 30, "tol": 1e-2}, (X, y)),
    SegmentCRF: ({"C": 1.0, "n_components": 4, "random_state": 0, "max_iter": 30, "tol": 1e-2}, (X, y)),
    KernelClassifier: ({"n_components": 4, "random_state": 0, "max_iter": 30, "tol": 1e-2}, (ROWS, LABELS)),
    GraphCRF: ({"n_components": 4, "random_state": 0, "max_iter": 30, "tol": 1e-2}, (GRAPHS, y)),
    MultiLabelCRF: ({"n_components": 4, "random_state": 0, "max_iter": 30, "tol": 1e-2}, (ROWS, SETS)),
    MarkovNetwork: ({"max_iter": 30, "tol": 1e-2}, (TABLE,)),
}


def objective(estimator, given, data, name, value):
    """Fit with the value, and return the objective."""
    return estimator(**{**given, name: value}).fit(*data).certificate_.objective


def calibrated(name, value, models):
    given = {"estimator": models["chain"], "posterior": "laplace", "n_samples": 2} | {name: value}
    return TemperatureScaling(**given).fit(X, y).temperature_


def conformalized(wrapper, name, value, models):
    given = {"estimator": models["chain"], "confidence_level": 0.5} | {name: value}
    return wrapper(**given).conformalize(X, y).n_calibration_


def of_estimators(models):
    for estimator, (given, data) in FITS.items():
        for name in inspect.signature(estimator).parameters:
            yield estimator.__name__, name, partial(objective, estimator, given, data, name)
    for name in ("estimator", "posterior", "n_samples"):
        yield "TemperatureScaling", name, partial(calibrated, name, models=models)
    for wrapper in (ConformalLabels, ConformalLabellings, ConformalSpans):
        for name in inspect.signature(wrapper).parameters:
            yield wrapper.__name__, name, partial(conformalized, wrapper, name, models=models)


def of(function, name, *args, **given):
    """Return the function of one of its arguments."""
    return lambda value: function(*args, **{**given, name: value})


def silent(function, name, *args, **given):
    """Return the function of one of its arguments, without its result."""

    def call(value):
        function(*args, **{**given, name: value})

    return call


def of_methods(models, folder):
    chain, rows, graph, sets, table = (models[name] for name in ("chain", "rows", "graph", "sets", "table"))
    draws = {"n_samples": 2, "random_state": 0}
    for name in ("posterior", "n_samples", "variance_temperature", "random_state"):
        given = {**draws, "posterior": "laplace"}
        yield "ChainCRF.predict_proba", name, of(chain.predict_proba, name, X[:1], **given)
        yield "KernelClassifier.predict_proba", name, of(rows.predict_proba, name, ROWS[:2], **given)
    for name in ("n_samples", "variance_temperature", "random_state"):
        yield "ChainCRF.uncertainty", name, silent(chain.uncertainty, name, X[:1], **draws)
        yield "KernelClassifier.uncertainty", name, silent(rows.uncertainty, name, ROWS[:2], **draws)
    for name in ("k", "strategy", "cost", "random_state"):
        yield "ChainCRF.select_for_labelling", name, of(chain.select_for_labelling, name, X, k=1, random_state=0)
    for name in ("threshold", "n_best"):
        yield "SegmentDistribution.spans", name, silent(models["segments"].distribution(X[:1]).spans, name)
    with_rows = (rows, ROWS[:1]), (sets, ROWS[:1]), (table, TABLE[:1])
    for model, data in ((chain, X[:1]), (models["segments"], X[:1]), (graph, GRAPHS[:1]), *with_rows):
        distribution = model.distribution(data)
        where = type(distribution).__name__
        yield f"{where}.k_best", "k", silent(distribution.k_best, "k")
        yield f"{where}.decode", "rule", silent(distribution.decode, "rule")
        for name in draws:
            yield f"{where}.sample", name, of(distribution.sample, name, **draws)
    for name in draws:
        yield "MarkovNetwork.sample", name, of(table.sample, name, **draws)
    for name in ("t", "label", "n_terms"):
        yield "ChainCRF.explain", name, silent(chain.explain, name, X[0], t=0)
    for model in models.values():
        yield f"{type(model).__name__}.save", "path", model.save
    yield "load", "path", kernelcrf.load
    yield "ChainCRF.save", "metadata_", partial(saved_with, chain, folder)


def saved_with(chain, folder, metadata):
    """Save a model with the metadata, and load it again."""
    model = copy(chain)
    model.metadata_ = metadata
    model.save(Path(folder) / "with_metadata.kcrf")
    kernelcrf.load(Path(folder) / "with_metadata.kcrf")


def of_objects():
    plain = [InputKernel, Polynomial, LocalEngine, Landmarks, Greedy, Random, KMeans, Lloyd, DaskEngine]
    plain += [LBFGS, Dual, Newton, NewtonCG, BlockJacobi, Subspace]
    for cls, given in [
        *((cls, {}) for cls in plain),
        (Gradient, {"scores": np.ones(3)}),
        (Checkpoint, {"path": "here"}),
        (Restarts, {"n": 2}),
    ]:
        for name in inspect.signature(cls).parameters:
            if name != "argument":
                yield cls.__name__, name, silent(cls, name, **given)
    yield "LabelKernel.of", "label_kernel", lambda value: LabelKernel.of(value, 3).gram
    yield "LabelKernel.of", "L", silent(LabelKernel.of, "L", "delta")


def of_functions(folder):
    for name in inspect.signature(make_sequences).parameters:
        yield "make_sequences", name, silent(make_sequences, name, **{"n_sequences": 2, "random_state": 0})
    kernel = InputKernel("rbf")
    for name in ("n_components", "rule", "tol", "random_state"):
        yield "choose_basis", name, silent(choose_basis, name, kernel, ROWS, **{"n_components": 3})
    yield "find_rule", "rule", silent(find_rule, "rule", kernel=kernel, sparse=False)
    tags, known, proba = [["B-x", "I-x", "O"]], [["a", "b", "a"]], [np.full((3, 2), 0.5)]
    for name in ("average", "zero_division"):
        yield "flat_f1", name, silent(metrics.flat_f1, name, known, known)
    for name in ("scheme", "average", "zero_division"):
        for metric in (metrics.span_f1, metrics.span_precision, metrics.span_recall):
            yield metric.__name__, name, silent(metric, name, tags, tags)
    for name in ("digits", "output_dict", "zero_division"):
        yield "flat_classification_report", name, silent(metrics.flat_classification_report, name, known, known)
        yield "span_classification_report", name, silent(metrics.span_classification_report, name, tags, tags)
    yield "span_classification_report", "scheme", silent(metrics.span_classification_report, "scheme", tags, tags)
    yield "spans", "scheme", silent(metrics.spans, "scheme", tags[0])
    yield "get_scorer", "name", silent(metrics.get_scorer, "name")
    for metric in (metrics.expected_calibration_error, metrics.reliability):
        yield metric.__name__, "n_bins", silent(metric, "n_bins", known, proba, ["a", "b"])
    for name in ("scheme", "n_bins", "n_resamples", "level", "random_state"):
        given = {"n_resamples": 2} if name == "scheme" else {"y_proba": proba, "classes": ["a", "b"], "n_resamples": 2}
        true = tags if name == "scheme" else known
        yield "bootstrap", name, silent(metrics.bootstrap, name, true, true, **given)
    frame = pd.DataFrame({"g": [1, 1, 2], "x": [0.1, 0.2, 0.3], "y": ["a", "b", "a"]})
    for name in ("group", "features", "label", "order"):
        yield "from_frame", name, silent(from_frame, name, frame, **{"group": "g", "features": ["x"], "label": "y"})
    for name in ("path", "format"):
        yield "format_of", name, silent(formats.format_of, name, **{"path": Path(folder) / "data.jsonl"})
    yield "default_templates", "n_columns", silent(formats.default_templates, "n_columns")
    yield "LabelGraphDisplay.plot", "n_edges", plotted(LabelGraphDisplay(np.eye(2), ["a", "b"]), "n_edges")
    yield "GapDisplay.plot", "against", plotted(GapDisplay([1.0, 0.1], [1, 2], [0.1, 0.2]), "against")


def plotted(display, name):
    """Return the plot of a display as a function of an argument; the figure is closed again."""

    def call(value):
        axes = plt.figure().add_subplot()
        try:
            display.plot(axes, **{name: value})
        finally:
            plt.close(axes.figure)

    return call


def models():
    """Return a fitted model of each kind."""
    names = dict(zip(FITS, ("chain", "segments", "rows", "graph", "sets", "table"), strict=True))
    return {names[cls]: cls(**given, laplace=True).fit(*data) for cls, (given, data) in FITS.items()}
