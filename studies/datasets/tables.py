"""Load data sets that are stored as text tables: proteins, sensor readings, parts of speech and entities."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from kernelcrf.arrays import Array
from kernelcrf.datasets.labelled_sequences import LabelledSequences
from kernelcrf.datasets.source import Folder, check_choice, cut, read_lines, read_numbers, split_lines
from kernelcrf.datasets.tokens import Part, load_tagged
from studies.datasets.sources import SOURCES

DSSP = ("chain", "group", "sequence", "dssp3", "dssp8", "ordered", "eval_mask")
SENSORS = ("Temperature", "Humidity", "Light", "CO2", "HumidityRatio")
READINGS = ("time", "acc_frontal", "acc_vertical", "acc_lateral", "antenna", "rssi", "phase", "frequency")
CROSSNER = ("politics", "science", "music", "literature", "ai")
ACTIVITIES = np.array(["sit on bed", "sit on chair", "lying", "ambulating"])


def read_table(path: Path, separator: str, names: Sequence[str]) -> list[list[str]]:
    """Return the columns of a text table, each as a list of strings; raise if its first line is not `names`."""
    header, *lines = read_lines(path) or [""]
    if header != separator.join(names):
        raise ValueError(f"{path}, line 1: expected the header {separator.join(names)!r}, got {header!r}")
    return split_lines(path, dict(enumerate(lines, 2)), separator, len(names))


def load_cb513(*, n_classes: Literal[3, 8] = 3, folder: Folder = None) -> LabelledSequences:
    """Load CB513, a benchmark of 511 protein chains for the prediction of secondary structure.

    X has one dict per residue, with the letter of the residue as `residue`. The sequences are whole chains, but the
    benchmark scores only some parts (domains) of each chain: score the residues whose `eval_mask` is true. There is no
    official training set. Cross-validation must not split `groups`, since two sequences of a group may come from the
    same chain and have the same labels.

    The field `extras` of the result has the labels with 3 and with 8 classes, `dssp3` and `dssp8`, and `ordered`, which
    is true if the position of the residue is known (otherwise its label is C). To compare with published scores of
    NetSurfP, score only residues for which both `eval_mask` and `ordered` are true.

    n_classes : 3 for the labels H (helix), E (strand) and C (coil), or 8 for the letters H, G, I, E, B, C, S and T of
        the program DSSP.
    folder : the folder with all data sets; None means the environment variable KERNELCRF_DATA.

    Examples
    --------
    >>> from studies.datasets import load_cb513
    >>> data = load_cb513()
    >>> data.X[0][:2], data.y[0][:2].tolist()
    ([{'residue': 'R'}, {'residue': 'T'}], ['C', 'C'])
    """
    return _load_dssp("cb513", n_classes, folder)


def load_ts115(*, n_classes: Literal[3, 8] = 3, folder: Folder = None) -> LabelledSequences:
    """Load TS115, a benchmark of 115 protein chains that are newer than CB513, to test models trained on CB513.

    The fields of the result have the same meaning as for `load_cb513`. All residues count in the benchmark, and no two
    chains are in the same group.

    n_classes : 3 or 8, as in `load_cb513`.
    folder : the folder with all data sets; None means the environment variable KERNELCRF_DATA.

    Examples
    --------
    >>> from studies.datasets import load_ts115
    >>> load_ts115(n_classes=8).y[0][:5]
    array(['C', 'C', 'H', 'H', 'H'], dtype='<U1')
    """
    return _load_dssp("ts115", n_classes, folder)


def _load_dssp(name: str, n_classes: int, folder: Folder) -> LabelledSequences:
    check_choice("n_classes", n_classes, (3, 8))
    path = SOURCES[name].path(folder, f"{name}.tsv.gz")
    chains, groups, sequences, dssp3, dssp8, ordered, mask = read_table(path, "\t", DSSP)
    _check_lengths(path, chains, sequences, [dssp3, dssp8, ordered, mask])
    structure = {"dssp3": _letters(path, "dssp3", dssp3, "HEC"), "dssp8": _letters(path, "dssp8", dssp8, "HGIEBCST")}
    return LabelledSequences(
        X=_residues(sequences),
        y=structure[f"dssp{n_classes}"],
        ids=np.array(chains, np.str_),
        groups=read_numbers(path, "group", groups, np.int64),
        eval_mask=[cells == "1" for cells in _letters(path, "eval_mask", mask, "01")],
        extras={"ordered": [cells == "1" for cells in _letters(path, "ordered", ordered, "01")], **structure},
        **SOURCES[name].about(f"{n_classes} states."),
    )


def load_qian_sejnowski(subset: Literal["train", "test"] = "train", *, folder: Folder = None) -> LabelledSequences:
    """Load the protein chains of Qian and Sejnowski (1988), who predicted 64.3 % of the test labels correctly.

    X has one dict per residue, with the letter of the residue as `residue`. y is "h" (helix), "e" (sheet) or "_"
    (coil).

    folder : the folder with all data sets; None means the environment variable KERNELCRF_DATA.

    Examples
    --------
    >>> from studies.datasets import load_qian_sejnowski
    >>> load_qian_sejnowski("test").lengths[:3]
    array([306, 108, 113])
    """
    check_choice("subset", subset, ("train", "test"))
    path = SOURCES["qian_sejnowski"].path(folder, f"qian_sejnowski_{subset}.tsv.gz")
    names, sequences, structures = read_table(path, "\t", ("protein", "sequence", "structure"))
    _check_lengths(path, names, sequences, [structures])
    return LabelledSequences(
        X=_residues(sequences),
        y=_letters(path, "structure", structures, "he_"),
        ids=np.array(names, np.str_),
        **SOURCES["qian_sejnowski"].about(f"Part {subset!r}."),
    )


def load_occupancy(
    subset: Literal["train", "test1", "test2"] = "train", *, by_day: bool = False, folder: Folder = None
) -> LabelledSequences:
    """Load sensor readings of an office, one per minute; the task is to predict whether the office is occupied.

    X has the columns Temperature, Humidity, Light, CO2 and HumidityRatio, not scaled; y is 1 if the office is occupied,
    else 0. Each subset is a series without gaps. The usual score is accuracy. The task is easy with the column Light,
    and hard without this column. The field `extras["date"]` of the result has the time of each row.

    by_day : whether to split the series at midnight into one sequence per day; `ids` are then the dates.
    folder : the folder with all data sets; None means the environment variable KERNELCRF_DATA.

    Examples
    --------
    >>> from studies.datasets import load_occupancy
    >>> data = load_occupancy("test1", by_day=True)
    >>> data.feature_names, [len(day) for day in data.y]
    (('Temperature', 'Humidity', 'Light', 'CO2', 'HumidityRatio'), [581, 1440, 644])
    """
    check_choice("subset", subset, ("train", "test1", "test2"))
    path = SOURCES["occupancy"].path(folder, f"{subset}.csv.gz")
    dates, *columns, occupied = read_table(path, ",", ("date", *SENSORS, "Occupancy"))
    when = read_numbers(path, "date", dates, "datetime64[s]")
    X = np.column_stack([read_numbers(path, name, cells) for name, cells in zip(SENSORS, columns, strict=True)])
    y = read_numbers(path, "Occupancy", occupied, np.int64)
    if not set(np.unique(y)) <= {0, 1}:
        raise ValueError(f"{path}, column Occupancy: expected 0 or 1, got {np.unique(y)}")
    days = when.astype("datetime64[D]")
    starts = _run_starts(days) if by_day else np.zeros(1, np.intp)
    return LabelledSequences(
        X=cut(X, starts),
        y=cut(y, starts),
        ids=days[starts].astype(np.str_) if by_day else np.array([subset]),
        feature_names=SENSORS,
        extras={"date": cut(when, starts)},
        **SOURCES["occupancy"].about(f"Part {subset!r}{', by day' if by_day else ''}."),
    )


def load_batteryless(*, folder: Folder = None) -> LabelledSequences:
    """Load activities of older people who wear a sensor without battery, which antennas read at irregular times.

    X has the columns time (in seconds since the start of the trial), acc_frontal, acc_vertical and acc_lateral (in g),
    antenna (the number of the antenna), rssi, phase and frequency. y is "sit on bed", "sit on chair", "lying" or
    "ambulating"; some activities are rare. `ids` are the names of trials; their last letter, M or F, is the sex of the
    person. `groups` are the rooms: S1 has 60 trials and 4 antennas, S2 has 27 trials and 3 antennas.

    There is no official split: train on one room and test on the other, or split by trial, although training and test
    data may then include the same person.

    folder : the folder with all data sets; None means the environment variable KERNELCRF_DATA.

    Examples
    --------
    >>> from studies.datasets import load_batteryless
    >>> data = load_batteryless()
    >>> data.feature_names[:4], len(data.y)
    (('time', 'acc_frontal', 'acc_vertical', 'acc_lateral'), 87)
    """
    X, y, ids, groups = list[Array](), list[Array](), list[str](), list[str]()
    for room in ("S1", "S2"):
        path = SOURCES["batteryless"].path(folder, f"{room}.csv.gz")
        trials, *columns, labels = read_table(path, ",", ("trial", *READINGS, "label"))
        names, codes = np.array(trials, np.str_), read_numbers(path, "label", labels, np.int64)
        starts = _run_starts(names)
        if codes.min() < 1 or codes.max() > len(ACTIVITIES):
            raise ValueError(f"{path}, column label: expected numbers from 1 to 4, got {np.unique(codes)}")
        if len(set(names[starts])) < len(starts):
            raise ValueError(
                f"{path}, column trial: the rows of a trial are separated: expected each trial in consecutive rows"
            )
        values = [read_numbers(path, name, cells) for name, cells in zip(READINGS, columns, strict=True)]
        X += cut(np.column_stack(values), starts)
        y += cut(ACTIVITIES[codes - 1], starts)
        ids += names[starts].tolist()
        groups += [room] * len(starts)
    return LabelledSequences(
        X, y, ids=np.array(ids), groups=np.array(groups), feature_names=READINGS, **SOURCES["batteryless"].about()
    )


def load_ud_ewt(subset: Part = "train", *, folder: Folder = None) -> LabelledSequences:
    """Load English web text with universal parts of speech: UD English EWT, release 2.16.

    X has one dict per token with its `word`, and y has the 17 universal tags. The usual score is the percentage of
    words with the correct tag; do not compare scores of different releases.

    folder : the folder with all data sets; None means the environment variable KERNELCRF_DATA.

    Examples
    --------
    >>> from studies.datasets import load_ud_ewt
    >>> data = load_ud_ewt("dev")
    >>> data.X[0][:2], data.y[0][:2].tolist()
    ([{'word': 'From'}, {'word': 'the'}], ['ADP', 'DET'])
    """
    check_choice("subset", subset, ("train", "dev", "test"))
    return load_tagged(SOURCES["ud_ewt"], subset, folder, ("word",), "\t")


def load_crossner(domain: str, subset: Part = "train", *, folder: Folder = None) -> LabelledSequences:
    """Load CrossNER: sentences of Wikipedia from one domain, with named entities of 9 to 17 types, tagged in IOB2.

    X has one dict per token with its `word`. Each domain has types of its own, such as "politician", beside common ones
    such as "person", which then means all other persons. The subset "train" has only 100 or 200 sentences. The usual
    score is the F1 of spans, as a mean over the five domains.

    domain : "politics", "science", "music", "literature" or "ai".
    folder : the folder with all data sets; None means the environment variable KERNELCRF_DATA.

    Examples
    --------
    >>> from studies.datasets import load_crossner
    >>> data = load_crossner("ai")
    >>> len(data.X), data.X[0][3]["word"], data.y[0][3:6].tolist()
    (100, 'opinion-based', ['B-product', 'I-product', 'I-product'])
    """
    check_choice("domain", domain, CROSSNER)
    check_choice("subset", subset, ("train", "dev", "test"))
    return load_tagged(SOURCES["crossner"], f"{domain}/{subset}", folder, ("word",), "\t")


def _run_starts(keys: Array) -> Array:
    """Return the indices at which a run of equal keys starts, including index 0."""
    return np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))


def _check_lengths(path: Path, names: Sequence[str], sequences: Sequence[str], others: list[list[str]]) -> None:
    for number, (name, sequence, *cells) in enumerate(zip(names, sequences, *others, strict=True), 2):
        if any(len(cell) != len(sequence) for cell in cells):
            raise ValueError(
                f"{path}, line {number}, {name}: the sequence has {len(sequence)} residues, and the other cells have "
                f"{', '.join(str(len(cell)) for cell in cells)} characters: expected one character per residue"
            )


def _letters(path: Path, name: str, cells: Sequence[str], alphabet: str) -> list[Array]:
    """Split each cell into an array of its characters; raise if a character is not in `alphabet`."""
    if unknown := set().union(*cells) - set(alphabet):
        raise ValueError(f"{path}, column {name}: expected only the characters {alphabet!r}, got {sorted(unknown)[:5]}")
    return [np.array([cell]).view("<U1") for cell in cells]


def _residues(sequences: Sequence[str]) -> list[list[dict[str, str]]]:
    return [[{"residue": residue} for residue in sequence] for sequence in sequences]
