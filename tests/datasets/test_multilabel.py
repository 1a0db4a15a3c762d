import numpy as np
import pytest

from kernelcrf.datasets import load_multilabel


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
        ({"X_test": np.zeros((2, 2))}, r"X_test has shape \(2, 2\) and Y_test \(1, 2\)"),
        ({"Y_train": np.zeros((2, 3))}, r"Y_train \(2, 3\): expected \(n, d\) and \(n, L\) with d=3 and L=2"),
        ({"Y_test": np.array([[0, 2]])}, "expected 0 and 1"),
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
