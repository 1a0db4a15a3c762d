"""`SegmentCRF.stream` ends with the answers for the whole sequence, for all kinds of inputs and scores."""

import warnings

import numpy as np
import pytest

from kernelcrf import Input, SegmentCRF

RNG = np.random.default_rng(0)
Y = [np.repeat([0, 1, 2, 1, 0], RNG.integers(1, 5, 5)) for _ in range(12)]
X = [np.column_stack([labels + RNG.normal(size=len(labels)), RNG.normal(size=len(labels))]) for labels in Y]
TAGS = [["B-A", *["I-A"] * (len(x) - 3), "O", "B-B"] for x in X]
BASE = [RNG.normal(size=(len(x), 3)) for x in X]
INPUTS = {"a": Input("rbf", columns=[0], n_components=6), "last": Input("linear", scores="ends")}
CASES = {
    "linear": ({"kernel": "linear", "fit_intercept": "boundaries"}, Y, None),
    "no tail, no ends": (
        {"kernel": "rbf", "n_components": 6, "tail": False, "ends": False, "max_duration": 9},
        Y,
        None,
    ),
    "tags": ({"kernel": "linear"}, TAGS, None),
    "constraints": ({"kernel": "linear", "constraints": [(0, 1), (1, 2), (2, 1), (1, 0)]}, Y, None),
    "inputs": ({"inputs": INPUTS}, Y, None),
    "base scores": ({"kernel": "linear", "max_duration": 1}, Y, BASE),
}


@pytest.fixture(scope="module", params=CASES)
def fitted(request):
    options, labels, base = CASES[request.param]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SegmentCRF(**{"C": 3.0, "max_iter": 20, "random_state": 0} | options).fit(
            X, labels, base_scores=base
        ), base


def test_a_stream_ends_with_the_answers_for_the_whole_sequence(fitted, tmp_path):
    crf, base = fitted
    x, scores = X[3], None if base is None else base[3]
    T = len(x)

    def given(rows):
        return {} if scores is None else {"base_scores": scores[rows]}

    live = crf.stream(lag=T, max_delay=T)
    answers = [live.push(x[0], **given(0)), live.extend(x[1:5], **given(slice(1, 5)))]
    np.savez(tmp_path / "state.npz", **live.state())
    with np.load(tmp_path / "state.npz", allow_pickle=False) as state:
        live = crf.stream(lag=T, max_delay=T, state=state)
    answers += [live.extend(x[5:], **given(slice(5, None))), live.finish()]
    whole = crf.distribution([x], base_scores=None if base is None else [scores])
    np.testing.assert_allclose(answers[-1].lagged.probabilities, whole.marginals()[0], atol=1e-9)
    decided = np.concatenate([answer.decided.labels for answer in answers])
    np.testing.assert_array_equal(decided, whole.decode("viterbi")[0])
    for answer in answers:
        np.testing.assert_allclose(answer.newest.probabilities.sum(axis=1), 1.0)


def test_open_segments_are_those_of_the_newest_token():
    crf = SegmentCRF("linear", C=3.0).fit(X, Y)
    live = crf.stream()
    assert live.open_segments() == []
    newest = live.extend(X[0][:7]).newest.probabilities[-1]
    found = live.open_segments(least=0.0)
    assert found == sorted(found, key=lambda one: -one.probability)
    for label, p in zip(crf.classes_.tolist(), newest, strict=True):
        assert sum(one.probability for one in found if one.label == label) == pytest.approx(p)
    assert all(one.start is None or 0 <= one.start < 7 for one in found)
    assert live.open_segments(0.3) == [one for one in found if one.probability >= 0.3]
    assert repr(live) == "SegmentStream(n_tokens=7)"
    with pytest.raises(ValueError, match="least=2: expected"):
        live.open_segments(2)


def test_inputs_of_whole_segments_are_refused():
    crf = SegmentCRF("linear", segment_kernel="linear", C=1.0, tol=0.1).fit(X, Y)
    with pytest.raises(ValueError, match="segment_kernel=None"):
        crf.stream()
