"""Solvers that minimise the objective of a fit. The Newton solvers share one loop and one line search."""

from kernelcrf.objective import Objective
from kernelcrf.solvers.dual import Dual
from kernelcrf.solvers.lbfgs import LBFGS
from kernelcrf.solvers.loop import Progress, Record, Solution, Solver, minimise
from kernelcrf.solvers.newton import BlockJacobi, Newton, NewtonCG, Subspace
from kernelcrf.solvers.proximal import Proximal
from kernelcrf.solvers.restarts import Restarts
from kernelcrf.solvers.stopping import STOPPING_RULES, MaxIterations, MaxSeconds, StoppingRule
from kernelcrf.validation import Constraint, either, has_methods, one_of

SOLVERS: dict[str, type[Solver]] = {
    "newton-cg": NewtonCG,
    "newton": Newton,
    "block-jacobi": BlockJacobi,
    "subspace": Subspace,
    "lbfgs": LBFGS,
    "dual": Dual,
    "proximal": Proximal,
}
OF_ONE_FIT = either(one_of("auto", *SOLVERS), has_methods("check", "solve", text="a solver such as NewtonCG()"))
SOLVER = either(
    *OF_ONE_FIT.constraints,
    Constraint(
        "Restarts(n) of one of these", lambda given: isinstance(given, Restarts) and OF_ONE_FIT.accepts(given.solver)
    ),
)


def find_solver(solver: str | Solver, objective: Objective) -> Solver:
    """Return the solver with the name `solver`; if `solver` is an object instead of a name, return it unchanged.

    The name "auto" selects `Dual` if it can minimise the objective, `Proximal` for penalties other than L1 that are not
    differentiable, and `LBFGS` otherwise.
    """
    OF_ONE_FIT.check("solver", solver)
    if solver == "auto":
        if Dual.suits(objective):
            return Dual()
        return LBFGS() if objective.layout.absolute is not None else Proximal()
    return SOLVERS[solver]() if isinstance(solver, str) else solver


__all__ = [
    "LBFGS",
    "SOLVERS",
    "STOPPING_RULES",
    "BlockJacobi",
    "Dual",
    "MaxIterations",
    "MaxSeconds",
    "Newton",
    "NewtonCG",
    "Progress",
    "Proximal",
    "Record",
    "Restarts",
    "Solution",
    "Solver",
    "StoppingRule",
    "Subspace",
    "minimise",
]
