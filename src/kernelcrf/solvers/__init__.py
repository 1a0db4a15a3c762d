"""Ways to minimise P: one loop, one line search, directions that differ."""

from kernelcrf.objective import Objective
from kernelcrf.solvers.block_jacobi import BlockJacobi
from kernelcrf.solvers.dual import Dual
from kernelcrf.solvers.lbfgs import LBFGS
from kernelcrf.solvers.loop import Progress, Record, Solution, Solver, minimise
from kernelcrf.solvers.newton import Newton
from kernelcrf.solvers.newton_cg import NewtonCG
from kernelcrf.solvers.start import first_point
from kernelcrf.solvers.subspace import Subspace
from kernelcrf.validation import Constraint, either, one_of

SOLVERS: dict[str, type[Solver]] = {
    "newton-cg": NewtonCG,
    "newton": Newton,
    "block-jacobi": BlockJacobi,
    "subspace": Subspace,
    "lbfgs": LBFGS,
    "dual": Dual,
}
# Users may add solvers of their own to SOLVERS.
_ADDED = Constraint("the name of another solver in SOLVERS", lambda name: isinstance(name, str) and name in SOLVERS)
SOLVER = either(one_of("auto", *SOLVERS), _ADDED)


def solver_named(name: str, objective: Objective) -> Solver:
    """A solver by its name; "auto" is the dual one where it suits the objective, else L-BFGS.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf.corpora.sequences import LabelledSequences
    >>> from kernelcrf.datasets import make_sequences
    >>> from kernelcrf.engines.local import LocalEngine
    >>> from kernelcrf.fitting import Settings, fit
    >>> from kernelcrf.graphs.structure import Chains
    >>> from kernelcrf.kernels.inputs import InputKernel
    >>> from kernelcrf.solvers import solver_named
    >>> data = make_sequences(10, random_state=0)
    >>> chains = Chains.from_lengths([len(labels) for labels in data.y])
    >>> sequences = LabelledSequences(np.vstack(data.X), chains, np.hstack(data.y), n_labels=3)
    >>> objective = fit(sequences, Settings(InputKernel("linear")), LocalEngine()).objective
    >>> solver_named("auto", objective), solver_named("newton", objective)
    (LBFGS(memory=20, precondition=True), Newton(most=2000))
    """
    SOLVER.check("solver", name)
    if name == "auto":
        return Dual() if Dual.suits(objective) else LBFGS()
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
    "first_point",
    "minimise",
    "solver_named",
]
