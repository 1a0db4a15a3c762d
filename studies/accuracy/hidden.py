"""Hidden variables with known truth: mixtures and hidden chains, beside hmmlearn and scikit-learn.

Mixtures have eight binary columns, which are independent given a hidden variable with three values. Hidden chains have
six steps; each of two hidden states emits one of three symbols, and every row of a table is one chain. MarkovNetwork
gets the observed columns and hidden columns without any value; GaussianMixture gets the binary columns as numbers, and
hmmlearn's CategoricalHMM gets the chains as sequences. All have five random starts. The score is the adjusted Rand
index between the hidden values and the likeliest ones of each model (of single steps, in chains), averaged over data
sets; "truth" uses the parameters that the data were drawn with. Log-likelihoods are per row of new data.

MarkovNetwork does not know that the steps of a chain are alike: each step has potentials of its own.

To save time, there are six data sets and five starts, not eight and ten as earlier: standard errors are 1.15 times as
wide, and the least p that Wilcoxon's test can give is .031, not .008.
"""

from __future__ import annotations

import argparse
import itertools
from typing import Any

import numpy as np
from scipy.stats import wilcoxon
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from kernelcrf import MarkovNetwork
from kernelcrf.solvers import Restarts
from studies import common

OPTIONS = {"sets": 6}

STARTS, N, COLUMNS, VALUES, T = 5, 300, 8, 3, 6


def mixture(seed: int) -> dict[str, dict[str, float]]:
    """Return the scores of each model on one mixture."""
    rng = np.random.default_rng(seed)
    rates = rng.beta(0.5, 0.5, size=(VALUES, COLUMNS)).clip(0.05, 0.95)
    hidden = rng.integers(VALUES, size=(2, N))
    X, new = ((rng.random((N, COLUMNS)) < rates[own]).astype(int) for own in hidden)

    def log_joint(rows: Any) -> Any:
        return rows @ np.log(rates).T + (1 - rows) @ np.log1p(-rates).T - np.log(VALUES)

    table, fresh = (np.full((N, COLUMNS + 1), None, object) for _ in range(2))
    table[:, :-1], fresh[:, :-1] = X, new
    model = MarkovNetwork(
        structure=[(v, COLUMNS) for v in range(COLUMNS)],
        categories=[[0, 1]] * COLUMNS + [list(range(VALUES))],
        C=10.0,
        solver=Restarts(STARTS - 1),
        tol=1e-4,
        random_state=seed,
    ).fit(table)
    gaussian = GaussianMixture(VALUES, covariance_type="diag", n_init=STARTS, random_state=seed).fit(X)
    found = {
        "MarkovNetwork": (model.predict_proba(table)[-1].argmax(axis=1), float(model.score_samples(fresh).mean())),
        "GaussianMixture": (gaussian.predict(X), np.nan),
        "truth": (log_joint(X).argmax(axis=1), float(np.logaddexp.reduce(log_joint(new), axis=1).mean())),
    }
    return {name: {"rand": adjusted_rand_score(hidden[0], z), "log p": p} for name, (z, p) in found.items()}


def chain(seed: int) -> dict[str, dict[str, float]]:
    """Return the scores of each model on one set of hidden chains."""
    from hmmlearn.hmm import CategoricalHMM

    rng = np.random.default_rng(seed)
    stay, noise = rng.uniform(0.75, 0.95, 2), rng.uniform(0.05, 0.2)
    steps = np.array([[stay[0], 1 - stay[0]], [1 - stay[1], stay[1]]])
    symbols = np.array([[0.85 - noise, 0.15, noise], [noise, 0.15, 0.85 - noise]])

    def draw() -> tuple[Any, Any]:
        states = np.zeros((N, T), int)
        states[:, 0] = rng.integers(2, size=N)
        for t in range(1, T):
            states[:, t] = rng.random(N) < steps[states[:, t - 1], 1]
        return states, (rng.random((N, T, 1)) > symbols.cumsum(axis=1)[states]).sum(axis=2)

    (states, X), (_, new) = draw(), draw()
    every = np.array(list(itertools.product([0, 1], repeat=T)))
    prior = np.log(0.5) + np.log(steps[every[:, :-1], every[:, 1:]]).sum(axis=1)

    def log_joint(rows: Any) -> Any:
        return prior + np.log(symbols[every[None], rows[:, None]]).sum(axis=2)

    own = log_joint(X)
    p = np.exp(own - np.logaddexp.reduce(own, axis=1, keepdims=True))
    table, fresh = (np.full((N, 2 * T), None, object) for _ in range(2))
    table[:, T:], fresh[:, T:] = X, new
    model = MarkovNetwork(
        structure=[(t, t + 1) for t in range(T - 1)] + [(t, T + t) for t in range(T)],
        categories=[[0, 1]] * T + [[0, 1, 2]] * T,
        C=10.0,
        solver=Restarts(STARTS - 1),
        tol=1e-4,
        random_state=seed,
    ).fit(table)
    runs = [
        CategoricalHMM(2, n_iter=200, tol=1e-4, random_state=seed * STARTS + r).fit(X.reshape(-1, 1), [T] * N)
        for r in range(STARTS)
    ]
    hmm = max(runs, key=lambda one: one.score(X.reshape(-1, 1), [T] * N))
    likeliest = np.column_stack([q.argmax(axis=1) for q in model.predict_proba(table)[:T]])
    peer = hmm.predict_proba(X.reshape(-1, 1), [T] * N).argmax(axis=1).reshape(N, T)
    found = {
        "MarkovNetwork": (likeliest, float(model.score_samples(fresh).mean())),
        "hmmlearn": (peer, float(hmm.score(new.reshape(-1, 1), [T] * N)) / N),
        "truth": ((p @ every > 0.5).astype(int), float(np.logaddexp.reduce(log_joint(new), axis=1).mean())),
    }
    # The names of states are arbitrary at each step.
    return {
        name: {"rand": float(np.mean([adjusted_rand_score(states[:, t], z[:, t]) for t in range(T)])), "log p": q}
        for name, (z, q) in found.items()
    }


TASKS = {"mixtures": mixture, "hidden chains": chain}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {"starts": STARTS}
    for name, make in TASKS.items():
        found[name] = [make(seed) for seed in range(options.sets)]
        print(
            name, {model: np.mean([own[model]["rand"] for own in found[name]]) for model in found[name][0]}, flush=True
        )
    return found


def section(results: dict[str, Any]) -> str:
    rows, sets = [], 0
    for name in TASKS:
        found = results[name]
        sets = len(found)
        for model in found[0]:
            rand, ours = ([own[one]["rand"] for own in found] for one in (model, "MarkovNetwork"))
            p = "" if rand == ours else f"{wilcoxon(rand, ours).pvalue:.3f}"
            log_p = np.mean([own[model]["log p"] for own in found])
            rows.append([f"{name}, {model}", f"{np.mean(rand):.3f}", p, "" if np.isnan(log_p) else f"{log_p:.3f}"])
    head = ("data and model", "adjusted Rand index", "p, against MarkovNetwork", "log-likelihood of a new row")
    return f"""## Hidden variables with known truth

Can a model that never sees the hidden values find them? The data are drawn from known models, so that the
hidden values are known.

- *mixtures*: {COLUMNS} binary columns, independent given a hidden variable with {VALUES} values.
- *hidden chains*: {T} steps; each of two hidden states emits one of three symbols.
- *adjusted Rand index*: how well the likeliest hidden values of a model agree with the true ones, 1 at best, 0 by
  chance.
- *truth*: the true model that drew the data.

Each model has {N} rows and {results["starts"]} random starts. Means are over {sets} data
sets.{common.of_all(sets, 8, "data sets")} p-values are those of Wilcoxon's test, of which {2 / 2**sets:.3f} is the
least.

{common.markdown(head, rows)}

GaussianMixture takes the binary columns as numbers, although they are not drawn from Gaussians. MarkovNetwork has
potentials of its own for each step of a chain, and so several times the parameters of a hidden Markov model.
"""
