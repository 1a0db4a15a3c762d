"""The prior of single weights, as an earlier model determines it; the module `terms` has its formulas."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelcrf.arrays import Floats, Ints


@dataclass(frozen=True, eq=False)
class Joint:
    """The information of earlier data about all weights of an earlier model together.

    root : a matrix B with one row per weight; B B' is added to the matrix of prior precisions 1 / C.
    """

    root: Floats


@dataclass(frozen=True, eq=False)
class Prior:
    """The prior of the weights of a term, as an earlier model determines it.

    places : the weights of the earlier model, as increasing indices into the matrix (n, rank of k_y), row by row. All
        other weights have the mean 0 and the precision 1 / C.
    mean : the prior mean of each of these weights.
    information : what is added to the precision 1 / C of each of these weights, or None to add nothing.
    joint, rows : the information about the weights of all terms together, and the row of each of these weights in its
        matrix B B', whose diagonal is `information`. None if weights are independent under the prior.
    """

    places: Ints
    mean: Floats
    information: Floats | None = None
    joint: Joint | None = None
    rows: Ints | None = None

    def select(self, rows: Ints, rank: int) -> Prior:
        """Return the prior of a term with fewer features, given the increasing indices of the features that remain.

        The result has no joint information.
        """
        own, column = np.divmod(self.places, rank)
        kept = np.isin(own, rows)
        places = np.searchsorted(rows, own[kept]) * rank + column[kept]
        return Prior(places, self.mean[kept], None if self.information is None else self.information[kept])
