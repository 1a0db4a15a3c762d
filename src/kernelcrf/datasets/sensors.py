"""Sensor readings in CSV files."""

from __future__ import annotations

from typing import Literal

import numpy as np

from kernelcrf.arrays import Array
from kernelcrf.datasets.labelled import LabelledSequences
from kernelcrf.datasets.source import SOURCES, Folder, check_choice, cut, read_numbers, read_table

SENSORS = ("Temperature", "Humidity", "Light", "CO2", "HumidityRatio")
READINGS = ("time", "acc_frontal", "acc_vertical", "acc_lateral", "antenna", "rssi", "phase", "frequency")
ACTIVITIES = np.array(["sit on bed", "sit on chair", "lying", "ambulating"])


def load_occupancy(
    subset: Literal["train", "test1", "test2"] = "train", *, by_day: bool = False, folder: Folder = None
) -> LabelledSequences:
    """Load the climate of an office, minute by minute, to tell whether it is occupied.

    X has the columns Temperature, Humidity, Light, CO2 and HumidityRatio, not scaled; y is 1 if occupied, else 0. The
    authors' split is train (8,143 minutes, 1,729 occupied), test1 (2,665; 972) and test2 (9,752; 2,049), each a series
    without gaps. The usual score is accuracy. Light alone almost decides; without it the task is hard.

    by_day : cut the series at midnight into 7, 3 and 8 sequences whose `ids` are dates; otherwise each is one sequence.
    extras : `date`, the time of each row.

    folder : the folder of all data sets; None takes KERNELCRF_DATA.

    Examples
    --------
    >>> from kernelcrf.datasets import load_occupancy
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
    starts = _starts(days) if by_day else np.zeros(1, np.intp)
    return LabelledSequences(
        X=cut(X, starts),
        y=cut(y, starts),
        ids=days[starts].astype(np.str_) if by_day else np.array([subset]),
        feature_names=SENSORS,
        extras={"date": cut(when, starts)},
        **SOURCES["occupancy"].about(f"Part {subset!r}{', by day' if by_day else ''}."),
    )


def load_batteryless(*, folder: Folder = None) -> LabelledSequences:
    """Load the activities of older people, from a batteryless sensor that is read by radio at irregular times.

    X has the columns time (s, from the start of the trial), acc_frontal, acc_vertical, acc_lateral (g), antenna (its
    number), rssi, phase and frequency; y is "sit on bed", "sit on chair", "lying" or "ambulating". There are 87 trials
    of 7 to 4,638 readings, 75,128 in total. `ids` name the trials and end in M or F, the sex; `groups` are the rooms,
    S1 (60 trials, 52,482 readings, 4 antennas) and S2 (27; 22,646; 3). There is no official split: train on one room
    and test on the other, or split by trial, so that a person may be on both sides. Classes are far from balanced.

    folder : the folder of all data sets; None takes KERNELCRF_DATA.

    Examples
    --------
    >>> from kernelcrf.datasets import load_batteryless
    >>> data = load_batteryless()
    >>> data.feature_names[:4], len(data.y)
    (('time', 'acc_frontal', 'acc_vertical', 'acc_lateral'), 87)
    """
    X: list[Array] = []
    y: list[Array] = []
    ids: list[Array] = []
    groups: list[str] = []
    for room in ("S1", "S2"):
        path = SOURCES["batteryless"].path(folder, f"{room}.csv.gz")
        trials, *columns, labels = read_table(path, ",", ("trial", *READINGS, "label"))
        names, codes = np.array(trials, np.str_), read_numbers(path, "label", labels, np.int64)
        starts = _starts(names)
        if codes.min() < 1 or codes.max() > len(ACTIVITIES):
            raise ValueError(f"{path}, column label: expected 1 to 4, got {np.unique(codes)}")
        if len(set(names[starts])) < len(starts):
            raise ValueError(f"{path}, column trial: expected the readings of a trial one after the other")
        values = [read_numbers(path, name, cells) for name, cells in zip(READINGS, columns, strict=True)]
        X += cut(np.column_stack(values), starts)
        y += cut(ACTIVITIES[codes - 1], starts)
        ids.append(names[starts])
        groups += [room] * len(starts)
    return LabelledSequences(
        X=X,
        y=y,
        ids=np.concatenate(ids),
        groups=np.array(groups),
        feature_names=READINGS,
        **SOURCES["batteryless"].about(),
    )


def _starts(keys: Array) -> Array:
    """Return the indices at which runs of equal keys begin."""
    return np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
