import gzip

import numpy as np
import pytest

from kernelcrf.datasets import load_batteryless, load_occupancy

OCCUPANCY = "date,Temperature,Humidity,Light,CO2,HumidityRatio,Occupancy\n"
BATTERYLESS = "trial,time,acc_frontal,acc_vertical,acc_lateral,antenna,rssi,phase,frequency,label\n"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()))


@pytest.mark.parametrize(
    ("subset", "rows", "occupied", "switches", "first", "last", "days"),
    [
        ("train", 8_143, 1_729, 40, "2015-02-04T17:51", "2015-02-10T09:33", 7),
        ("test1", 2_665, 972, 26, "2015-02-02T14:19", "2015-02-04T10:43", 3),
        ("test2", 9_752, 2_049, 48, "2015-02-11T14:48", "2015-02-18T09:19", 8),
    ],
)
def test_occupancy_has_the_counts_of_the_authors(data_folder, subset, rows, occupied, switches, first, last, days):
    data = load_occupancy(subset, folder=data_folder)
    (X,), (y,), (dates,) = data.X, data.y, data.extras["date"]
    assert X.shape == (rows, 5)
    assert np.isfinite(X).all()
    assert (y.sum(), (np.diff(y) != 0).sum()) == (occupied, switches)
    assert dates[[0, -1]].astype("datetime64[m]").astype(str).tolist() == [first, last]
    assert np.abs(np.diff(dates) - np.timedelta64(60, "s")).max() == np.timedelta64(1, "s")
    by_day = load_occupancy(subset, by_day=True, folder=data_folder)
    assert len(by_day.X) == len({*by_day.ids}) == days
    assert by_day.ids[0] == first[:10]
    assert by_day.lengths[1:-1].tolist() == [1440] * (days - 2)
    np.testing.assert_array_equal(np.concatenate(by_day.X), X)


def test_batteryless_has_the_counts_of_the_authors(data_folder):
    data = load_batteryless(folder=data_folder)
    assert len(data.X) == len({*data.ids}) == 87
    assert (data.lengths.sum(), data.lengths.min(), data.lengths.max()) == (75_128, 7, 4_638)
    activities = ["sit on bed", "sit on chair", "lying", "ambulating"]
    for room, trials, counts, antennas in [
        ("S1", 60, [15_162, 4_381, 30_983, 1_956], 4),
        ("S2", 27, [1_244, 530, 20_537, 335], 3),
    ]:
        part = data.take(data.groups == room)
        y, X = np.concatenate(part.y), np.concatenate(part.X)
        assert len(part.X) == trials
        assert [(y == activity).sum() for activity in activities] == counts
        assert len(np.unique(X[:, data.feature_names.index("antenna")])) == antennas
    assert all((np.diff(x[:, 0]) >= 0).all() for x in data.X)
    assert {name[-1] for name in data.ids} == {"M", "F"}


def test_sensors_by_hand(tmp_path):
    rows = "2015-02-04 23:59:00,1,2,3,4,5,1\n2015-02-05 00:00:00,6,7,8,9.5,10,0\n"
    write(tmp_path / "occupancy" / "test1.csv.gz", OCCUPANCY + rows)
    data = load_occupancy("test1", by_day=True, folder=tmp_path)
    assert [x.tolist() for x in data.X] == [[[1, 2, 3, 4, 5]], [[6, 7, 8, 9.5, 10]]]
    assert [y.tolist() for y in data.y] == [[1], [0]]
    assert data.ids.tolist() == ["2015-02-04", "2015-02-05"]
    for room in ("S1", "S2"):
        rows = "".join(
            f"{room}{trial},{time},0,0,0,1,-50,3,920,{label}\n" for trial, time, label in ["a01", "b03", "b14"]
        )
        write(tmp_path / "batteryless_activity" / f"{room}.csv.gz", BATTERYLESS + rows)
    data = load_batteryless(folder=tmp_path)
    assert data.ids.tolist() == ["S1a", "S1b", "S2a", "S2b"]
    assert data.groups.tolist() == ["S1", "S1", "S2", "S2"]
    assert [y.tolist() for y in data.y[:2]] == [["sit on bed"], ["lying", "ambulating"]]
    assert data.X[1][:, 0].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("yesterday,1,2,3,4,5,1\n", r"train\.csv\.gz, column date: expected values of type datetime64"),
        ("2015-02-04 23:59:00,1,2,bright,4,5,1\n", "column Light: expected values of type float64"),
        ("2015-02-04 23:59:00,1,2,3,4,5,2\n", "column Occupancy: expected 0 or 1"),
    ],
)
def test_occupancy_that_is_wrong_is_named(row, message, tmp_path):
    write(tmp_path / "occupancy" / "train.csv.gz", OCCUPANCY + row)
    with pytest.raises(ValueError, match=message):
        load_occupancy(folder=tmp_path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["a,0,0,0,0,1,-50,3,920,5"], "column label: expected 1 to 4"),
        (["a,0,0,0,0,1,-50,3,920,1", "b,0,0,0,0,1,-50,3,920,1", "a,1,0,0,0,1,-50,3,920,1"], "one after the other"),
    ],
)
def test_batteryless_that_is_wrong_is_named(rows, message, tmp_path):
    write(tmp_path / "batteryless_activity" / "S1.csv.gz", BATTERYLESS + "\n".join(rows))
    with pytest.raises(ValueError, match=message):
        load_batteryless(folder=tmp_path)
