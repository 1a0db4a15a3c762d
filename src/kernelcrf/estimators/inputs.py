"""Base class of ChainCRF with the parameter `inputs`: several inputs, each with its own kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Self

from kernelcrf.estimators.input import Input
from kernelcrf.estimators.parameters import OPTIONAL_KERNEL
from kernelcrf.estimators.sequences import SequenceEstimator, Sequential
from kernelcrf.fitting.fit import Settings
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.models.kernel import kernel_parameter
from kernelcrf.readers.inputs import BETWEEN
from kernelcrf.terms import OF_INPUT, Term
from kernelcrf.validation import (
    Constraint,
    ParameterError,
    either,
    nothing,
    shown,
    shown_list,
)


def _is_mapping_of_inputs(value: Any) -> bool:
    return isinstance(value, Mapping) and len(value) > 0 and all(isinstance(one, Input) for one in value.values())


INPUTS = either(Constraint("a dict from names to kernelcrf.Input", _is_mapping_of_inputs), nothing)
# Parameters that belong to one input, and are set for each of several inputs.
OF_ONE_INPUT = ("kernel", "gamma", "degree", "coef0", "n_components", "pivots")


@dataclass(eq=False, repr=False, kw_only=True)
class InputsEstimator(SequenceEstimator[Sequential]):
    """Base class of ChainCRF, with the parameter `inputs`, whose entries have parameters themselves."""

    inputs: Annotated[Any, INPUTS] = None
    edge_kernel: Annotated[Any, OPTIONAL_KERNEL] = None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters as a dict; if `deep` is True, also those of inputs, such as `inputs__words__C`."""
        found: dict[str, Any] = super().get_params(deep)
        for name, one in (self.inputs or {}).items() if deep and _is_mapping_of_inputs(self.inputs) else ():
            found[OF_INPUT + name] = one
            found |= {f"{OF_INPUT}{name}{BETWEEN}{key}": value for key, value in one.get_params().items()}
        return found

    def set_params(self, **params: Any) -> Self:
        """Set parameters, also those of inputs by names such as `inputs__words__C`, and return the estimator."""
        own = {key: value for key, value in params.items() if not key.startswith(OF_INPUT)}
        super().set_params(**own)
        # "inputs__words" is set before "inputs__words__C".
        for key in sorted(params.keys() - own.keys()):
            name, _, parameter = key.removeprefix(OF_INPUT).partition(BETWEEN)
            if name not in (self.inputs or {}):
                raise ValueError(
                    f"Invalid parameter {key!r} for estimator {type(self).__name__}: there is no input {name!r}; "
                    f"expected one of {shown_list(self.inputs or ())}"
                )
            if parameter:
                self.inputs[name].set_params(**{parameter: params[key]})
            else:
                self.inputs = {**self.inputs, name: params[key]}
        return self

    def _check_combinations(self) -> None:
        super()._check_combinations()
        if self.inputs is None:
            return
        defaults = {field.name: field.default for field in fields(self)}
        changed = {name: bool(getattr(self, name) != defaults[name]) for name in OF_ONE_INPUT}
        self._exclude("inputs", changed, "set this parameter of each Input")
        steps = {"edge_kernel": self.edge_kernel is not None}
        self._exclude("inputs", steps, "pass an Input with steps=True, which scores transitions")
        advice = "the evidence chooses the kernel of one input only; search over parameters such as inputs__NAME__gamma"
        self._exclude("inputs", {"optimize_kernel": bool(self.optimize_kernel)}, advice)
        for name, one in self.inputs.items():
            if not isinstance(name, str) or not name or BETWEEN in name:
                raise ParameterError(f"inputs has the name {shown(name)}: expected a string without {BETWEEN!r}")
            one.check(name)
        if all(one.steps for one in self.inputs.values()):
            raise ParameterError("all inputs have steps=True: expected at least one input that scores tokens")

    def _settings(self, seed: int) -> Settings:
        own = {OF_INPUT + name: (one.n_components, one.pivots) for name, one in (self.inputs or {}).items()}
        return replace(super()._settings(seed), of_terms=own)

    @property
    def _searches(self) -> dict[str, bool]:
        adding = any(isinstance(one.n_components, str) for one in (self.inputs or {}).values())
        return super()._searches | {"inputs": adding}

    def _inputs_of(self, kernels: Mapping[str, InputKernel], C: float) -> dict[str, tuple[InputKernel, float, bool]]:
        return {
            name: (kernels[kernel_parameter(OF_INPUT + name)], C if one.C is None else float(one.C), bool(one.steps))
            for name, one in (self.inputs or {}).items()
        }

    def _groups(self, terms: Sequence[Term]) -> list[list[str]]:
        if self.inputs is None:
            return super()._groups(terms)
        of_inputs = {OF_INPUT + name: one.C is None for name, one in self.inputs.items()}
        others = [term.name for term in terms if term.name not in of_inputs]
        return [[name] for name, is_free in of_inputs.items() if is_free] + ([others] if others else [])
