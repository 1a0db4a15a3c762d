"""Files that were made to do harm, or that fuzzing found: an error of the library's, in little memory."""

import gzip
import io
import json
import tracemalloc
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest

from kernelcrf.datasets.source import read_lines
from kernelcrf.formats import FormatError, Record, TemplateError, Templates, default_templates, read, streams, write
from kernelcrf.formats.npz import load_arrays
from kernelcrf.formats.templates import TemplateColumns

MEGABYTE = 1 << 20


@pytest.fixture
def small_limits(monkeypatch):
    monkeypatch.setattr(streams, "LEAST", MEGABYTE)
    monkeypatch.setattr(streams, "LONGEST", MEGABYTE)


def peak_of(function):
    tracemalloc.start()
    try:
        function()
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 32 * MEGABYTE


@pytest.mark.few(1)
@pytest.mark.parametrize("line", [b"a", b"a b\n", b"a b\n\n"])
def test_a_gzip_bomb_is_refused_before_it_is_in_memory(tmp_path, small_limits, monkeypatch, line):
    monkeypatch.setattr(streams, "LEAST", MEGABYTE // 8)
    monkeypatch.setattr(streams, "RATIO", 10)
    (tmp_path / "bomb.txt.gz").write_bytes(gzip.compress(line * (40 * MEGABYTE // len(line))))

    def refused():
        with pytest.raises(FormatError, match=r"bomb.txt.gz.*(gunzip it first|expected (a newline|an empty line))"):
            for _ in read(tmp_path / "bomb.txt.gz"):
                pass

    peak_of(refused)


def test_gzip_bombs_by_standard_input_and_in_data_sets_are_refused(tmp_path, small_limits, monkeypatch):
    monkeypatch.setattr(streams, "LEAST", MEGABYTE // 8)
    bomb = gzip.compress(b"a b\n\n" * (MEGABYTE // 8))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(bomb))))
    with pytest.raises(FormatError, match=r"standard input: .* packed bytes unpack to more than 131,072"):
        list(read("-"))
    (tmp_path / "a.txt.gz").write_bytes(bomb)
    with pytest.raises(ValueError, match="packed bytes unpack to more than"):
        read_lines(tmp_path / "a.txt.gz")


def test_text_that_packs_a_hundredfold_is_read(tmp_path, small_limits):
    text = "a b\n\n" * 2000
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text.encode()))
    assert len(list(read(tmp_path / "a.txt.gz"))) == 2000
    assert read_lines(tmp_path / "a.txt.gz") == text.splitlines()


def test_a_packed_archive_that_unpacks_to_too_much_is_refused(tmp_path, small_limits):
    np.savez_compressed(tmp_path / "bomb.npz", X=np.zeros((8 * MEGABYTE, 1)), lengths=np.array([8 * MEGABYTE]))

    def refused():
        with pytest.raises(FormatError, match="packed bytes unpack to 67,1"):
            list(read(tmp_path / "bomb.npz"))
        with pytest.raises(ValueError, match="packed bytes unpack to 67,1"):
            load_arrays(tmp_path / "bomb.npz")

    peak_of(refused)


@pytest.mark.parametrize("shape", ["(1099511627776,)", "(3, 4294967296)"])
def test_an_array_that_claims_more_than_its_file_holds_is_refused(tmp_path, shape):
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("X.npy", b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + b"\0" * 24)
    with pytest.raises(FormatError, match="needs more bytes than the file stores"):
        list(read(tmp_path / "a.npz"))


def test_what_an_archive_may_not_hold_is_named(tmp_path):
    X, lengths = np.zeros((2, 1)), np.array([2])
    for extra, message in [
        ({"weight": np.array(["a"])}, "weight has shape"),
        ({"weight": np.array([np.nan])}, "weight has entries that are negative or not finite"),
        ({"weight": np.array([-1.0])}, "weight has entries that are negative"),
        ({"y": np.array([1j, 2])}, "expected shape \\(2,\\) and numbers or strings"),
        ({"lengths": np.array([2**63 - 1, 2**63 - 1, 4])}, "the lengths sum to 18446744073709551618"),
    ]:
        np.savez(tmp_path / "a.npz", **{"X": X, "lengths": lengths, **extra})
        with pytest.raises(FormatError, match=message):
            list(read(tmp_path / "a.npz"))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("X", b"no array")
    with pytest.raises(FormatError, match="plain arrays"):
        list(read(tmp_path / "a.npz"))
    np.savez(tmp_path / "a.npz", X=X, lengths=lengths)
    blob = (tmp_path / "a.npz").read_bytes()
    # The offset of a member, as the directory at the end has it.
    (tmp_path / "a.npz").write_bytes(blob.replace(b"PK\x01\x02", b"PK\x01\x02", 1)[:-22] + b"\xff" * 22)
    with pytest.raises(FormatError, match="plain arrays"):
        list(read(tmp_path / "a.npz"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[" * 100_000, "expected a JSON object"),
        ('{"tokens": ["a"], "labels": [' + "[" * 500 + "]" * 500 + "]}", "a label is"),
        ('{"tokens": ["a"], "labels": [[["b"]]]}', "a label is"),
        ('{"tokens": ["a"], "weight": 1' + "0" * 400 + "}", "the weight is 1000"),
        ('{"vectors": [[1' + "0" * 400 + "]]}", "vectors are"),
        ('{"tokens": ["a\\ud800"]}', "a string has half of a surrogate pair"),
    ],
)
def test_json_that_was_made_to_do_harm_is_named(tmp_path, line, message):
    (tmp_path / "a.jsonl").write_text(line)
    with pytest.raises(FormatError, match=rf"a.jsonl, line 1: {message}"):
        list(read(tmp_path / "a.jsonl"))


def test_pairs_of_surrogates_are_characters(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"tokens": ["\U0001f600"]}))
    assert next(read(tmp_path / "a.jsonl")).x == [["\U0001f600"]]


@pytest.mark.parametrize(
    "text", ["A\tx:nan\n", "A\tx:1e999\n", "@weight:nan\nA\tx\n", "@weight:inf\nA\tx\n", "@weight:-1\nA\tx\n"]
)
def test_crfsuites_numbers_are_finite_and_weights_not_negative(tmp_path, text):
    (tmp_path / "a.items").write_text(text)
    with pytest.raises(FormatError, match=r"line 1: .*(expected a finite number|expected a number >= 0)"):
        list(read(tmp_path / "a.items"))


def test_what_would_be_read_back_as_something_else_is_not_written(tmp_path):
    blank = Record("features", [["x"], []], ["A", " "], None, "here")
    with pytest.raises(FormatError, match=r"here: the label and attributes .* cannot be written as a line"):
        write(tmp_path / "a.items", [blank])
    for ending in ("\r", "a\rb"):
        with pytest.raises(FormatError, match="line ends"):
            write(tmp_path / "a.txt", [Record("text", [["w"]], [ending], None, "here")])
        with pytest.raises(FormatError, match="line ends"):
            write(tmp_path / "a.items", [Record("features", [[ending]], ["A"], None, "here")])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "line",
    [
        "U:a\0b",
        f"U:%x[{'9' * 5000},0]",
        'U:%m[0,0,"a{99999999999}"]',
        'U:%m[0,0,"a{' + "9" * 5000 + '}"]',
        'U:%m[0,0,"' + "(" * 5000 + ")" * 5000 + '"]',
    ],
)
def test_templates_that_were_made_to_do_harm_are_named(line):
    with pytest.raises(TemplateError, match="templates, line 1"):
        Templates(line, 1)


def test_a_token_of_too_many_characters_is_named():
    templates = default_templates(1)
    assert len(templates.features([[["a" * 10_000]]])[0][0]) == 22
    with pytest.raises(TemplateError, match=r"token 1 of sequence 2 has a cell of 10,001 characters.*at most 10,000"):
        templates.features([[["b"]], [["b"]], [["b"], ["a" * 10_001]]])


def test_long_tokens_are_not_remembered():
    words = [f"{i:05}" + "aB0" * 3000 for i in range(40)]
    columns = TemplateColumns(default_templates(1), {"U:w[0]=a": 0})
    tracemalloc.start()
    try:
        entries = columns.entries([[[word] for word in words]])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert entries.shape == (40, 1)
    assert peak < 2 * sum(map(len, words))


def test_a_template_may_hold_any_character():
    assert Templates("U:a\0b%x[0,0]\0", 1).features([[["w"]]]) == [[["U:a\0bw\0"]]]


def test_tokens_of_another_width_than_the_templates_read_are_named():
    with pytest.raises(TemplateError, match="tokens have 1 cells: expected 3"):
        Templates("U:%x[0,0]", 3).features([[["w"]]])
    for n_columns in (0, 1001, 10**12, "3", 2.5):
        with pytest.raises(TemplateError, match="expected an integer from 1 to 1,000"):
            Templates("U:%x[0,0]", n_columns)


def test_damaged_parquet_is_named(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path, rng = tmp_path / "a.parquet", np.random.default_rng(0)
    pq.write_table(pa.table({"tokens": [["a", "b"]] * 50}), path)
    blob, refused = path.read_bytes(), 0
    for _ in range(300):
        damaged = bytearray(blob)
        for place in rng.integers(len(blob), size=3):
            damaged[place] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        try:
            list(read(path))
        except FormatError as error:
            refused += "a.parquet" in str(error)
    assert refused > 150


@pytest.mark.parametrize("features", [[1, 2], [[1.5]], ["abc"], [[b"x"]]])
def test_features_of_parquet_are_dicts_or_lists_of_names(tmp_path, features):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"features": features}), tmp_path / "a.parquet")
    with pytest.raises(FormatError, match=r"a.parquet, row 0: features (is|are) .*: expected a"):
        list(read(tmp_path / "a.parquet"))


def test_what_arrays_cannot_hold_is_named(tmp_path):
    wide = [Record("vectors", np.ones((1, d)), ["a"], None, "here") for d in (1, 2)]
    with pytest.raises(FormatError, match=r"here: the vectors have different lengths, \[1, 2\]: expected"):
        write(tmp_path / "a.npz", wide)
    with pytest.raises(FormatError, match=r"the input of the sequence is text, but \.npz files can only store vectors"):
        write(tmp_path / "a.npz", [Record("text", [["w"]], None, None, "here")])
    with pytest.raises(FormatError, match="some labels are missing or have different types"):
        write(tmp_path / "a.npz", [Record("vectors", np.ones((2, 1)), ["a", 1], None, "here")])
    for indices, indptr in ([7], [0, 1]), ([1], [0, 10**6, 0]), ([1], [0, -(10**6), 1]):
        shape = np.array([len(indptr) - 1, 2])
        np.savez(tmp_path / "a.npz", data=np.ones(1), indices=np.array(indices), indptr=np.array(indptr), shape=shape)
        with pytest.raises(FormatError, match="data, indices, indptr, shape do not form a valid CSR matrix"):
            list(read(tmp_path / "a.npz"))
    for format in ("npz", "parquet"):
        with pytest.raises(FormatError, match=r"standard input: an? .* file cannot be read from a stream"):
            list(read("-", format))


def test_templates_that_a_model_cannot_have_kept_are_named():
    for kept in ("U:%x[0,0]", {"text": 1, "n_columns": 1}, {"text": "U:%x[0,0]", "n_columns": "1"}):
        with pytest.raises(TemplateError, match=r"expected the value that Templates\.attach stores"):
            Templates.of(SimpleNamespace(metadata_={"templates": kept}))
    assert Templates.of(SimpleNamespace(metadata_={})) is None
