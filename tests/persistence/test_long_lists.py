"""Long lists of a tree of values become arrays, and come back as they were."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcrf.persistence.long_lists import (
    ARRAYS,
    LONG,
    LONG_STRING,
    MARK,
    STRINGS_AT_ONCE,
    Texts,
    listed,
    pack,
    unpack,
)

PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(alphabet=st.characters(codec=None)))
KEYS = st.sampled_from([MARK, "keys", "values", "columns", "a", "b", ""])
REPEATED = st.sampled_from([1, 2, LONG - 1, LONG, LONG + 1])


def repeated(values):
    return st.tuples(values, REPEATED).map(lambda own: [own[0]] * own[1])


def containers(values):
    numbered = st.tuples(values, REPEATED).map(lambda own: {f"k{i}": own[0] for i in range(own[1])})
    return st.one_of(
        st.lists(values, max_size=3), repeated(values), st.dictionaries(KEYS, values, max_size=3), numbered
    )


@given(
    st.recursive(st.one_of(PLAIN, st.text("ä", min_size=LONG_STRING, max_size=LONG_STRING)), containers, max_leaves=6)
)
def test_every_json_value_comes_back(value):
    packed, arrays = pack({"value": value})
    again = unpack(json.loads(json.dumps(packed)), arrays)
    assert json.dumps(again) == json.dumps({"value": value})
    assert {name: array.dtype for name, array in arrays.items()} == {name: ARRAYS[name] for name in arrays}


def test_what_may_be_long_is_not_in_the_tree():
    config = {
        "names": [f"größe {i}" for i in range(1000)],
        "pairs": [(f"B-{i}", f"I-{i}") for i in range(1000)],
        "matrix": np.eye(100).tolist(),
        "terms": [{"name": f"t{i}", "shape": [1, i], "map": None} for i in range(1000)],
        "by name": {f"label {i}": i for i in range(1000)},
        "text": "U:w=%x[0,0]\n" * 1000,
    }
    packed, arrays = pack(config)
    assert len(json.dumps(packed)) < 7000  # a thousand times null, and a few hundred bytes
    assert json.dumps(unpack(packed, arrays)) == json.dumps(config)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({MARK: ["text", 3]}, "has only 2 left"),
        ({MARK: ["text", 1]}, "tensors of long lists have more entries than these lists"),
        ([{MARK: ["text", 2]}, {MARK: ["text", 2]}], "has only 0 left"),
        ({MARK: ["floats", 1]}, "has only 0 left"),
        ({MARK: ["text", 10**9, 0]}, "expected integers above 0"),
        ({MARK: ["text", -1]}, "expected integers above 0"),
        ({MARK: ["text", True]}, "expected integers above 0"),
        ({MARK: ["object"], "keys": {MARK: ["text", 2]}, "values": [1]}, "shorter"),
        ({MARK: ["objects"], "keys": ["a"], "columns": [[1], {MARK: ["text", 2]}]}, "longer"),
    ],
)
def test_lists_that_do_not_fit_their_arrays_are_refused(tree, message):
    arrays = {"config.text": np.frombuffer(b"ab", np.uint8), "config.lengths": np.array([1, 1])}
    with pytest.raises(ValueError, match=message):
        unpack(tree, arrays)


def test_texts_are_the_strings_of_a_list_that_are_decoded_when_they_are_read():
    words = [f"{'größe' if i % 7 == 3 else 'w'}{i}" for i in range(2 * STRINGS_AT_ONCE)] + ["", "\ud800", "last"]
    packed, arrays = pack({"words": words, "pairs": [["a", "b"]] * LONG, "rows": [{"a": "x"}] * LONG})
    value = unpack(packed, arrays, texts=lambda texts: texts)
    assert isinstance(value["words"], Texts)
    assert (len(value["words"]), list(value["words"])) == (len(words), words)
    assert [value["words"][i] for i in (0, 3, -1, -2, len(words) - 1)] == [words[i] for i in (0, 3, -1, -2, -1)]
    assert (value["words"][5:9], value["pairs"][0]) == (words[5:9], ["a", "b"])
    assert listed({"in": [value]}) == {"in": [unpack(packed, arrays)]}
    for i in (len(words), -len(words) - 1):
        with pytest.raises(IndexError):
            value["words"][i]


def test_texts_that_are_not_utf8_are_errors_when_they_are_read():
    arrays = {"config.text": np.frombuffer(b"a\xff", np.uint8), "config.lengths": np.array([1, 1])}
    texts = unpack({MARK: ["text", 2]}, arrays, texts=lambda texts: texts)
    with pytest.raises(ValueError, match="utf-8"):
        list(texts)


@pytest.mark.parametrize("lengths", [[-1, 3], [1, 2], [2**62, 2**62], [3]])
def test_lengths_that_do_not_fit_the_text_are_refused(lengths):
    arrays = {"config.text": np.frombuffer(b"ab", np.uint8), "config.lengths": np.array(lengths)}
    with pytest.raises(ValueError, match=r"do not add up to the size of tensor 'config\.text'"):
        unpack({MARK: ["text", len(lengths)]}, arrays)
    arrays["config.lengths"] = np.array([1.0, 1.0])
    with pytest.raises(ValueError, match=r"'config\.lengths' has type float64"):
        unpack({MARK: ["text", 2]}, arrays)
