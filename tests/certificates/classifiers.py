"""Random problems of KernelClassifier and their twins."""

from dataclasses import replace

import numpy as np

from certificates.kernel_problem import DENSE_ONLY, NO_MEANS, KernelProblem
from certificates.twins import Sample, Term, Twin
from kernelcrf import KernelClassifier


class ClassifierProblem(KernelProblem):
    """Rows of a table."""

    estimator = KernelClassifier
    checkpoint = missing = edge_kernel = None

    def draw(self):
        super().draw()
        self.container = "sparse" if self.container == "dicts" else self.container
        self.classes = list("abcd"[: self.L])
        large = self.n_components == "auto" and self.dice.pick("large", True, False)
        self.n = 75 if large else self.dice.count("rows", 4, 24)
        X = self.inputs(self.n, "inputs")
        self.rows = list(X[:, None])
        self.truth = self._labels("labels of rows", X)
        self.draw_weights(self.n, self.truth.tolist())

    def _labels(self, stream, X):
        rng = self.dice.stream(stream)
        truth = np.digitize(X.sum(axis=1) + rng.normal(size=len(X)), np.linspace(-1, 1, self.L - 1))
        truth[: self.L] = np.arange(self.L)
        return truth

    @property
    def refusal(self):
        """Return a word of the error that this problem has to end with, or None."""
        if self.is_sparse and self.kernel in DENSE_ONLY:
            return "dense"
        weights = self.sequence_weights
        if self.kernel != "linear":
            rows = np.vstack(self.rows)
            counted = rows[weights > 0]
            # A warm start keeps the landmarks of the fit before, which has no sample weights. Nor has that of a prior.
            unweighted, other = self._row_weights(None) > 0, self.inputs(self.n, "other inputs")
            fits = [] if self.warm_start else [counted]
            if self.warm_start == "other C":
                fits.append(rows[unweighted])
            if self.prior or self.warm_start == "other data":
                fits.append(other[unweighted])
            if any(self.is_null(self.kernel, inputs) for inputs in fits):
                return "nothing can be learned"
            U = len(np.unique(counted, axis=0))
            few = (self.n_components == "some" and self.n_landmarks < U) or (self.n_components == "auto" and U > 64)
            if few and self.pivots in ("kmeans", "lloyd"):
                if self.is_sparse:
                    return "sparse"
                if self.kernel in NO_MEANS:
                    return "callable"
            if few and self.pivots == "exact":
                return "exact"
        if self.solver == "dual" and not (self.kernel == "linear" and self.is_sparse and self.label_kernel == "delta"):
            return "dual"
        return self.prior_refusal if self.prior else self.changed_refusal

    @property
    def parameters(self):
        own = {"class_weight": self.named_class_weight, "fit_intercept": self.fit_intercept}
        return super().parameters | own

    @property
    def y(self):
        return np.array(self.classes)[self.truth]

    def X(self, rows):
        return self.matrix(np.vstack(rows))

    def fit(self, folder):
        """Return the fitted model, after whatever was to happen before."""
        model, X, y = KernelClassifier(**self.parameters), self.X(self.rows), self.y
        if self.warm_start == "other data":
            other = self.inputs(self.n, "other inputs")
            model.fit(self.matrix(other), y)
        changed = {self.changed: self.earlier_value} if self.changed else {}
        if self.prior:
            other = self.inputs(self.n, "other inputs")
            self.earlier = KernelClassifier(**self.parameters | changed).fit(self.matrix(other), y)
            model.set_params(prior=self.earlier)
        if self.warm_start == "other C":
            model.set_params(**changed, C=self.C * 30).fit(X, y)
            model.set_params(**{name: self.parameters[name] for name in ("C", *changed)})
        return model.fit(X, y, self.weights)

    @property
    def sequence_weights(self):
        """Return what rows count for: their weight times that of their class."""
        return self._row_weights(self.weights)

    def _row_weights(self, sample_weight):
        weights = np.ones(self.n) if sample_weight is None else np.array(sample_weight, float)
        by_class = None if self.class_weight is None else self.class_weights(self.truth[weights > 0])
        return weights if by_class is None else weights * by_class[self.truth]

    def twin(self, model, *, exact):
        """Return the dense twin, on all functions or on those in the span of the model's landmarks."""
        X, L = np.vstack(self.rows), self.L
        A = self.features(self.kernel, X, model.kernel_, model.landmarks_, exact=exact)
        labellings = np.arange(L)[:, None]
        terms = {"node": Term(A, self.label_gram, model.C_)}
        if self.fit_intercept:
            terms["bias"] = Term(np.ones((len(X), 1)), self.label_gram, model.C_)
        samples = [
            Sample(labellings, labellings[:, 0] == own, dict.fromkeys(terms, (np.array([i]), labellings)), weight)
            for i, (own, weight) in enumerate(zip(self.truth, self.sequence_weights, strict=True))
        ]
        twin = Twin(terms, samples)
        return twin if not self.prior else replace(twin, centre=twin.coordinates(self.prior_means(model)))

    def weights_of(self, model):
        """Return the weights that the model reports."""
        return {"node": model.coef_} | ({"bias": model.intercept_[None]} if self.fit_intercept else {})

    def check_predictions(self, model, twin, z, atol):
        """Compare probabilities with those of the twin."""
        X, expected = np.vstack(self.rows), np.vstack(twin.marginals(z, self.L))
        error = np.abs(model.predict_proba(self.X(self.rows)) - expected).max(axis=1)
        allowed = atol + self.folded_rounding(X, model.kernel_, model.landmarks_, model.coef_)
        assert (error <= allowed).all(), (error.max(), allowed[error.argmax()])

    def held_out(self):
        """Return data to calibrate a temperature with."""
        return self.X(self.rows), self.y

    def check_same(self, model, again):
        """Compare two models to the bit."""
        X = self.X(self.rows)
        np.testing.assert_array_equal(model.predict_proba(X), again.predict_proba(X))
