import gzip
import io
import json
import os
import stat
import sys
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from kernelcrf.formats import FormatError, Record, columns, format_of, read, read_batches, write
from kernelcrf.persistence import whole_file

COLUMNS = "The DT B-NP\ndog NN I-NP\n\nbarks VBZ B-VP\n"


def record(kind, x, labels=None, tokens=None, weight=1.0):
    return Record(kind, x, labels, tokens, "here", None, weight)


def plain(one):
    x = one.x.toarray() if sp.issparse(one.x) else one.x
    return one.kind, x.tolist() if isinstance(x, np.ndarray) else x, one.labels, one.tokens, one.weight


@pytest.mark.parametrize("text", [COLUMNS, COLUMNS.replace(" ", "\t"), COLUMNS.replace(" ", "   "), "\n \n" + COLUMNS])
@pytest.mark.parametrize("packed", [False, True])
def test_columns_by_blanks_or_tabs_plain_or_packed(tmp_path, text, packed):
    path = tmp_path / ("a.txt.gz" if packed else "a.txt")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    first, second = read(path)
    assert plain(first) == ("text", [["The", "DT"], ["dog", "NN"]], ["B-NP", "I-NP"], ["The", "dog"], 1.0)
    assert plain(second) == ("text", [["barks", "VBZ"]], ["B-VP"], ["barks"], 1.0)


def test_the_number_of_columns_says_whether_there_are_labels(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(COLUMNS)
    assert next(read(path, n_columns=3)).labels is None
    assert next(read(path, n_columns=2)).labels == ["B-NP", "I-NP"]
    assert next(read(path, labels=False)).x[0] == ["The", "DT", "B-NP"]
    for n_columns, said in (
        (1, "1 or 2 cells: .* fitted to 1 column, "),
        (4, "4 or 5 cells: .* fitted to 4 columns, "),
    ):
        with pytest.raises(FormatError, match=f"a.txt, line 1: .*expected {said}"):
            list(read(path, n_columns=n_columns))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"a O\nb\n", r"a.txt, line 2: got the cells \['b'\]: expected 2 cells, .* no empty cell"),
        (
            "a.txt",
            b"a\tO\nliving O\n",
            "a.txt, line 2: the line 'living O' has no tab: expected 2 cells separated by tabs",
        ),
        ("a.txt", b"a\tO\n\nb\t\n", r"a.txt, line 3: got the cells \['b', ''\]: expected 2 cells, .* no empty cell"),
        ("a.txt", b"a O\nb\xe9 O\n", "a.txt, line 2: expected UTF-8 text, got 0xe9 at byte 2"),
        ("a.txt", b"", "a.txt: the file has no sequence"),
        ("a.txt", b"\n\n \n", "a.txt: the file has no sequence"),
        ("a.txt", b"word\n", "expected at least 2 cells"),
        ("a.txt", b"a O\nb\tc O\n", "line 2: the line .* has a tab, but the first line 'a O' has none: .* tr -s"),
        (
            "a.txt",
            b"# words\na\tO\n",
            "first line '# words' has none: .* a comment only if it has the form '# key = value'",
        ),
        ("a.txt", b"a\tO\n# words\n", "line 2: .* a comment only if it has the form '# key = value'"),
        ("a.txt", gzip.compress(b"a O\n", mtime=0), "line 1: .* add .gz to the name, because the file is compressed"),
        ("a.txt", b"a O\rb O\r\rc O\r", "line 1: the line has a carriage return before its end"),
        (
            "a.txt.gz",
            gzip.compress(COLUMNS.encode() * 99, mtime=0)[:-20],
            "a.txt.gz, line .*: expected a complete gzip file",
        ),
        ("a.txt.gz", b"a O\n", "expected a complete gzip file"),
        ("a.jsonl", b'{"tokens": ["a"]}\n{"tokens": [1]}\n', r"line 2: tokens are \[1\]: expected strings"),
        ("a.jsonl", b'{"tokens": ["a"]\n', "line 1: expected a JSON object"),
        ("a.jsonl", b'["a"]\n', "line 1: expected an object"),
        ("a.jsonl", b'{"labels": ["a"]}\n', "expected tokens, features or vectors, but not both"),
        ("a.jsonl", b'{"vectors": [[1]], "features": [["a"]]}\n', "but not both features and vectors"),
        ("a.jsonl", b'{"tokens": ["a"], "labels": []}\n', "expected equal lengths"),
        ("a.jsonl", b'{"vectors": [[1], [2, 3]]}\n', "lists of numbers, all of the same length"),
        ("a.jsonl", b'{"vectors": [[1], [NaN]]}\n', r"the vector of token 1 is \[nan\]: expected finite"),
        (
            "a.jsonl",
            b'{"vectors": [[1]]}\n{"vectors": [[1, 2]]}\n',
            "line 2: the tokens of this sequence have vectors with 2 entries",
        ),
        (
            "a.jsonl",
            b'{"features": [["a"]]}\n{"tokens": ["a"]}\n',
            "have text with 1 entries, but in the first sequence they have features: expected",
        ),
        ("a.jsonl", b'{"features": [{"v": [1, 2]}]}\n', r"one feature per entry, such as 'v\[0\]'"),
        ("a.jsonl", b'{"tokens": ["a"], "weight": -1}\n', "weight is -1: expected a number >= 0"),
        ("a.jsonl", b'{"tokens": ["a"], "labels": [{}]}\n', "a label is {}: expected"),
        ("a.items", b"A\tx:y\n", "line 1: got 'y' after a colon: expected a finite number"),
        ("a.items", b"A\tx\nB\tx\\\n", "line 2: .* ends in a single backslash"),
        ("a.parquet", b"PAR1", "expected a complete Parquet file"),
        ("a.npz", b"PK", "expected an .npz file"),
        ("a.doc", b"", r"the extension '.doc' is not known"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(FormatError, match=message):
        list(read(path))


def test_a_line_end_of_windows_and_a_mark_at_the_head_are_no_text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbf" + COLUMNS.replace("\n", "\r\n").encode())
    assert [one.tokens for one in read(path)] == [["The", "dog"], ["barks"]]


WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r"), max_size=5)
FEATURES = st.one_of(
    st.lists(WORDS, min_size=1, max_size=3),
    st.dictionaries(WORDS, st.one_of(st.floats(allow_nan=False, allow_infinity=False), WORDS), min_size=1, max_size=3),
)
SEQUENCES = st.lists(st.lists(st.tuples(WORDS, FEATURES), min_size=1, max_size=4), min_size=1, max_size=3)


def as_numbers(token):
    """A token as CRFsuite has it: numbers by name."""
    if isinstance(token, list):
        return sorted(token)
    pairs = [(f"{k}:{v}", 1.0) if isinstance(v, str) else (k, float(v)) for k, v in token.items()]
    names = {name for name, _ in pairs}
    if all(value == 1 for _, value in pairs):
        return sorted(name for name, _ in pairs)
    return {name: sum(value for own, value in pairs if own == name) for name in names}


@given(SEQUENCES)
def test_crfsuites_text_goes_there_and_back(tmp_path_factory, sequences):
    folder = tmp_path_factory.mktemp("crfsuite")
    records = [record("features", [f for _, f in one], [label for label, _ in one]) for one in sequences]
    tabs = any(
        "\t" in json.dumps([label, f], ensure_ascii=False).replace("\\t", "\t") for o in sequences for label, f in o
    )
    if tabs:
        with pytest.raises(FormatError, match="cannot be written as a line"):
            write(folder / "a.items", records)
        return
    # A token without a label whose only name is empty or blank is an empty line to CRFsuite.
    if any(
        label.strip(" ") == "" or (label, t) == ("@weight", 0) for one in sequences for t, (label, _) in enumerate(one)
    ):
        return
    write(folder / "a.items", records)
    back = list(read(folder / "a.items"))
    assert [one.labels for one in back] == [one.labels for one in records]
    assert [[as_numbers(t) for t in one.x] for one in back] == [[as_numbers(t) for t in one.x] for one in records]
    write(folder / "b.items", back)
    assert (folder / "b.items").read_bytes() == (folder / "a.items").read_bytes()


def test_crfsuites_text_by_hand(tmp_path):
    text = "@weight:2.5\nB-NP\tw=the\tlen:3.0\tt\\:x\\\\\nO:\\\n".replace("O:\\", "O\\:\tw=dog") + "\nA\tx\n\n"
    (tmp_path / "a.items").write_text(text)
    first, second = read(tmp_path / "a.items")
    assert first.x == [{"w=the": 1.0, "len": 3.0, "t:x\\": 1.0}, ["w=dog"]]
    assert (first.labels, first.weight) == (["B-NP", "O:"], 2.5)
    assert (second.x, second.labels, second.weight) == ([["x"]], ["A"], 1.0)
    write(tmp_path / "b.items", [first, second])
    assert (tmp_path / "b.items").read_text() == text


RECORDS = {
    "text": [
        record("text", [["a", "b"], ["c", "d"]], ["X", "Y"], ["a", "c"]),
        record("text", [["e", "f"]], ["X"], ["e"]),
    ],
    "names": [
        record("features", [["a", "b"], ["c"]], ["X", "Y"], ["v", "w"], 2.0),
        record("features", [["d"]], ["X"], ["u"]),
    ],
    "dicts": [record("features", [{"a": 1.5}, {"b=c": 1.0}], ["X", "Y"]), record("features", [{"a": 2.0}], ["X"])],
    "vectors": [record("vectors", np.arange(4.0).reshape(2, 2), [0, 1]), record("vectors", np.ones((1, 2)), [1])],
    "sparse": [
        record("vectors", sp.csr_array(np.eye(2)), ["p", "q"], ["s", "t"]),
        record("vectors", sp.csr_array([[0.0, 3]]), ["p"], ["u"]),
    ],
}


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("a.txt", ["text"]),
        ("a.jsonl", ["text", "names", "dicts", "vectors", "sparse"]),
        ("a.jsonl.gz", ["text", "vectors"]),
        ("a.items.gz", ["dicts"]),
        ("a.parquet", ["text", "names", "dicts", "vectors", "sparse"]),
        ("a.npz", ["vectors", "sparse"]),
    ],
)
def test_formats_hold_what_they_are_given(tmp_path, name, kinds):
    for kind, records in RECORDS.items():
        if kind in kinds:
            write(tmp_path / name, records)
            back = list(map(plain, read(tmp_path / name)))
            if name.startswith("a.items"):
                back = [(k, [t if isinstance(t, dict) else dict.fromkeys(t, 1.0) for t in x], *r) for k, x, *r in back]
            assert back == list(map(plain, records))
        elif name in ("a.txt", "a.npz"):
            with pytest.raises(FormatError, match=r"files can only store .*: write a \.jsonl"):
                write(tmp_path / name, records)


def test_missing_and_ambiguous_labels_survive_json(tmp_path):
    write(tmp_path / "a.jsonl", [record("text", [["a"], ["b"], ["c"]], [None, {"X", "Y"}, "X"], ["a", "b", "c"])])
    assert next(read(tmp_path / "a.jsonl")).labels == [None, {"X", "Y"}, "X"]
    with pytest.raises(FormatError, match="a label is missing, but a column file needs every label"):
        write(tmp_path / "a.txt", read(tmp_path / "a.jsonl"))


def test_an_archive_that_does_not_fit_together_is_named(tmp_path):
    X = np.ones((3, 2))
    for arrays, message in [
        ({"X": X}, "expected a 1-D array named lengths"),
        ({"X": X, "lengths": np.array([1, 1])}, "the lengths sum to 2, but X has 3 rows"),
        (
            {"X": X, "lengths": np.array([3]), "y": np.array([1])},
            r"y has shape \(1,\) and type int64: expected shape \(3,\)",
        ),
        ({"y": X}, r"expected an array X with one row of numbers per token"),
        ({"X": np.array([object()])}, "plain arrays"),
    ]:
        np.savez(tmp_path / "a.npz", **arrays)
        with pytest.raises(FormatError, match=message):
            list(read(tmp_path / "a.npz"))


def test_byte_strings_of_an_archive_are_text(tmp_path):
    words = np.char.encode(["The", "Größe"], "utf-8")
    arrays = {"X": np.ones((2, 1)), "lengths": np.array([2])}
    np.savez(tmp_path / "a.npz", **arrays, tokens=words, y=np.array([b"DT", b"NN"]))
    (found,) = read(tmp_path / "a.npz")
    assert (found.tokens, found.labels) == (["The", "Größe"], ["DT", "NN"])
    np.savez(tmp_path / "a.npz", **arrays, y=np.array([b"DT", b"\xff"]))
    with pytest.raises(FormatError, match="y has byte strings that are not UTF-8"):
        list(read(tmp_path / "a.npz"))


def test_json_keeps_entries_that_kernelcrf_does_not_use(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id": "s1", "tokens": ["a"], "labels": ["O"]}\n')
    write(tmp_path / "b.jsonl", read(tmp_path / "a.jsonl"))
    assert json.loads((tmp_path / "b.jsonl").read_text()) == {"id": "s1", "tokens": ["a"], "labels": ["O"]}


class Pipe(io.RawIOBase):
    """A pipe into which pieces come one after the other."""

    def __init__(self, pieces):
        self.pieces = iter(pieces)

    def readable(self):
        return True

    def readinto(self, buffer):
        piece = next(self.pieces, b"")
        buffer[: len(piece)] = piece
        return len(piece)


def as_stdin(monkeypatch, pieces):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Pipe(pieces))))


def test_a_pipe_gives_each_sentence_as_soon_as_it_is_whole(monkeypatch):
    came = []

    def pieces():
        for piece in (b"a O\nb ", b"O\n\nc O\n", b"\nd O\n\ne O\n\nf", b" O\n"):
            came.append(piece)
            yield piece

    as_stdin(monkeypatch, pieces())
    seen = [(len(came), [one.tokens for one in batch]) for batch in read_batches("-")]
    assert seen == [(2, [["a", "b"]]), (3, [["c"], ["d"], ["e"]]), (4, [["f"]])]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_standard_input_may_be_packed(monkeypatch, pack):
    as_stdin(monkeypatch, [pack(COLUMNS.encode())])
    assert [one.tokens for one in read("-")] == [["The", "dog"], ["barks"]]


def test_a_long_stream_is_read_in_little_memory(monkeypatch):
    piece = (COLUMNS + "\n").encode() * 100
    as_stdin(monkeypatch, (piece for _ in range(60)))
    tracemalloc.start()
    assert sum(1 for _ in read("-")) == 12_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # All of them would take several megabytes.
    assert peak < 1e6


def test_formats_by_extension_or_name():
    assert format_of("x.txt.gz") == format_of("x.CONLL") == format_of("-") == "columns"
    assert format_of("x.txt", "jsonl") == "jsonl"
    with pytest.raises(FormatError, match="expected one of columns"):
        format_of("x.txt", "xml")


@pytest.mark.skipif(sys.platform == "win32", reason="modes and links are those of POSIX")
def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(0o640)
    with pytest.raises(TypeError), whole_file(path) as file:
        file.write(b"half" + None)
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"old", ["a"])
    (tmp_path / "link").symlink_to(path)
    with whole_file(tmp_path / "link") as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert (tmp_path / "link").is_symlink()
    before = os.umask(0o027)
    try:
        with whole_file(tmp_path / "b") as file:
            file.write(b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o640


def test_a_failed_write_leaves_the_old_file(tmp_path):
    write(tmp_path / "a.txt", RECORDS["text"])
    before = (tmp_path / "a.txt").read_bytes()
    with pytest.raises(FormatError, match="files can only store text"):
        write(tmp_path / "a.txt", [*RECORDS["text"], *RECORDS["names"]])
    assert (tmp_path / "a.txt").read_bytes() == before
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("separator", [" ", "\t"])
def test_comments_before_a_sequence_are_skipped_and_kept_beside_new_cells(tmp_path, separator):
    """The sign # can be a token, as in CoNLL-2003 with its four columns."""
    rows = [["#", "#", "B-NP", "O"], ["9", "CD", "I-NP", "O"], ["#", "sent_id", "x", "O"]]
    comments = ["# sent_id = 1", "# text = # 9 #", "# newdoc id = a b", "# newpar"]
    tokens = list(map(separator.join, rows))
    path = tmp_path / "a.conll"
    path.write_text("\n".join(["# license = none", "", *comments, *tokens, "", *tokens, ""]))
    one, other = read(path)
    assert one.x == other.x == [row[:3] for row in rows]
    assert (one.place, other.place) == (f"{path}, line 7", f"{path}, line 11")
    assert list(columns.lines_of(one, [["A", "B", "C"]])) == [
        *comments, *(separator.join([line, label]) for line, label in zip(tokens, "ABC", strict=True))
    ]  # fmt: skip
    write(tmp_path / "b.conll", [one])
    assert plain(next(read(tmp_path / "b.conll"))) == plain(one)


def test_a_token_that_looks_like_a_comment_is_written_and_read_as_a_token(tmp_path):
    write(tmp_path / "a.txt", [record("text", [["# text = x", "N"]], ["O"], ["# text = x"])])
    assert next(read(tmp_path / "a.txt")).x == [["# text = x", "N"]]


@pytest.mark.parametrize("name", ["a.txt", "a.items", "a.conllu"])
def test_a_sequence_of_thousands_of_lines_is_told_once(tmp_path, name):
    line = {"a.txt": "the DT", "a.items": "DT\tw=the", "a.conllu": "\t".join(["1", "the", "_", "DT", *"______"])}[name]
    (tmp_path / name).write_text(f"{line}\n\n" + f"{line}\n" * 2001 + "\n" + f"{line}\n" * 2001)
    with pytest.warns(UserWarning, match="put an empty line after each") as warned:
        assert list(map(len, read(tmp_path / name))) == [1, 2001, 2001]
    (one,) = warned
    assert str(one.message).startswith(f"{tmp_path / name}, line 3: the sequence has 2,001 lines: if they are several")


@pytest.mark.parametrize("word", ["a\tb", "a\nb", "a\rb", ""])
def test_words_that_cannot_be_cells_are_refused_by_columns(word):
    """Words of other formats may have tabs and line ends, which would make further cells and tokens."""
    record = Record("text", [["x", "N"], [word, "V"]], None, ["x", word], "here")
    with pytest.raises(FormatError, match=r"here: .* cannot be written as a cell"):
        columns.lines_of(record, [["A", "B"]])
    fine = Record("text", [["x", "N"], ["New York", "V"]], None, ["x", "New York"], "here")
    assert list(columns.lines_of(fine, [["A", "B"]])) == ["x\tN\tA", "New York\tV\tB"]


def test_files_that_are_probably_read_wrongly_give_a_warning_or_the_right_advice(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("the\tDT B-NP\ndog\tNN I-NP\n\nit\tPRP B-NP\n")
    with pytest.warns(UserWarning, match="line 1: the label 'DT B-NP' has a blank.* tr -s ' '") as caught:
        records = list(read(path))
    assert len(caught) == 1
    assert [record.labels for record in records] == [["DT B-NP", "NN I-NP"], ["PRP B-NP"]]
    path.write_text("\n".join("\t".join([str(t), "w", *"_" * 7, "SpaceAfter=No"]) for t in (1, 2)))
    with pytest.warns(UserWarning, match="look like CoNLL-U.*--format conllu"):
        next(read(path))
    path.write_text("a\tO\n \t\nb\tO\n")
    assert [record.tokens for record in read(path)] == [["a"], ["b"]]
    for content, advice in (
        ("é O\n".encode("latin-1"), "iconv -f LATIN1 -t UTF-8, or with -f and the encoding"),
        ("a O\n".encode("utf-16"), "iconv -f UTF-16 -t UTF-8"),
        (b"a O\r\r\nb O\r\r\n", r"line 1: the line ends with two carriage returns.* tr -d '\\r'"),
    ):
        path.write_bytes(content)
        with pytest.raises(FormatError, match=advice):
            next(read(path))
