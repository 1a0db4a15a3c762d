"""`ChainCRF.stream` gives the answers of the model to the tokens so far, for all kinds of inputs and scores."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from kernelcrf import ChainCRF, Input

RNG = np.random.default_rng(0)
T = 9
X = [RNG.normal(size=(T, 3)) for _ in range(8)]
Y = [(x[:, 0] > 0).astype(int) + 2 * (x[:, 1] > 1) for x in X]
TAGS = [["O", "B-A", "I-A", "O", "B-B", "I-B", "I-B", "O", "O"]] * 8
BASE = [RNG.normal(size=(T, 4)) for _ in range(8)]
STEPS = [RNG.normal(size=(T, 4, 4)) for _ in range(8)]
BRIEF = {"C": 3.0, "max_iter": 30, "tol": 1e-3, "random_state": 0, "n_components": 8}


def dicts(x):
    return [{"a": float(a), "word": str(round(b)), "up": c > 0} for a, b, c in x.tolist()]


SOME_INPUTS = {
    "tokens": Input("rbf", n_components=6),
    "steps": Input("linear", scores="steps"),
    "first": Input("linear", scores="starts"),
    "last": Input("linear", scores="ends"),
}
OF_ENTRIES = {"words": Input(), "vectors": Input("rbf", n_components=5)}
CASES = {
    "linear": ({"kernel": "linear", "fit_intercept": "boundaries"}, X, Y),
    "rbf": ({"kernel": "rbf"}, X, Y),
    "single precision": ({"kernel": "rbf"}, [x.astype(np.float32) for x in X], Y),
    "sparse": ({"kernel": "linear"}, [sp.csr_array(x) for x in X], Y),
    "dicts": ({"weights": "all"}, [dicts(x) for x in X], Y),
    "names": ({}, [[[f"w{round(v)}" for v in row] for row in x] for x in X], Y),
    "hashed": ({"hash_features": 64}, [dicts(x) for x in X], Y),
    "frames": ({"kernel": "linear"}, [pd.DataFrame(x, columns=["a", "b", "c"]) for x in X], Y),
    "inputs": ({"inputs": SOME_INPUTS}, X, Y),
    "entries": ({"inputs": OF_ENTRIES}, [{"words": dicts(x), "vectors": x} for x in X], Y),
    "constraints": ({"kernel": "linear", "constraints": "IOBES", "classes": None}, X, None),
    "tags": ({"constraints": "BIO"}, [dicts(x) for x in X], TAGS),
}
IOBES = [["O", "B-A", "E-A", "O", "B-A", "I-A", "E-A", "S-A", "O"]] * 8


def part(x, low, high):
    return {name: one[low:high] for name, one in x.items()} if isinstance(x, dict) else x[low:high]


def token(x, t):
    if isinstance(x, dict):
        return {name: token(one, t) for name, one in x.items()}
    return x.iloc[t] if isinstance(x, pd.DataFrame) else x[[t]] if sp.issparse(x) else x[t]


@pytest.fixture(scope="module", params=CASES)
def fitted(request):
    options, sequences, labels = CASES[request.param]
    labels = IOBES if labels is None else labels
    brief = {name: value for name, value in BRIEF.items() if name != "n_components" or "inputs" not in options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        crf = ChainCRF(**brief | options).fit(sequences, labels)
    return crf, sequences[1], 1e-5 if request.param == "single precision" else 1e-11


def without_ends(crf):
    """The same model without scores and constraints of last labels."""
    model = crf.model_
    theta = dict(model.layout.split(model.theta))
    for term in model.layout.terms:
        if term.kind.is_last:
            theta[term.name] = np.zeros_like(theta[term.name])
    legal = model.legal and replace(model.legal, last=np.ones_like(model.legal.last))
    other = ChainCRF()
    other.model_ = replace(model, theta=model.layout.join(theta), legal=legal)
    return other


def test_answers_equal_predict_proba_of_prefixes_and_of_the_whole(fitted):
    crf, x, atol = fitted
    live, opened, lagged = crf.stream(lag=2, max_delay=T), without_ends(crf), []
    for t in range(T):
        answer = live.push(token(x, t))
        prefix = opened.predict_proba([part(x, 0, t + 1)])[0]
        np.testing.assert_allclose(answer.newest.probabilities, prefix[-1:], atol=atol)
        assert answer.newest.start == t
        if t >= 2:
            np.testing.assert_allclose(answer.lagged.probabilities, prefix[t - 2 : t - 1], atol=atol)
            assert answer.lagged.start == t - 2
        lagged.append(answer.decided.labels)
    rest, whole = live.finish(), crf.predict_proba([x])[0]
    np.testing.assert_allclose(rest.lagged.probabilities, whole[-2:], atol=atol)
    np.testing.assert_allclose(rest.newest.probabilities, whole[-1:], atol=atol)
    assert live.n_forced == 0
    likeliest = crf.distribution([x]).decode("viterbi")[0]
    np.testing.assert_array_equal(np.concatenate([*lagged, rest.decided.labels]), likeliest)


def test_a_block_equals_its_tokens_and_a_stored_state_goes_on(fitted, tmp_path):
    crf, x, atol = fitted
    one = crf.stream(lag=3, max_delay=2)
    parts = [one.push(token(x, t)) for t in range(T)]
    two = crf.stream(lag=3, max_delay=2)
    first = two.extend(part(x, 0, 5))
    np.savez(tmp_path / "state.npz", **two.state())
    with np.load(tmp_path / "state.npz", allow_pickle=False) as state:
        three = crf.stream(lag=3, max_delay=2, state=state)
    assert repr(three) == "ChainStream(n_tokens=5)"
    blocks = [first, three.extend(part(x, 5, T))]
    for name in ("newest", "lagged"):
        alone, joined = (np.concatenate([getattr(a, name).probabilities for a in found]) for found in (parts, blocks))
        np.testing.assert_allclose(alone, joined, atol=max(atol, 1e-11))
    alone, joined = (np.concatenate([a.decided.labels for a in found]) for found in (parts, blocks))
    np.testing.assert_array_equal(alone, joined)


@pytest.mark.parametrize("base", [BASE, {"tokens": BASE, "steps": STEPS}], ids=["tokens", "steps"])
def test_base_scores_come_with_the_tokens(base):
    labels = [[0, 1, 2, 3, *row[4:]] for row in Y]
    crf = ChainCRF("linear", **BRIEF).fit(X, labels, base_scores=base)

    def of(low, high):
        return {k: v[0][low:high] for k, v in base.items()} if isinstance(base, dict) else base[0][low:high]

    def of_token(t):
        return {k: v[0][t] for k, v in base.items()} if isinstance(base, dict) else base[0][t]

    live, x = crf.stream(lag=1), X[0]
    for t in range(3):
        answer = live.push(x[t], base_scores=of_token(t))
        given = {k: [v[0][: t + 1]] for k, v in base.items()} if isinstance(base, dict) else [base[0][: t + 1]]
        prefix = crf.predict_proba([x[: t + 1]], base_scores=given)[0]
        np.testing.assert_allclose(answer.newest.probabilities, prefix[-1:], atol=1e-11)
    live.extend(x[3:], base_scores=of(3, T))
    whole = {k: v[:1] for k, v in base.items()} if isinstance(base, dict) else base[:1]
    last = live.finish().lagged.probabilities
    np.testing.assert_allclose(last, crf.predict_proba(X[:1], base_scores=whole)[0][-1:], atol=1e-11)
    with pytest.raises(ValueError, match="the model was fitted with base scores"):
        crf.stream().push(x[0])


@pytest.fixture(scope="module")
def linear():
    return ChainCRF("linear", **BRIEF).fit(X, Y)


def test_answers_stay_the_same_over_long_streams(linear):
    x = RNG.normal(size=(30_000, 3)) * np.where(RNG.random((30_000, 1)) < 0.01, 300, 1)
    live = linear.stream(lag=5, max_delay=1000)
    found = [live.extend(block) for block in np.array_split(x, 7)]
    assert sum(array.nbytes for array in live.state().values()) < 50_000
    found.append(live.finish())
    last = linear.predict_proba([x])[0]
    lagged = np.concatenate([one.lagged.probabilities for one in found])
    assert np.isfinite(lagged).all()
    np.testing.assert_allclose(lagged[-5:], last[-5:], atol=1e-11)
    labels = np.concatenate([one.decided.labels for one in found])
    np.testing.assert_array_equal(labels, linear.distribution([x]).decode("viterbi")[0])
    # What came before the last hundred tokens hardly matters at this model's last token.
    short = linear.stream(lag=5)
    short.extend(x[-100:])
    np.testing.assert_allclose(short.finish().lagged.probabilities, last[-5:], atol=1e-6)


def test_errors_name_what_is_wrong_and_leave_the_stream_as_it_was(linear):
    live = linear.stream(lag=1)
    live.extend(X[0][:4])
    before = live.state()
    with pytest.raises(ValueError, match="expected the numbers of one token"):
        live.push(X[0])
    with pytest.raises(ValueError, match="NaN"):
        live.push([0.0, np.nan, 1.0])
    with pytest.raises(ValueError, match="features"):
        live.push([0.0])
    for name, array in live.state().items():
        np.testing.assert_array_equal(array, before[name])
    assert live.extend(X[0][:0]).newest.labels.shape == (0,)
    live.finish()
    for call in (live.finish, live.state, lambda: live.push(X[0][0])):
        with pytest.raises(ValueError, match="has been finished"):
            call()
    assert linear.stream().finish().lagged.labels.shape == (0,)
    with pytest.raises(TypeError, match="expected a dict of arrays"):
        linear.stream(state=[1])
    with pytest.raises(ValueError, match=r"lag=1\.5: expected an integer"):
        linear.stream(lag=1.5)


def test_a_sequence_cannot_end_where_the_constraints_forbid_it():
    crf = ChainCRF("linear", constraints="IOBES", **BRIEF).fit(X, IOBES)
    live = crf.stream()
    assert live.push(X[0][0]).newest.labels[0] in {"O", "B-A", "S-A"}
    assert live.finish().newest.labels[0] in {"O", "S-A"}
    forced = crf.stream(max_delay=0)
    found = [forced.extend(X[0]), forced.finish()]
    assert sum(len(one.decided.labels) for one in found) == T
