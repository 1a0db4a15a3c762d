"""Base classes of GraphCRF, MarkovNetwork and MultiLabelCRF: their common parameters, fit and structure search."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from kernelcrf.arrays import Array, Floats, Inputs, is_sparse
from kernelcrf.estimators.base import Estimator, Fitted, InputEstimator, Model
from kernelcrf.estimators.parameters import OPTIONAL_KERNEL
from kernelcrf.fitting.corpus import Problem
from kernelcrf.fitting.evidence import variances
from kernelcrf.fitting.graphs import LabelledGraphs
from kernelcrf.fitting.structure_search import Search, SearchSettings
from kernelcrf.graphs.label_graphs import all_pairs, checked_pairs, chow_liu
from kernelcrf.kernels.gamma import gamma_by_scale
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.models.network import NetworkModel
from kernelcrf.score.terms import PRIOR_VARIANCE, Term
from kernelcrf.validation import either, nothing, real


@dataclass(eq=False, repr=False, kw_only=True)
class NetworkEstimator(Estimator[Model]):
    """Base class of estimators whose labels or variables are the nodes of a graph; adds structure search."""

    structure_tol: Annotated[float, either(real(least=0))] = 1e-3
    min_gain: Annotated[float | None, either(real(least=0), nothing)] = None

    _structure: ClassVar[str] = "structure"

    def _penalise(self, terms: Sequence[Term]) -> list[Term]:
        """Return the terms with the penalty of this estimator."""
        return list(terms)

    search_ = Fitted[Search | None]("search")

    @property
    def _adds_landmarks(self) -> bool:
        """Return whether landmarks are added until the gap is at most `tol`."""
        return False

    @property
    def _is_learned(self) -> bool:
        """Return whether a structure search chooses the cliques of the model."""
        structure = getattr(self, self._structure)
        return isinstance(structure, str) and structure == "auto"

    @property
    def _searches(self) -> dict[str, bool]:
        return super()._searches | {self._structure: self._is_learned}

    def _check_combinations(self) -> None:
        super()._check_combinations()
        advice = "a structure search needs a fixed number of landmarks; pass n_components as a number"
        if self._adds_landmarks:
            self._exclude("n_components", {self._structure: self._is_learned}, advice)

    def _train_network(
        self, terms: Sequence[Term], data: LabelledGraphs, present: Sequence[str], seed: int, earlier: Model | None
    ) -> dict[str, Any]:
        """Fit the terms of the score to the data; return arguments for the constructor of the model.

        present : the kinds of cliques with which a structure search starts; the search adds other kinds.
        earlier : the model of the previous fit for a warm start, or None.
        """
        problem = Problem(self._penalise(terms), data)
        start = None if earlier is None else earlier.start_for(problem.terms)
        min_gain = None if self.min_gain is None else float(self.min_gain)
        structure = SearchSettings(present, float(self.structure_tol), min_gain) if self._is_learned else None
        # If some potentials depend on inputs, they have the prior variance C, and constant ones C_label.
        names = [term.name for term in terms if term.input is not None]
        sharing_C = names or [term.name for term in terms]
        trained = self._train(problem, [sharing_C], start, seed, structure)
        fitted = trained.fit
        given = {name: getattr(self, name, None) for name in ("kernel", "edge_kernel")}
        return {
            "certificate": fitted.certificate,
            "n_iter": fitted.solution.n_iter,
            "C": float(variances(fitted, [sharing_C])[0]),
            "search": trained.search,
            "laplace": trained.laplace,
            "layout": fitted.layout,
            "theta": fitted.theta,
            "maps": fitted.maps,
            "specification": self._specification,
            "kernels": {
                name: InputKernel(kernel) for name, kernel in given.items() if not isinstance(kernel, str | None)
            },
        }


@dataclass(eq=False, repr=False, kw_only=True)
class InputNetworkEstimator(InputEstimator[Model], NetworkEstimator[Model]):
    """Base class of network estimators whose potentials depend on inputs."""

    C_label: Annotated[float, PRIOR_VARIANCE] = 1.0
    edge_kernel: Annotated[Any, OPTIONAL_KERNEL] = None

    def _check_combinations(self) -> None:
        super()._check_combinations()
        if self.penalty is not None:
            advice = "a structure search compares bounds of Gaussian penalties. Pass the structure, or penalty=None"
            self._exclude("penalty", {self._structure: self._is_learned}, advice)

    def _kernel_of(
        self,
        argument: str,
        earlier: NetworkModel | None,
        terms: Iterable[str],
        X: Inputs,
        weights: Floats | None = None,
    ) -> InputKernel:
        """Return the input kernel that some terms of the score share.

        For a warm start, this is their kernel in the model `earlier` of the previous fit, if there is one. Otherwise,
        it is the kernel that the parameter with the name `argument` defines for the inputs X.
        """
        known = {} if earlier is None else earlier.layout.by_name
        for name in terms:
            if name in known and (kernel := known[name].kernel) is not None:
                return kernel
        return self._make_kernel(argument, X.shape[1], is_sparse(X), lambda: gamma_by_scale(X, weights))


def interacting_pairs(structure: Any, labels: Array, cards: Array, weights: Floats | None) -> list[tuple[int, int]]:
    """Return the pairs of labels or variables that interact or, for structure="auto", the pairs that may interact."""
    if not isinstance(structure, str):
        return checked_pairs(structure, len(cards), "structure")
    if structure == "tree":
        return chow_liu(labels, cards, weights)
    return [] if structure == "none" else all_pairs(len(cards))
