import numpy as np
import pandas as pd
import polars as pl
import pytest

from kernelcrf import ChainCRF, from_frame

TABLE = {
    "doc": ["b", "b", "a", "a", "c"],
    "time": [3, 1, 7, 6, 5],
    "x": [1.0, 3.0, 2.0, 4.0, 5.0],
    "n": [1, 3, 2, 4, 5],
    "up": [True, True, False, False, True],
    "word": ["the", None, "dog", "ran", "far"],
    "label": ["D", None, "N", "V", "A"],
}
frames = pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])


@frames
def test_numbers_become_frames_in_the_order_of_groups_and_rows(library):
    X, y = from_frame(library(TABLE), "doc", ["x", "n", "up"], "label")
    expected = [[[1, 1, 1], [3, 3, 1]], [[2, 2, 0], [4, 4, 0]], [[5, 5, 1]]]
    for x, rows in zip(X, expected, strict=True):
        assert isinstance(x, library)
        assert list(x.columns) == ["x", "n", "up"]
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
    assert np.asarray(from_frame(frame, "doc", ["x"])[0][0]).dtype == np.float32
    assert from_frame(frame[:0], "doc", ["x"]) == ([], None)


@frames
def test_rows_are_sorted_by_a_column_inside_their_group(library):
    shuffled = {name: [column[row] for row in (4, 2, 0, 3, 1)] for name, column in TABLE.items()}
    X, y = from_frame(library(shuffled), "doc", ["x", "n"], "label", order="time")
    assert [np.asarray(x).tolist() for x in X] == [[[5, 5]], [[4, 4], [2, 2]], [[3, 3], [1, 1]]]
    assert y == [["A"], ["V", "N"], [None, "D"]]
    words, _ = from_frame(library(shuffled), "doc", ["word"], order="time")
    assert words == [[{"word": "far"}], [{"word": "ran"}, {"word": "dog"}], [{}, {"word": "the"}]]
    with pytest.raises(
        ValueError, match=r"row 2 of the group 'b' between rows of the group 'a': .* pass order= with a column"
    ):
        from_frame(library(shuffled), "doc", ["x"])
    with pytest.raises(ValueError, match="no value in row 4 of the order column 'word': expected a value in every row"):
        from_frame(library(shuffled), "doc", ["x"], order="word")


def test_texts_of_numbers_are_no_order_and_labels_no_features():
    frame = pd.DataFrame({"doc": ["a"] * 3, "x": [1.0, 2.0, 3.0], "at": ["9", "10", "11"], "label": [0, 1, 1]})
    with pytest.raises(ValueError, match=r"numbers stored as text in the order column 'at', such as '10', .* convert"):
        from_frame(frame, "doc", ["x"], order="at")
    (x,), _ = from_frame(frame.assign(at=["09", "10", "11"]), "doc", ["x"], order="at")
    assert x["x"].tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(
        ValueError, match="features contains 'label', the label column: expected only columns of inputs"
    ):
        from_frame(frame, "doc", ["x", "label"], "label")


def test_dates_and_rows_of_equal_order_are_sorted():
    times = pd.to_datetime(["2024-01-03", "2024-01-01", "2024-01-01"])
    frame = pd.DataFrame({"doc": 1, "at": times, "x": [1.0, 2.0, 3.0]}, index=[7, 8, 9])
    told = "2024-01-01 00:00:00.* of the order column 'at' twice in one sequence, in rows 1 and 2: expected different"
    with pytest.warns(UserWarning, match=told):
        (x,), _ = from_frame(frame, "doc", ["x"], order="at")
    assert x.index.tolist() == [8, 9, 7]
    with pytest.warns(UserWarning, match="of the order column 'at' twice"):
        (x,), _ = from_frame(pl.DataFrame(frame), "doc", ["x"], order="at")
    assert x["x"].to_list() == [2.0, 3.0, 1.0]
    with pytest.raises(TypeError, match="order column 'at' that cannot be compared: expected numbers, times or"):
        from_frame(frame.assign(at=[1, "b", 2]), "doc", ["x"], order="at")


@frames
def test_a_column_of_text_among_the_inputs_is_named_with_a_remedy(library):
    rows = {"x": [1.0, 2.0], "city": ["Bonn", None]}
    good, bad = library({"x": [1.0, 2.0], "city": [0, 1]}), library(rows)
    message = r"X{} has the value 'Bonn' in column 'city', row 0: expected numbers; encode .*OneHotEncoder"
    with pytest.raises(TypeError, match=message.format(r"\[1\]")):
        ChainCRF(C=1.0).fit([good, bad], [["a", "b"]] * 2)
    with pytest.raises(TypeError, match=message.format("")):
        ChainCRF(C=1.0).fit(bad, ["a", "b"], lengths=[2])
    with pytest.raises(TypeError, match=message.format(r"\[0\]")):
        ChainCRF(C=1.0).fit([good], [["a", "b"]]).predict([bad])


def test_a_column_of_dates_or_of_categories_is_named():
    dates, categories = pd.to_datetime(["2024-01-03", "2024-01-01"]), pd.Categorical(["low", "high"])
    for frame in (pd.DataFrame({"x": [1.0, 2.0], "at": dates}), pd.DataFrame({"at": dates}).assign(two=dates)):
        with pytest.raises(TypeError, match=r"X\[0\] has the value .* in column 'at', row 0: expected numbers"):
            ChainCRF(C=1.0).fit([frame], [["a", "b"]])
    with pytest.raises(TypeError, match=r"X\[0\] has the value 'low' in column 'level', row 0: expected numbers"):
        ChainCRF(C=1.0).fit([pd.DataFrame({"x": [1.0, 2.0], "level": categories})], [["a", "b"]])


@frames
def test_dates_among_the_features_are_refused_with_the_name_of_their_column(library):
    frame = library({"doc": [1, 1], "x": [1.0, 2.0], "at": pd.to_datetime(["2024-01-03", "2024-01-01"])})
    with pytest.raises(TypeError, match=r"column 'at' of features, row 0: expected numbers or text; .*convert"):
        from_frame(frame, "doc", ["x", "at"])


@frames
def test_a_model_knows_the_columns_of_its_sequences(library):
    X, y = from_frame(library(TABLE), "doc", ["x", "up"], "label")
    assert ChainCRF("linear", C=1.0).fit(X, y).feature_names_in_.tolist() == ["x", "up"]
    with pytest.raises(ValueError, match=r"X is one DataFrame .* kernelcrf\.from_frame cuts a data frame by a column"):
        ChainCRF("linear", C=1.0).fit(library(TABLE), y)


@pytest.mark.parametrize("column", [pd.Series([1, None], dtype="Int64"), pl.Series([1, None])])
def test_nulls_among_numbers_are_nan(column):
    library = pd.DataFrame if isinstance(column, pd.Series) else pl.DataFrame
    X, _ = from_frame(library({"doc": [1, 1], "x": column}), "doc", ["x"])
    with pytest.raises(ValueError, match="X has the value NaN in sequence 0, token 1, column 'x': expected finite"):
        ChainCRF(C=1.0).fit(X, [["a", "b"]])


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
    with pytest.raises(ValueError, match=r"in row 1 of the group column 'word'"):
        from_frame(frame, "word", ["x"])
    with pytest.raises(TypeError, match=r"features='x'.*expected a list"):
        from_frame(frame, "doc", "x")


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


@frames
def test_the_group_of_each_sequence_is_the_value_of_a_column(library):
    frame = library({**TABLE, "person": ["p", "p", "q", "q", "p"]})
    X, y, groups = from_frame(frame, "doc", ["x"], "label", groups="person")
    assert (len(X), len(y), groups) == (3, 3, ["p", "q", "p"])
    with pytest.raises(
        ValueError, match=r"has 1\.0 and 3\.0 in the groups column 'x' of sequence 0: expected one value"
    ):
        from_frame(frame, "doc", ["n"], groups="x")
    with pytest.raises(ValueError, match="no value in row 1 of the groups column 'word'"):
        from_frame(frame, "doc", ["n"], groups="word")


@pytest.mark.parametrize(
    "texts", [["721.25", "7", None], ["2015-02-04 17:51:00", "2015-02-05", "2015-02-06"], ["17:51"] * 3]
)
def test_numbers_and_dates_as_text_give_a_warning(texts):
    frame = pd.DataFrame({"day": [1, 1, 2], "value": texts, "word": ["a", "7", "b"]})
    with pytest.warns(UserWarning, match="as text in column 'value' .* convert the column to numbers"):
        X, _ = from_frame(frame, "day", ["value", "word"])
    assert X[1][0]["word"] == "b"
    assert from_frame(frame, "day", ["word"])[0][0][0] == {"word": "a"}
