"""Random objectives for tests: small enough to enumerate, with every kind of template."""

import itertools
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, cg

from kernelcrf.engines.local import LocalEngine
from kernelcrf.graphs.structure import EDGE, NODE, Chains
from kernelcrf.inference.enumerate import enumerate_labelings, factors
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.kernels.labels import LabelKernel
from kernelcrf.objective import Objective
from kernelcrf.partitions.chains import ChainPartition
from kernelcrf.penalties import EarlierGaussian, Gaussian, Joint
from kernelcrf.score.cliques import STEPS, TOKENS
from kernelcrf.score.features import TokenFeatures
from kernelcrf.score.layout import Layout
from kernelcrf.score.terms import BIAS_TERM, TOKEN_TERM, TRANSITION_TERM, Term

ANY = InputKernel("rbf", gamma=1.0)


def random_objective(
    seed,
    *,
    n_labels=3,
    n=4,
    lengths=(3, 1, 4, 2, 5),
    C=(1.5, 0.7, 2.0),
    label_kernel="delta",
    edge_inputs=0,
    second=None,
    weighted=False,
    missing=0.0,
    strength=1.0,
    n_parts=2,
    n_jobs=1,
):
    """Terms of tokens, transitions and biases, and of steps with inputs where `edge_inputs` counts their features.

    A `second` input of tokens is "dense" or "sparse".
    """
    rng = np.random.default_rng(seed)
    chains = Chains.from_lengths(lengths)
    n_nodes = chains.n_nodes
    k_y, delta = LabelKernel.of(label_kernel, n_labels), LabelKernel("delta", n_labels)
    pairs = LabelKernel("delta", n_labels**2)
    terms = [
        Term(TOKEN_TERM, TOKENS, k_y, C[0], ANY, TOKENS, n),
        Term(TRANSITION_TERM, STEPS, pairs, C[1]),
        Term(BIAS_TERM, TOKENS, delta, C[2]),
    ]
    features = {TOKEN_TERM: TokenFeatures(strength * rng.normal(size=(n_nodes, n)))}
    if edge_inputs:
        terms.append(Term("inputs__steps", STEPS, pairs, 0.9, ANY, TOKENS, edge_inputs))
        features["inputs__steps"] = TokenFeatures(rng.normal(size=(n_nodes, edge_inputs)))
    if second is not None:
        F = rng.normal(size=(n_nodes, 3)) * (rng.random((n_nodes, 3)) < 0.7)
        terms.append(Term("inputs__second", TOKENS, k_y, 1.2, ANY, "second", 3))
        features["inputs__second"] = TokenFeatures(sp.csr_array(F) if second == "sparse" else F)
    labels = rng.integers(n_labels, size=n_nodes).astype(np.int32)
    allowed = None
    if missing:
        allowed = rng.random((n_nodes, n_labels)) < missing
        allowed[np.arange(n_nodes), labels] = True
    weights = rng.uniform(0.3, 2.0, size=len(lengths)) if weighted else None
    whole = ChainPartition(chains, n_labels, labels, features, allowed, weights)
    cuts = np.linspace(0, len(lengths), n_parts + 1).astype(int)
    parts = [whole.part(low, high) for low, high in itertools.pairwise(cuts) if high > low]
    return Objective(Layout(tuple(terms)), parts, LocalEngine(n_jobs))


def enumerated_value(objective, theta):
    """P by the definition: sums over all labelings, and over the allowed ones."""
    mean, _ = prior_arrays(objective.layout)
    value = 0.5 * (theta - mean) @ prior_matrix(objective.layout) @ (theta - mean)
    for partition in objective.partitions:
        s, w = partition.scores(objective.layout, theta)
        chains = partition.chains
        tables = {NODE: s, EDGE: w if w.ndim == 2 else w[chains.cliques(EDGE)[:, 1]]}
        for i, length in enumerate(chains.lengths):
            all_of_them = enumerate_labelings(length, partition.n_labels, factors(chains, i, tables))
            rows = slice(*chains.offsets[i : i + 2])
            if partition.allowed is None:
                fits = (all_of_them.labelings == partition.labels[rows]).all(axis=1)
            else:
                fits = partition.allowed[rows][np.arange(length), all_of_them.labelings].all(axis=1)
            weight = 1.0 if partition.weights is None else partition.weights[i]
            value += weight * (all_of_them.log_partition - np.logaddexp.reduce(all_of_them.scores[fits]))
    return value


def with_prior(objective, seed, *, information=True, size=1.0):
    """The objective with random prior means, and if asked for precisions, of about two thirds of its weights.

    information : True for a precision of each weight, "joint" for a matrix.
    """
    rng, terms, n_known = np.random.default_rng(seed), [], 0
    joint = None
    if information == "joint":
        A = rng.normal(size=(objective.layout.size, 8))
        joint = Joint(A)
    for term in objective.layout.terms:
        places = np.arange(term.n * term.k_y.rank) if term.pairs is None else term.pairs.places
        places = places[rng.random(len(places)) < 2 / 3]
        known, rows = rng.exponential(3.0, len(places)) if information else None, None
        if joint is not None:
            # The rows of the matrix are in another order than the weights.
            rows = n_known + rng.permutation(len(places))
            known, n_known = np.square(A).sum(axis=1)[rows], n_known + len(places)
        terms.append(
            replace(term, penalty=EarlierGaussian(places, size * rng.normal(size=len(places)), known, joint, rows))
        )
    return replace(objective, layout=Layout(tuple(terms)))


def prior_arrays(layout):
    """The prior mean and the prior precision of every weight, filled in one weight after the other."""
    means, precisions = [], []
    for term in layout.terms:
        places = range(term.n * term.k_y.rank) if term.pairs is None else term.pairs.places.tolist()
        prior = term.penalty if isinstance(term.penalty, EarlierGaussian) else None
        at = {} if prior is None else {place: k for k, place in enumerate(prior.places.tolist())}
        for place in places:
            known = place in at
            means.append(prior.means[at[place]] if known else 0.0)
            has_own = known and prior.information is not None
            precisions.append(1 / term.C + (prior.information[at[place]] if has_own else 0.0))
    return np.array(means), np.array(precisions)


def prior_matrix(layout):
    """The matrix of prior precisions, filled in one pair of weights after the other."""
    lam = np.diag(prior_arrays(layout)[1])
    known = []
    for term in layout.terms:
        prior = term.penalty
        if isinstance(prior, EarlierGaussian) and prior.joint is not None:
            places = list(range(term.n * term.k_y.rank)) if term.pairs is None else term.pairs.places.tolist()
            start = layout.slices[term.name].start
            pairs = zip(prior.places.tolist(), prior.rows.tolist(), strict=True)
            J = prior.joint.root @ prior.joint.root.T
            known += [(start + places.index(place), row, J) for place, row in pairs]
    for i, row, J in known:
        for j, column, _ in known:
            if i != j:
                lam[i, j] = J[row, column]
    return lam


def dense_optimum(objective):
    """The minimum by full Newton steps with a dense Hessian of the loss, and mean and precision of every weight."""
    mean, lam = prior_arrays(objective.layout)[0], prior_matrix(objective.layout)
    plain = replace(
        objective, layout=Layout(tuple(replace(term, penalty=Gaussian()) for term in objective.layout.terms))
    )
    theta, own = mean.copy(), plain.layout.times_lam(np.ones(len(mean)))

    def value(theta):
        return plain.evaluate(theta).value + 0.5 * (theta - mean) @ lam @ (theta - mean) - 0.5 * np.dot(own, theta**2)

    for _ in range(60):
        at = plain.evaluate(theta, curvature=True)
        H = np.column_stack([plain.hessian_product(at, e) for e in np.eye(len(theta))])
        H += lam - np.diag(own)
        step, size, here = np.linalg.solve(H, at.gradient - own * theta + lam @ (theta - mean)), 1.0, value(theta)
        if np.abs(step).max() < 1e-11:
            break
        while value(theta - size * step) > here and size > 1e-6:
            size /= 2
        theta = theta - size * step
    return theta, enumerated_value(objective, theta)


def with_penalty(objective, penalty):
    """Return the objective with this penalty of all terms."""
    terms = tuple(replace(term, penalty=penalty) for term in objective.layout.terms)
    return replace(objective, layout=Layout(terms))


def gradient_side(objective, at):
    """The lower bound of Lemma 9 from the value and the gradient."""
    return at.value - objective.layout.gap(at.theta, at.gradient)


def entropy_side(objective, at):
    """The same bound as the value of the dual objective, at the marginals of the model."""
    layout = objective.layout
    return objective.entropy(at) - layout.conjugate(at.gradient - layout.penalty_gradient(at.theta))


def look_ahead(objective, at, tol=1e-3):
    """The greater of the bounds at a point and one Newton step ahead of it."""
    n = objective.layout.size
    H = LinearOperator((n, n), matvec=lambda v: objective.hessian_product(at, v), dtype=np.float64)
    step, _ = cg(H, -at.gradient, rtol=tol, maxiter=n)
    return max(at.lower_bound, objective.evaluate(at.theta + step).lower_bound)
