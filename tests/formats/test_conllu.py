"""CoNLL-U: words and their parts of speech, without comments, multiword tokens and empty nodes."""

import pytest

from kernelcrf.formats import FormatError, read, write
from kernelcrf.formats.columns import lines_of

TEXT = """\
# newdoc id = d1
# text = Vámonos al mar
1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tVamos\tir\tVERB\t_\t_\t0\troot\t_\t_
2\tnos\tnosotros\tPRON\t_\t_\t1\tobj\t_\t_
2.1\tnada\t_\t_\t_\t_\t_\t_\t_\t_
3\t10 000\t_\t_\t_\t_\t1\tobl\t_\t_

# a comment of its own

#sent_id=2
1\tmar\tmar\t_\t_\t_\t0\troot\t_\t_
"""


@pytest.fixture
def path(tmp_path):
    (tmp_path / "es.conllu").write_text(TEXT, encoding="utf-8")
    return tmp_path / "es.conllu"


def test_words_and_parts_of_speech_are_read(path):
    one, other = read(path)
    assert one.x == [["Vamos"], ["nos"], ["10 000"]]
    assert one.labels == ["VERB", "PRON", None]
    assert (one.tokens, one.place) == (["Vamos", "nos", "10 000"], f"{path}, line 4")
    assert (other.x, other.labels, other.place) == ([["mar"]], None, f"{path}, line 12")
    assert [record.labels for record in read(path, labels=False)] == [None, None]
    assert [record.labels for record in read(path, n_columns=1)] == [one.labels, None]


def test_the_lines_are_kept_beside_new_cells(path):
    one, _ = read(path)
    assert list(lines_of(one, [["A", "B", "C"], ["x", "y", "z"]])) == [
        "# newdoc id = d1",
        "# text = Vámonos al mar",
        "1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\t_\t_\t_",
        "1\tVamos\tir\tVERB\t_\t_\t0\troot\t_\t_\tA\tx",
        "2\tnos\tnosotros\tPRON\t_\t_\t1\tobj\t_\t_\tB\ty",
        "2.1\tnada\t_\t_\t_\t_\t_\t_\t_\t_\t_\t_",
        "3\t10 000\t_\t_\t_\t_\t1\tobl\t_\t_\tC\tz",
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 the _ DET", "line 2: the line '1 the _ DET' has 1 cells: expected 10 cells of CoNLL-U, separated by tabs"),
        ("1\t\t_\tDET\t_\t_\t0\troot\t_\t_", "line 2: cell 2 is empty: expected text, or _ for no value"),
        ("a\tthe\t_\tDET\t_\t_\t0\troot\t_\t_", "line 2: the ID is 'a': expected a number such as 1, 1-2 or 8.1"),
    ],
)
def test_what_is_no_conllu_is_named(tmp_path, line, message):
    (tmp_path / "a.conllu").write_text(f"# sent_id = 1\n{line}\n")
    with pytest.raises(FormatError) as raised:
        list(read(tmp_path / "a.conllu"))
    assert message in str(raised.value)


def test_conllu_is_not_written(path, tmp_path):
    with pytest.raises(FormatError, match=r"\.conllu files are read, but not written: write a column file"):
        write(tmp_path / "b.conllu", read(path))
    write(tmp_path / "b.jsonl", read(path))
    assert [(one.x, one.labels) for one in read(tmp_path / "b.jsonl")] == [(one.x, one.labels) for one in read(path)]
