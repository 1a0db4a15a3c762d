"""Stopping rules, which can end a fit early.

Without a rule, a fit ends when its certified gap is within the tolerance. A rule can end the fit earlier, for example
after 60 seconds. The status of such a fit is the name of the rule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from kernelcrf.validation import POSITIVE, either, instance_of, whole

ITERATIONS = either(whole(least=0))


class StoppingRule(ABC):
    """Base class of stopping rules.

    name : the status of a fit that the rule ended, and the name of the rule in model files.

    Examples
    --------
    >>> from kernelcrf.solvers import MaxSeconds, StoppingRule
    >>> isinstance(MaxSeconds(60), StoppingRule), MaxSeconds(60).to_config()
    (True, {'name': 'max_seconds', 'seconds': 60})
    """

    name: ClassVar[str]

    @abstractmethod
    def is_reached(self, n_iter: int, seconds: float) -> bool:
        """Return whether a fit must end, given its number of iterations and its time so far."""

    def to_config(self) -> dict[str, Any]:
        """Return the rule as values that JSON can store; `stopping_from_config` restores it."""
        return {"name": self.name, **vars(self)}


@dataclass(frozen=True)
class MaxIterations(StoppingRule):
    """End a fit after a number of iterations; for the solver "dual", an iteration is a pass over the data.

    Examples
    --------
    >>> from kernelcrf.solvers import MaxIterations
    >>> MaxIterations(100).is_reached(100, seconds=0.1)
    True
    """

    iterations: int
    name: ClassVar[str] = "max_iter"

    def __post_init__(self) -> None:
        ITERATIONS.check("max_iter", self.iterations)

    def is_reached(self, n_iter: int, seconds: float) -> bool:
        return n_iter >= self.iterations


@dataclass(frozen=True)
class MaxSeconds(StoppingRule):
    """End a fit after some seconds.

    The result depends on the speed of the machine. The certificate says how far the result may be from the optimum.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.solvers import MaxSeconds
    >>> X, y = [[[0.0], [1.0]], [[1.0]]], [["a", "b"], ["b"]]
    >>> ChainCRF("linear", C=1.0, max_iter=MaxSeconds(60)).fit(X, y).certificate_.status
    'optimal'
    """

    seconds: float
    name: ClassVar[str] = "max_seconds"

    def __post_init__(self) -> None:
        POSITIVE.check("seconds", self.seconds)

    def is_reached(self, n_iter: int, seconds: float) -> bool:
        return seconds >= self.seconds


STOPPING_RULES: dict[str, type[StoppingRule]] = {rule.name: rule for rule in (MaxIterations, MaxSeconds)}
"""The stopping rules, by name."""

STOP = either(
    whole(least=1), instance_of(StoppingRule, text="a stopping rule such as kernelcrf.solvers.MaxSeconds(60)")
)


def find_stop(stop: int | StoppingRule) -> StoppingRule:
    """Return a stopping rule; a number means the largest number of iterations."""
    return stop if isinstance(stop, StoppingRule) else MaxIterations(int(stop))


def stopping_from_config(config: dict[str, Any]) -> StoppingRule:
    """Return the stopping rule whose method `to_config` returned `config`."""
    values = dict(config)
    name = values.pop("name")
    if name not in STOPPING_RULES:
        raise ValueError(f"the stopping rule {str(name)[:80]!r} is not known: expected one of {list(STOPPING_RULES)}")
    return STOPPING_RULES[name](**values)
