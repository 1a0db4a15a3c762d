import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest

from kernelcrf.readers.frames import from_frame

TABLE = {
    "doc": ["b", "a", "b", "a", "c"],
    "x": [1.0, 2.0, 3.0, 4.0, 5.0],
    "n": [1, 2, 3, 4, 5],
    "up": [True, False, True, False, True],
    "word": ["the", "dog", None, "ran", "far"],
    "label": ["D", "N", None, "V", "A"],
}
frames = pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])


@frames
def test_numbers_become_arrays_in_the_order_of_groups_and_rows(library):
    X, y = from_frame(library(TABLE), "doc", ["x", "n", "up"], "label")
    expected = [[[1, 1, 1], [3, 3, 1]], [[2, 2, 0], [4, 4, 0]], [[5, 5, 1]]]
    for x, rows in zip(X, expected, strict=True):
        assert x.dtype == np.float64
        np.testing.assert_array_equal(x, rows)
    assert y == [["D", None], ["N", "V"], ["A"]]


@frames
def test_text_makes_feature_dicts_without_nulls(library):
    X, y = from_frame(library(TABLE), "doc", ["word", "n"])
    assert X == [
        [{"word": "the", "n": 1}, {"n": 3}],
        [{"word": "dog", "n": 2}, {"word": "ran", "n": 4}],
        [{"word": "far", "n": 5}],
    ]
    assert y is None


@frames
def test_single_precision_stays_and_no_rows_are_no_sequences(library):
    frame = library({"doc": [1, 1], "x": np.array([1, 2], np.float32)})
    assert from_frame(frame, "doc", ["x"])[0][0].dtype == np.float32
    assert from_frame(frame[:0], "doc", ["x"]) == ([], None)


@pytest.mark.parametrize("column", [pd.Series([1, None], dtype="Int64"), pl.Series([1, None])])
def test_nulls_among_numbers_are_nan(column):
    library = pd.DataFrame if isinstance(column, pd.Series) else pl.DataFrame
    X, _ = from_frame(library({"doc": [1, 1], "x": column}), "doc", ["x"])
    np.testing.assert_array_equal(X[0], [[1.0], [np.nan]])


def test_missing_integers_of_pandas_are_none():
    frame = pd.DataFrame({"doc": [1, 1], "x": [0.5, 1.5], "label": pd.array([1, None], dtype="Int64")})
    assert from_frame(frame, "doc", ["x"], "label")[1] == [[1, None]]


@frames
def test_what_the_frame_lacks_is_named(library):
    frame = library(TABLE)
    with pytest.raises(
        ValueError, match=r"frame has no column named 'y': expected exactly one for label; .* columns 'doc'"
    ):
        from_frame(frame, "doc", ["x"], "y")
    with pytest.raises(ValueError, match=r"features is empty"):
        from_frame(frame, "doc", [])
    with pytest.raises(ValueError, match=r"in row 2 of the group column 'word'"):
        from_frame(frame, "word", ["x"])
    with pytest.raises(TypeError, match=r"features='x'.*expected a list"):
        from_frame(frame, "doc", "x")


def test_no_frame_library_is_imported():
    """scikit-learn itself imports pandas where it is installed; nothing of ours adds to that."""
    code = (
        "import sys, sklearn.base; before = set(sys.modules); import kernelcrf.readers.frames; "
        "print(sorted({'pandas', 'polars'} & (set(sys.modules) - before)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("frame", "features", "message"),
    [
        ([[1, 2.0]], ["x"], r"frame is of type list: expected a data frame"),
        (pd.DataFrame([[1, 2.0, 3.0]], columns=["g", "x", "x"]), ["x"], r"frame has 2 columns named 'x'"),
        (pd.DataFrame({"g": [[1], [1]], "x": [1.0, 2.0]}), ["x"], r"group column 'g' that cannot be hashed"),
        (
            pl.DataFrame({"g": [1.0, float("nan")], "x": [1.0, 2.0]}),
            ["x"],
            r"no value in row 1 of the group column 'g'",
        ),
        (pd.DataFrame({"g": [1], "x": [1.0]}), iter(["x"]), r"features is an iterator"),
        (
            pd.DataFrame({"g": [1], **{f"{'x' * 99}{i}": [1.0] for i in range(99)}}),
            ["y"],
            r"frame has no column named 'y'",
        ),
    ],
)
def test_a_frame_that_cannot_be_cut_is_named_in_one_short_line(frame, features, message):
    with pytest.raises((ValueError, TypeError), match=message) as raised:
        from_frame(frame, "g", features)
    assert len(str(raised.value)) < 500
