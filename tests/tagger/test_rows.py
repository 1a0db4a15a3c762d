"""Names of features have the columns that scikit-learn gives them, and wrong tokens are errors."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.utils import murmurhash3_32

from kernelcrf import ModelFileError
from kernelcrf.readers.stored_inputs import StoredColumns
from kernelcrf.tagger import names as vocabulary
from kernelcrf.tagger.hashing import signed_hash
from kernelcrf.tagger.names import HashTable, NameDict, names_of
from kernelcrf.tagger.rows import SparseRows, merged, reader_of, select_columns

TOKENS = [
    {"w": "the", "up": True, "n": 2.5, "off": False},
    {},
    {"w": "a", "n": -1, "up": False, "k": np.float32(2)},
]


def dense(rows, d):
    X = np.zeros((rows.n_rows, d + 1))
    np.add.at(X, (rows.of_entries, rows.columns), 1.0 if rows.values is None else rows.values)
    return X[:, :d]


def names_reader(names, separator=":"):
    array = np.empty(len(names), object)
    array[:] = names
    return reader_of(StoredColumns("dicts", len(names), array, separator))


def test_dicts_have_the_columns_of_a_dict_vectorizer():
    vectorizer = DictVectorizer(separator=":", sparse=False).fit(TOKENS)
    reader, new = names_reader(vectorizer.feature_names_), [*TOKENS, {"w": "new", "new": 3.0, "n": 1}]
    np.testing.assert_allclose(dense(reader.read(new), len(vectorizer.feature_names_)), vectorizer.transform(new))


def test_nested_dicts_sets_and_lists_have_names_with_separators():
    reader = names_reader(["next:w:the", "next:up", "set:a", "set:b", "deep:x:y"])
    token = {"next": {"w": "the", "up": True}, "set": {"a", "b"}, "deep": {"x": {"y": 0.5}}}
    assert dense(reader.read([token, {"set": ["b"]}]), 5).tolist() == [[1, 1, 1, 1, 0.5], [0, 0, 0, 1, 0]]
    assert dense(reader.read([["next:up", "set:a", "set:a"], ("x",)]), 5).tolist() == [[0, 1, 2, 0, 0], [0] * 5]


def test_hashed_names_have_the_columns_of_a_feature_hasher():
    hasher, reader = FeatureHasher(32, input_type="dict"), reader_of(StoredColumns("dicts", 32, None))
    np.testing.assert_allclose(dense(reader.read(TOKENS), 32), hasher.transform(TOKENS).toarray())


@pytest.mark.parametrize("name", ["", "a", "ab", "abc", "abcd", "größe=ß", "x" * 100])
def test_the_hash_is_that_of_scikit_learn(name):
    assert signed_hash(name.encode()) == murmurhash3_32(name.encode(), seed=0)


def table_of(names):
    hashes = np.array(list(map(hash, names)), np.int64)
    return HashTable(np.sort(hashes), hashes.argsort().astype(np.int32))


def test_a_table_of_hashes_finds_what_a_dict_finds():
    names = [f"name {k}" for k in range(5000)]
    asked = [f"name {k}" for k in np.random.default_rng(0).integers(0, 7000, 3000)] + ["", "other"]
    table = table_of(names)
    np.testing.assert_array_equal(table.find(asked, len(asked)), NameDict(names).find(asked, len(asked)))
    assert table.find([], 0).tolist() == []


def test_names_with_equal_hashes_have_a_dict(monkeypatch):
    monkeypatch.setattr(vocabulary, "FEW_NAMES", 1)
    assert isinstance(names_of(["a", "b"]), HashTable)
    assert isinstance(names_of([-1, -2]), NameDict)  # Python gives both the hash -2.
    for equal in (["a", "a"], ["a", "b", "a"]):
        with pytest.raises(ModelFileError, match=f"1 duplicates in feature_names: expected {len(equal)} distinct"):
            names_of(equal)


def test_sparse_and_dense_rows_of_a_sparse_model_are_the_same():
    X, reader = np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]]), reader_of(StoredColumns("sparse", 3, None))
    for given in (X, X.tolist(), sp.csr_array(X), sp.coo_matrix(X)):
        np.testing.assert_array_equal(dense(reader.read(given), 3), X)


def test_columns_of_sparse_rows_may_be_repeated_and_reordered():
    X = np.array([[0.0, 2.0, 0.5], [0.0, 0.0, 0.0], [1.0, 0.0, 3.0]])
    rows = reader_of(StoredColumns("sparse", 3, None)).read(X)
    for columns in ([2, 0], [1, 1, 0, 2, 1], [0]):
        np.testing.assert_array_equal(select_columns(X, columns), X[:, columns])
        selected = select_columns(rows, np.array(columns))
        np.testing.assert_array_equal(dense(selected, len(columns)), X[:, columns])


def test_merged_rows_have_each_column_once_and_no_unknown_one():
    rows = SparseRows(np.array([2, 0, 2, 5]), np.array([1.0, 2.0, 3.0, 9.0]), np.array([0, 3, 1]))
    found = merged(rows, 3)
    assert (found.columns.tolist(), found.values.tolist(), found.counts.tolist()) == ([0, 2], [2.0, 4.0], [0, 2, 0])


@pytest.mark.parametrize(
    ("kind", "tokens", "match"),
    [
        ("dense", [[1.0, 2.0]], r"shape \(1, 2\).*expected numbers, one row per token and 3 columns"),
        ("dense", [["a", "b", "c"]], "expected numbers"),
        ("dense", [[1.0, np.nan, 0.0]], "the value nan in token 0, column 1: expected finite numbers"),
        ("sparse", sp.csr_array(np.ones((1, 2))), "in 3 columns, as in fit"),
        ("dicts", "the", "expected a list of feature dicts"),
        ("dicts", [{"w": None}], "value None .* in token 0"),
        ("dicts", [{"w": "a"}, {"new": np.inf}], "value inf for feature 'new' in token 1"),
        ("dicts", [{"w": "a"}, [3]], "feature name 3 of type int in token 1"),
        ("dicts", [{"w": [0.5]}], "turn a vector into one feature per entry"),
    ],
)
def test_wrong_tokens_are_errors_that_say_where(kind, tokens, match):
    reader = names_reader(["w:a", "b", "c"]) if kind == "dicts" else reader_of(StoredColumns(kind, 3, None))
    with pytest.raises((ValueError, TypeError), match=match):
        reader.read(tokens)


def test_data_frames_are_refused_because_their_columns_are_not_matched():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(TypeError, match="by their position"):
        reader_of(StoredColumns("dense", 2, None)).read(pandas.DataFrame([[1.0, 2.0]]))
