"""What `read_parquet` makes of a file, and what it refuses; on clusters, see tests/distributed/test_dask.py."""

import numpy as np
import pytest

from kernelcrf.distributed import read_parquet
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
