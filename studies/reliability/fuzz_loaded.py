"""Edit a model file, load it, and call everything that may be called on the model.

The bytes choose a model, up to four edits of its JSON and of its tensors, and which calls come after. `load` may raise
a ModelFileError; a method may raise a ValueError, a TypeError or an AttributeError by a `raise` of the library, and
nothing else. Probabilities must be finite.
"""

from __future__ import annotations

import copy
import linecache
import os
import traceback
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.pipeline import Pipeline

import kernelcrf
from kernelcrf import (
    CandidateCRF,
    ChainCRF,
    GraphCRF,
    KernelClassifier,
    MarkovNetwork,
    ModelFileError,
    MultiLabelCRF,
    SegmentCRF,
)
from kernelcrf.answers.summary import summarise, summary_html
from kernelcrf.cli.inspection import strongest_steps, strongest_terms
from kernelcrf.formats import Templates
from kernelcrf.persistence import write
from studies.common import ROOT
from studies.reliability.fuzz_edits import edit_tensor, edit_value, parts, scratch

MODELS = Path(__file__).parent / "corpus" / "models"
GOLDEN = ROOT / "tests" / "golden"
PACKAGE = os.path.dirname(kernelcrf.__file__)
MOST_FEATURES = 10_000
MOST_LABELS = 64
# Calls in every execution; the others are made once in so many executions, or once in four.
ALWAYS = ("predict", "predict_proba", "score_samples")
SELDOM = {"report": 64, "html": 64, "facts": 16}


def loaded(data: bytes) -> None:
    left = iter(data)
    files = seeds()
    config, arrays = copy.deepcopy(parts(files[next(left, 0) % len(files)]))
    for _ in range(next(left, 0) % 5):
        if next(left, 0) % 4:
            edit_value(config, left)
        else:
            edit_tensor(arrays, left)
    config = {name: value for name, value in config.items() if name not in ("format", "version")}
    path = scratch()
    try:
        write(path, config, arrays)
    except ValueError:
        return  # a tensor of a type that no file has
    try:
        model = kernelcrf.load(path)
    except ModelFileError:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calls = list(CALLS[type(model)](model, path + ".again"))
        for name, call in calls:
            if name in ALWAYS or next(left, 1) % SELDOM.get(name, 4) == 0:
                check_call(name, call)


def check_call(name: str, call: Callable[[], Any]) -> None:
    """Make a call, and accept the errors that the library raises itself."""
    try:
        found = call()
    except (ValueError, TypeError, AttributeError) as error:
        if not is_own(error):
            error.add_note(f"by {name}")
            raise
        return
    if name.startswith("predict_proba"):
        for p in found if isinstance(found, list) else [found]:
            assert np.isfinite(p).all(), f"{name}: probabilities that are not finite"


def is_own(error: BaseException) -> bool:
    """Return whether a `raise` of the library, or of scikit-learn's checks, made the error."""
    name, line, *_ = traceback.extract_tb(error.__traceback__)[-1]
    raised = linecache.getline(name, line).strip().startswith("raise")
    return raised and (name.startswith(PACKAGE) or f"{os.sep}sklearn{os.sep}utils{os.sep}" in name)


def common_calls(model: Any, path: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    yield "repr", lambda: repr(model)
    yield "html", lambda: model._repr_html_()
    yield "clone", lambda: clone(model)
    yield "save", lambda: again(model, path)
    yield "log_marginal_likelihood", model.log_marginal_likelihood


def again(model: Any, path: str) -> None:
    """Save the model and load it."""
    model.save(path)
    kernelcrf.load(path)


def two_tokens(model: ChainCRF | Pipeline) -> Any:
    """Return a sequence of the kind that the model takes; a pipeline takes arrays."""
    kind = "dense" if isinstance(model, Pipeline) else model.model_.reader.kind
    if kind == "dicts":
        return [{"word": "a", "size": 0.5}, {"word": "b", "up": True}]
    x = np.repeat([[0.5], [0.25]], model.n_features_in_, axis=1)
    return sp.csr_array(x) if kind == "sparse" else x


def two_sequences(model: Any) -> tuple[list[Any], list[list[Any]]]:
    """Return a sequence of two tokens and one of one, with labels."""
    x = two_tokens(model)
    return [x, x[:1]], [model.classes_[[0, -1]].tolist(), model.classes_[:1].tolist()]


def sequence_calls(model: Any, X: Any, y: Any, path: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the calls that all models of sequences answer."""
    yield from common_calls(model, path)
    yield "predict", lambda: model.predict(X)
    yield "predict_proba", lambda: sums_to_one(model.predict_proba(X))
    yield "decode", lambda: model.distribution(X).k_best(3)
    yield "log_prob", lambda: model.log_prob(X, y)
    yield "entropy", lambda: model.distribution(X).entropy()
    yield "sample", lambda: model.distribution(X).sample(2, random_state=0)
    yield "score", lambda: model.score(X, y)
    yield "uncertainty", lambda: model.uncertainty(X, n_samples=2)
    yield "explain", lambda: str(model.explain(X[0], 1))
    yield "facts", lambda: (summarise(model), summary_html(model))
    yield "report", lambda: kernelcrf.make_report(model, X, y, title="t")


def chain_calls(model: ChainCRF, path: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    if model.n_features_in_ > MOST_FEATURES or len(model.classes_) > MOST_LABELS:
        return
    X, y = two_sequences(model)
    x = X[0]
    yield from sequence_calls(model, X, y, path)
    yield "predict_proba, laplace", lambda: model.predict_proba(X, posterior="laplace", n_samples=2)
    yield "predict_marginals", lambda: model.predict_marginals(X)
    yield "edge_marginals", lambda: model.distribution(X).edge_marginals()
    yield "log_prob, missing", lambda: model.log_prob(X, [[None, y[0][1]], [set(y[0])]])
    for strategy in ("entropy", "margin", "information"):
        yield (
            f"select, {strategy}",
            lambda strategy=strategy: model.select_for_labelling(X, 1, strategy, random_state=0),
        )
    yield "explain a label", lambda: model.explain(x, 0, y[0][0], n_terms=2).to_dict()
    yield "kernel_", lambda: repr(model.kernel_)
    yield "evidence's error", lambda: model.log_marginal_likelihood_error_
    yield "inspect", lambda: (strongest_steps(model, 3), strongest_terms(model, 3))
    yield "templates", lambda: read_templates(model)


def segment_calls(model: SegmentCRF, path: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    if model.n_features_in_ > MOST_FEATURES or len(model.classes_) > MOST_LABELS:
        return
    X, y = two_sequences(model)
    yield from sequence_calls(model, X, y, path)
    yield "spans", lambda: model.distribution(X).spans()


def read_templates(model: ChainCRF) -> None:
    templates = Templates.of(model)
    if templates is not None:
        templates.features([[["w"] * templates.n_columns]])


def sums_to_one(found: list[Any]) -> list[Any]:
    for p in found:
        np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-4)
    return found


def pipeline_calls(model: Pipeline, path: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield calls of a pipeline of sequences; if an edit made its first step one of rows, they end in an error."""
    width = getattr(model[0], "n_features_in_", 3)
    if width > MOST_FEATURES or len(model[-1].classes_) > MOST_LABELS:
        return
    x = np.repeat([[0.5], [0.25]], width, axis=1)
    yield "repr", lambda: repr(model)
    yield "clone", lambda: clone(model)
    yield "save", lambda: (kernelcrf.save(model, path), kernelcrf.load(path))
    yield "predict", lambda: model.predict([x])
    yield "predict_proba", lambda: sums_to_one(model.predict_proba([x]))
    yield "report", lambda: kernelcrf.make_report(model, [x], [model[-1].classes_[[0, -1]].tolist()], title="t")


def classifier_calls(model: KernelClassifier, path: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    if model.n_features_in_ > MOST_FEATURES or len(model.classes_) > MOST_LABELS:
        return
    X, y = np.full((2, model.n_features_in_), 0.5), model.classes_[[0, -1]]
    yield from common_calls(model, path)
    yield "predict", lambda: model.predict(X)
    yield "predict_proba", lambda: sums_to_one([model.predict_proba(X)])
    yield "predict_proba, laplace", lambda: model.predict_proba(X, posterior="laplace", n_samples=2)
    yield "decision_function", lambda: model.decision_function(X)
    yield "uncertainty", lambda: model.uncertainty(X)
    yield "latent_mean_and_variance", lambda: model.latent_mean_and_variance(X)
    yield "score", lambda: model.score(X, y)


def multilabel_calls(model: MultiLabelCRF, path: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    if model.n_features_in_ > MOST_FEATURES or len(model.model_.sets.values) > MOST_LABELS:
        return
    X = np.full((2, model.n_features_in_), 0.5)
    y = np.array(
        [[values[0] for values in model.model_.sets.values], [values[-1] for values in model.model_.sets.values]]
    )
    yield from common_calls(model, path)
    yield "predict", lambda: model.predict(X)
    yield "predict_proba", lambda: model.predict_proba(X)
    yield "predict_proba, laplace", lambda: model.predict_proba(X, posterior="laplace", n_samples=2)
    yield "uncertainty", lambda: model.uncertainty(X, n_samples=2)
    yield "decode", lambda: model.distribution(X).k_best(2)
    yield "log_prob", lambda: model.log_prob(X, y)
    yield "entropy", lambda: model.distribution(X).entropy()
    yield "sample", lambda: model.distribution(X).sample(2, random_state=0)
    yield "label_graph_", lambda: getattr(model, "label_graph_", None)


def graph_calls(model: GraphCRF, path: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    if model.n_features_in_ > MOST_FEATURES or len(model.classes_) > 8:
        return
    edges, nodes = np.array([[0, 1], [1, 2], [0, 2], [2, 3]]), np.full((4, model.n_features_in_), 0.5)
    width = next((m.landmarks.shape[1] if hasattr(m, "landmarks") else m.n for m in model.model_.maps.values()), 1)
    graph: Any = (
        (nodes, edges, np.full((4, min(width, 100)), 0.25)) if model.model_.has_edge_features else (nodes, edges)
    )
    X, y = [graph], [np.resize(model.classes_, 4)]
    yield from common_calls(model, path)
    yield "predict", lambda: model.predict(X)
    yield "predict_proba", lambda: model.predict_proba(X)
    yield "predict_proba, laplace", lambda: model.predict_proba(X, posterior="laplace", n_samples=2)
    yield "uncertainty", lambda: model.uncertainty(X, n_samples=2)
    yield "decode", lambda: model.distribution(X).k_best(2)
    yield "log_prob", lambda: model.log_prob(X, y)
    yield "entropy", lambda: model.distribution(X).entropy()
    yield "sample", lambda: model.distribution(X).sample(2, random_state=0)
    yield "score", lambda: model.score(X, y)


def network_calls(model: MarkovNetwork, path: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    row = np.array([values[0] for values in model.categories_], object)
    X, holes = np.stack([row, row]), np.stack([row, row])
    holes[0, 0] = None
    yield from common_calls(model, path)
    yield "score_samples", lambda: model.score_samples(X)
    yield "score", lambda: model.score(X)
    yield "sample", lambda: model.sample(2, random_state=0)
    yield "impute", lambda: model.impute(holes)
    yield "predict_proba", lambda: model.predict_proba(holes)
    yield "predict_proba, laplace", lambda: model.predict_proba(holes, posterior="laplace", n_samples=2)
    yield "uncertainty", lambda: model.uncertainty(holes, n_samples=2)
    yield "potentials_", lambda: model.potentials_


def candidate_calls(model: CandidateCRF, path: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    if model.n_features_in_ > MOST_FEATURES:
        return
    rows = np.repeat([[0.5], [0.25]], model.n_features_in_, axis=1)
    X, y = [[rows, rows[:1]], [rows]], [[1, 0], [0]]
    yield from common_calls(model, path)
    yield "predict", lambda: model.predict(X)
    yield "predict_proba", lambda: sums_to_one([p[None] for x in model.predict_proba(X) for p in x])
    yield "decode", lambda: model.distribution(X).k_best(3)
    yield "log_prob", lambda: model.log_prob(X, y)
    yield "score", lambda: model.score(X, y)


CALLS: dict[type, Callable[[Any, str], Iterator[tuple[str, Callable[[], Any]]]]] = {
    ChainCRF: chain_calls,
    SegmentCRF: segment_calls,
    CandidateCRF: candidate_calls,
    KernelClassifier: classifier_calls,
    MultiLabelCRF: multilabel_calls,
    GraphCRF: graph_calls,
    MarkovNetwork: network_calls,
    Pipeline: pipeline_calls,
}


@cache
def seeds() -> list[Path]:
    """Return models of every kind: the golden ones, and more of other estimators than ChainCRF."""
    newest = sorted(GOLDEN.glob("v*"))[-1]
    return [*sorted(newest.glob("*.kcrf")), *sorted(MODELS.glob("*.kcrf"))]


def write_models() -> None:
    """Write small models of the estimators other than ChainCRF to corpus/models."""
    i = np.arange(60.0).reshape(20, 3)
    rows = np.round(np.modf((i + 1) * 0.618033988749)[0], 3)
    classes, pairs = np.array(["a", "b", "c"])[(3 * rows[:, 0]).astype(int)], (rows[:, :2] > 0.5).astype(int)
    edges = np.array([[0, 1], [1, 2], [0, 2], [2, 3]])
    graphs = [(rows[4 * k : 4 * k + 4], edges, rows[4 * k : 4 * k + 4, :2]) for k in range(5)]
    labels = [(graph[0][:, 0] > 0.5).astype(int) for graph in graphs]
    bare = [graph[:2] for graph in graphs]
    table = (rows * [2, 3, 2]).astype(int)
    models = {
        "classifier": KernelClassifier(n_components=4, laplace=True, random_state=0).fit(rows, classes),
        "classifier-linear": KernelClassifier("linear", label_kernel="centred").fit(rows, classes),
        "multilabel": MultiLabelCRF(n_components=4, random_state=0, laplace=True).fit(rows, pairs),
        "multilabel-edges": MultiLabelCRF("linear", edge_kernel="rbf", structure="full").fit(rows, pairs),
        "graph": GraphCRF(n_components=4, random_state=0).fit(bare, labels),
        "graph-edges": GraphCRF("linear", edge_kernel="rbf", directed=True, cliques=("edges", "paths")).fit(
            graphs, labels
        ),
        "graph-loopy": GraphCRF("linear", inference="loopy").fit(bare, labels),
        "graph-gibbs": GraphCRF("linear", inference="gibbs", random_state=3).fit(bare, labels),
        "network": MarkovNetwork(laplace=True, structure="auto").fit(table),
        "network-words": MarkovNetwork(structure="tree").fit(np.where(table > 0, "x", "y")),
    }
    MODELS.mkdir(parents=True, exist_ok=True)
    for name, model in models.items():
        model.save(MODELS / f"{name}.kcrf")
