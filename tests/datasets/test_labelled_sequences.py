import numpy as np
import pytest
from scipy.sparse import csr_array

from kernelcrf import ChainCRF, datasets
from kernelcrf.datasets import LabelledSequences
from studies import datasets as study_data

ABOUT = {"description": "Toy.", "licence": "none", "citation": "none"}


@pytest.fixture
def toy():
    return LabelledSequences(
        X=[csr_array((2, 3)), csr_array((1, 3)), csr_array((0, 3))],
        y=[np.array([0, 1]), np.array([1]), np.array([], int)],
        ids=np.array(["a", "b", "c"]),
        groups=np.array([7, 8, 9]),
        splits=((np.array([0]), np.array([1, 2])),),
        eval_mask=[np.array([True, False]), np.array([True]), np.array([], bool)],
        extras={"word": [np.array(["x", "y"]), np.array(["z"]), np.array([], str)]},
        **ABOUT,
    )


def test_lengths_and_repr_are_short(toy):
    assert toy.lengths.tolist() == [2, 1, 0]
    assert repr(toy) == "LabelledSequences(3 sequences, 3 tokens: Toy.)"


@pytest.mark.parametrize("indices", [[2, 0], np.array([2, 0])])
def test_take_keeps_what_belongs_to_a_sequence_and_drops_splits(toy, indices):
    taken = toy.take(indices)
    assert taken.X[0] is toy.X[2]
    assert [y.tolist() for y in taken.y] == [[], [0, 1]]
    assert taken.ids.tolist() == ["c", "a"]
    assert taken.groups.tolist() == [9, 7]
    assert taken.eval_mask[1].tolist() == [True, False]
    assert taken.extras["word"][1].tolist() == ["x", "y"]
    assert taken.splits is None
    assert taken.folds is None
    assert taken.description == "Toy."


def test_take_reads_masks(toy):
    assert toy.take(toy.groups > 7).ids.tolist() == ["b", "c"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"y": [np.zeros(2)]}, "y and X differ in the number or the lengths of their sequences"),
        ({"eval_mask": [np.ones(2, bool)]}, "eval_mask and X differ"),
        ({"extras": {"word": [np.ones(3), np.ones(1)]}}, "word and X differ"),
        ({"groups": np.arange(3)}, r"groups has shape \(3,\), but X has 1 sequences"),
    ],
)
def test_fields_that_do_not_fit_together_are_named(fields, message):
    with pytest.raises(ValueError, match=message):
        LabelledSequences(**{"X": [np.zeros((3, 2))], "y": [np.zeros(3)], **ABOUT, **fields})


@pytest.mark.parametrize(
    ("load", "arguments", "indices"),
    [
        (study_data.load_letters, {}, range(40)),
        (study_data.load_gpstruct, {"task": "segmentation"}, range(36)),
        (datasets.load_conll2000, {}, range(30)),
        (datasets.load_prosody, {"n_classes": 2}, range(60)),
        (datasets.load_us_addresses, {}, range(60)),
        (study_data.load_cb513, {}, range(10)),
        (study_data.load_occupancy, {"by_day": True}, [0, 6]),
    ],
)
def test_chaincrf_takes_what_was_loaded(data_folder, load, arguments, indices):
    data = load(**arguments, folder=data_folder).take(indices)
    labels = [label for label in np.unique(np.concatenate(data.y)).tolist() if label != -1]
    crf = ChainCRF(kernel="linear", C=1e-3, tol=0.9, classes=labels, random_state=0).fit(data.X, data.y)
    assert crf.classes_.tolist() == labels
    assert [len(y) for y in crf.predict(data.X)] == data.lengths.tolist()
