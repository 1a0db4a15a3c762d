import gzip

import numpy as np
import pytest

from studies.datasets import (
    load_batteryless,
    load_cb513,
    load_crossner,
    load_occupancy,
    load_qian_sejnowski,
    load_ts115,
    load_ud_ewt,
)
from studies.datasets.tables import read_table

OCCUPANCY = "date,Temperature,Humidity,Light,CO2,HumidityRatio,Occupancy\n"
BATTERYLESS = "trial,time,acc_frontal,acc_vertical,acc_lateral,antenna,rssi,phase,frequency,label\n"
HEADER = "chain\tgroup\tsequence\tdssp3\tdssp8\tordered\teval_mask\n"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()))


@pytest.mark.parametrize(
    ("load", "rows", "distinct", "residues", "scored", "ordered", "counts", "empty"),
    [
        (load_cb513, 511, 432, 144_011, 83_991, 83_427, [29_102, 18_690, 36_199], 2),
        (load_ts115, 115, 115, 29_704, 29_704, 27_501, [11_641, 5_380, 12_683], 0),
    ],
)
def test_proteins_have_the_counts_of_netsurfp(
    data_folder, load, rows, distinct, residues, scored, ordered, counts, empty
):
    data = load(folder=data_folder)
    y, mask = np.concatenate(data.y), np.concatenate(data.eval_mask)
    assert (len(data.X), data.lengths.sum()) == (rows, residues)
    sequences = ["".join(token["residue"] for token in x) for x in data.X]
    assert len({*sequences}) == len({*data.groups}) == len({*zip(sequences, data.groups, strict=True)}) == distinct
    assert mask.sum() == scored
    assert (mask & np.concatenate(data.extras["ordered"])).sum() == ordered
    assert [(y[mask] == state).sum() for state in "HEC"] == counts
    assert sum(not part.any() for part in data.eval_mask) == empty


def test_three_states_follow_from_eight(data_folder):
    three, eight = (np.concatenate(load_cb513(n_classes=n, folder=data_folder).y) for n in (3, 8))
    joined = dict(zip("HGIEBCST", "HHHEECCC", strict=True))
    assert [joined[state] for state in eight.tolist()] == three.tolist()


@pytest.mark.parametrize(
    ("subset", "chains", "counts"), [("train", 111, [9_868, 4_601, 3_636]), ("test", 17, [1_923, 849, 748])]
)
def test_qian_and_sejnowski_have_their_published_counts(data_folder, subset, chains, counts):
    data = load_qian_sejnowski(subset, folder=data_folder)
    y = np.concatenate(data.y)
    assert len(data.X) == chains
    assert [(y == state).sum() for state in "_he"] == counts
    assert len(y) == sum(counts)


def test_proteins_by_hand(tmp_path):
    write(tmp_path / "protein_ss" / "cb513.tsv.gz", HEADER + "a\t0\tMKV\tHHC\tHGT\t110\t011\nb\t0\tM\tE\tB\t1\t0\n")
    data = load_cb513(n_classes=8, folder=tmp_path)
    assert data.X == [[{"residue": "M"}, {"residue": "K"}, {"residue": "V"}], [{"residue": "M"}]]
    assert ["".join(y) for y in data.y] == ["HGT", "B"]
    assert ["".join(y) for y in data.extras["dssp3"]] == ["HHC", "E"]
    assert [mask.tolist() for mask in data.eval_mask] == [[False, True, True], [False]]
    assert [mask.tolist() for mask in data.extras["ordered"]] == [[True, True, False], [True]]
    assert data.groups.tolist() == [0, 0]
    assert data.ids.tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            "a\t0\tMKV\tHH\tHGT\t110\t011\n",
            "line 2, a: the sequence has 3 residues, and the other cells have 2, 3, 3, 3 characters",
        ),
        ("a\t0\tMKV\tHHX\tHGT\t110\t011\n", r"column dssp3: expected only the characters 'HEC', got \['X'\]"),
        ("a\t0\tMKV\tHHC\tHGT\t110\t012\n", r"column eval_mask: expected only the characters '01', got \['2'\]"),
        ("a\tone\tMKV\tHHC\tHGT\t110\t011\n", "column group: expected values of type int64"),
    ],
)
def test_proteins_that_are_wrong_are_named(row, message, tmp_path):
    write(tmp_path / "protein_ss" / "cb513.tsv.gz", HEADER + row)
    with pytest.raises(ValueError, match=message):
        load_cb513(folder=tmp_path)


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
        (["a,0,0,0,0,1,-50,3,920,5"], "column label: expected numbers from 1 to 4"),
        (["a,0,0,0,0,1,-50,3,920,1", "b,0,0,0,0,1,-50,3,920,1", "a,1,0,0,0,1,-50,3,920,1"], "in consecutive rows"),
    ],
)
def test_batteryless_that_is_wrong_is_named(rows, message, tmp_path):
    write(tmp_path / "batteryless_activity" / "S1.csv.gz", BATTERYLESS + "\n".join(rows))
    with pytest.raises(ValueError, match=message):
        load_batteryless(folder=tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: expected the header 'a,b', got ''"),
        ("b,a\n1,2\n", "line 1: expected the header 'a,b', got 'b,a'"),
        ("a,b\n", "has no rows"),
        ("a,b\n1,2\n1\n1,2,3\n", r"line 3: expected 2 cells, none of them empty, got \['1'\]"),
        ("a,b\n1,2\n\n1,2\n", r"line 3: expected 2 cells, none of them empty, got \[''\]"),
        ("a,b\n1,\n", r"line 2: expected 2 cells, none of them empty, got \['1', ''\]"),
    ],
)
def test_a_table_that_is_wrong_is_named_with_its_line(text, message, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_table(path, ",", ("a", "b"))


@pytest.mark.parametrize(
    ("subset", "sentences", "words"), [("train", 12_544, 204_577), ("dev", 2_001, 25_147), ("test", 2_077, 25_094)]
)
def test_ud_ewt_has_the_counts_of_its_release(data_folder, subset, sentences, words):
    data = load_ud_ewt(subset, folder=data_folder)
    assert (len(data.X), data.lengths.sum()) == (sentences, words)
    assert len(np.unique(np.concatenate(data.y))) == 17


@pytest.mark.parametrize(
    ("domain", "train", "dev", "test"),
    [
        ("politics", 200, 541, 651),
        ("science", 200, 450, 543),
        ("music", 100, 380, 465),
        ("literature", 100, 400, 416),
        ("ai", 100, 350, 431),
    ],
)
def test_crossner_has_the_counts_of_its_paper(data_folder, domain, train, dev, test):
    parts = [load_crossner(domain, subset, folder=data_folder) for subset in ("train", "dev", "test")]
    assert [len(part.X) for part in parts] == [train, dev, test]
    tags = [{*np.concatenate(part.y)} for part in parts]
    assert all(tag == "O" or tag[:2] in ("B-", "I-") for part in tags for tag in part)
