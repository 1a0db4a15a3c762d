"""A random walk over what a user may do with one estimator: every answer is that of a fresh fit, or an error says why.

A step sets a parameter, fits, saves and loads, or asks. After each fit, the answers must equal those of a new estimator
with the same parameters and data, or the fit must have been refused with the name of a parameter and must have changed
nothing. Meanwhile, threads ask an estimator that other threads fit again: they get the answer of one of the fits.
"""

import sys
import threading
import warnings
from functools import cache

import numpy as np
import pytest

from kernelcrf import ChainCRF, GraphCRF, Input, KernelClassifier, MarkovNetwork, MultiLabelCRF, SegmentCRF, load
from kernelcrf.penalties import ElasticNet

STEPS, LONG = 640, 20000
GRID = np.array([(a, b) for a in range(3) for b in range(3)], float)
RNG = np.random.default_rng(0)


def draw(n, shift):
    """Return n rows and their labels; the rows have all points of the grid, which are the landmarks of every fit."""
    rows = np.vstack((GRID, GRID[RNG.integers(9, size=n - 9)]))[RNG.permutation(n)]
    return rows, (rows.sum(axis=1) + RNG.normal(size=n) > shift).astype(int)


DRAWN = [draw(24, shift) for shift in (1.5, 2.5)]
WORDS = [np.array(list(words))[own[0][:, 0].astype(int)] for words, own in zip(("abc", "bcd"), DRAWN, strict=True)]
EDGES = [[0, 1], [1, 2], [2, 3]]


def sequences(values):
    return np.split(values, 6)


def sets(rows, labels):
    return np.column_stack((labels, labels ^ (rows[:, 0] > 1), rows[:, 1] > 0)).astype(int)


COMMON = {
    "C": (0.1, 1.0, 10.0),
    "solver": ("auto", "newton-cg"),
    "warm_start": (False, True, True),
    "certify_full": (False, True),
    "laplace": (False, True),
    "n_jobs": (1, 2),
}
OF_KERNEL = {
    "kernel": ("rbf", "rbf", "linear"),
    "gamma": (0.5, "auto", 2.0),
    "n_components": (None, 50),
    "random_state": (0, 1),
}
OF_CHAIN = {"fit_intercept": (False, True), "class_weight": (None, {"a": 2.0})}
OF_SEQUENCE = {
    "fit_intercept": (False, True, "boundaries"),
    "decoding": ("viterbi", "marginal"),
    "classes": (None, ["a", "b", "z"]),
}
NAMES = np.array(["a", "b"])
MACHINES = {
    "ChainCRF": (
        ChainCRF,
        COMMON | OF_KERNEL | OF_CHAIN | OF_SEQUENCE | {"penalty": (None, None, ElasticNet(0.5))},
        [(sequences(X), sequences(NAMES[y])) for X, y in DRAWN],
    ),
    "dicts": (
        ChainCRF,
        COMMON | OF_CHAIN | OF_SEQUENCE | {"weights": ("observed", "all"), "hash_features": (None, None, 16)},
        [
            ([[{"w": w} for w in x] for x in sequences(words)], sequences(NAMES[y]))
            for words, (_, y) in zip(WORDS, DRAWN, strict=True)
        ],
    ),
    "inputs": (
        ChainCRF,
        COMMON
        | OF_SEQUENCE
        | {
            "inputs": (
                {"p": Input("linear", columns=[0]), "q": Input("rbf", gamma=0.5)},
                {"p": Input("linear", columns=[1]), "q": Input("rbf", gamma=0.5)},
                {"p": Input("linear", columns=[0]), "q": Input("linear", scores="steps")},
                {"p": Input("linear", columns=[0])},
            ),
            "inputs__p__C": (None, 3.0),
        },
        [(sequences(X), sequences(NAMES[y])) for X, y in DRAWN],
    ),
    "SegmentCRF": (
        SegmentCRF,
        COMMON
        | OF_KERNEL
        | OF_CHAIN
        | OF_SEQUENCE
        | {"max_duration": (2, 3), "durations": ("smooth", "free"), "laplace": (False,), "certify_full": (False,)},
        [(sequences(X), sequences(NAMES[y])) for X, y in DRAWN],
    ),
    "KernelClassifier": (KernelClassifier, COMMON | OF_KERNEL | OF_CHAIN, [(X, NAMES[y]) for X, y in DRAWN]),
    "GraphCRF": (
        GraphCRF,
        COMMON | OF_KERNEL | {"C_label": (1.0, 0.1)},
        [([(x, EDGES) for x in sequences(X)], sequences(NAMES[y])) for X, y in DRAWN],
    ),
    "MultiLabelCRF": (
        MultiLabelCRF,
        COMMON | OF_KERNEL | {"structure": ("tree", "full"), "decoding": ("viterbi", "marginal")},
        [(X, sets(X, y)) for X, y in DRAWN],
    ),
    "MarkovNetwork": (
        MarkovNetwork,
        COMMON | {"structure": ("tree", "full"), "kernel": ("delta", "rbf")},
        [(np.column_stack((X, y)).astype(int), None) for X, y in DRAWN],
    ),
}
PRECISE = {"tol": 1e-9, "max_iter": 2000}


def plain(answer):
    return np.concatenate([np.ravel(one) for one in answer]) if isinstance(answer, list) else np.ravel(answer)


def ask(model, X):
    """Return probabilities, and the classes that their columns belong to."""
    return plain(model.predict_proba(X)), [str(label) for label in getattr(model, "classes_", ())]


class Walk:
    """One estimator, and what its last fit was."""

    def __init__(self, name, seed, folder):
        self.estimator, self.table, self.data = MACHINES[name]
        self.rng, self.folder = np.random.default_rng(seed), folder
        first = {key: values[0] for key, values in self.table.items() if "__" not in key}
        self.model = self.estimator(**PRECISE, **first)
        self.fitted, self.log = None, []
        self.fits = self.refusals = 0

    def step(self):
        steps = [self.set, self.set, self.set, self.fit, self.fit, self.answer, self.reload, self.adopt]
        chosen = steps[int(self.rng.integers(len(steps)))]
        self.log.append(chosen.__name__)
        chosen()

    def set(self):
        key = str(self.rng.choice(list(self.table)))
        values = self.table[key]
        value = values[int(self.rng.integers(len(values)))]
        self.log.append((key, value))
        if key == "inputs":
            value = {name: Input(**one.get_params()) for name, one in value.items()}
        self.model.set_params(**{key: value})

    def adopt(self):
        """Make the fitted model the prior of later fits, or no model."""
        if not hasattr(self.model, "prior"):
            return
        known = self.fitted is not None and self.rng.random() < 0.5 and not self.model.warm_start
        self.model.set_params(prior=self.keep("prior.kcrf") if known else None)

    def keep(self, name):
        """Save the model, and return it as it is read again, or its file."""
        path = str(self.folder / name)
        self.model.save(path)
        return path if self.rng.random() < 0.5 else load(path)

    def fit(self):
        which = int(self.rng.integers(2))
        self.log.append(which)
        X, y = self.data[which]
        before = None if self.fitted is None else ask(self.model, self.data[0][0])
        starts = self.model.warm_start and self.fitted is not None
        classes = [str(label) for label in self.model.classes_] if starts and hasattr(self.model, "classes_") else None
        expected = self.fresh(which, classes)
        error = None
        try:
            self.model.fit(X, y)
        except ValueError as raised:
            error = str(raised)
        if error is not None:
            self.refusals += 1
            assert any(f"{name}=" in error for name in self.model.get_params()), f"no parameter in the error: {error}"
            if before is not None:
                np.testing.assert_array_equal(ask(self.model, self.data[0][0])[0], before[0])
            if self.rng.random() < 0.5:
                self.start_anew()
            return
        self.fits += 1
        assert not isinstance(expected, str), f"a fresh fit is refused: {expected}"
        found, labels = ask(self.model, self.data[0][0])
        assert labels == expected[1]
        np.testing.assert_allclose(found, expected[0], atol=2e-3)
        self.fitted = found, labels

    def start_anew(self):
        """Set the parameters that most often stand in the way of a fit to their defaults."""
        off = {"warm_start": False, "prior": None, "penalty": None}
        self.model.set_params(**{key: off[key] for key in off if hasattr(self.model, key)})

    def fresh(self, which, classes):
        """Return the answers of a new estimator that is fitted to the same data, or the text of its error.

        classes : the labels of the model that a warm start keeps, or None.
        """
        parameters = self.model.get_params(deep=False) | {"warm_start": False}
        if classes is not None and "classes" in parameters:
            parameters["classes"] = classes
        model = self.estimator(**parameters)
        try:
            model.fit(*self.data[which])
        except ValueError as error:
            return str(error)
        return ask(model, self.data[0][0])

    def answer(self):
        if self.fitted is not None:
            found, labels = ask(self.model, self.data[0][0])
            np.testing.assert_array_equal(found, self.fitted[0])
            assert labels == self.fitted[1]

    def reload(self):
        if self.fitted is not None:
            prior = getattr(self.model, "prior", None)
            self.model.save(self.folder / "model.kcrf")
            jobs = self.model.n_jobs
            self.model = load(self.folder / "model.kcrf").set_params(n_jobs=jobs)
            if prior is not None:
                self.model.set_params(prior=prior)
            self.answer()


def run(name, n_steps, seed, folder):
    walk = Walk(name, seed, folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(n_steps):
            try:
                walk.step()
            except Exception:
                print(walk.log)
                raise
    return walk


@pytest.mark.parametrize("name", MACHINES)
def test_every_answer_of_a_walk_is_that_of_a_fresh_fit(name, tmp_path):
    n_steps = STEPS // len(MACHINES)
    walk = run(name, n_steps, 0, tmp_path)
    assert walk.fits > n_steps / 25
    assert walk.refusals > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", MACHINES)
def test_every_answer_of_a_long_walk_is_that_of_a_fresh_fit(name, tmp_path):
    for seed in range(11):
        run(name, LONG // len(MACHINES) // 10, seed, tmp_path)


@cache
def two_fits(name):
    """Return the parameters of a machine, and the answers after a fit to each of its data sets."""
    estimator, _, data = MACHINES[name]
    options = {} if estimator is MarkovNetwork else {"kernel": "linear"}
    return options, [ask(estimator(**options, C=1.0).fit(*own), data[0][0]) for own in data]


@pytest.mark.parametrize("n_fits", [8, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["ChainCRF", "SegmentCRF", "KernelClassifier", "GraphCRF", "MultiLabelCRF"])
def test_threads_that_fit_again_change_whole_answers(name, n_fits):
    estimator, _, data = MACHINES[name]
    options, expected = two_fits(name)
    model = estimator(**options, C=1.0).fit(*data[0])
    stop, wrong, counts = threading.Event(), [], [0, 0]

    def refit():
        for number in range(1, n_fits + 1):
            model.fit(*data[number % 2])
            counts[0] += 1
        stop.set()

    def question():
        while not stop.is_set():
            found = plain(model.predict_proba(data[0][0]))
            counts[1] += 1
            if not any(np.array_equal(found, own) for own, _ in expected):
                wrong.append(found)

    threads = [threading.Thread(target=own) for own in (refit, question, question)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert counts[0] == n_fits
    assert counts[1] > 0
    assert not wrong
