"""Templates straight to the columns of a vocabulary, for tagging long streams.

A template of one macro is a function of one cell: its column is remembered by the cell, and no name is made or looked
up for a cell that came before. Names of several macros are made, and their columns remembered by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from kernelcrf.basis.entries import Entries
from kernelcrf.formats.templates import REMEMBERED, Templates, names

ABSENT = -1


class TemplateColumns:
    """The features of templates as columns of a vocabulary."""

    def __init__(self, templates: Templates, vocabulary: Mapping[str, int]) -> None:
        self._templates, self._d = templates, len(vocabulary)
        self._known = [
            Known(template[0].part.named if len(template) == 1 else str, vocabulary) for template in templates.compiled
        ]

    def entries(self, sequences: Sequence[Sequence[Sequence[str]]]) -> Entries:
        """What a vectoriser makes of `Templates.features`, all tokens one after the other."""
        seen, inside = self._templates.cells(sequences)
        table = np.empty((len(inside), len(seen)), np.int32)
        for k, (template, cells, known) in enumerate(zip(self._templates.compiled, seen, self._known, strict=True)):
            keys = cells[0] if len(cells) == 1 else names(template, cells)
            table[:, k] = np.fromiter(map(known.__getitem__, keys), np.int32, len(inside))
            known.forget()
        columns = table[np.frombuffer(inside, np.bool_)].ravel()
        offsets = np.arange(0, len(columns) + 1, len(seen), dtype=np.int64)
        return Entries(columns, np.ones(len(columns)), offsets, self._d)


class Known(dict[str, int]):
    """Columns by cell or by name; `ABSENT` where the vocabulary has none."""

    def __init__(self, name_of: Callable[[str], str], vocabulary: Mapping[str, int]) -> None:
        self._name_of, self._vocabulary = name_of, vocabulary

    def __missing__(self, key: str) -> int:
        self[key] = column = self._vocabulary.get(self._name_of(key), ABSENT)
        return column

    def forget(self) -> None:
        """Stay bounded, as what `Part` remembers is."""
        if len(self) > REMEMBERED:
            self.clear()
