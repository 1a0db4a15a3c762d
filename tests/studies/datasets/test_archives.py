import gzip

import numpy as np
import pytest

from studies.datasets import load_gpstruct, load_letters, load_multilabel


def test_letters_have_the_counts_of_the_authors(data_folder):
    data = load_letters(folder=data_folder)
    assert (len(data.X), data.lengths.sum()) == (6_877, 52_152)
    assert (data.lengths.min(), data.lengths.max()) == (3, 14)
    assert len({"".join(y) for y in data.y}) == 55
    assert np.bincount(data.folds).tolist() == [626, 704, 684, 698, 693, 651, 739, 717, 690, 675]
    assert np.unique(np.concatenate(data.y)).tolist() == list("abcdefghijklmnopqrstuvwxyz")
    assert "".join(data.y[0]) == "ommanding"
    assert {x.shape[1] for x in data.X} == {128}
    assert np.unique(data.X[0]).tolist() == [0, 1]


def test_protocols_of_letters_are_each_other_s_reverse(data_folder):
    small, large = (load_letters(protocol, folder=data_folder) for protocol in ("small", "large"))
    assert (len(large.splits[0][0]), len(large.splits[0][1])) == (6_251, 626)
    for fold in range(10):
        train, test = small.splits[fold]
        assert set(small.folds[train]) == {fold}
        np.testing.assert_array_equal(np.union1d(train, test), np.arange(6_877))
        np.testing.assert_array_equal(large.splits[fold][0], test)
        np.testing.assert_array_equal(large.splits[fold][1], train)


def write_letters(folder, **changes):
    arrays = {
        "pixels_packed": np.arange(48, dtype=np.uint8).reshape(3, 16),
        "label": np.array([2, 0, 25], np.uint8),
        "word_id": np.array([0, 0, 4], np.int32),
        "fold": np.array([1, 1, 0], np.uint8),
        **changes,
    }
    (folder / "letters_ocr").mkdir(exist_ok=True)
    np.savez(folder / "letters_ocr" / "letters.npz", **arrays)


def test_letters_by_hand(tmp_path):
    write_letters(tmp_path)
    data = load_letters(folder=tmp_path)
    assert ["".join(y) for y in data.y] == ["ca", "z"]
    assert data.folds.tolist() == [1, 0]
    np.testing.assert_array_equal(data.X[0][0][-16:], [0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1])
    assert [[part.tolist() for part in split] for split in data.splits] == [[[1], [0]], [[0], [1]]]


@pytest.mark.parametrize(
    "changes",
    [
        {"pixels_packed": np.zeros((3, 15), np.uint8)},
        {"fold": np.zeros(2, np.uint8)},
        {"word_id": np.array([1, 0, 0])},
        {"fold": np.array([0, 1, 1], np.uint8)},
        {"label": np.array([0, 1, 26], np.uint8)},
    ],
)
def test_letters_that_do_not_fit_together_are_named(changes, tmp_path):
    write_letters(tmp_path, **changes)
    with pytest.raises(ValueError, match=r"letters\.npz (have different lengths|are inconsistent): expected "):
        load_letters(folder=tmp_path)


@pytest.mark.parametrize(
    ("task", "sequences", "used", "train", "tokens", "labels", "features"),
    [
        ("basenp", 823, 300, 150, 19_172, 3, 6_438),
        ("chunking", 823, 100, 50, 19_172, 14, 29_764),
        ("segmentation", 36, 36, 20, 1_623, 2, 1_386),
        ("japanesene", 500, 100, 50, 12_678, 17, 102_799),
    ],
)
def test_gpstruct_has_the_counts_of_the_authors(data_folder, task, sequences, used, train, tokens, labels, features):
    data = load_gpstruct(task, folder=data_folder)
    assert (len(data.X), data.lengths.sum()) == (sequences, tokens)
    assert len(np.unique(np.concatenate(data.y))) == labels
    assert {x.shape[1] for x in data.X} == {features}
    assert len(data.splits) == 5
    for first, second in data.splits:
        assert (len(first), len(second)) == (train, used - train)
        np.testing.assert_array_equal(np.union1d(first, second), np.arange(used))
    with np.load(data_folder / "gpstruct_nlp" / f"{task}.npz") as stored:
        assert sum(x.nnz for x in data.X) == stored["indices"].size
        row = stored["indices"][slice(*stored["indptr"][[100, 101]])]
    flat = np.repeat(np.arange(sequences), data.lengths)
    sequence = flat[100]
    place = 100 - int(np.searchsorted(flat, sequence))
    np.testing.assert_array_equal(data.X[sequence][[place]].indices, row)
    assert set(data.X[sequence].data) == {1.0}


@pytest.mark.parametrize(("task", "unknown"), [("basenp", 0), ("chunking", 19), ("japanesene", 3)])
def test_labels_of_gpstruct_are_the_tags_but_where_the_authors_know_none(data_folder, task, unknown):
    data = load_gpstruct(task, folder=data_folder)
    y, tags = np.concatenate(data.y), np.concatenate(data.extras["tag"])
    strangers = ~np.isin(tags, y)
    assert strangers.sum() == unknown
    np.testing.assert_array_equal(y[~strangers], tags[~strangers])
    assert set(y[strangers]) <= {"B-NP" if task == "chunking" else "O"}


def write_gpstruct(folder, raw="x\tNN\tI\n\ny\tVB\tB\nz\tVB\tO\n", **changes):
    arrays = {
        "indices": np.array([0, 3, 1], np.int32),
        "indptr": np.array([0, 2, 2, 3], np.int32),
        "n_features": np.int32(4),
        "label": np.array([2, -1, 1], np.int8),
        "lengths": np.array([1, 2], np.int32),
        "splits": np.array([[1, 0], [0, 1]], np.int16),
        "n_train": np.int32(1),
        **changes,
    }
    (folder / "gpstruct_nlp").mkdir(exist_ok=True)
    np.savez(folder / "gpstruct_nlp" / "basenp.npz", **arrays)
    (folder / "gpstruct_nlp" / "basenp_raw.txt.gz").write_bytes(gzip.compress(raw.encode()))


def test_gpstruct_by_hand(tmp_path):
    write_gpstruct(tmp_path)
    data = load_gpstruct("basenp", folder=tmp_path)
    assert [x.toarray().tolist() for x in data.X] == [[[1, 0, 0, 1]], [[0, 0, 0, 0], [0, 1, 0, 0]]]
    assert [y.tolist() for y in data.y] == [["I"], ["B", "O"]]
    assert [[part.tolist() for part in split] for split in data.splits] == [[[1], [0]], [[0], [1]]]
    assert [words.tolist() for words in data.extras["word"]] == [["x"], ["y", "z"]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lengths": np.array([1, 1])}, "label has 3 entries, .*: expected lengths with the sum 3"),
        ({"indptr": np.array([0, 2, 3])}, "one more entry in indptr"),
        ({"label": np.array([0, 1, 3])}, "label has values from 0 to 3: expected values from 0 to 2"),
        ({"splits": np.array([[0, 2]])}, "distinct indices from 0 to 1"),
        ({"splits": np.array([[1, 1]])}, "distinct indices from 0 to 1"),
        ({"n_train": np.int32(2)}, "n_train is 2: expected a number above 0 and below 2"),
        (
            {"raw": "x\tNN\tI\ny\tVB\tB\nz\tVB\tO\n"},
            r"basenp_raw.txt.gz has 1 sentences .*: expected the same .* as in basenp\.npz",
        ),
        ({"raw": "x\tNN\tI\n\ny\tVB\tB\n"}, r"the same 2 sentences and 3 tokens"),
    ],
)
def test_gpstruct_that_does_not_fit_together_is_named(changes, message, tmp_path):
    write_gpstruct(tmp_path, **changes)
    with pytest.raises(ValueError, match=message):
        load_gpstruct("basenp", folder=tmp_path)


@pytest.mark.parametrize(
    ("name", "train", "test", "features", "labels", "cardinality", "distinct"),
    [
        ("scene", 1_211, 1_196, 294, 6, 1.074, 15),
        ("yeast", 1_500, 917, 103, 14, 4.237, 198),
        ("emotions", 391, 202, 72, 6, 1.868, 27),
    ],
)
def test_counts_are_those_of_mulan(data_folder, name, train, test, features, labels, cardinality, distinct):
    data = load_multilabel(name, folder=data_folder)
    Y = np.concatenate((data.Y_train, data.Y_test))
    assert data.X_train.shape == (train, features)
    assert data.X_test.shape == (test, features)
    assert (len(data.Y_train), len(data.Y_test), Y.shape[1]) == (train, test, labels)
    assert (len(data.feature_names), len(data.label_names)) == (features, labels)
    assert Y.sum(axis=1).mean() == pytest.approx(cardinality, abs=5e-4)
    assert len(np.unique(Y, axis=0)) == distinct
    assert data.citation


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X_test": np.zeros((2, 2))}, r"X_test has shape \(2, 2\) and Y_test has shape \(1, 2\)"),
        ({"Y_train": np.zeros((2, 3))}, r"Y_train has shape \(2, 3\): .* 3 columns .* in X_train and 2 .* in Y_train"),
        ({"Y_test": np.array([[0, 2]])}, "other values than 0 and 1"),
    ],
)
def test_arrays_that_do_not_fit_together_are_named(changes, message, tmp_path):
    arrays = {
        "X_train": np.zeros((2, 3)),
        "Y_train": np.eye(2, dtype=np.uint8),
        "X_test": np.ones((1, 3)),
        "Y_test": np.ones((1, 2), np.uint8),
        "label_names": np.array(["a", "b"]),
        "feature_names": np.array(["x", "y", "z"]),
    }
    (tmp_path / "multilabel").mkdir()
    np.savez(tmp_path / "multilabel" / "scene.npz", **arrays)
    data = load_multilabel("scene", folder=tmp_path)
    assert data.Y_train.tolist() == [[1, 0], [0, 1]]
    assert data.label_names == ("a", "b")
    np.savez(tmp_path / "multilabel" / "scene.npz", **arrays | changes)
    with pytest.raises(ValueError, match=message):
        load_multilabel("scene", folder=tmp_path)


def test_an_archive_that_is_wrong_is_named(tmp_path):
    path = tmp_path / "letters_ocr" / "letters.npz"
    path.parent.mkdir()
    for content in (b"", b"PK\x03\x04 cut", b"text"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"letters\.npz: expected an \.npz file with the arrays pixels_packed, "):
            load_letters(folder=tmp_path)
    np.savez(path, label=np.zeros(3))
    with pytest.raises(ValueError, match="missing: pixels_packed, word_id, fold"):
        load_letters(folder=tmp_path)
    np.savez(path, **{name: np.array([None]) for name in ("pixels_packed", "label", "word_id", "fold")})
    with pytest.raises(ValueError, match="allow_pickle=False"):
        load_letters(folder=tmp_path)
