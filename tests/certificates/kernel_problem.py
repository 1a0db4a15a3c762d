"""The part that random problems of ChainCRF and KernelClassifier share."""

from functools import cached_property

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cholesky, solve_triangular

from certificates import kernels
from certificates.problem import Problem
from certificates.twins import psd_factor
from kernelcrf.kernels import Polynomial

# Parameters that an earlier fit had another value of, and whether a fit that takes it over may ignore this.
CHANGES = ("gamma", "n_components", "random_state", "kernel", "fit_intercept", "tol", "max_iter")
FREE = ("fit_intercept", "tol", "max_iter")
OF_LANDMARKS = ("gamma", "n_components", "random_state")
SOLVERS = ("lbfgs", "dual", "newton-cg", "newton", "block-jacobi", "subspace")
NO_MEANS = ("tent",)
DENSE_ONLY = ("chi2", *kernels.PROCESSES)


class KernelProblem(Problem):
    """The draws that ChainCRF and KernelClassifier share."""

    def draw(self):
        pick = self.dice.pick
        self.kernel = pick("kernel", "rbf", *kernels.NAMES, share=0.8)
        self.container = pick("container", "dense", "sparse", "dicts", "flat", share=0.5)
        self.dtype = np.float32 if pick("dtype", "float64", "float32", share=0.35) == "float32" else np.float64
        self.n_components = pick("n_components", "some", "all", "auto", share=0.4)
        self.pivots = pick("pivots", "auto", "greedy", "random", "uniform", "kmeans", "lloyd", "exact", share=0.7)
        self.gamma = pick("gamma", "number", "scale", "auto", share=0.3)
        self.label_kernel = pick("label_kernel", "delta", "centred", "matrix", share=0.35)
        self.warm_start = pick("warm_start", None, "other data", "other C", share=0.2)
        self.laplace = pick("laplace", False, True, share=0.1)
        self.fit_intercept = pick("fit_intercept", False, True, share=0.3)
        self.by_evidence = pick("C by evidence", False, True, share=0.05)
        self.changed = None if self.plain else pick("changed parameter", None, *CHANGES, share=0.15)
        self.prior = None if self.plain else pick("prior", None, "other data", share=0.12)
        self.draw_common(SOLVERS)
        self.d = self.dice.count("d", 1, 3)
        self.L = self.dice.count("L", 2, 4)
        self.mend()

    def mend(self):
        """Replace most draws that do not go together; the others stay, and the estimator has to refuse them."""
        if self.is_sparse and self.kernel in DENSE_ONLY:
            self.container = self.dice.replace("container", "dense")
        if self.stays_odd:
            # The fit before has no weights and no checkpoint, and would be refused for another reason, or alone.
            self.warm_start = self.dice.replace("warm_start", None)
            self.changed = self.dice.replace("changed parameter", None)
            self.prior = self.dice.replace("prior", None)
            return
        if self.changed:
            self.warm_start = self.dice.replace("warm_start", "other C")
        means = self.changed == "n_components" and self.pivots in ("kmeans", "lloyd", "exact")
        if means or (self.changed == "kernel" and (self.solver == "dual" or self.is_sparse)):
            self.changed = self.dice.replace("changed parameter", "tol")
        if self.warm_start or self.weighting == "extreme":
            self.by_evidence = self.dice.replace("C by evidence", False)
        if self.pivots == "exact" and self.kernel != "linear" and self.n_components != "all":
            self.n_components = self.dice.replace("n_components", "all")
        if self.pivots in ("kmeans", "lloyd") and (self.is_sparse or self.kernel in NO_MEANS):
            self.pivots = self.dice.replace("pivots", "random")
        if self.prior:
            self.warm_start = self.dice.replace("warm_start", None)
            self.by_evidence = self.dice.replace("C by evidence", False)
            self.laplace = self.dice.replace("laplace", False)
            if self.n_components == "auto":
                self.n_components = self.dice.replace("n_components", "all")
        if self.solver == "dual":
            self.kernel = self.dice.replace("kernel", "linear")
            self.label_kernel = self.dice.replace("label_kernel", "delta")
            if not self.is_sparse:
                self.container = self.dice.replace("container", "sparse")

    @property
    def earlier_value(self):
        """Return the value that the changed parameter has in the earlier fit."""
        return {
            "gamma": 3 * self.gamma_number,
            "n_components": self.landmarks(3 if self.n_components == "all" else None),
            "random_state": 1,
            "kernel": self.other_kernel,
            "fit_intercept": not self.fit_intercept,
            "tol": 1e-2,
            "max_iter": 7,
        }[self.changed]

    @property
    def other_kernel(self):
        """Return another kernel than that of the problem: another degree of a polynomial, or another name."""
        if self.kernel == "poly":
            return Polynomial(self.degree + 1, self.coef0)
        return "rbf" if self.kernel == "linear" else "linear"

    @property
    def changed_refusal(self):
        """Return a word of the error if an earlier fit with another value must be refused, else None."""
        if self.changed is None or self.changed in FREE:
            return None
        linear = set(self.kernels) <= {None, "linear"}
        return None if linear and self.changed in OF_LANDMARKS else f"{self.changed}="

    @property
    def prior_refusal(self):
        """Return a word of the error if the prior has another kernel, or an intercept that the fit lacks."""
        if self.changed == "fit_intercept" and not self.fit_intercept:
            return "fit_intercept="
        if self.changed in ("n_components", "random_state") or (self.changed == "gamma" and self.gamma != "number"):
            return None
        return self.changed_refusal

    @property
    def kernels(self):
        """Return the kernels of all terms."""
        return [self.kernel, getattr(self, "edge_kernel", None)]

    @property
    def is_sparse(self):
        return self.container in ("sparse", "dicts")

    def inputs(self, n, stream):
        """Return n inputs as a user may have them, dense in double precision, with repetitions."""
        rng = self.dice.stream(stream)
        X = rng.normal(size=(n, self.d))
        if self.repeats:
            X = np.round(X)
        if self.container == "dicts":
            X = np.round(2 * X)
        elif self.container == "sparse":
            X[rng.random(X.shape) < 0.4] = 0
        if self.kernel == "chi2" or getattr(self, "edge_kernel", None) == "chi2":
            X = np.abs(X)
        X[0, 0] += not X.any()
        return (self.scale * X).astype(self.dtype).astype(np.float64)

    def matrix(self, X):
        """Return dense inputs in the container that was drawn."""
        X = X.astype(self.dtype)
        return sp.csr_matrix(X) if self.container == "sparse" else X

    @property
    def parameters(self):
        """Return what the estimator is made with."""
        parameters = {
            "kernel": self.argument(self.kernel),
            "gamma": self.gamma_number if self.gamma == "number" else self.gamma,
            "C": "evidence" if self.by_evidence else self.C,
            "n_components": self.landmarks({"all": None, "auto": "auto", "some": self.n_landmarks}[self.n_components]),
            "label_kernel": self.label_gram if self.label_kernel == "matrix" else self.label_kernel,
            "laplace": self.laplace,
            "warm_start": self.warm_start is not None,
        }
        return parameters | self.solver_parameters

    @cached_property
    def n_landmarks(self):
        return self.dice.count("landmarks", 1, 12)

    @cached_property
    def label_gram(self):
        """Return k_y (L, L)."""
        L = len(self.classes)
        if self.label_kernel == "matrix":
            A = self.dice.stream("label matrix").normal(size=(L, self.dice.count("label rank", 1, L)))
            return A @ A.T
        return np.eye(L) - (1.0 / L if self.label_kernel == "centred" else 0.0)

    def features(self, kernel, X, fitted, landmarks, *, exact):
        """Return A with A A' = K, or = K_xB K_BB^-1 K_Bx for the span of landmarks; `fitted` knows gamma."""
        if kernel == "linear":
            return X
        numbers = fitted.gamma, self.degree, self.coef0
        if exact:
            return psd_factor(kernels.gram(kernel, X, X, *numbers))
        B = landmarks.toarray() if sp.issparse(landmarks) else landmarks
        return self.whiten(kernel, X, B, *numbers)

    def prior_means(self, model):
        """Return the weights of the earlier model; those of new landmarks, and of new terms, are 0."""
        means, old = self.weights_of(model), self.weights_of(self.earlier)
        for name, W in means.items():
            known = np.zeros_like(W) if name not in old else old[name]
            means[name] = np.pad(known, [(0, len(W) - len(known)), (0, 0)])
        return means

    def is_null(self, kernel, rows):
        """Tell whether k(x, x) = 0 at all of these inputs, from which nothing can be learned."""
        return (kernel == "cosine" or (kernel == "poly" and self.coef0 == 0)) and not np.vstack(rows).any()

    def folded_rounding(self, X, fitted, landmarks, W):
        """Return eps |k(x, B)| |A|, A = R^-T W, for each row x of X and its worst label: the error of predicted scores.

        Predictions multiply kernel values by A in the precision of the inputs, while the features of a fit are computed
        in double precision: see `kernelcrf.basis.kernel_weights`.
        """
        if self.kernel == "linear":
            return np.zeros(len(X))
        B = landmarks.toarray() if sp.issparse(landmarks) else landmarks
        K_xB, K_BB = (
            kernels.gram(self.kernel, Z, B, fitted.gamma, self.degree, self.coef0)
            for Z in (X, np.asarray(B, np.float64))
        )
        A = solve_triangular(cholesky(K_BB, lower=True), np.asarray(W, np.float64), trans="T", lower=True)
        return np.finfo(self.dtype).eps * (np.abs(K_xB) @ np.abs(A)).max(axis=1)

    def balanced(self, labels):
        """Return scikit-learn's balanced weights by class, one for classes that do not occur."""
        counts = np.bincount(labels, minlength=len(self.classes))
        weights = np.ones(len(self.classes))
        weights[counts > 0] = len(labels) / ((counts > 0).sum() * counts[counts > 0])
        return weights

    def kernel_of(self, model):
        """Return the kernel of tokens."""
        return model.kernel_["tokens"] if isinstance(model.kernel_, dict) else model.kernel_

    def check_gamma(self, model):
        """Compare gamma with its definition, if rows count alike."""
        taken_over = self.warm_start == "other data" or self.prior
        if self.kernel in ("linear", "cosine", "tent", *kernels.PROCESSES) or taken_over:
            return
        expected = {"number": self.gamma_number, "auto": 1.0 / self.d}.get(self.gamma)
        if self.gamma == "scale" and self.weights is None and self.class_weight is None:
            expected = kernels.gamma_by_scale(np.vstack(self.rows))
        if expected is not None:
            np.testing.assert_allclose(self.kernel_of(model).gamma, expected, rtol=1e-5)
