import re

import numpy as np
import pytest

from kernelcrf.formats import TemplateError, Templates, default_templates
from kernelcrf.formats.templates import TemplateColumns, shape
from kernelcrf.readers.sequences import SequenceReader

ROWS = [["The", "DT"], ["AT&T-90", "NN"], ["barks", "VBZ"]]


def test_templates_by_hand():
    text = "\n".join(
        [
            "# words",
            "U00:%x[-2,0]",
            "U01:%x[-1,0]/%x[0,1]!",
            'U:m=%m[1,0,"[a-z]+"]',
            'u:t=%t[0,0,"\\"|[0-9]"]',
            "U:s=%s[0,0]|%X[0,0]|%S[0,0]",
            "B",
        ]
    )
    assert Templates(text, 2).features([ROWS])[0] == [
        ["U00:_B-2", "U01:_B-1/DT!", "U:m=", "u:t=false", "U:s=Xx|the|x"],
        ["U00:_B-1", "U01:The/NN!", "U:m=barks", "u:t=true", "U:s=X&X-0|at&t-90|x&x-0"],
        ["U00:The", "U01:AT&T-90/VBZ!", "U:m=_B+1", "u:t=false", "U:s=x|barks|x"],
    ]


def twin(text, rows):
    """The same one macro at a time."""

    def cell(match, t):
        letter, row, column, pattern = match[1], int(match[2]), int(match[3]), match[4]
        place = t + row
        if place < 0:
            return f"_B{place}"
        if place >= len(rows):
            return f"_B+{place - len(rows) + 1}"
        value = rows[place][column]
        value = value.lower() if letter.isupper() else value
        if letter in "sS":
            return shape(value)
        if letter in "mM":
            found = re.search(pattern, value)
            return found[0] if found else ""
        return value

    macro = re.compile(r'%([xXsSmM])\[(-?\d+),(\d+)(?:,"(.*?)")?\]')
    return [[macro.sub(lambda m, t=t: cell(m, t), line) for line in text.split("\n")] for t in range(len(rows))]


@pytest.mark.parametrize("n_columns", [1, 2, 3])
def test_the_default_templates_say_what_their_text_says(n_columns):
    templates = default_templates(n_columns)
    rows = [["Ab1", "N", "x"], ["b", "", "y"], ["_B-1", "_B+1", "z"]]
    batch = [[row[:n_columns] for row in some] for some in (rows[:1], rows * 2, rows[2:], rows)]
    assert templates.features(batch) == [twin(templates.text, some) for some in batch]
    assert templates.features(batch[1:2]) == templates.features(batch)[1:2]
    assert {len(token) for some in templates.features(batch) for token in some} == {22 + 12 * (n_columns - 1)}
    assert templates.features([]) == []


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr("kernelcrf.formats.templates.REMEMBERED", 500)
    templates = Templates("U:%s[0,0]", 1)
    for start in range(0, 5000, 100):
        templates.features([[[f"w{i}"] for i in range(start, start + 100)]])
    assert len(templates.compiled[0][0].text) <= 500 + 100
    assert templates.features([[["Again9"]]]) == [[["U:Xx0"]]]


def test_columns_are_those_of_the_vectorised_features(monkeypatch):
    rng = np.random.default_rng(0)
    batch = [[[f"W{i}-{i % 3}", "NV"[i % 2]] for i in rng.integers(40, size=T)] for T in rng.integers(1, 9, size=30)]
    templates = Templates(default_templates(2).text + "\nU:w[0]=%x[0,0]", 2)
    reader, _, _ = SequenceReader.fit(templates.features(batch[:15]))
    columns = TemplateColumns(templates, reader.vocabulary)
    for bound in (1 << 14, 3):
        monkeypatch.setattr("kernelcrf.formats.templates.REMEMBERED", bound)
        for some in (batch[:1], batch, batch[20:]):
            made = columns.entries(some)
            expected, chains = reader.read(templates.features(some))
            assert (made.to_csr() != expected).nnz == 0
            assert (made.columns < 0).any() == (some is not batch[:1] and len(some) > 1)
            flat, own = reader.read_entries(made, lengths=list(map(len, some)))
            assert flat is made
            assert own.offsets.tolist() == chains.offsets.tolist()
    with pytest.raises(ValueError, match="lengths sums to 1 and X has"):
        reader.read_entries(made, lengths=[1])
    with pytest.raises(ValueError, match=r"X is of type Entries, .*: expected lengths="):
        reader.read_entries(made)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "mine: the text has no template for tokens"),
        ("B:%x[0,0]", "mine: the text has no template for tokens"),
        ("# nothing\nB\n", "mine: the text has no template"),
        ("\nX:%x[0,0]", "mine, line 2: 'X:%x.0,0.' starts with 'X': expected a line that starts with U for"),
        ("U:%x[0,0]\nB:word", "mine, line 2: 'B:word' has no macro"),
        ("U:%x[0,2]", r"%x\[0,2\] uses column 2: expected a column below 2"),
        ("U:%x[-21,0]", "reads a cell 21 tokens away"),
        ("U:%x[0]", "expected macros such as"),
        ("U:word", "expected macros such as"),
        ("U:%m[0,0]", "expected a regular expression"),
        ('U:%x[0,0,"a"]', "expected a regular expression"),
        ('U:%m[0,0,"("]', "is not a valid regular expression"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text, message):
    with pytest.raises(TemplateError, match=message):
        Templates(text, 2, "mine")


def test_steps_and_constants_by_hand():
    text = "B01:%x[-1,0]/%x[0,0]\n*\nU:w=%x[0,0]\nB\nB00\n*:p=%X[0,1]\nb:next=%x[1,1]"
    templates = Templates(text, 2)
    assert templates.have_steps
    assert templates.features([ROWS[:2], ROWS[2:]]) == [
        {
            "tokens": [["*", "U:w=The", "*:p=dt"], ["*", "U:w=AT&T-90", "*:p=nn"]],
            "steps": [["B01:_B-1/The", "*:p=dt", "b:next=NN"], ["B01:The/AT&T-90", "*:p=nn", "b:next=_B+1"]],
        },
        {"tokens": [["*", "U:w=barks", "*:p=vbz"]], "steps": [["B01:_B-1/barks", "*:p=vbz", "b:next=_B+1"]]},
    ]
    plain = Templates("*\nU00\nU:w=%x[0,0]\nB", 2)
    assert not plain.have_steps
    assert plain.features([ROWS[:1]]) == [[["*", "U00", "U:w=The"]]]


def test_words_that_begin_with_a_line_end_are_words():
    templates = Templates("U:w=%x[0,0]\nU:before=%x[-1,0]\nU:shape=%s[0,0]", 1)
    assert templates.features([[["\n_B-1"], ["\nA"]]]) == [
        [["U:w=\n_B-1", "U:before=_B-1", "U:shape=\n_X-0"], ["U:w=\nA", "U:before=\n_B-1", "U:shape=\nX"]]
    ]


def test_shapes():
    assert [shape(word) for word in ("McGraw-42", "", "U.S.", "ñandú", "北京")] == ["XxXx-0", "", "X.X.", "x", "x"]
