from itertools import pairwise, product

import numpy as np
import pytest

from kernelcrf.graphs.structure import Chains
from kernelcrf.readers.constraints import legal_labelings

SCHEMES = {
    "BIO": ["O", "B-x", "I-x", "B-y", "I-y"],
    "IOB2": ["O", "B", "I"],
    "IOB1": ["O", "B-x", "I-x", "B-y", "I-y"],
    "BIOUL": ["O", "B-x", "I-x", "L-x", "U-x", "B-y", "L-y"],
    "BILOU": ["O", "B-x", "I-x", "L-x", "U-x"],
    "IOBES": ["O", "B-x", "I-x", "E-x", "S-x", "S-y"],
    "BIOES": ["O", "B", "I", "E", "S"],
    "BMES": ["B", "M", "E", "S"],
}


def spans_of(labels, scheme):
    """The spans (type, start, stop) of a labelling, read as leniently as the letters allow."""
    spans, open_span = [], None
    for t, label in enumerate(labels):
        letter, _, kind = label.partition("-")
        goes_on = letter in "IMEL" and open_span is not None and open_span[0] == kind
        if scheme == "IOB1" and letter == "I":
            goes_on = open_span is not None and open_span[0] == kind
        if open_span is not None and not goes_on:
            spans.append((*open_span, t))
            open_span = None
        if letter != "O" and not goes_on:
            open_span = (kind, t)
        if letter in "ELUS" and open_span is not None:
            spans.append((*open_span, t + 1))
            open_span = None
    if open_span is not None:
        spans.append((*open_span, len(labels)))
    return spans


def written(spans, length, scheme):
    """The labels of spans."""
    labels = ["O"] * length
    inside = "M" if scheme == "BMES" else "I"
    end, single = ("L", "U") if scheme in ("BIOUL", "BILOU") else ("E", "S")
    for i, (kind, start, stop) in enumerate(spans):
        letters = ["B"] + [inside] * (stop - start - 1)
        if scheme == "IOB1":
            touches = i > 0 and spans[i - 1][0] == kind and spans[i - 1][2] == start
            letters[0] = "B" if touches else "I"
        elif scheme not in ("BIO", "IOB2"):
            letters[-1] = end
            if stop - start == 1:
                letters = [single]
        labels[start:stop] = [letter + ("-" + kind if kind else "") for letter in letters]
    return labels


@pytest.mark.parametrize("scheme", SCHEMES)
def test_legal_is_what_comes_back_when_its_spans_are_read_and_written(scheme):
    classes = SCHEMES[scheme]
    constraints = legal_labelings(scheme, np.array(classes))
    n_legal = 0
    for length in range(1, 5):
        for y in product(range(len(classes)), repeat=length):
            labels = [classes[j] for j in y]
            comes_back = written(spans_of(labels, scheme), length, scheme) == labels
            legal = (
                constraints.first[y[0]]
                and constraints.last[y[-1]]
                and all(constraints.steps[i, j] for i, j in pairwise(y))
            )
            assert legal == comes_back, labels
            n_legal += legal
    assert n_legal > 4


def test_batches_are_checked_sequence_by_sequence():
    rng = np.random.default_rng(0)
    constraints = legal_labelings("BIOUL", SCHEMES["BIOUL"])
    chains = Chains.from_lengths([0, *rng.integers(0, 4, size=300), 0])
    y = rng.integers(len(SCHEMES["BIOUL"]), size=chains.n_nodes)
    expected = []
    for own in np.split(y, chains.offsets[1:-1]):
        labels = [SCHEMES["BIOUL"][j] for j in own]
        expected.append(written(spans_of(labels, "BIOUL"), len(labels), "BIOUL") == labels)
    allowed = np.split(constraints.allows(chains, y), chains.offsets[1:-1])
    np.testing.assert_array_equal([own.all() for own in allowed], expected)
    assert 0 < sum(expected) < len(expected)
    assert constraints.allows(chains, np.full(chains.n_nodes, -1)).all()


def test_pairs_allow_what_they_name():
    constraints = legal_labelings([("a", "b"), ("b", "a"), (None, "a")], ["a", "b"])
    np.testing.assert_array_equal(constraints.steps, [[0, 1], [1, 0]])
    np.testing.assert_array_equal(constraints.first, [1, 0])
    np.testing.assert_array_equal(constraints.last, [1, 1])
    ends = legal_labelings(iter([((1, 2), 3), (3, None)]), [3, (1, 2)])
    np.testing.assert_array_equal(ends.steps, [[0, 0], [1, 0]])
    np.testing.assert_array_equal(ends.last, [1, 0])
    np.testing.assert_array_equal(ends.first, [1, 1])


@pytest.mark.parametrize(
    ("spec", "classes", "message"),
    [
        ("BIO", ["O", "E-x"], r"label 'E-x' does not follow constraints='BIO': expected 'O', or .* B, I "),
        ("BIO", ["O", 3], r"label 3 does not follow"),
        ("BIO", ["O-x"], r"label 'O-x' does not follow"),
        ("BMES", ["I-x"], r"label 'I-x' does not follow"),
        ("bio", ["O"], r"constraints='bio': expected one of BIO, IOB2, IOB1, .*or pairs"),
        ([("a", "c")], ["a", "b"], r"label 'c' in the pair .* not among the classes"),
        (["ab"], ["a", "b"], r"constraints has 'ab': expected pairs"),
        ([("a", "b", "a")], ["a", "b"], r"expected pairs"),
        ([(None, None)], ["a", "b"], r"expected pairs"),
        ([], ["a", "b"], r"constraints has no pairs"),
    ],
)
def test_what_does_not_parse_is_named(spec, classes, message):
    with pytest.raises(ValueError, match=message):
        legal_labelings(spec, classes)
