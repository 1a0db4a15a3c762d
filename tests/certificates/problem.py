"""The part that random problems of all estimators share: solver, weights, and the line that makes one again."""

import numpy as np

from certificates import kernels
from certificates.dice import Dice
from certificates.twins import whitened
from kernelcrf.basis import Landmarks
from kernelcrf.kernels import Polynomial

SHAKES = 3


class Problem:
    """A random problem; subclasses draw the data, fit a model and build its twin.

    plain : whether to leave out what was drawn later than the rest: earlier fits with changed parameters, priors,
        features that are not stored, and kernels so smooth that landmarks nearly depend on each other.
    may_be_smooth : whether such kernels leave the twin digits to compare with.
    """

    estimator = None
    missing = None
    has_tokens = True
    worst_condition = 1.0
    may_be_smooth = True
    shake = None

    def __init__(self, seed, *, plain=False):
        self.dice, self.plain = Dice(seed), plain
        self.draw()

    def __repr__(self):
        drawn = ", ".join(f"{name}={value!r}" for name, value in self.dice.drawn.items())
        return f"{type(self).__name__}({self.dice.seed})  # {drawn}"

    def draw_common(self, solvers):
        """Draw what all estimators have."""
        pick = self.dice.pick
        self.stays_odd = pick("odd", False, True, share=0.08)
        self.solver = pick("solver", "auto", *solvers, share=0.8)
        self.tol = pick("tol", 1e-4, 1e-1, 1e-2, 1e-3, 1e-6, 1e-9)
        self.max_iter = pick("max_iter", 300, 1, 3, 10, share=0.15)
        self.weighting = pick("weights", None, "uniform", "zeros", "extreme", share=0.4)
        self.class_weight = pick("class_weight", None, "balanced", "dict", "zero", share=0.3)
        self.repeats = pick("repeats", False, True, share=0.3)
        self.scale = pick("scale", 1.0, 0.1, 10.0, share=0.2)
        self.C = self.dice.power("C", -2, 3)
        self.gamma_number = self.dice.power("gamma value", -2, 1)
        self.degree = self.dice.count("degree", 1, 3)
        self.coef0 = float(pick("coef0", 1.0, 0.0, 2.0))
        self.storage = "auto"
        if not self.plain:
            self.storage = pick("features", "auto", "stored", "recomputed", share=0.4)
            if pick("smooth kernel", False, True, share=0.15) and self.may_be_smooth:
                self.gamma_number *= 1e-4

    def landmarks(self, n):
        """Return `n_components` for a number of landmarks and the rule of the problem."""
        return n if (self.pivots, self.storage) == ("auto", "auto") else Landmarks(n, self.pivots, self.storage)

    def argument(self, kernel):
        """Return what a user passes as a kernel."""
        return Polynomial(self.degree, self.coef0) if kernel == "poly" else kernels.argument(kernel)

    def whiten(self, kernel, X, B, *numbers):
        """Return F = K_xB R^-T with K_BB = R R', with kernel values that `shake` rounds otherwise, if it is set."""
        K_xB, K_BB = (kernels.gram(kernel, A, B, *numbers) for A in (X, B))
        self.worst_condition = max(self.worst_condition, np.linalg.cond(K_BB))
        if self.shake is not None:
            eps = np.finfo(np.float64).eps
            K_xB = K_xB * (1 + eps * self.shake.normal(size=K_xB.shape))
            K_BB = np.tril(K_BB) * (1 + eps * self.shake.normal(size=K_BB.shape))
            K_BB = K_BB + np.tril(K_BB, -1).T
        return whitened(K_xB, K_BB)

    def shaken_twins(self, model):
        """Return twins on features that differ by rounding, or none if their rounding does not show.

        Rounding of K grows in F by up to the condition number of K_BB. The library and the twin compute F in different
        orders, so they may differ as much as two twins do. One other twin can agree by chance.
        """
        found = []
        for k in range(SHAKES if self.worst_condition >= 1e6 else 0):
            self.shake = np.random.default_rng([self.dice.seed, k])
            try:
                found.append(self.twin(model, exact=False))
            finally:
                self.shake = None
        return found

    @property
    def solver_parameters(self):
        return {"solver": self.solver, "tol": self.tol, "max_iter": self.max_iter, "random_state": 0}

    def draw_weights(self, n, labels):
        """Draw weights of samples, and of classes; one sample at least counts."""
        rng = self.dice.stream("sample weights")
        self.weights = None
        if self.weighting is not None:
            weights = rng.uniform(0.2, 3.0, n)
            if self.weighting == "zeros":
                weights[rng.permutation(n)[: n // 2]] = 0.0
                weights += not np.any(weights * self.has_tokens)
            if self.weighting == "extreme":
                weights = 10.0 ** rng.uniform(-6, 6, n)
            self.weights = weights.tolist()
        self.by_class = np.round(rng.uniform(0.1, 4.0, len(self.classes)), 2)
        if self.class_weight == "zero":
            self.by_class[labels[0]] = 0.0
            if not np.any(self.sequence_weights * self.has_tokens):
                self.by_class[labels[0]] = 0.5

    def class_weights(self, labels):
        """Return the weight of each class, given all known labels."""
        return self.balanced(np.array(labels)) if self.class_weight == "balanced" else self.by_class

    @property
    def named_class_weight(self):
        if self.class_weight in ("dict", "zero"):
            return dict(zip(self.classes, self.by_class.tolist(), strict=True))
        return self.class_weight
