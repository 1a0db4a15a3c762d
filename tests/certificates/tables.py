"""Random problems of MarkovNetwork and their twins."""

import itertools

import numpy as np

from certificates import kernels
from certificates.network_problem import SOLVERS, centred
from certificates.problem import Problem
from certificates.twins import Sample, Term, Twin
from kernelcrf import MarkovNetwork


class MarkovProblem(Problem):
    """Rows of a few discrete values."""

    estimator = MarkovNetwork
    refusal = None
    dtype = np.float64
    n_components = "all"
    may_be_smooth = False  # Centring leaves the smallest eigenvalues of such a kernel to chance.

    def draw(self):
        pick = self.dice.pick
        self.kernel = pick("kernel", "delta", "rbf", "linear", "poly", "laplacian")
        self.structure = pick("structure", "full", "tree", "none", "auto", share=0.8)
        self.missing = pick("missing", None, "some", share=0.15)
        self.laplace = pick("laplace", False, True, share=0.1) and not self.missing
        self.k = self.dice.count("columns", 1, 4)
        self.m = self.dice.count("rows", 3, 20)
        self.draw_common(SOLVERS)
        self.class_weight = self.dice.replace("class_weight", None)
        rng = self.dice.stream("table")
        common = rng.integers(3, size=(self.m, 1))
        noisy = rng.integers(3, size=(self.m, self.k))
        self.table = np.where(rng.random((self.m, self.k)) < 0.5, common, noisy)
        self.hidden = np.zeros(self.table.shape, bool)
        if self.missing:
            self.hidden[2:] = rng.random((self.m - 2, self.k)) < 0.25
        self.classes = [0, 1, 2]
        self.draw_weights(self.m, self.table[:, 0].tolist())
        counted = self.sequence_weights > 0
        self.hidden[~counted] = False
        if not self.hidden.any():
            self.missing = None

    @property
    def sequence_weights(self):
        return np.ones(self.m) if self.weights is None else np.array(self.weights, float)

    @property
    def X(self):
        """Return the table as a user hands it in: strings for "delta", else numbers."""
        values = np.array(["x", "y", "z"] if self.kernel == "delta" else [0.0, 1.0, 2.5], object)
        table = values[self.table]
        table[self.hidden] = None
        return table.tolist() if self.missing else np.array(table.tolist())

    def fit(self, folder):
        """Return the fitted model."""
        parameters = {"kernel": self.kernel, "gamma": self.gamma_number, "C": self.C, "structure": self.structure}
        solver = {name: value for name, value in self.solver_parameters.items() if name != "random_state"}
        model = MarkovNetwork(**parameters, laplace=self.laplace, **solver)
        return model.fit(self.X, sample_weight=self.weights)

    def check_gamma(self, model):
        """Check nothing: gamma is always a number here."""

    def _centred_gram(self, values):
        values = np.asarray(values)
        gram = np.eye(len(values))
        if self.kernel != "delta":
            numbers = values.astype(float)[:, None]
            gram = kernels.gram(self.kernel, numbers, numbers, self.gamma_number, 3, 1.0)
        return centred(len(values)) @ gram @ centred(len(values))

    def twin(self, model, *, exact):
        """Return the dense twin, by the values that the model knows."""
        grams = [self._centred_gram(values) for values in model.categories_]
        cards = [len(gram) for gram in grams]
        every = np.array(list(itertools.product(*map(range, cards))), int)
        terms, labels = {}, {}
        for v, gram in enumerate(grams):
            terms[f"variable {v}"], labels[f"variable {v}"] = Term(np.ones((1, 1)), gram, self.C), every[:, [v]]
        for u, v in model.edges_.tolist():
            terms[f"edge {u} {v}"] = Term(np.ones((1, 1)), np.kron(grams[u], grams[v]), self.C)
            labels[f"edge {u} {v}"] = cards[v] * every[:, [u]] + every[:, [v]]
        cliques = {name: (np.array([0]), joint) for name, joint in labels.items()}
        known = [{value: k for k, value in enumerate(values.tolist())} for values in model.categories_]
        samples = []
        for row, weight in zip(np.array(self.X, object).tolist(), self.sequence_weights, strict=True):
            places = [own.get(value) for own, value in zip(known, row, strict=True)]
            if weight:
                agree = [np.ones(len(every), bool) if k is None else every[:, v] == k for v, k in enumerate(places)]
                samples.append(Sample(every, np.all(agree, axis=0), cliques, weight))
        return Twin(terms, samples)

    def weights_of(self, model):
        """Return the tables of the model, by term."""
        slices = model.model_.exact.graph.slices
        names = [f"variable {v}" for v in range(self.k)] + [f"edge {u} {v}" for u, v in model.edges_.tolist()]
        return {name: model.model_.scores[:, slices[name]] for name in names}

    def check_predictions(self, model, twin, z, atol):
        """Compare log-probabilities of rows with enumeration."""
        counted = np.flatnonzero(self.sequence_weights > 0)
        rows = [self.X[i] for i in counted]
        rows = rows if self.missing else np.array(rows)
        np.testing.assert_allclose(-model.score_samples(rows), twin.loss(z), rtol=atol, atol=10 * atol)

    def check_same(self, model, again):
        """Compare two models to the bit."""
        for p, q in zip(model.potentials_, again.potentials_, strict=True):
            np.testing.assert_array_equal(p, q)
