import json
import pickle
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from kernelcrf.readers.sequences import SequenceReader

LENGTHS = [3, 0, 1, 2]
TOKENS = [{"w": "the", "n": 1.5}, {"w": "dog"}, {}, {"w": "ran", "cap": True}, {"w": "the"}, {"n": 2}]


def dense(dtype=np.float64):
    rng = np.random.default_rng(0)
    return [rng.integers(-5, 5, size=(length, 4)).astype(dtype) for length in LENGTHS]


def cut(tokens):
    offsets = np.append(0, np.cumsum(LENGTHS))
    return [tokens[a:b] for a, b in pairwise(offsets)]


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (np.float32, np.float32),
        (np.float64, np.float64),
        (np.float16, np.float32),
        (np.int8, np.float64),
        (bool, np.float64),
    ],
)
def test_arrays_are_stacked_in_their_precision(dtype, expected):
    X = dense(dtype)
    reader, flat, chains = SequenceReader.fit(X)
    assert (reader.kind, reader.n_features, reader.feature_names) == ("dense", 4, None)
    assert flat.dtype == expected
    np.testing.assert_array_equal(flat, np.concatenate(X))
    np.testing.assert_array_equal(chains.lengths, LENGTHS)


def test_the_forms_of_one_batch_of_numbers_read_the_same():
    X = dense()
    stacked = np.concatenate(X)
    objects = np.empty(len(X), object)
    objects[:] = X
    forms = [
        (X, None),
        (tuple(X), None),
        (objects, None),
        ([x.tolist() for x in X], None),
        ([x if len(x) else [] for x in X], None),
        (stacked, LENGTHS),
        (stacked.tolist(), np.array(LENGTHS)),
    ]
    for form, lengths in forms:
        reader, flat, chains = SequenceReader.fit(form, lengths)
        np.testing.assert_array_equal(flat, stacked)
        np.testing.assert_array_equal(chains.lengths, LENGTHS)
        np.testing.assert_array_equal(reader.read(form, lengths)[0], stacked)


@pytest.mark.parametrize("container", [sp.csr_matrix, sp.csr_array, sp.csc_matrix, sp.coo_array, sp.lil_matrix])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_sparse_matrices_are_stacked(container, dtype):
    X = dense(dtype)
    reader, flat, chains = SequenceReader.fit([container(x) for x in X])
    again, chains_again = reader.read(container(np.concatenate(X)), LENGTHS)
    assert reader.kind == "sparse"
    for result in (flat, again):
        assert isinstance(result, sp.csr_array)
        assert result.has_canonical_format
        assert result.dtype == (np.float32 if dtype == np.float32 else np.float64)
        np.testing.assert_array_equal(result.toarray(), np.concatenate(X))
    np.testing.assert_array_equal(chains.offsets, chains_again.offsets)


def test_repeated_entries_are_summed_and_the_callers_matrix_stays_as_it_is():
    X = sp.csr_array((np.array([1.0, 2.0]), np.array([1, 1]), np.array([0, 2])), shape=(1, 3))
    flat = SequenceReader.fit(X, [1])[1]
    np.testing.assert_array_equal(flat.toarray(), [[0, 3, 0]])
    assert flat.nnz == 1
    assert X.nnz == 2


@pytest.mark.parametrize("hash_features", [None, 16])
def test_dicts_read_the_same_cut_or_flat(hash_features):
    reader, flat, chains = SequenceReader.fit(cut(TOKENS), hash_features=hash_features)
    again, chains_again = reader.read(TOKENS, lengths=LENGTHS)
    assert reader.kind == "dicts"
    assert flat.shape == (6, reader.n_features)
    np.testing.assert_array_equal(flat.toarray(), again.toarray())
    np.testing.assert_array_equal(chains.offsets, chains_again.offsets)
    names = None if hash_features else ["cap", "n", "w:dog", "w:ran", "w:the"]
    assert reader.feature_names == names


def test_features_that_fit_did_not_see_are_left_out():
    reader, _, _ = SequenceReader.fit([[{"w": "the"}], [["w:dog"]]])
    np.testing.assert_array_equal(reader.read([[{"w": "cat"}, {"w": "dog", "new": 1}]])[0].toarray(), [[0, 0], [1, 0]])
    assert reader.read([[{}, {}]])[0].shape == (2, 2)


@pytest.mark.parametrize("X", [dense(), [sp.csr_array(x) for x in dense()], cut(TOKENS)])
def test_empty_sequences_read_as_no_rows(X):
    reader, _, _ = SequenceReader.fit(X)
    for empty in ([[], []], [X[0][:0], []]):
        flat, chains = reader.read(empty)
        assert flat.shape == (0, reader.n_features)
        assert chains.n_samples == 2


@pytest.mark.parametrize(
    ("X", "hash_features"),
    [(dense(), None), ([sp.csr_array(x) for x in dense()], None), (cut(TOKENS), None), (cut(TOKENS), 32)],
)
def test_what_is_written_reads_as_before(X, hash_features):
    reader, flat, _ = SequenceReader.fit(X, hash_features=hash_features)
    restored = SequenceReader.from_config(json.loads(json.dumps(reader.to_config())))
    for copy in (restored, pickle.loads(pickle.dumps(reader))):
        again = copy.read(X)[0]
        assert (copy.kind, copy.n_features, copy.feature_names) == (
            reader.kind,
            reader.n_features,
            reader.feature_names,
        )
        np.testing.assert_array_equal(*(x.toarray() if sp.issparse(x) else x for x in (flat, again)))


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "pickle"},
        {"n_features": 0},
        {"n_features": "4"},
        {"n_features": 7},
        {"feature_names": ["a", 1, "c", "d", "e"]},
        {"feature_names": ["a", "a", "c", "d", "e"]},
        {"feature_names": "abcde"},
        {"separator": None},
    ],
)
def test_a_config_that_is_inconsistent_is_refused(change):
    config = SequenceReader.fit(cut(TOKENS))[0].to_config() | change
    with pytest.raises(
        ValueError, match=r"^(the model file has (sequences of the kind|feature_names)|n_features is).*: expected"
    ):
        SequenceReader.from_config(config)


BAD = dense()
BAD[3][1, 2] = np.nan
INFINITE = [sp.csr_array(x) for x in dense()]
INFINITE[2].data[0] = np.inf


@pytest.mark.parametrize(
    ("X", "lengths", "error", "message"),
    [
        ([], None, ValueError, r"X has no sequences"),
        (np.ones((4, 2)), None, ValueError, r"2 dimensions, shape \(4, 2\).*pass \[X\].*lengths="),
        (np.ones((4, 2, 3, 1)), None, ValueError, r"4 dimensions, shape \(4, 2, 3, 1\).*expected a list of sequences"),
        (np.ones(4), [4], ValueError, r"X has 1 dim"),
        (sp.eye_array(3), None, ValueError, r"2 dimensions.*lengths="),
        ([np.ones((2, 2)), np.ones(3)], None, ValueError, r"X\[1\] has 1 dim.*reshape\(-1, 1\)"),
        ([[1.0, 2.0]], None, ValueError, r"X\[0\] has 1 dim.*expected 2 dimensions, one row per token"),
        ([np.ones((2, 2, 2))], None, ValueError, r"X\[0\] has 3 dim.*reshape\(len\(x\), -1\)"),
        ([[[1, 2], [1]]], None, ValueError, r"X\[0\] has tokens with different numbers of features"),
        ([[[1, 2], np.ma.array([1, 2], mask=[0, 1])]], None, ValueError, r"X\[0\]\[1\] is a masked array"),
        ([[sp.eye_array(2), sp.eye_array(3)]], None, ValueError, r"X\[0\] has tokens with different numbers"),
        ([np.ones((2, 2)), np.ones((2, 3))], None, ValueError, r"X\[1\] has 3 features and X\[0\] has 2"),
        (BAD, None, ValueError, r"value NaN in sequence 3, token 1, feature 2.*SimpleImputer"),
        ([pd.DataFrame(x) for x in BAD], None, ValueError, r"sequence 3, token 1, column 2"),
        ([pd.DataFrame(x).add_prefix("x") for x in BAD], None, ValueError, r"sequence 3, token 1, column 'x2'"),
        (INFINITE, None, ValueError, r"value inf in sequence 2, token 0, feature 1: expected finite .*remove .*clip"),
        ([[], []], None, ValueError, r"2 sequence\(s\) and no token"),
        ([np.ones((0, 3))], None, ValueError, r"no token"),
        ([[{}, {}]], None, ValueError, r"X has 0 feature\(s\) .* while a minimum of 1 is required"),
        (np.ones((4, 2)), [2, 3], ValueError, r"lengths sums to 5 and X has 4 tokens"),
        (np.ones((4, 2)), [5, -1], ValueError, r"lengths=.*integers >= 0"),
        (np.ones((4, 2)), [2.0, 2.0], ValueError, r"lengths=.*integers"),
        (np.ones((4, 2)), [[4]], ValueError, r"lengths=.*1-D"),
        ([], [], ValueError, r"X has no sequences"),
        (["the dog", "ran"], None, TypeError, r"X\[0\] is the string 'the dog'.*write a dict"),
        ([["the", "dog"]], None, TypeError, r"X\[0\] has the string 'the' as a token.*\[\"word:the\"\]"),
        ([np.array(["the", "dog"])], None, TypeError, r"the string 'the' as a token"),
        (["the", "dog"], [2], TypeError, r"X has the string 'the' as a token"),
        ("the dog", None, TypeError, r"X is 'the dog' of type str"),
        (None, None, TypeError, r"X is of type NoneType"),
        (TOKENS, None, TypeError, r"X\[0\] is a feature dict.*lengths="),
        ([np.array([[1.0, "2"]], object)], None, TypeError, r"X\[0\] has dtype object"),
        ([np.array([[1.0, {}]], object)], None, TypeError, r"X\[0\] has dtype object: expected numbers"),
        ([np.ones((2, 2), complex)], None, ValueError, r"Complex data not supported: X\[0\]"),
        ([1.0, 2.0], None, ValueError, r"X\[0\] is the number 1.0: .*reshape"),
        ([iter(TOKENS)], None, TypeError, r"X\[0\] is an iterator of type list_iterator.*pass list\(X\[0\]\)"),
        ([np.ones((2, 2)), [{"a": 1}]], None, TypeError, r"X\[0\] has arrays.*X\[1\] has feature dicts"),
        ([[{"a": 1}, 3.0]], None, TypeError, r"token 3.0 of type float among feature dicts"),
        ([[[1.0, "a"]]], None, TypeError, r"X\[0\] has dtype"),
    ],
)
def test_what_cannot_be_read_is_named_with_the_way_out(X, lengths, error, message):
    with pytest.raises(error, match=message):
        SequenceReader.fit(X, lengths)


def test_what_fit_did_not_see_is_refused():
    numbers, dicts, sparse = dense(), cut(TOKENS), [sp.csr_array(x) for x in dense()]
    for seen, given, message in [
        (numbers, dicts, r"X has feature dicts, but fit was given arrays.*DictVectorizer"),
        (dicts, numbers, r"X has arrays of numbers, but fit was given feature dicts.*to pass numbers"),
        (dicts, sparse, r"X has sparse matrices, but fit was given feature dicts"),
        (sparse, numbers, r"X has arrays.*fit was given sparse.*csr_array"),
        (numbers, sparse, r"X has sparse.*fit was given arrays.*toarray"),
    ]:
        with pytest.raises(TypeError, match=message):
            SequenceReader.fit(seen)[0].read(given)
    with pytest.raises(ValueError, match=r"X has 3 features, but ChainCRF is expecting 4"):
        SequenceReader.fit(numbers)[0].read([np.ones((2, 3))])
    assert SequenceReader.fit(numbers)[0].read([])[0].shape == (0, 4)
    with pytest.raises(ValueError, match=r"hash_features=8 needs feature dicts"):
        SequenceReader.fit(numbers, hash_features=8)
