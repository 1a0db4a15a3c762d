"""The part that random problems of GraphCRF and MultiLabelCRF share, and a matrix for MarkovNetwork."""

import numpy as np
import scipy.sparse as sp

from certificates.problem import Problem
from graph_problems import expanded_weights

SOLVERS = ("lbfgs", "newton-cg", "newton", "block-jacobi", "subspace")


def centred(n):
    """Return I - 11'/n."""
    return np.eye(n) - 1.0 / n


class NetworkProblem(Problem):
    """The draws that networks with inputs share."""

    def draw(self):
        pick = self.dice.pick
        self.kernel = pick("kernel", "rbf", "linear", "poly", "laplacian", "cosine", "matern")
        self.container = pick("container", "dense", "sparse", share=0.2)
        self.dtype = np.float32 if pick("dtype", "float64", "float32", share=0.3) == "float32" else np.float64
        self.edge_kernel = pick("edge_kernel", None, "linear", "rbf", "poly", share=0.35)
        self.n_components = pick("n_components", "some", "all", share=0.2)
        self.pivots = pick("pivots", "auto", "greedy", "random", "uniform")
        self.C_label = self.dice.power("C_label", -2, 2)
        self.n_landmarks = self.dice.count("landmarks", 1, 15)
        self.missing = pick("missing", None, "some", share=0.12)
        self.laplace = pick("laplace", False, True, share=0.1)
        self.d = self.dice.count("d", 1, 3)
        self.draw_common(SOLVERS)
        self.class_weight = self.dice.replace("class_weight", None)
        if self.container == "sparse" and self.kernel == "matern":
            self.container = self.dice.replace("container", "dense")
        if self.missing:
            self.laplace = self.dice.replace("laplace", False)

    def inputs(self, n, stream):
        """Return n inputs, dense in double precision."""
        rng = self.dice.stream(stream)
        X = rng.normal(size=(n, self.d))
        if self.repeats:
            X = np.round(X)
        if self.container == "sparse":
            X[rng.random(X.shape) < 0.4] = 0
        X[0, 0] += not X.any()
        return (self.scale * X).astype(self.dtype).astype(np.float64)

    def matrix(self, X):
        X = X.astype(self.dtype)
        return sp.csr_matrix(X) if self.container == "sparse" else X

    @property
    def parameters(self):
        """Return what the estimator is made with."""
        return {
            "kernel": self.argument(self.kernel),
            "gamma": self.gamma_number,
            "C": self.C,
            "C_label": self.C_label,
            "edge_kernel": self.argument(self.edge_kernel),
            "n_components": self.landmarks(self.n_landmarks if self.n_components == "some" else None),
            "laplace": self.laplace,
        } | self.solver_parameters

    def features(self, kernel, X, model, term):
        """Return the features of a term: X, or K_xB R^-T of its landmarks."""
        if kernel == "linear":
            return X
        landmarks = model.model_.maps[term].landmarks
        B = np.asarray(landmarks.toarray() if sp.issparse(landmarks) else landmarks, np.float64)
        numbers = self.gamma_number, self.degree, self.coef0
        return self.whiten(kernel, X, B, *numbers)

    def weights_of(self, model):
        """Return the weights of the model, by term."""
        return expanded_weights(model)

    @property
    def sequence_weights(self):
        return np.ones(self.m) if self.weights is None else np.array(self.weights, float)

    def check_gamma(self, model):
        """Check nothing: gamma is always a number here."""

    def fit(self, folder):
        """Return the fitted model."""
        return self.refit()

    def refit(self, **changes):
        """Return a model with other parameters, fitted to the same data."""
        return self.estimator(**self.parameters | changes).fit(self.X, self.y, sample_weight=self.weights)
