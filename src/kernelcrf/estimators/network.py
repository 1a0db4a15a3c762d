"""Base classes of GraphCRF, MarkovNetwork and MultiLabelCRF: their common parameters, fit and structure search."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

from kernelcrf.arrays import Array, Floats, Inputs, Places, UserData, is_sparse
from kernelcrf.estimators.base import Estimator, Fitted, InputEstimator, Model
from kernelcrf.estimators.parameters import OPTIONAL_KERNEL
from kernelcrf.fitting.corpus import Groups, Problem
from kernelcrf.fitting.earlier import Earlier
from kernelcrf.fitting.graphs import Networks
from kernelcrf.fitting.structure_search import Search, SearchSettings
from kernelcrf.graphs.label_graphs import all_pairs, checked_pairs, chow_liu
from kernelcrf.kernels.gamma import gamma_by_scale
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.models.base import common_variance
from kernelcrf.models.network import NetworkModel, named_kernels
from kernelcrf.readers.base_scores import check_base_scores
from kernelcrf.readers.inputs import InputsReader
from kernelcrf.score.terms import PRIOR_VARIANCE, NamedInput, Term
from kernelcrf.validation import ParameterError, either, nothing, real, shown


@dataclass(eq=False, repr=False, kw_only=True)
class NetworkEstimator(Estimator[Model]):
    """Base class of estimators whose labels or variables are the nodes of a graph; it adds structure search."""

    structure_tol: Annotated[float, either(real(least=0))] = 1e-3
    min_gain: Annotated[float | None, either(real(least=0), nothing)] = None

    _structure: ClassVar[str] = "structure"

    def _penalise(self, terms: Sequence[Term]) -> list[Term]:
        """Return the terms with the penalty of this estimator."""
        return list(terms)

    search_ = Fitted[Search | None]("search")

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
        for name in ("n_components", "inputs"):
            if self._searches.get(name):
                self._exclude(name, {self._structure: self._is_learned}, advice)

    def _train_network(
        self,
        terms: Sequence[Term],
        data: Networks,
        present: Sequence[str],
        seed: int,
        earlier: Model | None,
        prior: Earlier | None = None,
        *,
        grows: bool = False,
    ) -> dict[str, Any]:
        """Fit the terms of the score to the data; return arguments for the constructor of the model.

        present : the kinds of cliques with which a structure search starts; the search adds other kinds.
        earlier : the model of the previous fit for a warm start, or None.
        prior : the earlier model that determines the prior of the weights, or None. The new model keeps all cliques of
            that model.
        grows : whether inputs may have columns that they did not have in the previous fit.
        """
        # If some potentials depend on inputs, they have the prior variance C, and constant ones C_label.
        sharing_C, terms = [term for term in terms if term.input is not None] or terms, self._penalise(terms)
        groups: Groups = self._groups(sharing_C)
        start = None if earlier is None else earlier.start_for(terms, data.n_columns if grows else None)
        if prior is not None:
            terms, groups = self._update(terms, groups, prior)
            known = [term.cliques for term in terms if term.name in prior.layout.by_name]
            start, present = prior.start, list(dict.fromkeys([*present, *known]))
        problem = Problem(terms, data)
        min_gain = None if self.min_gain is None else float(self.min_gain)
        structure = SearchSettings(present, float(self.structure_tol), min_gain) if self._is_learned else None
        trained = self._train(problem, groups, start, seed, structure)
        fitted = trained.fit
        given = {name: getattr(self, name, None) for name in ("kernel", "edge_kernel")}
        sharing = {term.name for term in sharing_C}
        return {
            "certificate": fitted.certificate,
            "n_iter": fitted.solution.n_iter,
            "C": common_variance([term for term in fitted.layout.terms if term.name in sharing]),
            "search": trained.search,
            "laplace": trained.laplace,
            "layout": fitted.layout,
            "theta": fitted.theta,
            "maps": fitted.maps,
            "specification": self._specification,
            "kernels": {
                name: InputKernel(kernel) for name, kernel in given.items() if not isinstance(kernel, str | None)
            }
            | named_kernels(fitted.layout),
        }


@dataclass(frozen=True, eq=False)
class InputShape:
    """The facts that a kernel needs about inputs, in this process or on a cluster.

    by_scale : a function that returns the value of gamma="scale".
    """

    n_columns: int
    is_sparse: bool
    by_scale: Callable[[], float]

    @classmethod
    def of(cls, X: Inputs, weights: Floats | None = None, names: Sequence[str] | None = None) -> InputShape:
        """Return the shape of a matrix in this process; `weights` and `names` are as in `gamma_by_scale`."""
        return cls(X.shape[1], is_sparse(X), partial(gamma_by_scale, X, weights, names))


@dataclass(eq=False, repr=False, kw_only=True)
class InputNetworkEstimator(InputEstimator[Model], NetworkEstimator[Model]):
    """Base class of network estimators whose potentials depend on inputs."""

    C_label: Annotated[float, PRIOR_VARIANCE] = 1.0
    edge_kernel: Annotated[Any, OPTIONAL_KERNEL] = None

    _further_kernels: ClassVar[tuple[str, ...]] = ("edge_kernel",)

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
        X: InputShape,
    ) -> InputKernel:
        """Return the input kernel that some terms of the score share.

        If `earlier`, the model of the previous fit, has a kernel for one of these terms, return that kernel. Otherwise,
        return the kernel that the parameter with the name `argument` defines for inputs like X.
        """
        known = {} if earlier is None else earlier.layout.by_name
        for name in terms:
            if name in known and (kernel := known[name].kernel) is not None:
                return kernel
        return self._make_kernel(argument, X.n_columns, X.is_sparse, X.by_scale)

    def _inputs_of(
        self,
        shape_of: Callable[[str | None], InputShape],
        reader: InputsReader | None,
        earlier: NetworkModel | None,
        terms: Iterable[str],
        C: float,
    ) -> Mapping[Any, NamedInput]:
        """Return a dict from names to the inputs that score single nodes; an input without a name has the key None.

        shape_of : a function that returns the shape of an input, given its name, or None for the input without a name.
        reader : the reader of inputs that have names, or None.
        terms : the names of the terms that read an input without a name, for a warm start from `earlier`.
        C : the prior variance of inputs whose parameter C is None.
        """
        if reader is None:
            return {None: NamedInput(self._kernel_of("kernel", earlier, terms, shape_of(None)), C)}

        def by_scale(name: str) -> float:
            return shape_of(name).by_scale()

        kernels = self._named_kernels(reader, by_scale) if earlier is None else earlier.kernels
        return self._scored_inputs(kernels, C)


def refuse_base_scores(base_scores: UserData, samples: str, models: Iterable[NetworkModel | None]) -> None:
    """Raise if there are base scores, or if an earlier model has them, for data on a cluster.

    samples : what the data consist of, for the error message.
    """
    if base_scores is not None:
        raise ValueError(
            f"base_scores cannot be combined with data on a cluster: pass {samples} in this process and engine=None, "
            "or base_scores=None"
        )
    for model in models:
        if model is not None:
            check_base_scores(model.base, None)


def interacting_pairs(
    structure: Any, n_nodes: int, count: Callable[[], Array], known: Places | None = None
) -> list[tuple[int, int]]:
    """Return the pairs of labels or variables that interact or, for structure="auto", the pairs that may interact.

    n_nodes : the number of labels or variables.
    count : a function that returns how often the values of two of them occur together, as `count_pairs` does.
    known : the pairs that interact in the prior, or None. With structure="tree", these pairs are added to the tree.
        For any other structure, raise if the result lacks one of them.
    """
    kept = [] if known is None else list(map(tuple, known.tolist()))
    if isinstance(structure, str) and structure == "tree":
        return sorted({*chow_liu(count(), n_nodes), *kept})
    if isinstance(structure, str):
        pairs = [] if structure == "none" else all_pairs(n_nodes)
    else:
        pairs = checked_pairs(structure, n_nodes, "structure")
    if absent := [pair for pair in kept if pair not in pairs]:
        raise ParameterError(
            f"structure={shown(structure)} lacks the pair {absent[0]} of the prior: expected all of its pairs, because "
            "other weights of the prior depend on them. Add them, or pass prior=None"
        )
    return pairs
