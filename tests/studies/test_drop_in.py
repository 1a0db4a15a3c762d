"""studies/reliability/drop_in.py: the changes that it makes to a parser, and what it keeps of the outcomes of tests."""

import pytest

from studies.reliability import drop_in

CODE = """import pycrfsuite

MODEL_FILES = {"generic": "generic.crfsuite", "person": "person.crfsuite"}


def load() -> pycrfsuite.Tagger:
    tagger = pycrfsuite.Tagger()
    tagger.open(MODEL_FILES["generic"])
    return tagger
"""


def test_the_import_and_the_names_of_files_are_all_that_changes():
    changes = drop_in.difference(CODE, drop_in.changed(CODE), "names.py")
    assert changes[:2] == ["--- names.py", "+++ names.py"]
    assert [line for line in changes[2:] if line.startswith("+")] == [
        "+import kernelcrf_tagger.crfsuite as pycrfsuite",
        '+MODEL_FILES = {"generic": "generic.kcrf", "person": "person.kcrf"}',
    ]
    assert drop_in.n_lines(changes) == 2


def variant(outcomes, labels):
    return {"outcomes": outcomes, "labels": labels, "refused": 0}


def test_the_summary_counts_tests_and_names_those_that_changed_sides():
    theirs = variant({"a.one[x]": "passed", "a.one[y]": "passed", "b.two": "wrong"}, [["S", "T"], ["T"]])
    ours = variant({"a.one[x]": "passed", "a.one[y]": "S is not T", "b.two": "passed"}, [["S", "S"], ["T"]])
    names = (drop_in.THEIRS, drop_in.OURS, drop_in.TAGGER)
    both = [{key: dict(value) if isinstance(value, dict) else value for key, value in ours.items()} for _ in range(2)]
    found = drop_in.summary({"variants": dict(zip(names, (theirs, *both), strict=True))})["variants"]
    assert found[drop_in.THEIRS]["tests"] == {"a.one": [2, 2], "b.two": [0, 1]}
    assert found[drop_in.OURS]["tests"] == {"a.one": [1, 2], "b.two": [1, 1]}
    assert found[drop_in.OURS]["lost"] == {"a.one[y]": "S is not T"}
    assert found[drop_in.OURS]["gained"] == ["b.two"]
    assert (found[drop_in.TAGGER]["other_labels"], found[drop_in.TAGGER]["tokens"]) == (1, 3)
    assert found[drop_in.THEIRS]["lost"] == {}
    listed = drop_in.failures({"parsers": {"names": {"variants": found}}}).splitlines()[2:]
    assert listed == [
        f"| names | `b.two` | {drop_in.THEIRS} |",
        f"| names | `a.one[y]` | {drop_in.OURS}, {drop_in.TAGGER} |",
    ]
    table = drop_in.tests({"parsers": {"names": {"variants": found}}}).splitlines()[2:]
    assert table == [
        "| names | `a.one` | 2 | 2 | 1 | 1 |",
        "| names | others | 1 | 0 | 1 | 1 |",
        "| names | all | 3 | 2 | 2 | 2 |",
    ]


def test_the_reason_of_a_failure_is_the_first_difference():
    message = "AssertionError: assert ('S',) == ('T',)\n  \n  At index 0 diff: 'S' != 'T'\n  Use -v"
    assert drop_in.reason(message) == "At index 0 diff: 'S' != 'T'"
    assert drop_in.reason("ValueError: no\nmore") == "ValueError: no"


@pytest.mark.parametrize("parser", drop_in.PARSERS, ids=lambda parser: parser.name)
def test_each_file_that_tests_read_is_among_the_public_data(parser, data_folder):
    assert all((data_folder / stored).exists() for stored in parser.tests.values() if stored)
