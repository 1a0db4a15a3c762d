"""Leave-one-out predictions: how exact one Newton step is, what it costs, and whether it chooses a good C.

`ChainCRF.loo_log_prob` returns log p(y|x) of each training sequence under weights fitted to all others. Sizes are such
that the whole study takes about four minutes of CPU time. Earlier there were 40 sentences, 60 and 100 words, and one
step for all tasks: means over the left-out sentences and words have standard errors 1.4 times as wide now.

Accuracy: segmentation (20 sequences) and 20 sentences of base noun phrases of GPstruct, linear kernel, first split; 30
random words of the first fold of letters, rbf kernel on pixels, gamma = 0.03, 30 landmarks. Refits start from the
fitted weights, keep the landmarks, and give the left-out sequence the weight 1e-12: with the weight 0, pairs of a
feature and a label that only this sequence has would lose their weights. They end at the gap 1e-4 (the defaults of
ChainCRF) or 1e-8 (`newton-cg`). The latter go on to 1e-11, which is not timed, for the values that all errors refer to:
at a gap of 1e-8, a log-probability can still be wrong by 0.01. Errors fall with the square root of the gap, so that it
can be wrong by about a thirtieth of this at 1e-11. Smaller bounds cannot be tested here;
`tests/fitting/test_leave_one_out.py` compares bounds with exact optima.

    one step     refit=False: one Newton step for each sequence. Its error is |log p - log p of the refit to 1e-11|
    flagged      the share of sequences whose certified bound is above 0.01
    certified    refit=True: those sequences are fitted again until the bound is at most 0.01

Choice of C: the first split of GPstruct's four tasks, and 60 random words of letters with 1,000 test words. A rule is
the sum of log p(y|x) over training sequences, by one step (not on chunking and Japanese named entities, for time),
certified (segmentation and letters only), or by five-fold cross-validation. Powers of 10 are searched upwards from 1
while the sum increases, otherwise downwards, as C="auto" does. Error and log-loss (mean of -log p(y_t|x)) of tokens are
those of the test set after a fit to all training sequences with the chosen C. CPU seconds include that fit, and exclude
compilation.
"""

from __future__ import annotations

import argparse
import copy
import time
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from sklearn.model_selection import KFold

from kernelcrf import ChainCRF
from kernelcrf.datasets import make_sequences
from kernelcrf.fitting.held_out import highest
from kernelcrf.metrics import log_loss
from studies import common
from studies.common import kept
from studies.datasets import load_gpstruct, load_letters

TITLES = {
    "segmentation": "segmentation",
    "basenp": "base noun phrases",
    "letters": "letters",
    "chunking": "chunking",
    "japanesene": "Japanese named entities",
}
COMPARED = {"segmentation": 20, "basenp": 20, "letters": 30}
SMALL = ("segmentation", "letters")
SLOW = {"one step": ("basenp", *SMALL), "certified": SMALL}  # the tasks on which these rules are tried
N_WORDS = 60
RIVALS = ("folds", "evidence", "auto")
Cs = (1.0, 100.0)
FLAG = 0.01
LEFT_OUT = 1e-12
RULES = {
    "one step": "leave one out, one step",
    "certified": "leave one out, certified",
    "folds": "five folds",
    "evidence": 'C="evidence"',
    "auto": 'C="auto"',
}


def read(task: str, n_words: int = N_WORDS) -> tuple[Any, Any, dict[str, Any]]:
    """Return training data, test data and parameters of ChainCRF."""
    if task != "letters":
        data = load_gpstruct(task)
        first, second = data.splits[0]
        params: dict[str, Any] = {"kernel": "linear"}
    else:
        data = load_letters("small")
        first, second = data.splits[0]
        # The words of a fold are sorted: the first 60 are copies of five words.
        first = np.random.default_rng(0).permutation(first)[:n_words]
        second = np.sort(np.random.default_rng(0).permutation(second)[:1000])
        params = {"kernel": "rbf", "gamma": 0.03, "n_components": 30}
    params |= {"classes": np.unique(np.concatenate(data.y)).tolist(), "random_state": 0}
    return data.take(first), data.take(second), params


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a call, and its CPU seconds."""
    start = time.process_time()
    return work(), time.process_time() - start


def refits(crf: ChainCRF, X: list[Any], y: list[Any], exact: bool) -> tuple[np.ndarray, np.ndarray, float]:
    """Return log p(y|x) of each sequence by refits without it, the same values to a gap of 1e-11, and CPU seconds.

    exact : whether refits end at a gap of 1e-8; otherwise they have the defaults of ChainCRF, and are not continued.
    """
    found, polished, total = [], [], 0.0
    for i in range(len(X)):
        weights = np.ones(len(X))
        weights[i] = LEFT_OUT
        again = copy.deepcopy(crf).set_params(warm_start=True)
        if exact:
            again.set_params(solver="newton-cg", tol=1e-8)
        total += timed(lambda a=again, w=weights: a.fit(X, y, w))[1]
        found.append(again.log_prob(X[i : i + 1], y[i : i + 1])[0])
        if exact:
            again.set_params(tol=1e-11).fit(X, y, weights)
        polished.append(again.log_prob(X[i : i + 1], y[i : i + 1])[0])
    return np.array(found), np.array(polished), total


def compare(task: str, C: float) -> dict[str, Any]:
    """Compare both kinds of leave-one-out predictions with true refits."""
    train, _, params = read(task)
    X, y = train.X[: COMPARED[task]], train.y[: COMPARED[task]]
    crf = ChainCRF(C=C, **params).fit(X, y)
    once, newton = timed(lambda: crf.loo_log_prob(X, y, refit=False, tol=FLAG))
    found, certified = timed(lambda: crf.loo_log_prob(X, y, tol=FLAG))
    close, truth, exact = refits(crf, X, y, exact=True)
    rough, _, default = refits(crf, X, y, exact=False)
    errors = np.abs(once.log_prob - truth)
    return {
        "n": len(X),
        "weights": len(crf.model_.theta),
        "training": crf.log_prob(X, y).mean(),
        "truth": truth.mean(),
        "one step": once.log_prob.mean(),
        "correlation": np.corrcoef(once.log_prob, truth)[0, 1],
        "median": np.median(errors),
        "largest": errors.max(),
        "flagged": (once.error > FLAG).mean(),
        # The values to a gap of 1e-11 are not exact either.
        "outside": sum(int((np.abs(one.log_prob - truth) > one.error + 1e-5).sum()) for one in (once, found)),
        "certified": np.abs(found.log_prob - truth).max(),
        "close": np.abs(close - truth).max(),
        "bound": found.error.max(),
        "default": np.abs(rough - truth).max(),
        "seconds": {"one step": newton, "certified": certified, "default": default, "exact": exact},
    }


def choose(task: str, rule: str) -> dict[str, Any]:
    """Choose C by a rule; return the C, the scores on test data and the CPU seconds."""
    train, test, params = read(task)

    @cache
    def likelihood(powers: tuple[int, ...]) -> float:
        C = 10.0 ** powers[0]
        if rule == "folds":
            parts = KFold(5, shuffle=True, random_state=0).split(train.X)
            pairs = [(train.take(first), train.take(second)) for first, second in parts]
            fits = ((ChainCRF(C=C, **params).fit(a.X, a.y), b) for a, b in pairs)
            return float(sum(crf.log_prob(b.X, b.y).sum() for crf, b in fits))
        crf = ChainCRF(C=C, **params).fit(train.X, train.y)
        return float(crf.loo_log_prob(train.X, train.y, refit=rule == "certified").log_prob.sum())

    def fit() -> ChainCRF:
        C = rule if rule in ("auto", "evidence") else 10.0 ** highest(likelihood)[0]
        return ChainCRF(C=C, **params).fit(train.X, train.y)

    crf, seconds = timed(fit)
    right = common.right_tokens(crf.predict(test.X), test.y)
    loss = log_loss(test.y, crf.predict_proba(test.X), params["classes"])
    return {"C": crf.C_, "error": 100 * (1 - common.accuracy(right)), "log_loss": loss, "seconds": seconds}


def compile_loops() -> None:
    """Run every part of the study once, so that compiled code is not timed."""
    data = make_sequences(6, random_state=0)
    for kernel in ("linear", "rbf"):
        crf = ChainCRF(kernel, C=100.0).fit(data.X, data.y)
        crf.loo_log_prob(data.X, data.y)
        refits(crf, data.X, data.y, exact=True)
        ChainCRF(kernel, C="evidence").fit(data.X, data.y)
    train = load_gpstruct("segmentation").take(range(6))
    crf = ChainCRF("linear", C=100.0).fit(train.X, train.y)
    crf.loo_log_prob(train.X, train.y)
    refits(crf, train.X, train.y, exact=True)
    refits(crf, train.X, train.y, exact=False)
    ChainCRF("linear", C="evidence").fit(train.X, train.y)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    compile_loops()

    def run(key: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        found, cpu = kept(f"leave one out {key}", lambda: timed(work))
        total.append(cpu)
        print(key, f"{cpu:.0f} CPU s", flush=True)
        return found

    total = list[float]()
    compared = {
        task: {f"{C:g}": run(f"{task} {C:g}", lambda t=task, c=C: compare(t, c)) for C in Cs} for task in COMPARED
    }
    chosen = {
        task: {
            rule: run(f"{task} {rule}", lambda t=task, r=rule: choose(t, r))
            for rule in RULES
            if task in SLOW.get(rule, TITLES)
        }
        for task in TITLES
    }
    return {"compared": compared, "chosen": chosen, "seconds": sum(total)}


def section(results: dict[str, Any]) -> str:
    lines = [
        (
            f"{TITLES[task]} ({one['n']}), C = {C}",
            f"{one['training']:.2f}",
            f"{one['truth']:.2f}",
            f"{one['one step']:.2f}",
            f"{one['median']:.2f}, {one['largest']:.2f}",
            f"{100 * one['flagged']:.0f}",
            " / ".join(f"{one['seconds'][side]:.1f}" for side in ("one step", "certified", "default", "exact")),
        )
        for task, rows in results["compared"].items()
        for C, one in rows.items()
    ]
    header = (
        "data (sequences), C",
        "in training",
        "left out",
        "one step",
        "its error: median, largest",
        "bound above 0.01, %",
        "CPU seconds: one step / certified / refits to 1e-4 / to 1e-8",
    )
    rows = [one for rows in results["compared"].values() for one in rows.values()]
    n_bounds, outside = 2 * sum(one["n"] for one in rows), sum(one["outside"] for one in rows)
    certified, default, close = (max(one[key] for one in rows) for key in ("certified", "default", "close"))
    # The error of a fit falls with the square root of its gap, here from 1e-8 to 1e-11.
    reference = close / np.sqrt(1e3)
    undecided = (
        f" The other {outside} cannot be decided here.\nThe refit is not exact either: errors fall with the square "
        f"root of the gap, so that it\ncan be wrong by about {reference:.4f}, and cannot test smaller bounds."
        if outside
        else ""
    )
    choices = [
        (
            TITLES[task],
            RULES[rule],
            f"{one['C']:.3g}",
            f"{one['error']:.2f}",
            f"{one['log_loss']:.4f}",
            f"{one['seconds']:.1f}",
        )
        for task, rows in results["chosen"].items()
        for rule, one in rows.items()
    ]
    return f"""## Leaving out one training sequence at a time

How likely are the labels of a training sequence under weights that are fitted to all others? `loo_log_prob` estimates
this without a refit for each sequence. Numbers are log-probabilities, means over sequences.

- *in training*: with weights that are fitted to this sequence, too
- *left out*: by refits without the sequence, to a certified gap of 1e-11; errors are absolute differences from these
- *one step*: `refit=False`, one Newton step from the fitted weights instead of a refit
- *bound above 0.01*: sequences for which one step cannot promise an error of at most 0.01
- *certified*: `refit=True`, the default, which refits the model without each of those sequences until the bound is at
  most 0.01

{common.markdown(header, lines)}

The largest error of all rows is {certified:.5f} for certified values, {default:.2f} for refits to a gap of 1e-4, the
default of ChainCRF, and {close:.4f} for refits to 1e-8.

Values by one step and certified ones have a bound on their error. We compared {n_bounds} values with the refit to
1e-11; for {n_bounds - outside}, the difference is at most the bound plus 1e-5.{undecided} The library's tests compare
bounds with exact optima.

These log-probabilities can choose C: the C with the largest sum over the training sequences. The table compares this
with other rules.

{common.markdown(("data", "rule", "C", "test error, %", "log-loss", "CPU seconds"), choices, (0, 1))}

{advice(results["chosen"])}
"""


def advice(results: dict[str, Any]) -> str:
    """Return in words whether one step chooses the C of other rules, and what this costs."""
    chosen = {task: rows for task, rows in results.items() if "one step" in rows}
    told, same, ratios = list[str](), 0, list[float]()
    for other in RIVALS:
        same_C = sum(rows["one step"]["C"] == rows[other]["C"] for rows in chosen.values())
        ratio = [rows["one step"]["seconds"] / rows[other]["seconds"] for rows in chosen.values()]
        times = f"{min(ratio):.1f} to {max(ratio):.1f} times"
        agreed = f"the same C on {same_C} of {len(chosen)} tasks"
        told.append(f"- {RULES[other]}: {agreed}; one step takes {times} the CPU time of this rule")
        if other == "folds":
            same, ratios = same_C, ratio
    both = [rows for rows in results.values() if "one step" in rows and "certified" in rows]
    agree = sum(rows["one step"]["C"] == rows["certified"]["C"] for rows in both)
    use = "So use five folds to choose C. " if same == len(chosen) and min(ratios) > 1 else ""
    listed = "\n".join(told)
    return f"""How leaving out by one step compares with other rules that choose C:

{listed}

{use}The certified values and one step choose the same C on {agree} of {len(both)} tasks."""
