"""Certificates: random problems whose optima another program knows.

Each problem draws data, an estimator and its parameters: kernels, penalties, priors, constraints, missing labels,
weights, solvers and tolerances. A plain program in NumPy states the same problem, and SciPy finds its optimum. These
count as failures:

- a lower bound above the optimum;
- a fit that is called optimal, and whose distance to the optimum is larger than `tol` or, with the exact kernel, larger
  than `gap_full`;
- an objective, a probability or an evidence that the fitted weights do not give;
- a certified label that differs from that of the optimum;
- a saved model that gives other answers than before;
- a problem that should be refused, and is not.

The tests draw the same kinds of problems from other seeds (`tests/certificates`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from certificates.chains import ChainProblem, TargetProblem
from certificates.classifiers import ClassifierProblem
from certificates.graphs import GraphProblem
from certificates.hunt import hunt
from certificates.label_sets import MultiLabelProblem
from certificates.segments import SegmentProblem
from certificates.tables import MarkovProblem
from studies.common import Trial

OPTIONS = {"problems": 200, "first": 200_000}
KINDS = {
    "ChainCRF": ChainProblem,
    "ChainCRF, soft labels or weights of tokens": TargetProblem,
    "SegmentCRF": SegmentProblem,
    "KernelClassifier": ClassifierProblem,
    "GraphCRF": GraphProblem,
    "MultiLabelCRF": MultiLabelProblem,
    "MarkovNetwork": MarkovProblem,
}
ENDINGS = {
    "optimal": "optimal",
    "stationary": "stationary (labels are missing)",
    "max_iter": "out of iterations",
    "stalled": "stalled",
    "refused": "refused with the right error",
}
"""How fits end, and how the table says it."""


def trials(options: argparse.Namespace) -> Iterator[Trial]:
    """Yield a trial for each estimator."""
    seeds = range(options.first, options.first + options.problems)
    for name, kind in KINDS.items():
        tally, broken = hunt(seeds, draw=kind)
        ended = {how: sum(count for (_, status), count in tally.items() if status == how) for how in ENDINGS}
        holds = ", ".join(f"{count:,} {ENDINGS[how]}" for how, count in ended.items() if count)
        yield Trial(name, f"every statement is true: {holds}", times=len(seeds), failures=broken)
