"""One matrix of inputs, whose rows are divided among the workers of a cluster, and its distinct rows.

If an input occurs in several parts of the data, only the first of these parts counts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

from kernelcrf.arrays import Inputs, NamedInputs, is_sparse
from kernelcrf.basis.distinct_inputs import Distinct, distinct
from kernelcrf.basis.factor import stack
from kernelcrf.distributed.basis import find_new_inputs
from kernelcrf.distributed.cluster import Cluster, Handle
from kernelcrf.fitting.corpus import LocalCorpus


@dataclass(frozen=True, eq=False)
class DistributedInputs:
    """A matrix of inputs in parts. Distinct inputs are searched for only when they are needed.

    parts : for each part of the data, a handle that refers to a `LocalCorpus` on a worker.
    name : the name of the matrix; the workers ask the corpus for the rows with this name.
    n_columns, is_sparse : the number of columns, and whether the rows are sparse.
    """

    cluster: Cluster
    parts: Sequence[Handle]
    name: str
    n_columns: int
    is_sparse: bool

    @cached_property
    def distinct(self) -> Sequence[Handle]:
        """Return handles to `Distinct` objects on the workers, one per part of the data.

        Such an object has the distinct inputs of its part and, for each row, the index of its input.
        """
        return self.cluster.each(_find_distinct, self.parts, shared=(self.name,))

    @property
    def has_distinct(self) -> bool:
        """Return whether the distinct inputs have been searched for."""
        return "distinct" in self.__dict__

    @cached_property
    def matrices(self) -> Sequence[Handle]:
        """Return handles to the matrices of distinct inputs on the workers, one per part of the data."""
        return self.cluster.each(attrgetter("inputs"), self.distinct)

    @cached_property
    def new(self) -> Sequence[Handle]:
        """Return handles to arrays of indices on the workers, one per part of the data.

        The indices select those inputs of the part that do not occur in an earlier part.
        """
        return find_new_inputs(self.matrices, self.cluster)

    @cached_property
    def n_new(self) -> list[int]:
        """Return, for each part of the data, the number of inputs that do not occur in an earlier part."""
        return self.cluster.fetch(self.cluster.each(len, self.new))


def stack_inputs(parts: Sequence[Inputs | NamedInputs]) -> Inputs | NamedInputs:
    """Return the rows of several parts of the data, one part after the other."""
    if not isinstance(parts[0], NamedInputs):
        return stack(list(parts))
    # A matrix that several inputs read stays one matrix.
    columns = {name: [part.matrices[name] for part in parts] for name in parts[0].matrices}
    stacked = {tuple(map(id, column)): column for column in columns.values()}
    rows = {key: stack(column) for key, column in stacked.items()}
    return NamedInputs({name: rows[tuple(map(id, column))] for name, column in columns.items()})


# A worker calls the functions below with one part.


def _find_distinct(data: LocalCorpus, name: str) -> Distinct:
    return distinct(data.rows(name))


def describe(data: LocalCorpus, name: str) -> tuple[str, int, bool]:
    """Return the first name of the matrix called `name`, its number of columns, and whether it is sparse."""
    rows, named = data.rows(name), getattr(data, "X", None)
    names = named.matrices if isinstance(named, NamedInputs) else {}
    return next((other for other in names if names[other] is rows), name), int(rows.shape[1]), is_sparse(rows)
