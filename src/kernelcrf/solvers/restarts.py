"""Run a solver from several starting points if labels are missing, because the objective is then not convex.

The stationary point at which a run ends depends on the starting point of the run. Additional runs start at random
points, and the result is that of the run with the smallest objective.
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

    If all labels are known, the objective is convex, and there are no additional fits.

    Parameters
    ----------
    n : int
        Number of additional fits.
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
    """Return a pair: the solver that each fit uses, and the number of additional fits."""
    return (solver.solver, solver.n) if isinstance(solver, Restarts) else (solver, 0)


def solver_to_config(solver: Any) -> Any:
    """Convert a `Restarts` whose solver is a name to a dict for JSON; return all other solvers unchanged."""
    if isinstance(solver, Restarts) and isinstance(solver.solver, str):
        return asdict(solver)
    return solver


def solver_from_config(config: Any) -> Any:
    """Return the value of the parameter `solver` that `solver_to_config` converted to `config`."""
    return Restarts(**config) if isinstance(config, dict) else config
