"""Choose a basis, solve, certify, and grow the basis until the kernel's own problem is solved.

With n_components = "auto" a small basis is solved first. Its residuals R, summed onto the distinct inputs, give the
gradient out of its span, E R with E = K - F F', and with it `gap_full`. An input u added to the basis opens one
direction, along which the squared gradient is |(E R)_u|^2 / E_uu: the inputs with the most of it come next
(Corollary 10). Old features keep their columns and old weights their values, until gap_full <= tol |P|.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from kernelcrf.basis.distinct import Distinct, distinct, each
from kernelcrf.basis.factor import INDEFINITE, Basis, not_a_kernel
from kernelcrf.basis.features import FeatureMap, Features, WhitenedMap, features_of, make_features
from kernelcrf.basis.pivots import Gradient, Rule
from kernelcrf.certificate import Certificate, residual_products
from kernelcrf.engines.local import LocalEngine
from kernelcrf.graphs.structure import Chains, Legal
from kernelcrf.kernels.cliques import CliqueKernel, LabelKernel
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.objective import Evaluation, Objective
from kernelcrf.parameters import Layout, TemplateBlock
from kernelcrf.partitions.chains import ChainPartition
from kernelcrf.partitions.features import TokenFeatures
from kernelcrf.solvers import Record, Solution, solver_named
from kernelcrf.solvers.loop import minimise

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

FIRST_ATOMS = 64
IN_SPAN_SHARE = 0.25


@dataclass(frozen=True, eq=False)
class LabelledSequences:
    """Labelled sequences: inputs X (N, d) of all tokens, labels (N,) below n_labels.

    allowed : (N, L), the labels that each token may have, or None where all labels are observed.
    weights : (m,), what each sequence counts for, or None.
    legal : what labelings may be, or None for any.
    """

    X: Any
    chains: Chains
    labels: npt.NDArray[np.int32]
    n_labels: int
    allowed: npt.NDArray[np.bool_] | None = None
    weights: Floats | None = None
    legal: Legal | None = None


@dataclass(frozen=True)
class Settings:
    """What a fit is asked for.

    C, C_edge, C_bias : prior variances of node weights, of edge weights and of label biases; C_bias=None has no biases.
    edge_kernel : of cliques (x_t, y_{t-1}, y_t), beside the constant transitions; None has no such cliques.
    n_components : atoms of the basis; None takes every distinct input, "auto" as many as `tol` needs.
    max_components : the most that "auto" may take.
    tol : relative certified gap, in the span; with "auto", in the kernel's whole space.
    certify_full : compute gap_full, one pass over the blocks of K; "auto" always does.
    """

    kernel: InputKernel
    edge_kernel: InputKernel | None = None
    C: float = 1.0
    C_edge: float = 1.0
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


@dataclass(frozen=True, eq=False)
class Start:
    """Where a fit begins: the feature maps, of nodes and of edges with inputs, and the weights of an earlier one."""

    map: FeatureMap
    edge_map: FeatureMap | None
    theta: Floats


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted model: the features of the inputs found, the weights by template, and what is certified of them.

    objective : what was minimised, with the data in it.
    """

    found: Distinct
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
    data: LabelledSequences,
    settings: Settings,
    engine: LocalEngine,
    callback: Callable[[Record], None] | None = None,
    start: Start | None = None,
) -> Fit:
    """Fit a chain CRF; `start` has the landmarks and weights of an earlier fit, taken up on this data."""
    kernels = [kernel for kernel in (settings.kernel, settings.edge_kernel) if kernel is not None]
    linear_on_sparse = sp.issparse(data.X) and all(kernel.name == "linear" for kernel in kernels)
    found = each(data.X) if linear_on_sparse else distinct(data.X)
    if start is not None:
        features = _carried_over(start.map, settings.kernel, found, engine)
        edges = None
        if start.edge_map is not None and settings.edge_kernel is not None:
            edges = _carried_over(start.edge_map, settings.edge_kernel, found, engine)
        return _solved(data, found, features, edges, settings, engine, callback, start.theta)
    if settings.n_components == "auto":
        return _grown(data, found, settings, engine, callback)
    if isinstance(settings.n_components, str):
        raise ValueError(f"n_components={settings.n_components!r}: expected a number of atoms, None or 'auto'")
    features = features_of(
        settings.kernel, found.inputs, settings.n_components, settings.rule, settings.random_state, engine
    )
    edges = None
    if settings.edge_kernel is not None:
        edges = features_of(
            settings.edge_kernel, found.inputs, settings.n_components, settings.rule, settings.random_state, engine
        )
    return _solved(data, found, features, edges, settings, engine, callback, None)


def _carried_over(earlier: FeatureMap, kernel: InputKernel, found: Distinct, engine: LocalEngine) -> Features:
    """The features of new inputs under an earlier map."""
    F = earlier.transform(found.inputs, engine)
    if not isinstance(earlier, WhitenedMap):
        return Features(earlier, F, None)
    diagonal = np.asarray(kernel.diagonal(found.inputs), np.float64)
    residual = np.maximum(diagonal - np.einsum("un,un->u", F, F, dtype=np.float64), 0)
    return Features(earlier, F, Basis(earlier.landmarks, earlier.R, F, residual, None, float(diagonal.sum())))


def _features(kernel: InputKernel, found: Distinct, settings: Settings, n: int | None, engine: LocalEngine) -> Features:
    return features_of(kernel, found.inputs, n, settings.rule, settings.random_state, engine)


def _layout(settings: Settings, n: int, n_edge: int, n_labels: int) -> Layout:
    k_y, delta = LabelKernel.of(settings.label_kernel, n_labels), LabelKernel("delta", n_labels)
    blocks = [
        TemplateBlock(CliqueKernel("node", 1, k_y, settings.kernel), n, settings.C),
        TemplateBlock(CliqueKernel("edge", 2, delta, None), 1, settings.C_edge),
    ]
    if settings.C_bias is not None:
        blocks.append(TemplateBlock(CliqueKernel("bias", 1, delta, None), 1, settings.C_bias))
    if settings.edge_kernel is not None:
        blocks.append(TemplateBlock(CliqueKernel("steps", 2, delta, settings.edge_kernel), n_edge, settings.C_edge))
    return Layout(tuple(blocks))


def _partitions(data: LabelledSequences, found: Distinct, by_template: Mapping[str, Features]) -> list[ChainPartition]:
    tokens = {name: TokenFeatures.of(found, features.F) for name, features in by_template.items()}
    return ChainPartition(data.chains, data.n_labels, data.labels, tokens, data.allowed, data.weights, data.legal).cut()


def _solved(
    data: LabelledSequences,
    found: Distinct,
    features: Features,
    edges: Features | None,
    settings: Settings,
    engine: LocalEngine,
    callback: Callable[[Record], None] | None,
    theta: Floats | None,
) -> Fit:
    by_template = {"node": features} | ({} if edges is None else {"steps": edges})
    layout = _layout(settings, features.F.shape[1], 0 if edges is None else edges.F.shape[1], data.n_labels)
    objective = Objective(layout, _partitions(data, found, by_template), engine)
    start = np.zeros(layout.size) if theta is None else theta
    if start.shape != (layout.size,):
        raise ValueError(
            f"start has {start.size} weights but this fit has {layout.size}: expected an earlier fit with the same "
            "labels and templates"
        )
    solver = solver_named(settings.solver, objective)
    solution = minimise(objective, solver, start, tol=settings.tol, max_iter=settings.max_iter, callback=callback)
    certificate = solution.certificate
    if settings.certify_full and objective.is_convex:
        gap, _ = gap_full(objective, solution.evaluation, found, by_template)
        certificate = replace(certificate, gap_full=gap)
    return Fit(found, features, edges, objective, solution, certificate)


def gap_full(
    objective: Objective, at: Evaluation, found: Distinct, by_template: Mapping[str, Features]
) -> tuple[float, Floats]:
    """P(theta) minus a lower bound over the kernels' whole spaces, and the score of each input as an atom of nodes."""
    gap, scores = at.value - at.lower_bound, np.zeros(found.U)
    for block in objective.layout.blocks:
        features = by_template.get(block.clique.name)
        if features is None or features.basis is None or block.clique.k_x is None:
            continue
        pairs = zip(objective.partitions, at.parts, strict=True)
        tokens = np.concatenate([partition.residual(block, local) for partition, local in pairs])
        R = found.sum(np.ascontiguousarray(tokens).reshape(len(tokens), -1))
        ER = residual_products(block.clique.k_x, found.inputs, features.F, R, objective.engine)
        gap += 0.5 * block.C * _out_of_span(block.clique.k_x, features.basis, R, ER)
        if block.clique.nodes == 1:
            residual = features.basis.residual
            squares = np.einsum("ul,ul->u", ER, ER)
            scores = np.divide(squares, residual, out=np.zeros(found.U), where=residual > 0)
    return gap, scores


def _out_of_span(kernel: InputKernel, basis: Basis, R: Array, ER: Floats) -> float:
    """<R, E R>, which rounding alone can bring below zero: to that of E, |E| <= INDEFINITE max k(x, x)."""
    square = float(np.vdot(R, ER))
    rounding = INDEFINITE[basis.F.dtype] * basis.trace / max(len(R), 1) * float(np.square(np.abs(R).sum(axis=0)).sum())
    if square < -rounding:
        raise not_a_kernel(kernel, f"the squared norm of a function in its space came out as {square:.3g}")
    return max(square, 0.0)


def _grown(
    data: LabelledSequences,
    found: Distinct,
    settings: Settings,
    engine: LocalEngine,
    callback: Callable[[Record], None] | None,
) -> Fit:
    if settings.edge_kernel is not None:
        raise ValueError(
            "n_components='auto' grows the basis of nodes alone, and edge_kernel has one too: expected a number"
        )
    most = found.U if settings.max_components is None else min(settings.max_components, found.U)
    features = features_of(
        settings.kernel, found.inputs, min(FIRST_ATOMS, most), settings.rule, settings.random_state, engine
    )
    inner = replace(settings, tol=IN_SPAN_SHARE * settings.tol, certify_full=False)
    theta: Floats | None = None
    while True:
        fitted = _solved(data, found, features, None, inner, engine, callback, theta)
        at = fitted.solution.evaluation
        gap, scores = gap_full(fitted.objective, at, found, {"node": features})
        certificate = replace(fitted.certificate, gap_full=gap)
        n = features.F.shape[1]
        if gap <= settings.tol * abs(at.value) or n >= most or not scores.any():
            return replace(fitted, certificate=certificate)
        features = make_features(
            settings.kernel,
            found.inputs,
            min(2 * n, most),
            Gradient(scores),
            random_state=settings.random_state,
            engine=engine,
            start=features.basis,
        )
        grown = features.F.shape[1]
        if grown == n:
            return replace(fitted, certificate=certificate)
        weights = dict(fitted.weights)
        weights["node"] = np.vstack((weights["node"], np.zeros((grown - n, weights["node"].shape[1]))))
        theta = _layout(settings, grown, 0, data.n_labels).join(weights)
