"""Templates straight to the columns of a vocabulary, to tag long streams.

A template of one macro is a function of one cell: its column is remembered by the cell, so that repeated cells need no
name and no look-up. Names of several macros are made, and their columns remembered by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from kernelcrf.basis.entries import Entries
from kernelcrf.formats.templates import Memo, Place, Templates, TextSequences, names

ABSENT = -1


class TemplateColumns:
    """The features of templates as columns of a vocabulary."""

    def __init__(self, templates: Templates, vocabulary: Mapping[str, int]) -> None:
        self._templates, self._d = templates, len(vocabulary)
        self._known = [Memo(partial(_column, vocabulary, template)) for template in templates.compiled]

    def entries(self, sequences: TextSequences) -> Entries:
        """Return the rows that a vectoriser makes of `Templates.features`, all tokens one after the other."""
        seen, inside = self._templates.cells(sequences)
        table = np.empty((len(inside), len(seen)), np.int32)
        for k, (template, cells, known) in enumerate(zip(self._templates.compiled, seen, self._known, strict=True)):
            keys = cells[0] if len(cells) == 1 else names(template, cells)
            table[:, k] = np.fromiter(map(known.__getitem__, keys), np.int32, len(inside))
            known.forget()
        columns = table[np.frombuffer(inside, np.bool_)].ravel()
        offsets = np.arange(0, len(columns) + 1, len(seen), dtype=np.int64)
        return Entries(columns, np.ones(len(columns)), offsets, self._d)


def _column(vocabulary: Mapping[str, int], template: Sequence[Place], key: str) -> int:
    """Return the column of a cell, or of a name if the template has several macros, or ABSENT."""
    return vocabulary.get(template[0].text.function(key) if len(template) == 1 else key, ABSENT)
