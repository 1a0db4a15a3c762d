import numpy as np
import pytest

from kernelcrf.readers.inputs import InputsReader
from kernelcrf.readers.labels import LabelReader
from kernelcrf.readers.reader_extension import extend_reader
from kernelcrf.readers.sequences import SequenceReader

OLD = [[{"w": "b"}, {"w": "a", "n": 2.0}]]
NEW = [[{"w": "c"}, {"w": "a"}], [{"w": "d", "n": 1.5}]]


def test_new_names_get_the_columns_after_the_old_ones():
    reader, _, _ = SequenceReader.fit(OLD)
    grown, rows, chains = extend_reader(reader, NEW)
    assert reader.feature_names == ["n", "w:a", "w:b"]
    assert grown.feature_names == ["n", "w:a", "w:b", "w:c", "w:d"]
    assert grown.n_features == 5
    assert chains.lengths.tolist() == [2, 1]
    np.testing.assert_array_equal(rows.toarray(), [[0, 0, 0, 1, 0], [0, 1, 0, 0, 0], [1.5, 0, 0, 0, 1]])
    np.testing.assert_array_equal(grown.read(OLD)[0].toarray()[:, :3], reader.read(OLD)[0].toarray())


def test_names_of_sequences_of_weight_zero_do_not_join():
    reader, _, _ = SequenceReader.fit(OLD)
    grown, rows, _ = extend_reader(reader, NEW, sample_weight=[1.0, 0.0])
    assert grown.feature_names == ["n", "w:a", "w:b", "w:c"]
    assert rows.shape == (3, 4)
    same, rows, _ = extend_reader(reader, NEW, sample_weight=[0.0, 0.0])
    assert same is reader
    assert rows.shape == (3, 3)


def test_lists_of_names_and_flat_tokens():
    reader, _, _ = SequenceReader.fit([[["a", "b"]]])
    grown, rows, chains = extend_reader(reader, [["a", "c"], ["b"]], lengths=[1, 1])
    assert grown.feature_names == ["a", "b", "c"]
    np.testing.assert_array_equal(rows.toarray(), [[1, 0, 1], [0, 1, 0]])
    assert chains.n_samples == 2


@pytest.mark.parametrize("X", [[], [[]], OLD], ids=["nothing", "an empty sequence", "no new name"])
def test_without_new_names_the_reader_is_the_same(X):
    reader, _, _ = SequenceReader.fit(OLD)
    assert extend_reader(reader, X)[0] is reader


def test_columns_of_arrays_and_hashes_do_not_grow():
    dense, _, _ = SequenceReader.fit([np.ones((2, 3))])
    assert extend_reader(dense, [np.zeros((1, 3))])[0] is dense
    with pytest.raises(ValueError, match="expecting 3 features"):
        extend_reader(dense, [np.zeros((1, 4))])
    with pytest.raises(TypeError, match="fit was given arrays"):
        extend_reader(dense, NEW)
    hashed, _, _ = SequenceReader.fit(OLD, hash_features=16)
    assert extend_reader(hashed, NEW)[0] is hashed


def test_each_of_several_inputs_grows():
    old = [{"words": OLD[0], "vectors": np.ones((2, 2))}]
    reader, _, _ = InputsReader.fit(old, {"words": (None, None), "vectors": (None, [1])})
    new = [{"words": words, "vectors": np.ones((len(words), 2))} for words in NEW]
    grown, named, chains = reader.extend(new)
    assert grown.width("words") == 5
    assert grown.width("vectors") == 1
    assert named.matrices["words"].shape == (3, 5)
    assert chains.n_nodes == 3
    with pytest.raises(TypeError, match="expected mappings"):
        reader.extend(NEW)


def test_labels_grow_in_sorted_order():
    reader = LabelReader.fit(["b", "d"])
    assert reader.extend(["d", None, -1]) is reader
    grown = reader.extend(["a", "d", {"c", "b"}])
    assert grown.classes.tolist() == ["a", "b", "c", "d"]
    assert grown.positions_of(reader).tolist() == [1, 3]
    assert reader.extend([], classes=["e"]).classes.tolist() == ["b", "d", "e"]
    with pytest.raises(ValueError, match="the prior has labels such as"):
        reader.extend([3])
