import re
from collections import Counter, OrderedDict

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction import DictVectorizer, FeatureHasher

from kernelcrf import ChainCRF
from kernelcrf.readers.feature_dicts import learn, new_hasher, vectorize
from kernelcrf.readers.vocabulary import Vocabulary

NAMES = st.sampled_from(["w", "p", "w:a", "x"])
PLAIN = st.one_of(st.sampled_from(["a", "b", ""]), st.booleans(), st.integers(-2, 2), st.floats(-3, 3))
TOKENS = st.lists(st.dictionaries(NAMES, PLAIN, max_size=4), min_size=1, max_size=8)


def rows_by_name(tokens):
    """The matrix of the tokens as dicts from column names to values, without zeros."""
    vocabulary, entries = learn(tokens)
    X, names = entries.to_csr().toarray(), vocabulary.names
    return [{names[j]: x[j] for j in np.flatnonzero(x)} for x in X]


@given(TOKENS.filter(any), TOKENS)
def test_dicts_equal_those_of_dict_vectorizer(tokens, more):
    theirs = DictVectorizer(separator=":")
    ours, entries = learn(tokens)
    X = entries.to_csr()
    np.testing.assert_allclose(X.toarray(), theirs.fit_transform(tokens).toarray(), atol=1e-12)
    assert ours.names == theirs.feature_names_
    np.testing.assert_allclose(vectorize(more, ours).to_csr().toarray(), theirs.transform(more).toarray(), atol=1e-12)
    assert isinstance(X, sp.csr_array)
    assert X.has_canonical_format


STRINGS = st.lists(st.dictionaries(NAMES, st.sampled_from(["a", "b", ""]), max_size=4), min_size=1, max_size=8)
LISTS = st.lists(st.lists(st.sampled_from(["w", "p", "w:a", "x", ""]), max_size=5), min_size=1, max_size=8)


@given(STRINGS.filter(any), STRINGS)
def test_dicts_of_strings_equal_those_of_dict_vectorizer(tokens, more):
    theirs = DictVectorizer(separator=":").fit(tokens)
    ours, _ = learn(tokens)
    assert ours.columns == theirs.vocabulary_
    np.testing.assert_array_equal(vectorize(more, ours).to_csr().toarray(), theirs.transform(more).toarray())


@pytest.mark.parametrize("collection", [list, tuple])
@given(tokens=LISTS.filter(any), more=LISTS)
def test_lists_of_names_equal_counts_by_dict_vectorizer(collection, tokens, more):
    theirs = DictVectorizer(separator=":")
    ours, X = learn([collection(token) for token in tokens])
    np.testing.assert_array_equal(X.to_csr().toarray(), theirs.fit_transform(map(Counter, tokens)).toarray())
    assert ours.names == theirs.feature_names_
    found = vectorize([collection(token) for token in more], ours)
    np.testing.assert_array_equal(found.to_csr().toarray(), theirs.transform(map(Counter, more)).toarray())


@pytest.mark.parametrize(
    "tokens",
    [
        [["w:the", "unseen"], [], ["cap", "cap"]],
        [{"w": "the"}, {"w": "unseen", "cap": True}, {}],
        [{"w": "the", "v": 2.5}, {"v": -1, "u": 3}],
        [{"w": ["the", "unseen"], "v": {"deep": 2}}, ["cap"]],
        [OrderedDict(w="the", v=2.5)],
        [{"w": np.str_("the"), "v": np.float32(2.5), "cap": np.bool_(True)}],
        [{"w:the": 1}, {"w": "the", "w:the": 2}],
        [set(), {"w:the", "unseen"}],
        [[], []],
    ],
)
def test_a_vocabulary_finds_what_a_fit_would_name(tokens):
    """The columns that the same tokens would have by their names, unseen ones left out."""
    vocabulary, _ = learn([{"w": "the", "v": 1.0, "cap": True}, {"v=deep": 1.0}])
    X, names = vectorize(tokens, vocabulary).to_csr().toarray(), vocabulary.names
    found = [{names[j]: x[j] for j in np.flatnonzero(x)} for x in X]
    assert found == [{name: value for name, value in row.items() if name in names} for row in rows_by_name(tokens)]


@given(TOKENS.filter(any))
def test_hashed_dicts_equal_those_of_feature_hasher(tokens):
    X = vectorize(tokens, new_hasher(8)).to_csr()
    np.testing.assert_allclose(X.toarray(), FeatureHasher(8).transform(tokens).toarray(), atol=1e-12)


@pytest.mark.parametrize("collection", [list, tuple, set, frozenset])
def test_collections_of_strings_are_columns(collection):
    tokens = [{"w": "the", "suffix": collection(["e", "he"])}, {"w": "a"}, {}]
    assert rows_by_name(tokens) == [{"w:the": 1, "suffix:e": 1, "suffix:he": 1}, {"w:a": 1}, {}]
    assert rows_by_name([collection(["w:the", "cap"]), collection(["cap"])]) == [{"w:the": 1, "cap": 1}, {"cap": 1}]


def test_nested_dicts_are_written_out():
    tokens = [{"w": {"low": "the", "len": 3, "deep": {"s": ["e"]}}, "cap": True}, {"w": "the"}]
    assert rows_by_name(tokens) == [{"w:low:the": 1, "w:len": 3, "w:deep:s:e": 1, "cap": 1}, {"w:the": 1}]


def test_the_separator_of_a_vocabulary_joins_nested_names_too():
    """Model files of earlier versions have "=" in their names."""
    vectorizer = Vocabulary(["w=low=the", "w=len"], "=")
    for token in ({"w": {"low": "the", "len": 3}}, {"w": {"low": ["the"], "len": 3.0}}):
        assert vectorize([token], vectorizer).to_csr().toarray().tolist() == [[1, 3]]


def test_dicts_and_lists_of_names_may_meet_and_repeated_names_count():
    assert rows_by_name([{"w": "the"}, ["w:the", "cap", "cap"]]) == [{"w:the": 1}, {"w:the": 1, "cap": 2}]
    assert rows_by_name([["a", "a"], []]) == [{"a": 2}, {}]
    assert rows_by_name([{"w": ["a", "a"]}]) == [{"w:a": 2}]


def test_numpy_scalars_are_numbers():
    assert rows_by_name([{"a": np.float32(2), "b": np.bool_(True), "c": np.int8(3), "d": np.str_("x")}]) == [
        {"a": 2, "b": 1, "c": 3, "d:x": 1}
    ]


@pytest.mark.parametrize(
    ("token", "error", "message"),
    [
        ({"w": None}, TypeError, r"value None of type NoneType for feature 'w'.*leave out a feature"),
        ({"w": b"the"}, TypeError, r"type bytes for feature 'w'"),
        ({"w": object}, TypeError, r"type type for feature 'w'"),
        ({"w": float("nan")}, ValueError, r"value nan for feature 'w': expected finite"),
        ({"w": -np.inf}, ValueError, r"value -inf for feature 'w'"),
        ({3: "a"}, TypeError, r"feature name 3 of type int: expected a string"),
        (
            {"w": [1, 2]},
            TypeError,
            r"value \[1, 2\] of type list for feature 'w'.*one feature per entry, such as 'w\[0\]'",
        ),
        ({"w": (0.5, 1.5)}, TypeError, r"of type tuple for feature 'w'.*one feature per entry"),
        ({"w": {"v": np.ones(2)}}, TypeError, r"of type ndarray for feature 'w:v'.*or pass arrays of numbers"),
        (["w", 3], TypeError, r"feature name 3 of type int"),
        (7, TypeError, r"token 7 of type int among feature dicts"),
        ("the", TypeError, r"token 'the' of type str among feature dicts"),
    ],
)
def test_what_cannot_be_a_feature_is_named(token, error, message):
    with pytest.raises(error, match=message):
        learn([{"w": "a"}, token])


@pytest.mark.parametrize(
    ("token", "message"),
    [
        ({"w": None}, "value None of type NoneType for feature 'w' in sequence 2, token 1: expected a string"),
        ({"w": np.nan}, "value nan for feature 'w' in sequence 2, token 1: expected finite numbers; leave out"),
        ({"w": np.inf}, "value inf for feature 'w' in sequence 2, token 1: expected finite numbers; remove or clip"),
        ({"w": {"v": None}}, "value None of type NoneType for feature 'w:v' in sequence 2, token 1"),
        ({"w": [1]}, "for feature 'w' in sequence 2, token 1"),
        ({3: "a"}, "feature name 3 of type int in sequence 2, token 1"),
        (7, "token 7 of type int among feature dicts in sequence 2, token 1"),
    ],
)
def test_what_cannot_be_a_feature_is_found_in_fit_and_predict(token, message):
    good, y = [[{"w": "a", "v": 1.0}], [], [{"w": "a"}, {"w": "b"}]], [["x"], [], ["x", "y"]]
    X = [*good[:2], [good[2][0], token]]
    crf = ChainCRF("linear", C=1.0).fit(good, y)
    for call in (
        lambda: ChainCRF("linear", C=1.0).fit(X, y),
        lambda: ChainCRF("linear", C=1.0).fit(X, y, sample_weight=[0, 1, 1]),
        lambda: ChainCRF("linear", C=1.0).fit([own for x in X for own in x], ["x", "x", "y"], lengths=[1, 0, 2]),
        lambda: crf.predict(X),
    ):
        with pytest.raises((TypeError, ValueError), match=re.escape(message)):
            call()


@pytest.mark.parametrize("hash_features", [0, 3, -4, 2.0, True, 2**31])
def test_hash_features_are_a_power_of_two(hash_features):
    with pytest.raises(ValueError, match=r"hash_features=.*: expected a power of two"):
        new_hasher(hash_features)
