"""Progress of a fit while it runs, and a warning if it fell short."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from tqdm.auto import tqdm

from kernelcrf.certificate import Certificate
from kernelcrf.solvers import Record
from kernelcrf.solvers.loop import OPTIMAL, STATIONARY

TINY = float(np.finfo(np.float64).tiny)


@contextmanager
def progress(
    name: str, verbose: int, where: Callable[[], str] | None = None
) -> Iterator[Callable[[Record], None] | None]:
    """A bar of the objective and its certified gap, where one is asked for; `where` tells of the workers."""
    if not verbose:
        yield None
        return
    with tqdm(desc=name, unit=" iterations") as bar:

        def show(record: Record) -> None:
            bar.update()
            told = [f"objective {record.value:.6g}", f"gap {record.relative_gap:.1e}", "" if where is None else where()]
            bar.set_postfix_str(", ".join(filter(None, told)))

        yield show


def warn_where_short(certificate: Certificate, last: Record, tol: float) -> None:
    """Warn if a fit did not reach `tol`; `last` is the last point of its run."""
    if certificate.status in (OPTIMAL, STATIONARY):
        return
    if certificate.gap_full is not None:
        kind, gap = "gap in the kernel's whole space", certificate.gap_full / max(abs(certificate.objective), TINY)
    else:
        kind = "certified gap" if np.isfinite(certificate.lower_bound) else "size of the gradient"
        gap = last.relative_gap
    above = f", above tol={tol:g}" if gap > tol else ""
    warnings.warn(
        f"the fit ended with status {certificate.status!r} at a relative {kind} of {gap:.1e}{above}: "
        "raise max_iter or tol",
        ConvergenceWarning,
        stacklevel=3,
    )
