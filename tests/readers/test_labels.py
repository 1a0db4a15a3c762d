import json
import pickle

import numpy as np
import pytest
from sklearn.utils.multiclass import unique_labels

from kernelcrf.graphs.structure import Chains
from kernelcrf.readers.labels import LabelReader, flat_labels

CHAINS = Chains.from_lengths([3, 0, 2])


def as_array(labels):
    """An array of the labels' own type, of objects where they are tuples or differ."""
    if len({type(label) for label in labels} - {tuple}) == 1 and tuple not in map(type, labels):
        return np.array(labels)
    array = np.empty(len(labels), object)
    for i, label in enumerate(labels):
        array[i] = label
    return array


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        ([["b", "a", "b"], [], ["c", "a"]], ["a", "b", "c"]),
        ([[2, 10, 2], [], [0, 10]], [0, 2, 10]),
        ([[True, False, True], [], [True, True]], [False, True]),
        ([[2.5, -1.0, 0.0], [], [0.0, 0.0]], [-1.0, 0.0, 2.5]),
        ([[("b", 1), ("a", 2), ("a", 1)], [], [("a", 1), ("b", 1)]], [("a", 1), ("a", 2), ("b", 1)]),
        ([["b", 1, "b"], [], ["a", ("t",)]], ["b", 1, "a", ("t",)]),
    ],
)
@pytest.mark.parametrize("form", [list, tuple, "array", "flat"])
def test_labels_come_back_whatever_their_type_and_form(y, classes, form):
    flat = form == "flat"
    if flat:
        given = [label for labels in y for label in labels]
    elif form == "array":
        given = [as_array(labels) for labels in y]
    else:
        given = form(map(form, y))
    tokens = flat_labels(given, CHAINS, flat=flat)
    reader = LabelReader.fit(tokens)
    assert reader.classes.tolist() == classes
    indices, allowed = reader.encode(tokens, CHAINS)
    assert indices.dtype == np.int32
    assert allowed is None
    decoded = reader.decode(indices, CHAINS)
    assert all(isinstance(labels, np.ndarray) for labels in decoded)
    assert [labels.tolist() for labels in decoded] == y


def test_classes_are_sorted_as_scikit_learn_sorts_them():
    y = ["B", "a", "Z", "b", "é"]
    reader = LabelReader.fit(flat_labels([y], Chains.from_lengths([5])))
    np.testing.assert_array_equal(reader.classes, unique_labels(y))
    assert reader.classes.dtype == unique_labels(y).dtype


@pytest.mark.parametrize(
    ("classes", "missing"), [("ab", None), ("ab", -1), ([0, 3], None), ([0, 3], -1), ([0.5, 1], None)]
)
def test_a_missing_label_allows_every_class(classes, missing):
    a, b = classes
    y = [[a, missing, b], [], [missing, a]]
    reader = LabelReader.fit(flat_labels(y, CHAINS))
    labels, allowed = reader.encode(flat_labels(y, CHAINS), CHAINS)
    assert reader.classes.tolist() == list(classes)
    np.testing.assert_array_equal(labels, [0, -1, 1, -1, 0])
    np.testing.assert_array_equal(allowed, [[1, 0], [1, 1], [0, 1], [1, 1], [1, 0]])


@pytest.mark.parametrize("others", [[-2, 1], [0.5, 1.0], [("a",), ("b",)]])
def test_minus_one_is_a_label_among_labels_that_are_not_strings_or_integers_from_zero(others):
    y = [[-1, others[0], others[1]]]
    reader = LabelReader.fit(flat_labels(y, Chains.from_lengths([3])))
    assert -1 in reader.classes.tolist()
    assert reader.encode(flat_labels(y, Chains.from_lengths([3])), Chains.from_lengths([3]))[1] is None


def test_minus_one_is_a_label_where_classes_say_so():
    chains = Chains.from_lengths([3])
    reader = LabelReader.fit([-1, 1, 1], classes=[1, -1])
    assert reader.classes.tolist() == [-1, 1]
    np.testing.assert_array_equal(reader.encode([-1, 1, 1], chains)[0], [0, 1, 1])


@pytest.mark.parametrize(
    ("seen", "classes"),
    [([-1, 1], [-1, 1]), ([-1, 0, 1, 2], [0, 1, 2]), ([-1, False, True], [False, True]), ([-1, -2, 1], [-2, -1, 1])],
)
def test_minus_one_is_a_sign_beside_one_and_missing_beside_other_labels(seen, classes):
    assert LabelReader.fit(seen).classes.tolist() == classes


def test_minus_one_beside_zero_and_one_is_missing_with_a_warning_unless_classes_say_what_it_is():
    chains = Chains.from_lengths([3])
    with pytest.warns(UserWarning, match=r"-1 is read as a missing label: pass classes=\[-1, 0, 1\] .* or None"):
        assert LabelReader.fit([-1, 0, 1]).classes.tolist() == [0, 1]
    assert LabelReader.fit([-1, 0, 1], classes=[-1, 0, 1]).encode([-1, 0, 1], chains)[0].tolist() == [0, 1, 2]
    assert LabelReader.fit([-1, 0, 1], classes=[0, 1]).encode([-1, 0, 1], chains)[0].tolist() == [-1, 0, 1]
    assert LabelReader.fit([None, 0, 1]).encode([None, 0, 1], chains)[0].tolist() == [-1, 0, 1]


def test_arrays_of_integers_hold_missing_labels_too():
    labels, _ = LabelReader(np.array([0, 1])).encode([0, -1, 1, 1, 1], CHAINS)
    np.testing.assert_array_equal(labels, [0, -1, 1, 1, 1])


def test_a_set_allows_its_labels_and_shows_them_to_fit():
    y = [["a", {"b", "c"}, None], [], [frozenset(["c"]), "b"]]
    reader = LabelReader.fit(flat_labels(y, CHAINS))
    labels, allowed = reader.encode(flat_labels(y, CHAINS), CHAINS)
    assert reader.classes.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(labels, [0, -1, -1, 2, 1])
    np.testing.assert_array_equal(allowed, [[1, 0, 0], [0, 1, 1], [1, 1, 1], [0, 0, 1], [0, 1, 0]])


def test_a_string_is_a_sequence_of_letters():
    reader = LabelReader.fit(flat_labels(["HHE", "", "EC"], CHAINS))
    assert [labels.tolist() for labels in reader.decode(reader.encode(list("HHEEC"), CHAINS)[0], CHAINS)] == [
        ["H", "H", "E"],
        [],
        ["E", "C"],
    ]


def test_given_classes_are_kept_though_y_does_not_show_them():
    reader = LabelReader.fit(["b"], classes=np.array(["c", "a", "b"]))
    assert reader.classes.tolist() == ["a", "b", "c"]


@pytest.mark.parametrize(
    "classes", [["a", "b"], [0, 5], [0.5, 1.5], [False, True], [("a", 1), ("b", (2, None))], ["a", 1, (True,)]]
)
def test_what_is_written_reads_as_before(classes):
    reader = LabelReader.fit(classes)
    for copy in (
        LabelReader.from_config(json.loads(json.dumps(reader.to_config()))),
        pickle.loads(pickle.dumps(reader)),
    ):
        assert copy.classes.dtype == reader.classes.dtype
        assert copy.classes.tolist() == reader.classes.tolist()


def test_a_config_that_does_not_hold_together_is_refused():
    for config in ({"kind": "U", "classes": ["a", 1.5, "a"]}, {"kind": "i", "classes": ["a", "b"]}):
        with pytest.raises(ValueError, match=r"the model file has the values .*: expected the type"):
            LabelReader.from_config(config)
    with pytest.raises(ValueError, match=r"the model file has the class {}"):
        LabelReader.from_config({"kind": "O", "classes": ["a", {}]})
    with pytest.raises(TypeError, match=r"label frozenset.* cannot be written"):
        LabelReader(np.array([frozenset("a"), "b"], dtype=object)).to_config()


ONE = Chains.from_lengths([2])


@pytest.mark.parametrize(
    ("y", "options", "error", "message"),
    [
        ([["a"]], {}, ValueError, r"y\[0\] has 1 labels and X\[0\] has 2 tokens"),
        ([["a", "b"], ["a"]], {}, ValueError, r"y has 2 sequences and X has 1"),
        (["a", "b", "a"], {"flat": True}, ValueError, r"y has 3 labels and X has 2 tokens"),
        ([["a", "a"]], {}, ValueError, r"one class, 'a'.*at least 2 classes.*classes="),
        ([[3, -1]], {}, ValueError, r"at least 2 classes.*-1 counts as a missing label: name it in classes="),
        ([[None, None]], {}, ValueError, r"y has only missing labels"),
        ([[-1, None]], {}, ValueError, r"y has only missing labels"),
        ([[-1, None]], {"classes": ["a", "b"]}, ValueError, r"y has only missing labels"),
        ([["c", "d"]], {"classes": ["a", "b"]}, ValueError, r"none of the classes 'a', 'b'"),
        ([["a", "b"]], {"classes": ["a", None]}, ValueError, r"classes has None as a label"),
        ([["a", float("nan")]], {}, ValueError, r"y has nan as a label.*pass None"),
        ([["a", {"b", None}]], {}, ValueError, r"y has None as a label.*in place of its label or of its set"),
        ([["a", ["b"]]], {}, TypeError, r"label \['b'\] of type list: expected a hashable"),
        ([[["a", "b"]] * 2], {}, TypeError, r"expected a hashable label"),
        ([np.ones((2, 2))], {}, ValueError, r"y\[0\] has shape"),
        ([{"a", "b"}], {}, TypeError, r"y\[0\] is .* of type set: expected a sequence of labels"),
        ([3], {}, TypeError, r"y\[0\] is of type int.*lengths="),
        (None, {}, ValueError, r"requires y to be passed, but the target y is None"),
        ("ab", {}, TypeError, r"y is 'ab' of type str"),
    ],
)
def test_what_cannot_be_fitted_is_named(y, options, error, message):
    with pytest.raises(error, match=message):
        LabelReader.fit(flat_labels(y, ONE, flat="flat" in options), options.get("classes"))


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([["a", "b", "z"], [], ["a", "a"]], r"label 'z' at sequence 0, token 2.*classes 'a', 'b': expected one"),
        ([["a", "b", "a"], [], ["a", {"a", "z"}]], r"label 'z' at sequence 2, token 1"),
        ([["a", "b", "a"], [], [set(), "a"]], r"empty set of labels at sequence 2, token 0"),
        ([["a", "b", "a"], [], [["a"], "a"]], r"label \['a'\] at sequence 2, token 0"),
        ([["a", "b", "a"], [], ["a"]], r"y\[2\] has 1 labels and X\[2\] has 2 tokens"),
    ],
)
def test_what_cannot_be_encoded_is_named(y, message):
    with pytest.raises(ValueError, match=message):
        LabelReader(np.array(["a", "b"])).encode(flat_labels(y, CHAINS), CHAINS)
