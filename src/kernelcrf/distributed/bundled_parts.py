"""Handles to the values of all parts of the data, which the workers store in bundles.

A bundle is one value on a worker: a list with the values of some parts. Which parts are in which bundle may change
during a fit, when workers are lost or join; a handle to a part finds its bundle at the time of its use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, overload

from kernelcrf.distributed.cluster import Handle


class Group(NamedTuple):
    """Parts that are processed in one task, and the worker whose bundle they are in."""

    places: tuple[int, ...]
    worker: str


@dataclass(frozen=True, eq=False)
class Bundle:
    """Parts of the data that are one Dask value.

    future : refers to a list with one value per part.
    places : the indices of the parts, in ascending order.
    worker : the worker to which the bundle was given.
    """

    future: Handle
    places: tuple[int, ...]
    worker: str

    @cached_property
    def _indices(self) -> dict[int, int]:
        return {place: index for index, place in enumerate(self.places)}

    def index(self, place: int) -> int:
        """Return the index of a part in the list of values."""
        return self._indices[place]


class BundledParts(Sequence["Part"]):
    """Handles to the values of all parts of the data, which are in bundles.

    The bundles may change, the values do not.

    workers : the workers among which the bundles were divided last.
    """

    def __init__(self, bundles: list[Bundle], workers: list[str]) -> None:
        self.bundles, self.workers = bundles, workers
        self._n = sum(len(bundle.places) for bundle in bundles)

    def __len__(self) -> int:
        return self._n

    @overload
    def __getitem__(self, place: int) -> Part: ...

    @overload
    def __getitem__(self, place: slice) -> list[Part]: ...

    def __getitem__(self, place: int | slice) -> Part | list[Part]:
        places = range(self._n)[place]
        return Part(self, places) if isinstance(places, int) else [Part(self, one) for one in places]

    def find(self, place: int) -> tuple[Bundle, int]:
        """Return the bundle of a part, and the index of the part in the bundle."""
        if self._found is not self.bundles:
            self._found = self.bundles
            self._where = {own: bundle for bundle in self.bundles for own in bundle.places}
        bundle = self._where[place]
        return bundle, bundle.index(place)

    _found: list[Bundle] | None = None


@dataclass(frozen=True)
class Part:
    """A handle to the value of one part of the data, which is in a bundle."""

    parts: BundledParts
    place: int

    def find(self) -> tuple[Bundle, int]:
        """Return the bundle that the part is in, and its index there."""
        return self.parts.find(self.place)
