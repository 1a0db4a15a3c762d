"""Ways to minimise P: one loop, one line search, directions that differ."""

from kernelcrf.solvers.block_jacobi import BlockJacobi
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
}


def solver_named(name: str) -> Solver:
    """A solver by its name."""
    if name not in SOLVERS:
        raise ValueError(f"solver={name!r}: expected one of {', '.join(SOLVERS)}")
    return SOLVERS[name]()


__all__ = [
    "LBFGS",
    "SOLVERS",
    "BlockJacobi",
    "Newton",
    "NewtonCG",
    "Progress",
    "Record",
    "Solution",
    "Solver",
    "Subspace",
    "solver_named",
]
