"""Solvers that minimise the objective of a fit. The Newton solvers share one loop and one line search."""

from kernelcrf.objective import Objective
from kernelcrf.partitions.chains import ChainPartition
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
    parts = [partition for partition in objective.partitions if isinstance(partition, ChainPartition)]
    one_label = all(partition.counts_each_label for partition in parts)
    if solver == "auto":
        if one_label and Dual.suits(objective):
            return Dual()
        return LBFGS() if objective.layout.absolute is not None else Proximal()
    chosen = SOLVERS[solver]() if isinstance(solver, str) else solver
    if isinstance(chosen, Dual) and objective.is_convex and not one_label:
        raise ValueError(
            "solver='dual' cannot minimise this objective: expected one label per token and one weight per sequence, "
            "without soft labels and weights of tokens. Otherwise use solver='lbfgs'"
        )
    return chosen


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
