"""Further starts of a fit, if labels are missing and the objective is not convex.

A run of a solver then ends at a stationary point, which depends on its start. Further runs start at random points, and
the run with the smallest objective counts.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from kernelcrf.solvers.loop import Solver
from kernelcrf.validation import COUNT, either, has_methods, instance_of

OF_ONE_FIT = either(
    instance_of(str, text="the name of a solver"), has_methods("check", "solve", text="a solver such as NewtonCG()")
)


@dataclass(frozen=True)
class Restarts:
    """Fit again from other random starting points if labels are missing, and keep the fit with the smallest objective.

    If all labels are known, the objective is convex, and there are no further fits.

    Parameters
    ----------
    n : int
        Number of further fits.
    solver : str or a solver such as NewtonCG(), default="auto"
        The solver of all fits.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.solvers import Restarts
    >>> X, y = [[[0.0], [1.0], [0.1]], [[1.0], [0.9]]], [["a", None, "a"], [None, "b"]]
    >>> crf = ChainCRF("linear", C=1.0, solver=Restarts(5), random_state=0).fit(X, y)
    >>> crf.certificate_.status
    'stationary'
    """

    n: int
    solver: str | Solver = "auto"

    def __post_init__(self) -> None:
        COUNT.check("n", self.n)
        OF_ONE_FIT.check("solver", self.solver)


def of_a_run(solver: str | Solver | Restarts) -> tuple[str | Solver, int]:
    """Return the solver that each fit uses, and the number of further fits, given the parameter `solver`."""
    return (solver.solver, solver.n) if isinstance(solver, Restarts) else (solver, 0)


def solver_to_config(solver: Any) -> Any:
    """Return the parameter `solver` as a value that JSON can store if it is a name, or Restarts with a name."""
    if isinstance(solver, Restarts) and isinstance(solver.solver, str):
        return asdict(solver)
    return solver


def solver_from_config(config: Any) -> Any:
    """Return the parameter `solver` whose `solver_to_config` returned `config`."""
    return Restarts(**config) if isinstance(config, dict) else config
