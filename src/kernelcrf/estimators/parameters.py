"""Check the parameters of estimators.

An estimator declares each parameter with its type, constraint and default as a field of its class, for example

    tol: Annotated[float, SHARE] = 1e-4
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, get_origin, get_type_hints

from sklearn.base import BaseEstimator

from kernelcrf.fitting.training import DIAGONAL
from kernelcrf.kernels.inputs import KERNEL
from kernelcrf.penalties import Penalty
from kernelcrf.validation import (
    FLAG,
    LAG,
    POSITIVE,
    SEED,
    SIZE,
    Constraint,
    Parameter,
    either,
    instance_of,
    is_listed,
    nothing,
    one_of,
    real,
)


@cache
def declared_parameters(estimator: type) -> dict[str, Parameter]:
    """Return a dict that maps each parameter name of an estimator class to the constraint on its value."""
    hints = get_type_hints(estimator, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items() if get_origin(hint) is Annotated}


def check_values(estimator: BaseEstimator, *names: str) -> None:
    """Raise if one of the named parameters of an estimator is wrong; without names, check all parameters."""
    declared = declared_parameters(type(estimator))  # type: ignore[arg-type]
    for name in names or declared:
        declared[name].check(name, getattr(estimator, name))


class ValidatedEstimator(BaseEstimator):  # type: ignore[misc]
    """Base class of inputs, wrappers and transformers that check the values of their parameters."""

    def _validate_params(self, *names: str) -> None:
        """Raise if one of the named parameters is wrong; without names, check all parameters."""
        check_values(self, *names)


CLASSES = either(
    nothing,
    Constraint("a list of labels", lambda values: is_listed(values) and len({*values}) >= 1),
    advice="None uses the labels of y",
)
OPTIONAL_KERNEL = Parameter((*KERNEL.constraints, nothing), KERNEL.advice)
PENALTY = either(
    instance_of(Penalty, text="a penalty such as kernelcrf.penalties.ElasticNet(0.1)"),
    nothing,
    advice="None is the penalty of C alone",
)
LAPLACE = either(*FLAG.constraints, one_of(DIAGONAL))
CLASS_WEIGHT = either(nothing, one_of("balanced"), instance_of(Mapping, text="a dict from labels to weights"))
OF_STREAMS = {"lag": LAG, "max_delay": either(*LAG.constraints, nothing)}
STORED_DTYPE = either(one_of("float16", "float32", "float64"), nothing)
CATEGORIES = either(
    one_of("auto"),
    Constraint(
        "a list with the values of each column, or None for the values that occur",
        lambda given: is_listed(given) and all(values is None or is_listed(values) for values in given),
    ),
)
EVERY_PAIR, OBSERVED_PAIRS = "all", "observed"
_PAIRS_OF_ONE_KIND = either(one_of(OBSERVED_PAIRS, EVERY_PAIR), real(above=0))
WEIGHTS = either(
    *_PAIRS_OF_ONE_KIND.constraints,
    Constraint(
        "two of these values, for inputs and for transitions",
        lambda given: (
            isinstance(given, list | tuple) and len(given) == 2 and all(map(_PAIRS_OF_ONE_KIND.accepts, given))
        ),
    ),
)


def least_counts(weights: Any) -> tuple[float | None, float | None]:
    """Return a pair of numbers for a value of the parameter `weights`: how often pairs must occur to have a weight.

    The first number is for pairs of a feature and a label, and the second for pairs of neighbouring labels. A number is
    0 if it is enough that a pair occurs, and None if every pair has a weight.
    """
    of_inputs, of_transitions = weights if isinstance(weights, list | tuple) else (weights, weights)
    if isinstance(weights, str):
        of_transitions = EVERY_PAIR
    return _least_count(of_inputs), _least_count(of_transitions)


def weights_of_crfsuite(states: bool, transitions: bool, min_freq: float) -> str | float | tuple[str, str]:
    """Return the value of `weights` for CRFsuite's all_possible_states, all_possible_transitions and min_freq."""
    of_inputs = EVERY_PAIR if states else OBSERVED_PAIRS
    return min_freq or (of_inputs if transitions else (of_inputs, OBSERVED_PAIRS))


def _least_count(given: str | float) -> float | None:
    if isinstance(given, str):
        return None if given == EVERY_PAIR else 0.0
    return float(given)


GAMMA = either(one_of("scale", "auto"), *POSITIVE.constraints)
# The value of `fit_intercept` that also adds scores of the first and the last label of a sequence.
BOUNDARIES = "boundaries"
AUTO_INTERCEPT = either(one_of("auto"), *FLAG.constraints)
INTERCEPT = either(one_of("auto", BOUNDARIES), *FLAG.constraints)
POSTERIOR = either(one_of("map", "laplace"))
DRAWS = {"n_samples": either(SIZE, nothing), "random_state": SEED}
OF_POSTERIORS = {**DRAWS, "variance_temperature": either(real(least=0, most=1e12), advice="0 uses the mode only")}
STRUCTURE = either(one_of("auto", "full", "tree", "none"), Constraint("a list of pairs of numbers", is_listed))
