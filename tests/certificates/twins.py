"""A dense twin of every model, written from the mathematics: it enumerates labellings and uses none of the library.

The score of a labelling y is a sum over terms and over the cliques c of each term of f(c, y_c), where f has the prior
covariance C K(c, c') k_y(s, s'). With K = A A' and k_y = B B', f = sqrt(C) A Z B' with Z standard normal, so that

    P(z) = sum_i omega_i [log sum_y exp <phi_i(y), z> - log sum_{y allowed} exp <phi_i(y), z>] + |z|^2 / 2

is the negative log posterior. With soft labels q_i, sum_y q_i(y) <phi_i(y), z> takes the place of the second logarithm.
If one labelling per sample is allowed, or labels are soft, P - |z|^2 / 2 is convex, hence

    P(z) - |grad P(z)|^2 / 2 <= min P <= P(z)

at every z: the twin brackets its own optimum and does not have to be trusted.
"""

from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize

RANK, MOST_FAILURES = 1e-13, 3


def psd_factor(K):
    """Return A with A A' = K, from the eigenvectors of K."""
    values, vectors = np.linalg.eigh(K)
    kept = values > RANK * max(values[-1], 0.0)
    return vectors[:, kept] * np.sqrt(values[kept])


def whitened(K_xB, K_BB):
    """Return F = K_xB R^-T with K_BB = R R': the features in which the library reports its weights."""
    R = cholesky(K_BB, lower=True)
    return solve_triangular(R, K_xB.T, lower=True).T


@dataclass(frozen=True)
class Term:
    """A function of cliques and their joint labels: A (cliques, r) factors K, and k_y is (S, S).

    kept : flags (r, S) of the weights that there are, or None if there are all.
    """

    A: np.ndarray
    k_y: np.ndarray
    C: float
    kept: np.ndarray | None = None

    @property
    def B(self):
        return psd_factor(self.k_y)


@dataclass(frozen=True)
class Sample:
    """Labellings (n, V) that are possible, which of them are allowed (n,), and what each term sees of them.

    cliques : for each term the rows (k,) of A and the joint labels (n, k) of these cliques under each labelling.
    q : soft labels, the probability (n,) of each labelling; None if labels are observed, so that `allowed` counts.
    """

    labellings: np.ndarray
    allowed: np.ndarray
    cliques: dict
    weight: float = 1.0
    q: np.ndarray | None = None


@dataclass(frozen=True)
class Bracket:
    """Numbers between which an optimum lies, and a point z at which the value is `upper`."""

    lower: float
    upper: float
    z: np.ndarray

    @property
    def distance(self):
        """Return how far z is at most from the optimum."""
        return np.sqrt(2 * max(self.upper - self.lower, 0.0))


@dataclass
class Twin:
    """The negative log posterior of samples under named terms; `centre` is the prior mean of z."""

    terms: dict
    samples: list
    centre: np.ndarray | float = 0.0
    phi: np.ndarray = field(init=False)

    def __post_init__(self):
        self.factors = {name: term.B for name, term in self.terms.items()}
        self.phi = np.vstack([self._design(sample) for sample in self.samples])
        sizes = [len(sample.labellings) for sample in self.samples]
        self.starts = np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(int)
        self.owner = np.repeat(np.arange(len(sizes)), sizes)
        self.omega = np.array([sample.weight for sample in self.samples])
        self.allowed = np.concatenate([sample.allowed for sample in self.samples])
        self.is_soft = np.array([sample.q is not None for sample in self.samples])
        self.q = np.concatenate(
            [np.zeros(len(sample.allowed)) if sample.q is None else sample.q for sample in self.samples]
        )

    def _design(self, sample):
        """Return phi (n, D), the derivative of the scores of all labellings in z."""
        columns = []
        for name, term in self.terms.items():
            rows, labels = sample.cliques[name]
            A, B = term.A[rows], self.factors[name]
            block = np.einsum("kx,nkr->nxr", A, B[labels])
            if term.kept is not None:
                # Weights that change no score are zero at the optimum.
                block = block * (term.kept @ B)
            columns.append(np.sqrt(term.C) * block.reshape(len(sample.labellings), -1))
        return np.hstack(columns)

    @property
    def is_convex(self):
        """Whether one labelling is allowed in every sample that counts, or its labels are soft."""
        counts = np.add.reduceat(self.allowed.astype(int), self.starts)
        return bool((self.is_soft | (counts == 1))[self.omega > 0].all())

    def coordinates(self, weights):
        """Return z of weights W (r, S) on the features of each term: f = A W."""
        parts = []
        for name, term in self.terms.items():
            inverse = np.linalg.pinv(self.factors[name].T)
            parts.append((np.asarray(weights[name], np.float64) @ inverse / np.sqrt(term.C)).ravel())
        return np.concatenate(parts)

    def _log_sums(self, scores):
        top = np.maximum.reduceat(scores, self.starts)
        powers = np.exp(scores - top[self.owner])
        sums = np.add.reduceat(powers, self.starts)
        return top + np.log(sums), powers / sums[self.owner]

    def probabilities(self, z):
        """Return p(y | x) of all labellings, a list with one array per sample."""
        return np.split(self._log_sums(self.phi @ z)[1], self.starts[1:])

    def loss(self, z):
        """Return -log p(allowed | x) of each sample, or the cross-entropy of its soft labels."""
        scores = self.phi @ z
        within = self._log_sums(np.where(self.allowed, scores, -np.inf))[0]
        expected = np.add.reduceat(self.q * scores, self.starts)
        return self._log_sums(scores)[0] - np.where(self.is_soft, expected, within)

    def value(self, z):
        """Return P."""
        d = z - self.centre
        return float(self.omega @ self.loss(z) + 0.5 * d @ d)

    def gradient(self, z):
        """Return the gradient of P."""
        scores = self.phi @ z
        within = self._log_sums(np.where(self.allowed, scores, -np.inf))[1]
        surplus = self._log_sums(scores)[1] - np.where(self.is_soft[self.owner], self.q, within)
        return self.phi.T @ (self.omega[self.owner] * surplus) + z - self.centre

    def hessian(self, z):
        """Return the Hessian of P if all labels are observed."""
        p = self._log_sums(self.phi @ z)[1]
        # A difference of second moments would lose the digits of kernel values that are large.
        centred = self.phi - np.add.reduceat(p[:, None] * self.phi, self.starts)[self.owner]
        return centred.T @ ((self.omega[self.owner] * p)[:, None] * centred) + np.eye(len(z))

    def optimum(self, near=None):
        """Bracket the least value of P: by SciPy, then by Newton steps, which also start at `near` if it is given.

        Any point gives a bracket that holds. A point near the optimum gives a narrow one, also where rounding of z
        changes the gradient so much that the search ends early.
        """
        options = {"maxiter": 2000, "maxcor": 30, "ftol": 0.0, "gtol": 1e-5}
        z = minimize(self.value, np.zeros(self.phi.shape[1]), jac=self.gradient, method="L-BFGS-B", options=options).x
        z, g = self._polished(z)
        if g @ g > 1e-10 * (1.0 + abs(self.value(z))):
            rest = {"jac": self.gradient, "hess": self.hessian, "method": "trust-exact"}
            z, g = self._polished(minimize(self.value, z, **rest, options={"gtol": 1e-7, "maxiter": 100}).x)
        found = self._bracket(z, g)
        if near is None:
            return found
        other = self._bracket(*self._polished(near))
        z = min(found, other, key=lambda one: one.upper).z
        return Bracket(max(found.lower, other.lower), min(found.upper, other.upper), z)

    def _bracket(self, z, g):
        value = self.value(z)
        return Bracket(value - 0.5 * float(g @ g), value, z)

    def _polished(self, z):
        """Return the point with the shortest gradient on a path of Newton steps from z, and this gradient."""
        g = self.gradient(z)
        best, shortest, failures = z, g, 0
        for _ in range(50):
            if shortest @ shortest <= 1e-18 * (1.0 + abs(self.value(best))) or failures == MOST_FAILURES:
                break
            try:
                z = z + cho_solve(cho_factor(self.hessian(z)), -g)
            except np.linalg.LinAlgError:
                break
            g = self.gradient(z)
            failures = 0 if g @ g < 0.25 * (shortest @ shortest) else failures + 1
            if g @ g < shortest @ shortest:
                best, shortest = z, g
        return best, shortest

    def log_evidence(self, z):
        """Return Laplace's approximation of log p(y | X) at z."""
        return -self.value(z) - 0.5 * np.linalg.slogdet(self.hessian(z))[1]

    def rounding_of_evidence(self, z):
        """Return n eps |H|, which rounding of H can change log det H by, since all n eigenvalues are at least 1."""
        return len(z) * np.finfo(np.float64).eps * float(np.linalg.norm(self.hessian(z), 2))

    def marginals(self, z, n_labels):
        """Return p(y_v = l | x), one (V, n_labels) array per sample."""
        found = []
        for sample, p in zip(self.samples, self.probabilities(z), strict=True):
            onehot = sample.labellings[:, :, None] == np.arange(n_labels)
            found.append(np.einsum("n,nvl->vl", p, onehot))
        return found
