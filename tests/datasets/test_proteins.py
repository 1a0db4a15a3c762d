import gzip

import numpy as np
import pytest

from kernelcrf.datasets import load_cb513, load_qian_sejnowski, load_ts115

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
            "line 2, a: expected one character per residue, got 3 residues and 2, 3, 3, 3",
        ),
        ("a\t0\tMKV\tHHX\tHGT\t110\t011\n", r"column dssp3: expected the characters 'HEC', got \['X'\]"),
        ("a\t0\tMKV\tHHC\tHGT\t110\t012\n", r"column eval_mask: expected the characters '01', got \['2'\]"),
        ("a\tone\tMKV\tHHC\tHGT\t110\t011\n", "column group: expected values of type int64"),
    ],
)
def test_proteins_that_are_wrong_are_named(row, message, tmp_path):
    write(tmp_path / "protein_ss" / "cb513.tsv.gz", HEADER + row)
    with pytest.raises(ValueError, match=message):
        load_cb513(folder=tmp_path)
