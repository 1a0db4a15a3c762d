"""Load the chords of Bach's chorales, event by event."""

from __future__ import annotations

import re

import numpy as np

from kernelcrf.arrays import Array
from kernelcrf.datasets.labelled_sequences import LabelledSequences
from kernelcrf.datasets.source import Folder, read_lines
from studies.datasets.sources import SOURCES

N_PITCHES = 12
LETTERS = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}
STEPS = {"#": 1, "b": -1}
CHORD = re.compile(r"([A-G][#b]*)_?([Mmd])([467]?)")
# An event: chorale, number, twelve flags of pitch classes, bass, accent, chord.
N_CELLS = 17


def pitch_class(name: str) -> int:
    """Return the pitch class of a note such as "Bb": the number of semitones above C."""
    return (LETTERS[name[0]] + sum(STEPS[sign] for sign in name[1:])) % N_PITCHES


def chord_label(root: int, kind: str) -> str:
    """Return the label of a chord: its root as a pitch class, and its kind, such as "00 M" or "09 m7"."""
    return f"{root % N_PITCHES:02d} {kind}"


def load_chorales(*, folder: Folder = None) -> LabelledSequences:
    """Load the 60 chorales of the ten published folds, one sequence per chorale and one token per event.

    X has one row of 25 numbers per event: whether each pitch class sounds, whether it is the bass, and the accent of
    the event from 1 to 5. Labels such as "09 m7" have the root as a pitch class and the kind of the chord: M, m or d
    for major, minor and diminished, with 4, 6 or 7 for an added note. Roots that sound alike have the same label.

    folder : the folder with all data sets; None means the environment variable KERNELCRF_DATA.

    Examples
    --------
    >>> from studies.datasets import load_chorales
    >>> data = load_chorales()
    >>> len(data.X), data.X[0].shape, data.y[0][:3].tolist()
    (60, (33, 25), ['05 M', '00 M', '00 M'])
    """
    path = SOURCES["chorales"].path(folder, "jsbach_chorals_harmony.data.gz")
    events: dict[str, list[tuple[Array, str]]] = {}
    for number, line in enumerate(read_lines(path), 1):
        cells = [cell.strip() for cell in line.split(",")]
        chord = CHORD.fullmatch(cells[-1])
        if len(cells) != N_CELLS or chord is None or not {*cells[2:14]} <= {"YES", "NO"}:
            raise ValueError(f"{path}, line {number}: expected {N_CELLS} cells that end with a chord, got {line!r}")
        row = np.zeros(2 * N_PITCHES + 1)
        row[:N_PITCHES] = [cell == "YES" for cell in cells[2:14]]
        row[N_PITCHES + pitch_class(cells[14])] = 1.0
        row[-1] = float(cells[15])
        label = chord_label(pitch_class(chord[1]), chord[2] + chord[3])
        events.setdefault(cells[0], []).append((row, label))
    _, *rows = read_lines(SOURCES["chorales"].path(folder, "folds.tsv"))
    folds = dict(reversed(line.split("\t")) for line in rows)
    kept = [name for name in events if name in folds]
    numbers = np.array([int(folds[name]) for name in kept])
    return LabelledSequences(
        X=[np.array([row for row, _ in events[name]]) for name in kept],
        y=[np.array([label for _, label in events[name]]) for name in kept],
        ids=np.array(kept),
        folds=numbers,
        splits=tuple((np.flatnonzero(numbers != f), np.flatnonzero(numbers == f)) for f in np.unique(numbers)),
        **SOURCES["chorales"].about(),
    )
