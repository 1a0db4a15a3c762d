"""Series of sensors in CSV files."""

from __future__ import annotations

from typing import Literal

import numpy as np

from kernelcrf.datasets.labelled import Array, LabelledSequences
from kernelcrf.datasets.source import Folder, Source, choice, cut, numbers, read_table

OCCUPANCY = Source(
    folder="occupancy",
    layout=(
        "occupancy/{train,test1,test2}.csv.gz with the header date,Temperature,Humidity,Light,CO2,HumidityRatio,"
        "Occupancy; datatraining.txt, datatest.txt and datatest2.txt without quotes and without their row numbers."
    ),
    origin="https://github.com/LuisM78/Occupancy-detection-data (UCI data set 357)",
    description="Whether an office is occupied, minute by minute, from its climate.",
    licence="CC BY 4.0 (UCI)",
    citation=(
        "L. M. Candanedo and V. Feldheim, Accurate occupancy detection of an office room from light, temperature, "
        "humidity and CO2 measurements using statistical learning models, Energy and Buildings 112, 2016"
    ),
)
BATTERYLESS = Source(
    folder="batteryless_activity",
    layout=(
        "batteryless_activity/{S1,S2}.csv.gz with the header trial,time,acc_frontal,acc_vertical,acc_lateral,antenna,"
        "rssi,phase,frequency,label; the trial files of a room one after the other, their names in the first column."
    ),
    origin="https://doi.org/10.24432/C5GG6B (UCI data set 427)",
    description="Activities of older people in two rooms, by a sensor without battery that they wear.",
    licence="CC BY 4.0 (UCI)",
    citation=(
        "R. L. Shinmoto Torres, D. C. Ranasinghe, Q. Shi and A. P. Sample, Sensor enabled wearable RFID technology for "
        "mitigating the risk of falls near beds, IEEE RFID 2013"
    ),
)

SENSORS = ("Temperature", "Humidity", "Light", "CO2", "HumidityRatio")
READINGS = ("time", "acc_frontal", "acc_vertical", "acc_lateral", "antenna", "rssi", "phase", "frequency")
ACTIVITIES = np.array(["sit on bed", "sit on chair", "lying", "ambulating"])


def load_occupancy(
    subset: Literal["train", "test1", "test2"] = "train", *, by_day: bool = False, folder: Folder = None
) -> LabelledSequences:
    """Whether an office is occupied, minute by minute.

    X has the columns Temperature, Humidity, Light, CO2 and HumidityRatio, not scaled; y is 1 where occupied, else 0.
    The authors' split: train (8,143 minutes, 1,729 occupied), test1 (2,665; 972), test2 (9,752; 2,049), each a
    series without gaps. Scored by accuracy. Light alone nearly decides; without it the task is hard.

    by_day : cut the series at midnight, into 7, 3 and 8 sequences whose `ids` are dates; else each is one sequence.
    extras : `date`, the time of each row.

    Licence: CC BY 4.0 (UCI). Source: github.com/LuisM78/Occupancy-detection-data.
    `folder` : the folder of all data sets, else KERNELCRF_DATA.

    Examples
    --------
    >>> from kernelcrf.datasets import load_occupancy
    >>> data = load_occupancy("test1", by_day=True)
    >>> data.feature_names, [len(day) for day in data.y]
    (('Temperature', 'Humidity', 'Light', 'CO2', 'HumidityRatio'), [581, 1440, 644])
    """
    choice("subset", subset, ("train", "test1", "test2"))
    path = OCCUPANCY.path(folder, f"{subset}.csv.gz")
    dates, *columns, occupied = read_table(path, ",", ("date", *SENSORS, "Occupancy"))
    when = numbers(path, "date", dates, "datetime64[s]")
    X = np.column_stack([numbers(path, name, cells) for name, cells in zip(SENSORS, columns, strict=True)])
    y = numbers(path, "Occupancy", occupied, np.int64)
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
        **OCCUPANCY.about(f"Part {subset!r}{', by day' if by_day else ''}."),
    )


def load_batteryless(*, folder: Folder = None) -> LabelledSequences:
    """What older people do, by a sensor without battery read over radio at irregular times.

    X has the columns time (s, from the start of the trial), acc_frontal, acc_vertical, acc_lateral (g), antenna (a
    number that names it), rssi, phase and frequency; y is "sit on bed", "sit on chair", "lying" or "ambulating". 87
    trials of 7 to 4,638 readings, 75,128 in all. `ids` name the trials, and end in M or F, the sex; `groups` are the
    rooms, S1 (60 trials, 52,482 readings, 4 antennas) and S2 (27; 22,646; 3). There is no official split: train on a
    room and test on the other, or split by trial, where a person may be on both sides. Classes are far from balanced.

    Licence: CC BY 4.0 (UCI). Source: UCI data set 427. `folder` : the folder of all data sets, else KERNELCRF_DATA.

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
        path = BATTERYLESS.path(folder, f"{room}.csv.gz")
        trials, *columns, labels = read_table(path, ",", ("trial", *READINGS, "label"))
        names, codes = np.array(trials, np.str_), numbers(path, "label", labels, np.int64)
        starts = _starts(names)
        if codes.min() < 1 or codes.max() > len(ACTIVITIES):
            raise ValueError(f"{path}, column label: expected 1 to 4, got {np.unique(codes)}")
        if len(set(names[starts])) < len(starts):
            raise ValueError(f"{path}, column trial: expected the readings of a trial one after the other")
        values = [numbers(path, name, cells) for name, cells in zip(READINGS, columns, strict=True)]
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
        **BATTERYLESS.about(),
    )


def _starts(keys: Array) -> Array:
    """Where runs of equal keys begin."""
    return np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
