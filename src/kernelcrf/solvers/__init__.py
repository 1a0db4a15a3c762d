"""Ways to minimise P: one loop, one line search, directions that differ."""

from kernelcrf.objective import Objective
from kernelcrf.solvers.block_jacobi import BlockJacobi
from kernelcrf.solvers.dual import Dual
from kernelcrf.solvers.lbfgs import LBFGS
from kernelcrf.solvers.loop import Progress, Record, Solution, Solver
from kernelcrf.solvers.newton import Newton
from kernelcrf.solvers.newton_cg import NewtonCG
from kernelcrf.solvers.subspace import Subspace

SOLVERS: dict[str, type[Solver]] = {
    "newton-cg": NewtonCG,
    "newton": Newton,
    "block-jacobi": BlockJacobi,
    "subspace": Subspace,
    "lbfgs": LBFGS,
    "dual": Dual,
}


def solver_named(name: str, objective: Objective) -> Solver:
    """A solver by its name; "auto" is the dual one where it suits the objective, else L-BFGS."""
    if name == "auto":
        return Dual() if Dual.suits(objective) else LBFGS()
    if name not in SOLVERS:
        raise ValueError(f"solver={name!r}: expected one of auto, {', '.join(SOLVERS)}")
    return SOLVERS[name]()


__all__ = [
    "LBFGS",
    "SOLVERS",
    "BlockJacobi",
    "Dual",
    "Newton",
    "NewtonCG",
    "Progress",
    "Record",
    "Solution",
    "Solver",
    "Subspace",
    "solver_named",
]
