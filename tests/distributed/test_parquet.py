"""What `read_parquet` makes of a file, and what it refuses; on clusters, see tests/distributed/test_dask.py."""

import itertools

import numpy as np
import pytest

from clusters import Inline
from kernelcrf import ChainCRF, SegmentCRF
from kernelcrf.distributed import read_parquet, tag_parquet
from kernelcrf.formats.records import FormatError

pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")


def parts(folder, columns, **options):
    """The sequences of each part of a file with these columns."""
    pq.write_table(pa.table(columns), folder / "a.parquet")
    return [part() for part in read_parquet(folder / "a.parquet", **options).sources]


def test_a_row_is_a_sequence(tmp_path):
    columns = {"vectors": [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0]]], "labels": [["a", "b"], ["a"]], "weight": [1.0, 2.0]}
    (found,) = parts(tmp_path, columns)
    np.testing.assert_array_equal(found.X, [[1, 2], [3, 4], [5, 6]])
    assert list(found.y) == ["a", "b", "a"]
    assert found.weights.tolist() == [1.0, 2.0]
    assert found.lengths.tolist() == [2, 1]


def test_a_row_is_a_token(tmp_path):
    columns = {"features": [["w=a"], ["w=b"], ["w=a"]], "labels": ["x", "y", "x"], "of": [7, 7, 9]}
    (found,) = parts(tmp_path, columns, sequence="of")
    assert found.lengths.tolist() == [2, 1]
    with pytest.raises(FormatError, match="'of' has nulls"):
        parts(tmp_path, columns | {"of": [2**60, None, 2**60 + 1]}, sequence="of")
    (empty,) = parts(tmp_path, {name: pa.array([], pa.list_(pa.string())) for name in columns}, sequence="of")
    assert len(empty) == 0


@pytest.mark.parametrize("layout", ["sequences", "tokens"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_texts_are_the_same_however_the_file_stores_them(tmp_path, dictionary, layout):
    """Each row group has a dictionary of its own, which is full after a few names."""
    rng = np.random.default_rng(0)
    names = [f"name {k:03}" for k in range(300)]
    tokens = [[names[k] for k in rng.integers(300, size=rng.integers(4))] for _ in range(400)]
    labels = [["A", "B", None][k] for k in rng.integers(3, size=400)]
    if layout == "tokens":
        columns = {"of": np.arange(400) // 4, "features": tokens, "labels": labels}
    else:
        cuts = range(0, 400, 4)
        columns = {"features": [tokens[k : k + 4] for k in cuts], "labels": [labels[k : k + 4] for k in cuts]}
    options = {"use_dictionary": dictionary, "dictionary_pagesize_limit": 500, "data_page_size": 200}
    rows = len(next(iter(columns.values()))) // 2
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=rows, **options)
    found = [
        part() for part in read_parquet(tmp_path / "a.parquet", sequence="of" if layout == "tokens" else None).sources
    ]
    assert len(found) == (1 if layout == "tokens" else 2)
    read = [
        [part.X.names[k] for k in part.X.ids[low:high]]
        for part in found
        for low, high in itertools.pairwise(part.X.offsets)
    ]
    assert read == tokens
    assert [label for part in found for label in part.y] == labels


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"other": [1]}, "expected one of features and vectors"),
        ({"features": [[["a"]]], "vectors": [[[1.0]]], "labels": [["x"]]}, "expected one of features and vectors"),
        ({"features": [[["a"]]]}, "expected 'labels' with the labels"),
        ({"features": ["a"], "labels": [["x"]]}, "a column has values of type string: expected lists"),
        ({"features": [[["a"]], None], "labels": [["x"], []]}, "has null values: expected lists"),
        ({"vectors": [[[1.0], [1.0, 2.0]]], "labels": [["x", "y"]]}, r"vectors have lengths \[1, 2\]"),
        (
            {"features": [[["a"], ["b"]]], "labels": [["x"]]},
            "row 0 has 1 labels and 2 tokens: expected one label per",
        ),
    ],
)
def test_what_holds_no_sequences_is_named(tmp_path, columns, message):
    with pytest.raises(FormatError, match=rf"a\.parquet.*{message}"):
        parts(tmp_path, columns)


def test_files_that_are_none_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"expected a Parquet file, or a folder with \.parquet files"):
        read_parquet(tmp_path)
    (tmp_path / "b.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(FormatError, match=r"b\.parquet: .* expected a complete Parquet file"):
        read_parquet(tmp_path)


def test_a_file_that_was_damaged_since_is_named(tmp_path):
    pq.write_table(pa.table({"features": [[["a"]]], "labels": [["x"]]}), tmp_path / "a.parquet")
    (part,) = read_parquet((tmp_path / "a.parquet").as_uri()).sources
    assert part().lengths.tolist() == [1]
    (tmp_path / "a.parquet").write_bytes(b"nothing")
    with pytest.raises(FormatError, match=r"a\.parquet: .*expected a complete Parquet file"):
        part()


def test_f1_decoding_needs_all_sequences(tmp_path):
    crf = ChainCRF("linear", C=10.0, decoding="f1").fit([[["a"]], [["b"]]] * 3, [["B-X"], ["O"]] * 3)
    pq.write_table(pa.table({"features": [[["a"]], [["b"]]]}), tmp_path / "a.parquet", row_group_size=1)
    with pytest.raises(ValueError, match="decoding='f1' compares the spans of all sequences"):
        tag_parquet(crf, tmp_path / "a.parquet", tmp_path / "out", engine=Inline())
    crf.set_params(decoding="viterbi")
    assert tag_parquet(crf, tmp_path / "a.parquet", tmp_path / "out", engine=Inline()).sequences == 2


def test_folders_may_be_urls():
    fsspec = pytest.importorskip("fsspec")
    rows = pa.table({"features": [[["a"], ["b"]], [["b"]]] * 3, "labels": [["A", "B"], ["B"]] * 3})
    with fsspec.open("memory://parquet/in/data.parquet", "wb") as file:
        pq.write_table(rows, file, row_group_size=3)
    crf = ChainCRF("linear", C=10.0, engine=Inline()).fit(read_parquet("memory://parquet/in"))
    report = tag_parquet(crf, "memory://parquet/in", "memory://parquet/out", engine=Inline())
    assert (report.sequences, report.tokens) == (6, 9)
    names = sorted(one["name"].rsplit("/", 1)[-1] for one in fsspec.filesystem("memory").ls("/parquet/out"))
    assert names == ["_run.json", "part-000000.parquet", "part-000001.parquet"]
    again = tag_parquet(crf, "memory://parquet/in", "memory://parquet/out", engine=Inline())
    assert again.tokens == 9
    with pytest.raises(FormatError, match="nowhere://folder"):
        read_parquet("nowhere://folder")


@pytest.mark.parametrize("estimator", [ChainCRF, SegmentCRF])
def test_spans_are_a_column(tmp_path, estimator):
    X = [[["a"], ["b"], ["c"]], [["c"]], [], [["b"], ["b"]]]
    crf = estimator("linear", C=10.0).fit(X[:2] * 3, [["B-X", "I-X", "O"], ["O"]] * 3)
    pq.write_table(pa.table({"features": pa.array(X, pa.list_(pa.list_(pa.string())))}), tmp_path / "a.parquet")
    tag_parquet(crf, tmp_path / "a.parquet", tmp_path / "out", spans=True, probabilities=True, engine=Inline())
    table = pq.read_table(tmp_path / "out")
    expected = crf.distribution(X).spans()
    rows = [
        [(one["start"], one["end"], one["label"], one["probability"]) for one in row]
        for row in table["spans"].to_pylist()
    ]
    assert [[one[:3] for one in row] for row in rows] == [[tuple(one)[:3] for one in row] for row in expected]
    for row, spans in zip(rows, expected, strict=True):
        np.testing.assert_allclose([one[3] for one in row], [one.probability for one in spans], atol=1e-12)
    assert table["labels"].to_pylist() == [list(row) for row in crf.predict(X)]
    with pytest.raises(ValueError, match="spans=True cannot be combined with sequence='of'"):
        tag_parquet(crf, tmp_path / "a.parquet", tmp_path / "other", spans=True, sequence="of", engine=Inline())
    with pytest.raises(ValueError, match="name of a column of predictions"):
        tag_parquet(crf, tmp_path / "a.parquet", tmp_path / "other", spans=True, keep=["spans"], engine=Inline())


def test_a_sequence_in_two_files_is_not_cut_when_it_is_tagged(tmp_path):
    (tmp_path / "data").mkdir()
    for name, rows in (("a", {"doc": ["1", "1", "2"]}), ("b", {"doc": ["2", "3"]})):
        rows["features"] = [["x"]] * len(rows["doc"])
        pq.write_table(pa.table(rows), tmp_path / "data" / f"{name}.parquet")
    crf = ChainCRF("linear", C=10.0).fit([[["x"], ["y"]]] * 2, [["A", "B"]] * 2)
    with pytest.raises(ValueError, match="sequence '2' is in two files"):
        tag_parquet(crf, tmp_path / "data", tmp_path / "out", sequence="doc", engine=Inline())
    assert not (tmp_path / "out").exists()


def test_a_row_group_without_vectors_is_read(tmp_path):
    vectors = pa.array([[[0.0, 1.0], [1.0, 0.0]]] * 2 + [[], []], pa.list_(pa.list_(pa.float64())))
    labels = pa.array([["A", "B"]] * 2 + [[], []], pa.list_(pa.string()))
    pq.write_table(pa.table({"vectors": vectors, "labels": labels}), tmp_path / "a.parquet", row_group_size=2)
    there = ChainCRF("linear", C=1.0, engine=Inline()).fit(read_parquet(tmp_path / "a.parquet"))
    here = ChainCRF("linear", C=1.0).fit([[[0.0, 1.0], [1.0, 0.0]]] * 2, [["A", "B"]] * 2)
    np.testing.assert_allclose(there.coef_, here.coef_, atol=1e-3)
