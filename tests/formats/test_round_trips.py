"""What a format cannot hold is refused when it is written; all else comes back as it was, from every format."""

import tracemalloc

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelcrf.formats import FormatError, Record, read, write

WORDS = st.one_of(
    st.text(max_size=4),
    st.text(st.sampled_from("ab \t\n\r\0:=\\@\ufeff\u2028é"), max_size=4),
    st.sampled_from(["New York", "A ", " ", "@weight:2", "1", "1.0", "True", "a=b", "\ud800", "_", ""]),
)
INTEGERS = st.sampled_from([0, 1, -1, 7, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63) - 1])
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
NUMBERS = st.one_of(INTEGERS, FLOATS, st.booleans())
LABELS = st.one_of(WORDS, NUMBERS, st.none(), st.frozensets(WORDS, min_size=1, max_size=2))
TOKENS = {
    "text": lambda width: st.lists(WORDS, min_size=width, max_size=width),
    "names": lambda width: st.lists(WORDS, max_size=3),
    "features": lambda width: st.dictionaries(
        WORDS, st.one_of(NUMBERS, WORDS, st.lists(WORDS, max_size=2)), max_size=3
    ),
    "vectors": lambda width: st.lists(st.sampled_from([0, 1, -3, 2**53, 2**53 + 1]), min_size=width, max_size=width),
}


@st.composite
def files(draw):
    kind, width = draw(st.sampled_from(list(TOKENS))), draw(st.integers(1, 3))
    label = draw(st.sampled_from([WORDS, st.sampled_from("AB"), INTEGERS, LABELS]))
    labelled = draw(st.sampled_from([st.just(True), st.just(False), st.booleans()]))
    records = []
    for i in range(draw(st.integers(1, 3))):
        n = draw(st.integers(1, 3))
        x = draw(st.lists(TOKENS[kind](width), min_size=n, max_size=n))
        if kind == "vectors":
            x = np.array(x, draw(st.sampled_from(["i8", "f8", "f4"])))
            x = sp.csr_array(x) if draw(st.booleans()) else x
        labels = draw(st.lists(label, min_size=n, max_size=n)) if draw(labelled) else None
        tokens = draw(st.one_of(st.none(), st.lists(WORDS, min_size=n, max_size=n)))
        tokens = [row[0] for row in x] if kind == "text" else tokens
        weight = draw(st.sampled_from([1.0, 1.0, 1.0, 0.0, 2.5]))
        name = {"names": "features"}.get(kind, kind)
        records.append(Record(name, x, labels, tokens, f"source, line {10 * i + 1}", None, weight))
    return records


def counts(token):
    """What a model makes of a token: a number by column."""
    found = {}
    for name, value in token.items() if isinstance(token, dict) else [(name, 1.0) for name in token]:
        for part in value if isinstance(value, list) else [value]:
            column = f"{name}:{part}" if isinstance(part, str) else name
            found[column] = found.get(column, 0) + (1 if isinstance(part, str) else part)
    return found


def meaning(record, text_labels, tokens):
    x = record.x
    if record.kind == "vectors":
        x = (x.toarray() if sp.issparse(x) else x).tolist()
    elif record.kind == "features":
        x = list(map(counts, x))
    labels = record.labels
    if labels is not None:
        labels = [sorted(label) if isinstance(label, set | frozenset) else label for label in labels]
        labels = [str(label) if text_labels else (isinstance(label, bool), label) for label in labels]
    return record.kind, x, labels, record.weight, list(record.tokens) if tokens and record.tokens else None


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.items", "a.parquet", "a.npz"])
@settings(max_examples=30)
@given(records=files())
def test_a_file_says_what_was_written_or_is_refused(tmp_path_factory, name, records):
    path = tmp_path_factory.mktemp("round-trip") / name
    try:
        write(path, records)
    except FormatError as error:
        refused = str(error)
        assert refused.startswith("source, line ")
        assert len(refused) < 500
        assert "\n" not in refused
        assert not path.exists()
        return
    as_text = name in ("a.txt", "a.items")
    options = {"labels": records[0].labels is not None} if name == "a.txt" else {}
    again = list(read(path, **options))
    expected = [meaning(record, as_text, name != "a.items") for record in records]
    assert [meaning(record, as_text, name != "a.items") for record in again] == expected
    if as_text:
        seen = {label for record in records for label in record.labels or ()}
        assert len(set(map(str, seen))) == len(seen)


def one(kind, x, labels=None, tokens=None, weight=1.0):
    return Record(kind, x, labels, tokens, "source, line 4", None, weight)


VECTOR, CELL, NAME = np.ones((1, 2)), [["w"]], [["x"]]


@pytest.mark.parametrize(
    ("name", "records"),
    [
        ("a.npz", [one("vectors", np.ones((2, 1)), [2**63, -1])]),
        ("a.npz", [one("vectors", VECTOR, [2**64])]),
        ("a.npz", [one("vectors", VECTOR, ["a\0"])]),
        ("a.npz", [one("vectors", VECTOR, ["a"], ["w\0"])]),
        ("a.npz", [one("vectors", VECTOR, ["a"]), one("vectors", VECTOR)]),
        ("a.npz", [one("vectors", np.array([[2**53 + 1]])), one("vectors", np.array([[0.5]]))]),
        ("a.jsonl", [one("vectors", np.array([[2**53 + 1]]))]),
        ("a.jsonl", [one("text", CELL, [("x", 1)], ["w"])]),
        ("a.parquet", [one("features", [{"a": 2**53 + 1}])]),
        ("a.parquet", [one("text", CELL, [2**63], ["w"])]),
        ("a.parquet", [one("text", CELL, ["a"], ["w"])] * 1024 + [one("text", CELL, ["a"], ["w"], 2.0)]),
        ("a.items", [one("features", [{"a": 2**53 + 1}], ["A"])]),
        ("a.items", [one("features", NAME * 2, [1, "1"])]),
        ("a.items", [one("features", NAME * 2, [1, 1.0])]),
        ("a.txt", [one("text", [["New York"]], None, ["New York"])]),
        ("a.txt", [one("text", [["w "]], None, ["w "])]),
        ("a.txt", [one("text", CELL, [{"a", "b"}], ["w"])]),
        ("a.txt", [one("text", CELL, ["a"], ["w"], 2.0)]),
        ("a.txt", [one("text", CELL, ["a"], ["w"]), one("text", CELL, None, ["w"])]),
        ("a.txt", [one("text", [["\ufeffw"]], ["a"], ["\ufeffw"])]),
    ],
)
def test_what_was_changed_without_a_word_is_refused(tmp_path, name, records):
    with pytest.raises(FormatError, match=r"^source, line 4: .*(: write|expected)"):
        write(tmp_path / name, records)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1, "1"], "the labels '1' and 1 have the same text"),
        ([1, True], "the labels True and 1 are equal and have different texts"),
        ([0.0, -0.0], "the labels -0.0 and 0.0 are equal and have different texts"),
    ],
)
@pytest.mark.parametrize("name", ["a.txt", "a.items"])
def test_labels_that_text_would_confuse_are_named(tmp_path, name, labels, message):
    record = one("text", CELL * 2, labels, ["w"] * 2) if name == "a.txt" else one("features", NAME * 2, labels)
    with pytest.raises(FormatError, match=message):
        write(tmp_path / name, [record])


def test_wide_sparse_vectors_are_written_in_little_memory(tmp_path):
    x = sp.csr_array((np.arange(1.0, 201), (np.arange(200), np.arange(200) * 5000)), shape=(200, 10**6))
    tracemalloc.start()
    write(tmp_path / "a.npz", [one("vectors", x), one("vectors", x[:1])])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 25
    assert (next(read(tmp_path / "a.npz")).x != x).nnz == 0


def test_names_that_become_equal_are_added_up(tmp_path):
    token = {"a": "b", "a:b": 1.5}
    for name in ("a.items", "a.parquet"):
        write(tmp_path / name, [one("features", [token, ["x", "x"]], ["A", "B"])])
        (record,) = read(tmp_path / name)
        assert list(map(counts, record.x)) == [{"a:b": 2.5}, {"x": 2}]


def test_parquet_has_no_null_as_a_weight(tmp_path):
    write(tmp_path / "a.parquet", [one("features", NAME, ["A"]), one("features", NAME, ["A"], weight=2.0)])
    assert pq.read_table(tmp_path / "a.parquet")["weight"].to_pylist() == [1.0, 2.0]


def test_a_sequence_without_labels_comes_back_without_labels(tmp_path):
    write(tmp_path / "a.items", [one("features", NAME), one("features", NAME, ["A"])])
    assert [record.labels for record in read(tmp_path / "a.items")] == [None, ["A"]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"features": [{"a": null}]}', "token 0 has the value None for the feature 'a'"),
        ('{"features": [{"a": 1e999}]}', "token 0 has the value inf"),
        ('{"features": [{"a": [1]}]}', "the features of token 0, .*, are not valid"),
        ('{"features": [[1]]}', "the features of token 0, .*, are not valid"),
        ('{"features": [{"a": 1, "a": 2}]}', r"expected a JSON object \(the name 'a' occurs more than once"),
        ('{"tokens": ["a"], "tokens": ["b"]}', r"expected a JSON object \(the name 'tokens' occurs more than once"),
        ('{"tokens": ["a"], "labels": [NaN]}', "a label is nan"),
        ('{"tokens": ["a"], "labels": [[]]}', r"a label is \[\]"),
        ('{"tokens": ["a"], "labels": [["b", null]]}', "a label is"),
        ('{"vectors": [[9007199254740993]]}', "vectors have an integer that float64 cannot represent exactly"),
    ],
)
def test_json_that_no_model_can_read_is_named_with_its_line(tmp_path, line, message):
    (tmp_path / "a.jsonl").write_text('{"tokens": ["a"]}\n\n' + line + "\n")
    with pytest.raises(FormatError, match=rf"a\.jsonl, line 3: {message}"):
        list(read(tmp_path / "a.jsonl"))
