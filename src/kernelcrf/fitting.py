"""Choose a basis, solve, certify, and grow the basis until the kernel's own problem is solved.

With n_components = "auto" a small basis is solved first. Its residuals R, summed onto the distinct inputs, give the
gradient out of its span, E R with E = K - F F', and with it `gap_full`. An input u added to the basis opens one
direction, along which the squared gradient is |(E R)_u|^2 / E_uu: the inputs with the most of it come next
(Corollary 10). Old features keep their columns and old weights their values, until gap_full <= tol |P|. A fit that
ends before, because there are no more inputs or components, is not "optimal".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf.basis.features import FeatureMap, Features
from kernelcrf.basis.pivots import Gradient, Rule
from kernelcrf.certificate import Certificate
from kernelcrf.corpora.corpus import Corpus, Data
from kernelcrf.engines.local import LocalEngine
from kernelcrf.kernels.cliques import CliqueKernel, LabelKernel
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.objective import Objective
from kernelcrf.parameters import Layout, TemplateBlock
from kernelcrf.solvers import Record, Solution, first_point, solver_named
from kernelcrf.solvers.loop import INTERRUPTED, OPTIMAL, OUT_OF_COMPONENTS, STALLED, STATIONARY, minimise

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

Keep = Callable[[FeatureMap, FeatureMap | None, Floats, Sequence[Record]], None]

FIRST_ATOMS = 64
IN_SPAN_SHARE = 0.25


@dataclass(frozen=True)
class Settings:
    """What a fit is asked for.

    C, C_edge, C_bias : prior variances of node weights, of edge weights and of label biases. C_edge=None has no edges,
        as samples of one node need none; C_bias=None has no biases.
    edge_kernel : of cliques (x_t, y_{t-1}, y_t), beside the constant transitions; None has no such cliques.
    n_components : atoms of the basis; None takes every distinct input, "auto" as many as `tol` needs.
    max_components : the most that "auto" may take.
    tol : relative certified gap, in the span; with "auto", in the kernel's whole space.
    certify_full : compute gap_full, one pass over the blocks of K; "auto" always does.
    """

    kernel: InputKernel
    edge_kernel: InputKernel | None = None
    C: float = 1.0
    C_edge: float | None = 1.0
    C_bias: float | None = None
    label_kernel: str | npt.ArrayLike = "delta"
    n_components: int | str | None = None
    max_components: int | None = None
    rule: str | Rule = "auto"
    solver: str = "auto"
    tol: float = 1e-4
    max_iter: int = 1000
    certify_full: bool = False
    random_state: Any = None

    def with_variance(self, C: float) -> Settings:
        """Return the same with one prior variance for all templates that there are."""
        return replace(self, C=C, C_edge=None if self.C_edge is None else C)


@dataclass(frozen=True, eq=False)
class Start:
    """Where a fit begins: the feature maps, of nodes and of edges with inputs, and the weights of an earlier one.

    history : of that one, where this is the same run going on.
    """

    map: FeatureMap
    edge_map: FeatureMap | None
    theta: Floats
    history: tuple[Record, ...] = ()


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted model: the data, the features of their inputs, the weights by template, and what is certified of them.

    objective : what was minimised, with the data in it.
    """

    corpus: Corpus
    features: Features
    edge_features: Features | None
    objective: Objective
    solution: Solution
    certificate: Certificate

    @property
    def layout(self) -> Layout:
        """How the templates' weights lie in theta."""
        return self.objective.layout

    @property
    def end(self) -> Start:
        """Where a later fit may begin."""
        edge_map = None if self.edge_features is None else self.edge_features.map
        return Start(self.features.map, edge_map, self.solution.theta)

    @property
    def weights(self) -> dict[str, Floats]:
        """theta by template."""
        return self.layout.split(self.solution.theta)


def fit(
    data: Data,
    settings: Settings,
    engine: LocalEngine,
    callback: Callable[[Record], None] | None = None,
    start: Start | None = None,
    keep: Keep | None = None,
) -> Fit:
    """Fit a chain CRF; `start` has the landmarks and weights of an earlier fit, taken up on this data.

    callback, keep : are told of every point, the latter of maps, weights and history.
    """
    kernels = [kernel for kernel in (settings.kernel, settings.edge_kernel) if kernel is not None]
    corpus = data.corpus(matched=not (data.is_sparse and all(kernel.name == "linear" for kernel in kernels)))
    if settings.n_components == "auto":
        return _grown(corpus, settings, engine, callback, start)
    if start is not None:
        features = corpus.carried_over(start.map, settings.kernel, engine)
        edges = None
        if start.edge_map is not None and settings.edge_kernel is not None:
            edges = corpus.carried_over(start.edge_map, settings.edge_kernel, engine)
        return _solved(corpus, features, edges, settings, engine, callback, start.theta, keep, start.history)
    if isinstance(settings.n_components, str):
        raise ValueError(f"n_components={settings.n_components!r}: expected a number of atoms, None or 'auto'")
    chosen = settings.n_components, settings.rule, settings.random_state, engine
    features = corpus.features(settings.kernel, *chosen)
    edges = None if settings.edge_kernel is None else corpus.features(settings.edge_kernel, *chosen)
    return _solved(corpus, features, edges, settings, engine, callback, None, keep)


def layout_of(settings: Settings, n: int, n_edge: int, n_labels: int) -> Layout:
    """Return the blocks of theta for n features of nodes and n_edge features of edges."""
    k_y, delta = LabelKernel.of(settings.label_kernel, n_labels), LabelKernel("delta", n_labels)
    blocks = [TemplateBlock(CliqueKernel("node", 1, k_y, settings.kernel), n, settings.C)]
    if settings.C_edge is not None:
        blocks.append(TemplateBlock(CliqueKernel("edge", 2, delta, None), 1, settings.C_edge))
    if settings.C_bias is not None:
        blocks.append(TemplateBlock(CliqueKernel("bias", 1, delta, None), 1, settings.C_bias))
    if settings.C_edge is not None and settings.edge_kernel is not None:
        blocks.append(TemplateBlock(CliqueKernel("steps", 2, delta, settings.edge_kernel), n_edge, settings.C_edge))
    return Layout(tuple(blocks))


def _solved(
    corpus: Corpus,
    features: Features,
    edges: Features | None,
    settings: Settings,
    engine: LocalEngine,
    callback: Callable[[Record], None] | None,
    theta: Floats | None,
    keep: Keep | None = None,
    earlier: Sequence[Record] = (),
) -> Fit:
    by_template = {"node": features} | ({} if edges is None else {"steps": edges})
    layout = layout_of(settings, features.map.n, 0 if edges is None else edges.map.n, corpus.n_labels)
    objective = Objective(layout, corpus.partitions(by_template), engine)
    start = first_point(objective, settings.random_state) if theta is None else theta
    if start.shape != (layout.size,):
        raise ValueError(
            f"start has {start.size} weights but this fit has {layout.size}: expected an earlier fit with the same "
            "labels and templates"
        )
    solver = solver_named(settings.solver, objective)
    keep_here = None if keep is None else partial(keep, features.map, None if edges is None else edges.map)
    solution = minimise(
        objective,
        solver,
        start,
        tol=settings.tol,
        max_iter=settings.max_iter,
        callback=callback,
        keep=keep_here,
        earlier=earlier,
    )
    certificate = solution.certificate
    if settings.certify_full and objective.is_convex:
        gap, _ = corpus.gap_full(objective, solution.evaluation, by_template)
        certificate = replace(certificate, gap_full=gap)
    return Fit(corpus, features, edges, objective, solution, certificate)


def _grown(
    corpus: Corpus,
    settings: Settings,
    engine: LocalEngine,
    callback: Callable[[Record], None] | None,
    start: Start | None,
) -> Fit:
    if settings.edge_kernel is not None:
        raise ValueError(
            "n_components='auto' grows the basis of nodes alone, and edge_kernel has one too: expected a number"
        )
    most = corpus.n_inputs if settings.max_components is None else min(settings.max_components, corpus.n_inputs)
    chosen = settings.random_state, engine
    theta: Floats | None = None
    if start is None:
        features = corpus.features(settings.kernel, min(FIRST_ATOMS, most), settings.rule, *chosen)
    else:
        features, theta = corpus.carried_over(start.map, settings.kernel, engine), start.theta
    inner = replace(settings, tol=IN_SPAN_SHARE * settings.tol, certify_full=False)
    while True:
        fitted = _solved(corpus, features, None, inner, engine, callback, theta)
        at = fitted.solution.evaluation
        gap, scores = corpus.gap_full(fitted.objective, at, {"node": features})
        if features.basis is None and fitted.objective.is_convex:
            # The span is the whole space, and bounds of other points than the last one count as well.
            gap = fitted.certificate.gap_in_span
        n, reached = features.map.n, gap <= settings.tol * abs(at.value)
        if reached or n >= most or not scores.any() or fitted.solution.status == INTERRUPTED:
            limited = n >= most and most < corpus.n_inputs
            return replace(fitted, certificate=_in_whole_space(fitted, gap, reached, limited))
        features = corpus.features(settings.kernel, min(2 * n, most), Gradient(scores), *chosen, features.basis)
        grown = features.map.n
        if grown == n:
            return replace(fitted, certificate=_in_whole_space(fitted, gap, reached, False))
        weights = dict(fitted.weights)
        weights["node"] = np.vstack((weights["node"], np.zeros((grown - n, weights["node"].shape[1]))))
        theta = layout_of(settings, grown, 0, corpus.n_labels).join(weights)


def _in_whole_space(fitted: Fit, gap: float, reached: bool, limited: bool) -> Certificate:
    """Return the certificate of a fit that was asked for the optimum of the kernel's whole space.

    reached : whether the gap, in the whole space, is at most what `tol` asks for.
    limited : whether `max_components` kept the basis from taking more inputs.
    """
    certificate, is_convex = fitted.certificate, fitted.objective.is_convex
    status = certificate.status
    if reached and status != INTERRUPTED:
        status = OPTIMAL if is_convex else STATIONARY
    elif status in (OPTIMAL, STATIONARY):
        status = OUT_OF_COMPONENTS if limited else STALLED
    return replace(certificate, status=status, gap_full=gap if is_convex else None)
