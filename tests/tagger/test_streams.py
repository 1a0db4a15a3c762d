"""Streams of the tagger and of the library give the same answers, and end with those for whole sequences."""

import numpy as np
import pytest

from kernelcrf import save
from kernelcrf.tagger.tagger import Tagger
from tagger import random_models
from tagger.test_random_models import parts


def cut(x, low, high):
    return {name: part[low:high] for name, part in x.items()} if isinstance(x, dict) else x[low:high]


def size(x):
    x = next(iter(x.values())) if isinstance(x, dict) else x
    return x.shape[0] if hasattr(x, "shape") else len(x)


def token(x, t):
    """Token t, as `push` takes it."""
    if isinstance(x, dict):
        return {name: token(part, t) for name, part in x.items()}
    return x[[t]] if hasattr(x, "tocsr") else x[t]


def answers(live, x):
    """Push some tokens one by one, and the others in a block."""
    T = size(x)
    found = [live.push(token(x, t)) for t in range(min(T, 3))]
    return [*found, live.extend(cut(x, min(T, 3), T)), live.finish()]


@pytest.mark.parametrize("first", range(0, 30, 15))
def test_random_models_have_the_answers_of_the_library(first, tmp_path):
    for seed in range(first, first + 15):
        model, X = random_models.model(seed)
        save(model, tmp_path / "model.kcrf")
        tagger = Tagger.open(tmp_path / "model.kcrf")
        transform, crf = parts(model)
        for x, inner in zip(X, transform(X), strict=True):
            if not size(x):
                continue
            note = f"seed {seed}: {crf}"
            ours, theirs = answers(tagger.stream(lag=2, max_delay=3), x), answers(crf.stream(lag=2, max_delay=3), inner)
            for mine, other in zip(ours, theirs, strict=True):
                for name in ("newest", "lagged"):
                    one, two = getattr(mine, name), getattr(other, name)
                    assert one.start == two.start
                    np.testing.assert_allclose(one.probabilities, two.probabilities, atol=1e-12, err_msg=note)
            whole = answers(crf.stream(lag=size(x)), inner)[-1].lagged.probabilities
            np.testing.assert_allclose(whole, crf.predict_proba([inner])[0], atol=1e-12, err_msg=note)


def test_a_state_of_the_library_goes_on_in_the_tagger(tmp_path):
    model, X = random_models.model(2)
    save(model, tmp_path / "model.kcrf")
    transform, crf = parts(model)
    x, inner = max(zip(X, transform(X), strict=True), key=lambda pair: size(pair[0]))
    live = crf.stream(lag=1, max_delay=1)
    live.extend(cut(inner, 0, 3))
    np.savez(tmp_path / "state.npz", **live.state())
    with np.load(tmp_path / "state.npz") as state:
        other = Tagger.open(tmp_path / "model.kcrf").stream(lag=1, max_delay=1, state=state)
    assert other.n_tokens == 3
    for mine, theirs in ((live.extend(cut(inner, 3, 9)), other.extend(cut(x, 3, 9))), (live.finish(), other.finish())):
        assert mine.lagged.labels.tolist() == theirs.lagged.labels
        assert mine.decided.labels.tolist() == theirs.decided.labels


def test_wrong_arguments_are_named(tmp_path):
    model, X = random_models.model(2)
    save(model, tmp_path / "model.kcrf")
    tagger = Tagger.open(tmp_path / "model.kcrf")
    with pytest.raises(ValueError, match="lag=-1: expected an integer"):
        tagger.stream(lag=-1)
    with pytest.raises(ValueError, match="max_delay='all': expected"):
        tagger.stream(max_delay="all")
    with pytest.raises(ValueError, match="pass base_scores=None"):
        tagger.stream().extend(X[-1], base_scores=[[0.0]])
