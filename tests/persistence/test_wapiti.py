"""Text model files of Wapiti: the answers are those of Wapiti and of enumeration, and damaged files are refused."""

import itertools
import random
import tracemalloc

import numpy as np
import pytest
from typer.testing import CliRunner

import kernelcrf
from kernelcrf import ChainCRF, KernelClassifier, ModelFileError
from kernelcrf.cli.app import app
from kernelcrf.formats import Record, write

# Written by hand. Observations have the weights u:a 0-1, b 2-5, *:c 6-7 and 8-11, u:d 12-13, b:e 14-17.
HAND = """#mdl#2#9
#rdr#1/0/0
11:u:a=%x[0,0],
#qrk#2
3:Nñ,
1:V,
#qrk#5
3:u:a,
1:b,
3:*:c,
3:u:d,
3:b:e,
0=0x1p-1
1=-0x1.4p+0
3=0x1p+1
5=-0x1.8p-1
6=0x1.8p+0
7=0x1.999999999999ap-4
8=0x1.8p+1
10=-0x1p+1
12=0x1p-2
""".encode()
X = [
    [["u:a", "b"], ["u:d", "b", "*:c"], ["u:a", "b", "*:c", "b:e"], ["u:z", "b"]],
    [["*:c", "b"], ["u:a", "b"]],
]
# The largest marginals that Wapiti 1.5.0 prints for HAND (without its pattern) and X.
PRINTED = [[0.998826, 0.999508, 0.997230, 0.879246], [0.895393, 0.511304]]


def scores(x, y):
    """The score of a labelling, from the weights of HAND spelt out."""
    of_tokens = {"u:a": [0.5, -1.25], "*:c": [1.5, 0.1], "u:d": [0.25, 0]}
    of_steps = {"b": [[0, 2], [0, -0.75]], "*:c": [[3, 0], [-2, 0]]}
    total = sum(of_tokens.get(name, [0, 0])[label] for token, label in zip(x, y, strict=True) for name in token)
    steps = zip(x[1:], y, y[1:], strict=False)
    return total + sum(of_steps.get(name, np.zeros((2, 2)))[a][b] for token, a, b in steps for name in token)


@pytest.fixture
def hand(tmp_path):
    path = tmp_path / "hand.mdl"
    path.write_bytes(HAND)
    return path


def test_answers_are_those_of_enumeration_and_of_wapiti(hand):
    crf = kernelcrf.load(hand)
    assert crf.classes_.tolist() == ["Nñ", "V"]
    assert crf.certificate_.status == "imported"
    for x, labels, marginals, printed in zip(X, crf.predict(X), crf.predict_proba(X), PRINTED, strict=True):
        labellings = list(itertools.product(range(2), repeat=len(x)))
        weights = np.exp([scores(x, y) for y in labellings])
        p = weights / weights.sum()
        expected = [[sum(p[k] for k, y in enumerate(labellings) if y[t] == a) for a in (0, 1)] for t in range(len(x))]
        np.testing.assert_allclose(marginals, expected, atol=1e-12)
        np.testing.assert_allclose(marginals.max(axis=1), printed, atol=1e-6)
        assert labels.tolist() == [crf.classes_[k] for k in labellings[int(np.argmax(p))]]
        assert crf.log_prob([x], [labels])[0] == pytest.approx(np.log(p.max()))


def test_a_file_is_written_again_with_the_same_bytes(hand, tmp_path):
    crf = kernelcrf.load(hand)
    crf.save(tmp_path / "again.wapiti")
    assert (tmp_path / "again.wapiti").read_bytes() == HAND
    assert run("convert", hand, tmp_path / "a.kcrf").exit_code == 0
    assert run("convert", tmp_path / "a.kcrf", tmp_path / "b.wapiti").exit_code == 0
    assert (tmp_path / "b.wapiti").read_bytes() == HAND
    for ours, theirs in zip(crf.predict_proba(X), kernelcrf.load(tmp_path / "a.kcrf").predict_proba(X), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert ChainCRF.from_wapiti(HAND).predict(X)[0].tolist() == crf.predict(X)[0].tolist()


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)


def test_the_command_tags_features_with_a_model_of_wapiti(hand, tmp_path):
    write(tmp_path / "x.jsonl", [Record("features", x, None, None, "x", None, 1.0) for x in X])
    result = run("tag", hand, tmp_path / "x.jsonl", "--json")
    assert result.exit_code == 0, result.output
    assert '"predicted": ["Nñ", "Nñ", "Nñ", "V"]' in result.stdout
    assert run("inspect", hand).exit_code == 0
    (tmp_path / "text.txt").write_text("a N\n")
    assert "the model has no templates for text" in run("tag", hand, tmp_path / "text.txt").stderr


def test_a_fitted_model_and_a_model_of_crfsuite_become_models_of_wapiti(tmp_path):
    rng = random.Random(0)
    some = [[[f"w={rng.choice('abcd')}", f"s={rng.choice('xy')}"] for _ in range(4)] for _ in range(20)]
    y = [["A" if token[0] in ("w=a", "w=b") else rng.choice("BC") for token in x] for x in some]
    crf = ChainCRF("linear", C=1.0).fit(some, y)
    crf.save(tmp_path / "m.wapiti")
    crf.save(tmp_path / "m.crfsuite")
    assert run("convert", tmp_path / "m.crfsuite", tmp_path / "n.wapiti").exit_code == 0
    write(tmp_path / "x.jsonl", [Record("features", *one, None, "x", None, 1.0) for one in zip(some, y, strict=True)])
    assert run("fit", tmp_path / "x.jsonl", tmp_path / "o.wapiti", "-C", "1").exit_code == 0
    assert (tmp_path / "o.wapiti").read_bytes() == (tmp_path / "m.wapiti").read_bytes()
    refused = run("fit", tmp_path / "x.jsonl", tmp_path / "o.wapiti", "--kernel", "rbf")
    assert "models of Wapiti cannot store --kernel rbf" in " ".join(refused.stderr.split())
    refused = run("convert", tmp_path / "m.wapiti", tmp_path / "p.kcrf", "--no-labels")
    assert refused.exit_code == 1
    assert "models have no options" in refused.stderr
    with pytest.raises(ValueError, match="dtype='float32': expected None for a file of Wapiti"):
        crf.save(tmp_path / "x.wapiti", dtype="float32")
    with pytest.raises(ValueError, match="a KernelClassifier cannot be written as a model of Wapiti"):
        KernelClassifier(C=1.0).fit(np.eye(2), [0, 1]).save(tmp_path / "x.wapiti")
    prefixed = [[[*(f"u:{name}" for name in token), "b"] for token in x] for x in some]
    for name in ("m.wapiti", "n.wapiti"):
        again = kernelcrf.load(tmp_path / name)
        for ours, theirs in zip(crf.predict_proba(some), again.predict_proba(prefixed), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-12)
    dense = ChainCRF("linear", C=1.0).fit([np.eye(2), np.eye(2)[::-1]], [["A", "B"], ["B", "A"]])
    with pytest.raises(ValueError, match="cannot be written as a model of Wapiti, because it has an intercept"):
        dense.save(tmp_path / "x.wapiti")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (b"#mdl#2#9", b"#mdl#1#9", "of type 1: expected type 2"),
        (b"#mdl#2#9", b"#mdl#2#999999999999999", "says 999,999,999,999,999 weights, but the file ends before"),
        (b"#mdl#2#9", b"#mdl#2#8", "the file goes on after its 8 weights"),
        (b"#rdr#1/0/0", b"#rdr#999999999/0/0", "next of 999,999,999 patterns"),
        (b"#rdr#1", b"#rdx#1", "the reader is missing"),
        (b"#qrk#5", b"#qrk#999999999999999", "next of 999,999,999,999,999 observations"),
        (b"3:u:a,", b"999999999:u:a,", "a wrong length, or a NUL"),
        (b"3:u:a,", b"3:u:\0,", "a wrong length, or a NUL"),
        (b"3:u:a,", b"3:x:a,", "'x:a' does not begin with u, b or *"),
        (b"3:u:a,", b"0:,", "'' does not begin with u, b or *"),
        (b"3:u:a,", b"3:u:d,", "two with the same name"),
        (b"12=0x1p-2", b"18=0x1p-2", "not increasing, or not below 18"),
        (b"12=0x1p-2", b"10=0x1p-2", "not increasing, or not below 18"),
        (b"12=0x1p-2", b"12=0x1p+9999", "not finite"),
        (b"12=0x1p-2", b"12=nan", "is not valid at byte"),
    ],
)
def test_damaged_files_are_named(before, after, message, hand):
    content = HAND.replace(before, after)
    assert content != HAND
    hand.write_bytes(content)
    with pytest.raises(ModelFileError) as caught:
        kernelcrf.load(hand)
    assert message in str(caught.value)
    assert str(hand) in str(caught.value)


def test_damaged_files_end_in_an_error_of_the_library():
    rng = random.Random(0)
    for end in range(len(HAND)):
        with pytest.raises(ModelFileError):
            ChainCRF.from_wapiti(HAND[:end])
    refused = 0
    for _ in range(500):
        content = bytearray(HAND)
        content[rng.randrange(len(HAND))] = rng.choice(b"0123456789#:,=\n\xffubx*")
        try:
            ChainCRF.from_wapiti(bytes(content))
        except ModelFileError:
            refused += 1
    assert refused > 200


def file_of(labels, observations):
    lists = [
        b"#qrk#%d\n" % len(names) + b"".join(b"%d:%s,\n" % (len(name), name) for name in names)
        for names in (labels, observations)
    ]
    return b"".join([b"#mdl#2#0\n#rdr#0/0/0\n", *lists])


@pytest.mark.parametrize(
    ("labels", "observations"),
    [
        ([b"%d" % k for k in range(20_000)], [b"u"]),
        ([b"%d" % k for k in range(2000)] + [b"x" * 200_000], [b"u"]),
        ([b"%d" % k for k in range(3000)], [b"*%d" % k for k in range(3000)]),
    ],
    ids=["many labels", "a long label", "many weights"],
)
def test_few_bytes_do_not_claim_much_memory(labels, observations):
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match="would take"):
            ChainCRF.from_wapiti(file_of(labels, observations))
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()
