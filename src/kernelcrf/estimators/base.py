"""Base classes of the estimators: common parameters, fitting, the fitted model, and model files.

An estimator holds its parameters and, once it is fitted, one frozen model. `fit` assigns `model_` at its very end: if
`fit` fails or is interrupted, the estimator does not change. Fitted attributes such as `C_` are read from the model.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import KW_ONLY, dataclass, fields, replace
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from tqdm.auto import tqdm

from kernelcrf.arrays import Array, Arrays, Config, Inputs
from kernelcrf.basis.landmarks import N_COMPONENTS, NumberOrLandmarks, read_landmarks
from kernelcrf.certificate import Certificate
from kernelcrf.engines.local import LocalEngine
from kernelcrf.estimators.inheritance import check_prior, check_warm_start, specify
from kernelcrf.estimators.input import INPUTS, OF_ONE_INPUT, Input, is_mapping_of_inputs
from kernelcrf.estimators.parameters import (
    GAMMA,
    PENALTY,
    STORED_DTYPE,
    check_values,
)
from kernelcrf.estimators.prior import PRIOR, check_terms, model_of
from kernelcrf.estimators.stored import set_parameters, to_stored
from kernelcrf.fitting.checkpoints import CHECKPOINT, Checkpoint
from kernelcrf.fitting.corpus import Groups, Problem
from kernelcrf.fitting.earlier import Earlier
from kernelcrf.fitting.fit import Callback, Settings, Start
from kernelcrf.fitting.held_out import FIRST_C, Comparison
from kernelcrf.fitting.structure_search import SearchSettings
from kernelcrf.fitting.training import Plan, Trained, train
from kernelcrf.kernels.gamma import KERNEL_OR_AUTO, make_kernel, resolve_kernel
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.models.base import FittedModel
from kernelcrf.models.conversion import convert_content
from kernelcrf.models.kernel import kernel_parameter
from kernelcrf.penalties import Penalty
from kernelcrf.persistence import Budget, ModelFileError, PathLike, write
from kernelcrf.persistence.crfsuite.model_file import refuse_suffix
from kernelcrf.persistence.error import CONTENT_ERRORS
from kernelcrf.readers.inputs import InputsReader
from kernelcrf.readers.stored_values import string_names
from kernelcrf.rules import AUTO, EVIDENCE, PRIOR_VARIANCE_OR_RULE, HeldOut, VarianceRule, find_C_rule, of_C
from kernelcrf.score.cliques import TOKENS
from kernelcrf.score.terms import BETWEEN, OF_INPUT, NamedInput, Term, input_name, named_term
from kernelcrf.solvers import SOLVER, Record, Restarts, Solver
from kernelcrf.solvers.loop import OPTIMAL, STATIONARY
from kernelcrf.solvers.stopping import STOP, StoppingRule
from kernelcrf.validation import (
    FLAG,
    N_JOBS,
    PATH,
    SEED,
    SHARE,
    ParameterError,
    either,
    shown,
    shown_list,
    stacklevel_of_user,
    validated,
    whole,
)

T = TypeVar("T")
Model = TypeVar("Model", bound=FittedModel)


def fitted_model(estimator: Any) -> Any:
    """Return the model of a fitted estimator; raise NotFittedError if there is none."""
    model = getattr(estimator, "model_", None)
    if model is None:
        check_is_fitted(estimator, "model_")
    return model


class Fitted(Generic[T]):
    """A read-only attribute of an estimator, whose value is an attribute of the fitted model.

    path : the name of the model's attribute, or a dotted name such as "labels.classes".
    """

    def __init__(self, path: str) -> None:
        self._read = attrgetter(path)

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, estimator: object | None, owner: type) -> T:
        if estimator is None:
            return self  # type: ignore[return-value]
        value: T = self._read(fitted_model(estimator))
        return value

    def __set__(self, estimator: object, value: object) -> None:
        raise AttributeError(f"{self._name} of {type(estimator).__name__} cannot be set: call fit to change it")


class FittedNames(Fitted[Array]):
    """A read-only attribute with the column names of the training data.

    Reading it raises AttributeError unless all names are strings.
    """

    def __get__(self, estimator: object | None, owner: type) -> Array:
        if estimator is None:
            return super().__get__(estimator, owner)
        names = string_names(super().__get__(estimator, owner))
        if names is None:
            raise AttributeError(
                f"this {owner.__name__} was fitted to data whose columns are not named by strings: fit it to a data "
                "frame with strings as column names"
            )
        return names


@dataclass(eq=False, repr=False)
class Estimator(BaseEstimator, Generic[Model]):  # type: ignore[misc]
    """Base class of all estimators, with the parameters, attributes and methods that all of them have."""

    kernel: Annotated[Any, KERNEL_OR_AUTO] = "auto"
    _: KW_ONLY
    C: Annotated[float | str | VarianceRule, PRIOR_VARIANCE_OR_RULE] = 1.0
    laplace: Annotated[bool | str, FLAG] = False
    solver: Annotated[str | Solver | Restarts, SOLVER] = "auto"
    tol: Annotated[float, SHARE] = 1e-4
    max_iter: Annotated[int | StoppingRule, STOP] = 1000
    certify_full: Annotated[bool, FLAG] = False
    warm_start: Annotated[bool, FLAG] = False
    checkpoint: Annotated[Any, CHECKPOINT] = None
    n_jobs: Annotated[int | None, N_JOBS] = 1
    random_state: Annotated[Any, SEED] = None
    prior: Annotated[Any, PRIOR] = None
    verbose: Annotated[int, either(whole(least=0), *FLAG.constraints)] = 0

    _model_type: ClassVar[type[FittedModel]]
    _scores_labels: ClassVar[bool] = False

    certificate_ = Fitted[Certificate]("certificate")
    n_iter_ = Fitted[int]("n_iter")
    C_ = Fitted[float]("C")
    log_marginal_likelihood_error_ = Fitted[float]("evidence.error")

    def log_marginal_likelihood(self) -> float:
        """Return log p(y | X) of the training data by Laplace's approximation; this needs a fit with laplace=True."""
        return float(self._model.evidence.log_evidence)

    @validated(path=PATH, dtype=STORED_DTYPE)
    def save(self, path: PathLike, *, dtype: str | None = None) -> None:
        """Write the fitted model to a file that `kernelcrf.load` reads; the file contains no executable code.

        dtype : "float32" or "float16" rounds the weights to 32 or 16 bits, so that the file is smaller; None keeps them
            as they are.
        """
        refuse_suffix(path, type(self).__name__)
        # If the original is fitted again, the copy keeps its model.
        estimator = copy(self)
        write(path, *to_stored(estimator, dtype), answer_bytes=estimator.model_.answer_bytes)

    @classmethod
    def from_arrays(cls, config: Config, arrays: Arrays, budget: Budget) -> Self:
        """Return a fitted estimator from the content of a model file; to read a file, use `kernelcrf.load`."""
        try:
            config, arrays = convert_content(config, arrays)
            estimator = cls()
            estimator.model_ = cls._model_type.from_content(config, arrays, budget)
            set_parameters(estimator, config["parameters"], estimator.model_.kernels)
            # Parameters may have been changed after the fit: the next fit checks whether they can be combined.
            estimator._validate_params(*estimator.get_params(deep=False))
            if "specification" not in config:
                estimator.model_ = replace(estimator.model_, specification=estimator._specification)
        except ModelFileError:
            raise
        except CONTENT_ERRORS as error:
            raise ModelFileError(
                f"the model file is inconsistent ({error}): expected a file that save has written. The file "
                "may be damaged: use another copy of it"
            ) from None
        return estimator

    @property
    def _model(self) -> Model:
        """Return the fitted model; a method should read it only once, to use the same model throughout.

        Another thread may fit the estimator again at any time.
        """
        model: Model = fitted_model(self)
        return model

    @property
    def _specification(self) -> Config:
        """Return the settings of a fit as plain values; the fitted model keeps them."""
        return specify(self.get_params(deep=False))

    def _find_start(self) -> Model | None:
        """Return the model of the previous fit if `warm_start` is True and there was such a fit, else None.

        Raise if a parameter has changed since the previous fit, except for parameters that a warm start may change.
        """
        model: Model | None = getattr(self, "model_", None) if self.warm_start else None
        if model is not None:
            check_warm_start(self._specification, model)
        return model

    def _find_prior(self) -> Model | None:
        """Return the model of the parameter `prior`, or None; raise if this fit cannot use that model."""
        model: Model | None = model_of(self.prior, type(self), self._model_type)
        if model is not None:
            check_prior(self._specification, model)
            check_terms(self, model)
        return model

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted copy with the same parameters; the parameter `prior` is the same object, not a copy."""
        copied: Self = super().__sklearn_clone__()
        copied.prior = self.prior
        return copied

    @property
    def _engine(self) -> LocalEngine:
        return LocalEngine(1 if self.n_jobs is None else self.n_jobs)

    @property
    def _given_C(self) -> float | str:
        """Return C if it is a number, else the name of the rule that chooses it."""
        return of_C(self.C)

    @property
    def _uses_evidence(self) -> bool:
        """Return whether C or the kernel is chosen by the evidence."""
        rule = find_C_rule(self.C)
        return rule is not None and rule.is_evidence

    @property
    def _optimizes_kernel(self) -> bool:
        """Return whether the fit chooses the hyperparameters of the kernel."""
        rule = find_C_rule(self.C)
        return rule is not None and rule.optimize_kernel

    def _groups(self, terms: Sequence[Term]) -> list[list[str]]:
        """Return groups of names of the terms whose prior variance is C; a rule for C chooses one value per group."""
        return [[term.name for term in terms]]

    def _update(self, terms: Sequence[Term], groups: Groups, prior: Earlier) -> tuple[list[Term], Groups]:
        """Return the terms with the priors of an earlier model, and the groups whose C is still to be chosen."""
        extended = prior.extend(terms)
        if prior.posterior is None or self._given_C != AUTO:
            return extended, groups
        # The posterior is that of the C of the earlier fit, so that Bayes' rule asks for the same one.
        return prior.with_variances(extended, {name for names in groups for name in names}), []

    def _first_C(self, earlier: Model | None) -> float:
        """Return the prior variance C at the start of a fit, before a search changes it.

        earlier : the model that the fit starts from, or None.
        """
        given = self._given_C
        if not isinstance(given, str):
            return float(given)
        # A model that was read from a file of another library has no C.
        return FIRST_C if earlier is None or given != EVIDENCE or np.isnan(earlier.C) else float(earlier.C)

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    @property
    def _searches(self) -> dict[str, bool]:
        """Return a dict from parameter names to flags: True if the parameter requests a search with several fits."""
        return {"C": self._uses_evidence, "solver": isinstance(self.solver, Restarts)}

    def _validate_params(self, *names: str) -> None:
        """Raise if one of the named parameters is wrong; without names, check all parameters and their combinations."""
        check_values(self, *names)
        if not names:
            self._check_combinations()

    def _exclude(self, name: str, others: Mapping[str, bool], advice: str) -> None:
        """Raise if a flag in `others` says that the parameter `name` cannot be combined with another parameter.

        others : a dict from names of other parameters to flags: True means that both values cannot be combined.
        advice : the end of the error message.
        """
        for other, excluded in others.items():
            if excluded:
                raise ParameterError(
                    f"{name}={shown(getattr(self, name))} cannot be combined with {other}="
                    f"{shown(getattr(self, other))}: {advice}"
                )

    def _check_combinations(self) -> None:
        """Raise if the values of two parameters are valid but cannot be combined."""
        if self.prior is not None:
            others = {"penalty": getattr(self, "penalty", None) is not None, "warm_start": bool(self.warm_start)}
            self._exclude("prior", others, "pass the default of this parameter, or prior=None")
            advice = "the evidence is for priors with the mean 0. Pass C='auto' or a number"
            self._exclude("prior", {"C": self._uses_evidence}, advice)
        rule = find_C_rule(self.C)
        if isinstance(rule, HeldOut) and rule.scoring is not None and not self._scores_labels:
            raise ParameterError(
                f"C={shown(self.C)}: expected scoring=None, because {type(self).__name__} cannot choose C by a metric; "
                "pass C='auto', or use GridSearchCV with scoring=kernelcrf.metrics.get_scorer(...)"
            )
        if self.checkpoint is not None:
            self._exclude("checkpoint", self._searches, "a checkpoint can store one fit, but a search makes several")

    def _settings(self, seed: int) -> Settings:
        return Settings(
            solver=self.solver,
            tol=float(self.tol),
            max_iter=self.max_iter,
            certify_full=bool(self.certify_full),
            random_state=seed,
            engine=self._engine,
        )

    def _train(
        self,
        problem: Problem,
        groups: Groups,
        start: Start | None,
        seed: int,
        structure: SearchSettings | None = None,
        comparison: Comparison | None = None,
    ) -> Trained:
        """Fit a problem with the parameters of this estimator; warn if the fit does not reach `tol`.

        groups : the names of the terms whose weights have the prior variance C. If C is chosen by a rule, the rule
            chooses one C for each group.
        start : an earlier fit to start from, or None.
        structure : settings of a structure search, or None if the structure is given.
        comparison : what the search for C compares on held-out samples besides values of C; None if it compares nothing
            else.
        """
        with_kernel = [term for term in problem.terms if term.kernel is not None]
        rule = find_C_rule(self.C)
        optimized = with_kernel if rule is not None and rule.optimize_kernel else []
        plan = Plan(
            by_evidence=groups if self._given_C == EVIDENCE else (),
            by_held_out=groups if self._given_C == AUTO else (),
            comparison=comparison or Comparison(),
            kernel_terms=[term.name for term in optimized if term.kernel is optimized[0].kernel],
            n_restarts=0 if rule is None else rule.n_restarts,
            laplace=self.laplace if isinstance(self.laplace, str) else bool(self.laplace),
            checkpoint=Checkpoint.of(self.checkpoint),
            structure=structure,
        )
        with self._progress(problem.corpus.where) as callback:
            trained = train(problem, replace(self._settings(seed), callback=callback), plan, start)
        self._warn_if_short(trained.fit.certificate, trained.fit.solution.history[-1])
        return trained

    @contextmanager
    def _progress(self, where: Callable[[], str]) -> Iterator[Callback]:
        """Show a progress bar if `verbose` is set, and yield the function that updates the bar, or None.

        The bar shows the iterations of the current fit, the objective and its gap. In a search, the bar also shows the
        number of the fit.

        where : a function that returns a text for the end of the bar, for example the state of a cluster.
        """
        if not self.verbose:
            yield None
            return
        with tqdm(desc=type(self).__name__, bar_format="{desc}: {n_fmt} iterations [{elapsed}{postfix}]") as bar:
            n_fits = 0

            def show(history: Sequence[Record]) -> None:
                nonlocal n_fits
                record, n_iter = history[-1], len(history) - 1
                n_fits += n_fits == 0 or n_iter <= bar.n
                bar.update(n_iter - bar.n)
                fit = f"fit {n_fits}" if n_fits > 1 else ""
                told = [fit, f"objective {record.value:.6g}", f"gap {record.relative_gap:.1e}", where()]
                bar.set_postfix_str(", ".join(filter(None, told)))

            yield show

    def _warn_if_short(self, certificate: Certificate, last: Record) -> None:
        """Warn if a fit did not reach `tol`; `last` is the record of its last iteration."""
        if certificate.status in (OPTIMAL, STATIONARY):
            return
        if certificate.gap_full is not None:
            kind = "gap in the kernel's whole function space"
            gap = certificate.gap_full / max(abs(certificate.objective), np.finfo(np.float64).tiny)
        else:
            kind, gap = certificate.measure, last.relative_gap
        above = f", above tol={self.tol:g}" if gap > self.tol else ""
        remedy = "increase max_iter or tol"
        if certificate.rounding * max(1.0, abs(certificate.objective)) > self.tol * abs(certificate.objective):
            remedy = f"rounding alone may exceed tol={self.tol:g}, so increase tol, or pass float64 inputs"
        warnings.warn(
            f"the fit ended with status {certificate.status!r} at a relative {kind} of {gap:.1e}{above}: {remedy}",
            ConvergenceWarning,
            stacklevel=stacklevel_of_user(),
        )


@dataclass(eq=False, repr=False, kw_only=True)
class InputEstimator(Estimator[Model]):
    """Base class of estimators whose samples have inputs; it adds the parameters of the input kernel."""

    gamma: Annotated[float | str, GAMMA] = "scale"
    n_components: Annotated[NumberOrLandmarks, N_COMPONENTS] = 500
    penalty: Annotated[Penalty | None, PENALTY] = None
    inputs: Annotated[Any, INPUTS] = None

    # The parameters with further kernels, which share gamma and n_components with `kernel`.
    _further_kernels: ClassVar[tuple[str, ...]] = ()
    # The kinds of cliques that an input may score.
    _scored_by_inputs: ClassVar[tuple[str, ...]] = (TOKENS,)

    landmarks_ = Fitted[Inputs | None]("landmarks")
    input_variances_ = Fitted[dict[str, float]]("variances")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters as a dict; if `deep` is True, also those of inputs, such as `inputs__words__C`."""
        params: dict[str, Any] = super().get_params(deep)
        for name, one in (self.inputs or {}).items() if deep and is_mapping_of_inputs(self.inputs) else ():
            params[OF_INPUT + name] = one
            of_input = Input.of_kernel(one).get_params()
            params |= {f"{OF_INPUT}{name}{BETWEEN}{key}": value for key, value in of_input.items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the estimator or of its inputs, such as `inputs__words__C`, and return the estimator."""
        of_estimator = {key: value for key, value in params.items() if not key.startswith(OF_INPUT)}
        super().set_params(**of_estimator)
        # "inputs__words" is set before "inputs__words__C".
        for key in sorted(params.keys() - of_estimator.keys()):
            inputs = self.inputs or {}
            name, _, parameter = key.removeprefix(OF_INPUT).partition(BETWEEN)
            if name not in inputs:
                raise ValueError(
                    f"Invalid parameter {key!r} for estimator {type(self).__name__}: there is no input {name!r}; "
                    f"expected one of {shown_list(inputs)}"
                )
            if parameter and isinstance(inputs[name], Input):
                inputs[name].set_params(**{parameter: params[key]})
            else:
                given = Input(inputs[name]).set_params(**{parameter: params[key]}) if parameter else params[key]
                self.inputs = {**inputs, name: given}
        return self

    @property
    def _named_inputs(self) -> dict[str, Input]:
        """Return the inputs that have names; empty if there is one input without a name."""
        return {name: Input.of_kernel(one) for name, one in (self.inputs or {}).items()}

    @property
    def _searches(self) -> dict[str, bool]:
        adding = any(read_landmarks(one.n_components).n == AUTO for one in self._named_inputs.values())
        return super()._searches | {"n_components": read_landmarks(self.n_components).n == AUTO, "inputs": adding}

    def _settings(self, seed: int) -> Settings:
        of_inputs = {name: read_landmarks(one.n_components) for name, one in self._named_inputs.items()}
        return replace(super()._settings(seed), landmarks=read_landmarks(self.n_components), of_inputs=of_inputs)

    def _check_combinations(self) -> None:
        super()._check_combinations()
        if self.inputs is not None:
            self._check_inputs(self._named_inputs)
        if self.penalty is not None:
            others = {"C": self._uses_evidence, "laplace": bool(self.laplace)}
            self._exclude("penalty", others, "penalties with corners have no evidence. Set penalty=None")

    def _check_inputs(self, inputs: Mapping[str, Input]) -> None:
        """Raise if an input is wrong, or if a parameter of the estimator must be set for each input instead."""
        defaults = {field.name: field.default for field in fields(self)}
        is_shared = any(getattr(self, name) is not None for name in self._further_kernels)
        names = ("kernel",) if is_shared else OF_ONE_INPUT
        changed = {name: bool(getattr(self, name) != defaults[name]) for name in names}
        self._exclude("inputs", changed, "set this parameter of each Input")
        for name, one in inputs.items():
            if not isinstance(name, str) or not name or BETWEEN in name:
                raise ParameterError(
                    f"inputs has the name {shown(name)}: expected a non-empty string without {BETWEEN!r}; rename it"
                )
            one.check(name)
            if one.scores not in self._scored_by_inputs:
                raise ParameterError(
                    f"inputs__{name}__scores={one.scores!r}: expected {shown_list(self._scored_by_inputs)}, because "
                    f"{type(self).__name__} has no other inputs"
                )
        of_tokens = [one for one in inputs.values() if one.scores == TOKENS]
        if not of_tokens:
            raise ParameterError(
                "no input has scores='tokens': expected at least one input that scores all tokens; set the "
                "scores of an Input to 'tokens'"
            )
        advice = (
            "the evidence chooses the kernel of tokens only if one input scores them; search over parameters such as "
            "inputs__NAME__gamma"
        )
        self._exclude("inputs", {"C": self._optimizes_kernel and len(of_tokens) > 1}, advice)

    @property
    def _chosen(self) -> dict[str, tuple[str | None, Any]] | None:
        """Return a dict from each input name to the pair (entry, columns) that the input reads; None without names."""
        return {name: (one.of, one.columns) for name, one in self._named_inputs.items()} or None

    @property
    def _learns_names(self) -> bool:
        """Return whether a fit that starts from an earlier model can add feature names to those of the earlier model.

        The result is False if a kernel reads several inputs side by side, because new columns would then move old ones.
        """
        return self.inputs is None or all(getattr(self, name) is None for name in self._further_kernels)

    def _expected_features(self, is_sparse: Callable[[str], bool]) -> tuple[int, int]:
        """Return the likely numbers of stored features per token, which determine how data are divided on a cluster.

        The result has the sums of `Input.expected_features` over all inputs.

        is_sparse : a function that says whether the input of a given name is sparse.
        """
        inputs = self._named_inputs or {TOKENS: Input(self.kernel, n_components=self.n_components)}
        pairs = [one.expected_features(sparse=is_sparse(name)) for name, one in inputs.items()]
        return sum(usual for usual, _ in pairs), sum(least for _, least in pairs)

    def _named_kernels(self, reader: InputsReader, by_scale: Callable[[str], float]) -> dict[str, InputKernel]:
        """Return a dict from names of parameters, such as `inputs__words__kernel`, to the kernels of named inputs.

        by_scale : a function that computes gamma from the input of a given name, for gamma="scale".
        """
        inputs = self._named_inputs.items()
        return {kernel_parameter(named_term(name)): one.make_kernel(name, reader, by_scale) for name, one in inputs}

    def _scored_inputs(self, kernels: Mapping[str, InputKernel], C: float) -> dict[str, NamedInput]:
        """Return a dict from the name of each input to its kernel, its prior variance and what it scores.

        kernels : the result of `_named_kernels`.
        C : the prior variance of inputs whose parameter C is None.
        """
        return {
            name: NamedInput(
                kernels[kernel_parameter(named_term(name))], C if one.C is None else float(one.C), one.scores
            )
            for name, one in self._named_inputs.items()
        }

    def _groups(self, terms: Sequence[Term]) -> list[list[str]]:
        """Return groups of names of the terms whose prior variance is C; a rule for C chooses one value per group.

        The terms of each named input form a group; if the input has its own C, they are in no group. The terms that
        belong to no named input form one more group.
        """
        if self.inputs is None:
            return super()._groups(terms)
        groups: dict[str | None, list[str]] = {name: [] for name, one in self._named_inputs.items() if one.C is None}
        groups[None] = []
        for term in terms:
            if (name := input_name(term.name)) in groups:
                groups[name].append(term.name)
        return [names for names in groups.values() if names]

    def _penalise(self, terms: Sequence[Term]) -> list[Term]:
        """Return the terms with the penalty of this estimator; raise if a kernel is not allowed with this penalty."""
        if self.penalty is None:
            return list(terms)
        for term in terms:
            if self.penalty.of_coordinates and term.kernel is not None and not term.kernel.is_linear:
                name = kernel_parameter(term.name) if input_name(term.name) is not None else "kernel"
                raise ParameterError(
                    f"penalty={self.penalty!r} needs linear kernels, and term {term.name!r} has "
                    f"{term.kernel.described}: pass {name}='linear', another penalty, or penalty=None"
                )
        return [replace(term, penalty=self.penalty) for term in terms]

    def _make_kernel(self, argument: str, n_features: int, sparse: bool, by_scale: Callable[[], float]) -> InputKernel:
        """Return the kernel that the parameter called `argument` defines, for sparse or dense inputs.

        by_scale : a function without arguments that computes gamma from the inputs, for gamma="scale".
        """
        linear_only = self.penalty is not None and self.penalty.of_coordinates
        kernel = resolve_kernel(getattr(self, argument), sparse or linear_only)
        return make_kernel(n_features, by_scale, kernel, self.gamma, argument)
