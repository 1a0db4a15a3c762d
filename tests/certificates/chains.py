"""Random problems of ChainCRF and their twins."""

import itertools
from copy import deepcopy
from dataclasses import replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from certificates.kernel_problem import DENSE_ONLY, NO_MEANS, KernelProblem
from certificates.twins import Sample, Term, Twin
from kernelcrf import ChainCRF, Input

LONGEST = {2: 6, 3: 5, 4: 4, 5: 3}
BIO = ("B", "I", "O")


class ChainProblem(KernelProblem):
    """Sequences of a few tokens."""

    estimator = ChainCRF
    share_of_targets = 0.15

    def draw(self):
        pick = self.dice.pick
        self.targets = None
        if not self.plain:
            self.targets = pick("targets", None, "arrays", "mappings", "token weights", share=self.share_of_targets)
        self.edge_kernel = pick("edge_kernel", None, "linear", "rbf", "poly", "laplacian", share=0.2)
        self.constraints = pick("constraints", None, "pairs", "BIO", share=0.2)
        self.missing = pick("missing", None, "None", "-1", "sets", share=0.15)
        self.checkpoint = pick("checkpoint", None, "resumed", "other data", "other weights", share=0.2)
        self.names = pick("labels", "numbers", "strings")
        self.more_classes = pick("classes", None, "more", share=0.15)
        self.every_state = pick("all_possible_states", False, True, share=0.3)
        self.every_step = pick("all_possible_transitions", True, False, share=0.3)
        super().draw()
        if pick("boundaries", False, True, share=0.3):
            self.fit_intercept = "boundaries"
        self.classes = self._classes()
        self.lengths = self._lengths("lengths")
        self.rows = self._rows("inputs")
        self.truth = self._labels("labels of tokens", self.rows)
        self.allowed = [[self._allowed(i, t) for t in range(len(y))] for i, y in enumerate(self.truth)]
        self.q = [self._soft(i) for i in range(len(self.truth))] if self.is_soft else None
        if self.is_soft:
            self.allowed = [[set(np.flatnonzero(row).tolist()) for row in q] for q in self.q]
        self.draw_weights(len(self.lengths), [int(label) for y in self.truth for label in y])
        if self.targets == "token weights":
            self.weights = self._token_weights()

    @property
    def is_soft(self):
        """Whether tokens have probabilities of labels."""
        return self.targets in ("arrays", "mappings")

    def _soft(self, i):
        """Return the probabilities of the labels of a sequence; the drawn labels have positive ones."""
        rng, L, y = self.dice.stream(f"soft {i}"), len(self.classes), self.truth[i]
        q = rng.dirichlet(np.full(L, 0.5), size=len(y)) * (rng.random((len(y), L)) < 0.7)
        q[np.arange(len(y)), y] += rng.choice([0.2, 1.0, 1e6], size=len(y))
        q[q < 1e-5 * q.sum(axis=1, keepdims=True)] = 0.0
        return q / q.sum(axis=1, keepdims=True)

    def _token_weights(self):
        """Return the weights of the tokens of each sequence; those of some sequences are equal or 0."""
        rng = self.dice.stream("token weights")
        weights = [rng.choice([0.0, 0.4, 1.0, 2.5], size=T) for T in self.lengths]
        for i, T in enumerate(self.lengths):
            weights[i] *= rng.random() > 0.1
            if rng.random() < 0.2:
                weights[i] = np.full(T, rng.choice([0.5, 2.0]))
        if not any(one.any() for one in weights):
            weights[self._first_token[0]][:] = 1.0
        if self.class_weight == "zero" and not np.any(self._sequence_weights(weights) * self.has_tokens):
            self.by_class[:] = 0.5
        return weights

    @property
    def counted(self):
        """Return the rows of each sequence that are part of the data of the fit."""
        counted = []
        for i, (x, weight) in enumerate(zip(self.rows, self.sequence_weights, strict=True)):
            kept = np.full(len(x), weight > 0)
            if self.targets == "token weights":
                scored = np.pad(self.weights[i] > 0, 1)
                kept &= scored[:-2] | scored[1:-1] | scored[2:]
            if kept.any():
                counted.append(x[kept])
        return counted

    def mend(self):
        super().mend()
        if self.targets:
            self.missing = self.dice.replace("missing", None)
        if self.solver == "dual":
            self.targets = self.dice.replace("targets", None)
        if self.constraints == "BIO":
            self.L, self.names = 3, self.dice.replace("labels", "strings")
            self.more_classes = self.dice.replace("classes", None)
        if self.missing == "-1":
            self.names = self.dice.replace("labels", "numbers")
        if self.stays_odd:
            return
        if self.changed:
            self.checkpoint = self.dice.replace("checkpoint", None)
        if self.prior:
            self.checkpoint = self.dice.replace("checkpoint", None)
        if self.missing:
            self.laplace = self.dice.replace("laplace", False)
            self.by_evidence = self.dice.replace("C by evidence", False)
        if self.by_evidence:
            self.checkpoint = self.dice.replace("checkpoint", None)
        if self.n_components == "auto":
            self.checkpoint = self.dice.replace("checkpoint", None)
        if self.checkpoint and self.kernel == "tent":
            self.checkpoint = self.dice.replace("checkpoint", None)
        if self.solver == "dual":
            self.edge_kernel = self.dice.replace("edge_kernel", None)
            self.missing = self.dice.replace("missing", None)

    @property
    def refusal(self):
        """Return a word of the error that this problem has to end with, or None."""
        if self.is_sparse and self.kernel in DENSE_ONLY:
            return "dense"
        if self.checkpoint and (self.n_components == "auto" or self.by_evidence):
            return "checkpoint="
        if self.checkpoint and self.kernel == "tent":
            return "kernel="
        if self.kernel != "linear" or self.edge_kernel not in (None, "linear"):
            counted = self.counted
            # A warm start keeps the landmarks of the fit before, which has no sample weights. Nor has that of a prior.
            fits = [] if self.warm_start else [counted]
            if self.warm_start == "other C":
                fits.append(self._of_weight(self.rows, None))
            of_checkpoint = self.checkpoint == "other data" and not self.warm_start
            if of_checkpoint or "other data" in (self.warm_start, self.prior):
                unweighted = "other data" in (self.warm_start, self.prior)
                fits.append(self._of_weight(self._rows("other inputs"), None if unweighted else self.weights))
            if any(self.is_null(kernel, rows) for kernel in (self.kernel, self.edge_kernel) for rows in fits):
                return "nothing can be learned"
            U = len(np.unique(np.vstack(counted), axis=0))
            few = (self.n_components == "some" and self.n_landmarks < U) or (self.n_components == "auto" and U > 64)
            if few and self.pivots in ("kmeans", "lloyd"):
                if self.is_sparse:
                    return "sparse"
                if self.kernel in NO_MEANS:
                    return "callable"
            if few and self.pivots == "exact":
                return "exact"
        dual = self.kernel == "linear" and self.is_sparse and not self.missing and not self.edge_kernel
        if self.solver == "dual" and not (dual and self.label_kernel == "delta"):
            return "dual"
        if (self.laplace or self.by_evidence) and self.is_missing:
            return "missing"
        if self.checkpoint == "other weights" or (self.checkpoint == "other data" and self._differs()):
            return "was written by a fit that differs"
        if self.prior:
            return self.prior_refusal
        return self.changed_refusal

    def _differs(self):
        """Whether the other data differ from those of the fit in a sequence that counts."""
        pairs = zip(self.rows, self._rows("other inputs"), self.sequence_weights, strict=True)
        return any(weight > 0 and not np.array_equal(x, other[::-1]) for x, other, weight in pairs)

    @property
    def is_missing(self):
        """Whether a token without a known label counts: none does in a sequence of weight 0."""
        if self.is_soft:
            return False
        counted = [sets for sets, weight in zip(self.allowed, self.sequence_weights, strict=True) if weight]
        return any(len(one) > 1 for sets in counted for one in sets)

    def _classes(self):
        names = list(range(self.L)) if self.names == "numbers" else list("abcd"[: self.L])
        if self.constraints == "BIO":
            names = list(BIO)
        if self.more_classes:
            names.append(7 if self.names == "numbers" else "z")
        return names

    def _lengths(self, stream):
        rng, L = self.dice.stream(stream), len(self.classes)
        if self.n_components == "auto" and self.dice.pick("large", True, False):
            # More inputs than the first basis takes, so that it has to grow.
            return rng.integers(1, 4, size=36)
        lengths = rng.integers(1, LONGEST[L] + 1, size=rng.integers(2, 6))
        if rng.random() < 0.1:
            lengths[rng.integers(len(lengths))] = 0
        if lengths.sum() < 2:
            lengths[0] += 2
        return lengths

    def _rows(self, stream):
        X = self.inputs(int(self.lengths.sum()), stream)
        return np.split(X, np.cumsum(self.lengths)[:-1])

    def _labels(self, stream, rows):
        """Return labels that follow the inputs and each other somewhat, all of those that y has to show among them."""
        rng = self.dice.stream(stream)
        truth = []
        for x in rows:
            noisy = x.sum(axis=1) + rng.normal(size=len(x)) if len(x) else np.empty(0)
            truth.append(np.digitize(noisy, np.linspace(-1, 1, self.L - 1)))
        if self.constraints == "BIO":
            for y in truth:
                for t in range(len(y)):
                    if y[t] == 1 and (t == 0 or y[t - 1] == 2):
                        y[t] = 0
        flat = np.concatenate(truth)
        if len(set(flat.tolist())) < 2:
            place = next(i for i, y in enumerate(truth) if len(y))
            truth[place][-1] = 2 if flat[0] == 0 and self.constraints == "BIO" else (flat[0] + 1) % self.L
        return truth

    @cached_property
    def pairs(self):
        """Return the steps that constraints by pairs allow: those that occur, and others."""
        rng, L = self.dice.stream("pairs"), len(self.classes)
        steps = {(int(a), int(b)) for y in self.truth for a, b in itertools.pairwise(y)}
        steps |= {(a, b) for a in range(L) for b in range(L) if rng.random() < 0.5}
        first = {int(y[0]) for y in self.truth if len(y)} if rng.random() < 0.5 else set(range(L))
        last = {int(y[-1]) for y in self.truth if len(y)} if rng.random() < 0.5 else set(range(L))
        return steps, first, last

    def is_legal(self, y):
        """Tell whether constraints allow a labelling."""
        if self.constraints == "BIO":
            return all(label != 1 or (t > 0 and y[t - 1] != 2) for t, label in enumerate(y))
        if self.constraints == "pairs":
            steps, first, last = self.pairs
            inside = all(pair in steps for pair in itertools.pairwise(y))
            return inside and (not y or (y[0] in first and y[-1] in last))
        return True

    def _allowed(self, i, t):
        """Return the labels that a token may have."""
        rng, own = self.dice.stream(f"missing {i} {t}"), int(self.truth[i][t])
        if self.missing is None or rng.random() > 0.3 or (i, t) == self._first_token:
            return {own}
        every = set(range(len(self.classes)))
        return every if self.missing != "sets" else {own, int(rng.integers(len(self.classes)))}

    @property
    def _first_token(self):
        return next(i for i, length in enumerate(self.lengths) if length), 0

    @property
    def y(self):
        """Return labels as a user hands them in."""
        if self.targets == "arrays":
            return [np.asarray(q) for q in self.q]
        if self.targets == "mappings":
            return [[{self.classes[k]: row[k] for k in np.flatnonzero(row)} for row in q] for q in self.q]
        return self.labels

    @property
    def labels(self):
        """Return the labels of tokens; if labels are soft, those from which they were drawn."""
        if self.is_soft:
            return [[self.classes[label] for label in y] for y in self.truth]
        absent = {"None": None, "-1": -1}.get(self.missing)
        given = []
        for sets in self.allowed:
            labels = []
            for one in sets:
                if len(one) == 1:
                    labels.append(self.classes[next(iter(one))])
                else:
                    labels.append({self.classes[k] for k in one} if self.missing == "sets" else absent)
            given.append(labels)
        return given

    def given(self, rows):
        """Return X, y and lengths for `rows`, as a user hands them in."""
        if self.container != "flat":
            return {"X": self.X(rows), "y": self.y, "lengths": None}
        return {
            "X": self.matrix(np.vstack([x.reshape(-1, self.d) for x in rows])),
            "y": np.vstack(self.y) if self.targets == "arrays" else list(itertools.chain.from_iterable(self.y)),
            "lengths": self.lengths.tolist(),
        }

    @property
    def sample_weight(self):
        """Return the weights as a user hands them in."""
        if self.targets == "token weights" and self.container == "flat":
            return np.concatenate(self.weights)
        return self.weights

    def X(self, rows):
        """Return sequences in the container that was drawn."""
        if self.container == "dicts":
            return [[{f"x{j}": float(v) for j, v in enumerate(x)} for x in one] for one in rows]
        return [self.matrix(one.reshape(-1, self.d)) for one in rows]

    @property
    def parameters(self):
        parameters = super().parameters
        parameters["weights"] = tuple("all" if every else "observed" for every in (self.every_state, self.every_step))
        parameters["fit_intercept"] = self.fit_intercept
        if self.constraints == "BIO":
            parameters["constraints"] = "BIO"
        if self.constraints == "pairs":
            steps, first, last = self.pairs
            named = [(self.classes[a], self.classes[b]) for a, b in sorted(steps)]
            named += [(None, self.classes[a]) for a in sorted(first)] + [(self.classes[a], None) for a in sorted(last)]
            parameters["constraints"] = named
        shown = {
            label
            for sets in self.allowed
            for one in sets
            if len(one) == 1 or self.missing == "sets" or self.is_soft
            for label in one
        }
        if self.more_classes or self.targets == "arrays" or len(shown) < len(self.classes) or self.missing == "-1":
            parameters["classes"] = self.classes
        return parameters | {"class_weight": self.named_class_weight}

    def made(self, **others):
        """Return the parameters of a model, of which some have other values; a kernel of steps makes them inputs."""
        parameters = self.parameters | others
        if self.edge_kernel is None:
            return parameters
        own = {name: parameters.pop(name) for name in ("gamma", "n_components")}
        tokens = Input(parameters.pop("kernel"), **own)
        steps = Input(self.argument(self.edge_kernel), scores="steps", **own)
        return parameters | {"inputs": {"tokens": tokens, "steps": steps}}

    @property
    def node(self):
        """Return the name of the term that scores tokens, in the model."""
        return "node" if self.edge_kernel is None else "inputs__tokens"

    def variance(self, model, name):
        """Return the prior variance of a term of the model."""
        return model.model_.layout.by_name[name].C

    def fit(self, folder):
        """Return the fitted model, after whatever was to happen before."""
        model, own = ChainCRF(**self.made()), self.given(self.rows)
        other = self.given([x[::-1] for x in self._rows("other inputs")])
        if self.warm_start == "other data":
            model.fit(**other)
        changed = {self.changed: self.earlier_value} if self.changed else {}
        if self.warm_start == "other C":
            model.set_params(**self.made(**changed, C=self.C * 30)).fit(**own)
            model.set_params(**self.made())
        if self.prior:
            self.earlier = ChainCRF(**self.made(**changed)).fit(**other)
            model.set_params(prior=self.earlier)
        if self.checkpoint:
            model.set_params(checkpoint=str(folder / "run.ckpt"))
            before = deepcopy(model)
            if self.checkpoint == "resumed":
                before.set_params(max_iter=2).fit(**own, sample_weight=self.sample_weight)
            elif self.checkpoint == "other data":
                before.fit(**other, sample_weight=self.sample_weight)
            else:
                weights = self.dice.stream("other weights").uniform(0.5, 2, len(self.rows))
                before.fit(**own, sample_weight=weights)
        return model.fit(**own, sample_weight=self.sample_weight)

    @property
    def sequence_weights(self):
        """Return what sequences count for: their weight times the mean class weight of their known tokens."""
        return self._sequence_weights(self.weights)

    def _of_weight(self, rows, sample_weight):
        """Return the rows of the sequences that such sample weights count."""
        weights = self._sequence_weights(sample_weight)
        return [x for x, weight in zip(rows, weights, strict=True) if weight and len(x)]

    def _sequence_weights(self, sample_weight):
        weights = np.ones(len(self.rows))
        if sample_weight is not None:
            weights = np.array(
                [np.any(one) if self.targets == "token weights" else one for one in sample_weight], float
            )
        if self.class_weight is None:
            return weights
        if self.is_soft:
            by_class = self.by_class
            if self.class_weight == "balanced":
                by_class = self.balanced_soft(np.vstack([q for q, w in zip(self.q, weights, strict=True) if w]))
            return weights * np.array([np.mean(q @ by_class) if len(q) else 1.0 for q in self.q])
        known = [[next(iter(one)) for one in sets if len(one) == 1] for sets in self.allowed]
        by_class = self.class_weights(
            [label for labels, w in zip(known, weights, strict=True) if w for label in labels]
        )
        means = [np.mean(by_class[labels]) if labels else 1.0 for labels in known]
        return weights * np.array(means)

    @staticmethod
    def balanced_soft(q):
        """Return balanced weights by class, if each class counts with its probabilities."""
        counts = q.sum(axis=0)
        weights = np.ones(len(counts))
        weights[counts > 0] = counts.sum() / ((counts > 0).sum() * counts[counts > 0])
        return weights

    @property
    def has_tokens(self):
        """Whether each sequence has tokens."""
        return self.lengths > 0

    def _kept(self):
        """Return which weights of tokens, and of steps, the model has: those of pairs that may occur; None for all."""
        counted = list(zip(self.rows, self.allowed, self.sequence_weights, strict=True))
        if self.prior:
            # The pairs of the prior are kept; its fit has no sample weights.
            others = [x[::-1] for x in self._rows("other inputs")]
            counted += zip(others, self.allowed, self._sequence_weights(None), strict=True)
        L = len(self.classes)
        states, steps = np.zeros((self.d, L), bool), np.zeros((1, L * L), bool)
        for i, (x, sets, weight) in enumerate(counted):
            scored = np.ones(len(sets), bool)
            if self.targets == "token weights" and i < len(self.rows):
                scored = self.weights[i] > 0
            for t in range(len(sets) if weight else 0):
                for label in sets[t]:
                    if not scored[t]:
                        if t and scored[t - 1]:
                            steps[0, next(iter(sets[t - 1])) * L + label] = True
                        continue
                    # A dict has zeros, which count as observed, and a sparse matrix does not.
                    states[:, label] |= (x[t] != 0) | (self.container == "dicts")
                    for before in sets[t - 1] if t else ():
                        steps[0, before * L + label] = True
        plain = self.kernel == "linear" and self.is_sparse and self.label_kernel == "delta"
        return states if plain and not self.every_state else None, None if self.every_step else steps

    def twin(self, model, *, exact):
        """Return the dense twin, on all functions or on those in the span of the model's landmarks."""
        X, L = np.vstack([x.reshape(-1, self.d) for x in self.rows]), len(self.classes)
        options, (states, steps) = {"exact": exact}, self._kept()
        terms = {
            "node": Term(
                self.features(self.kernel, X, *self._input(model, self.node), **options),
                self.label_gram,
                self.variance(model, self.node),
                states,
            ),
            "edge": Term(np.ones((len(X), 1)), np.eye(L * L), model.C_, steps),
        }
        if self.edge_kernel is not None:
            A = self.features(self.edge_kernel, X, *self._input(model, "inputs__steps"), **options)
            terms["steps"] = Term(A, np.eye(L * L), self.variance(model, "inputs__steps"))
        ones = np.ones((len(X), 1))
        if self.fit_intercept:
            terms["bias"] = Term(ones, self.label_gram, model.C_)
        if self.fit_intercept == "boundaries":
            terms |= {name: Term(ones, np.eye(L), model.C_) for name in ("start", "end")}
        twin = Twin(terms, self.samples())
        return twin if not self.prior else replace(twin, centre=twin.coordinates(self.prior_means(model)))

    def samples(self, *, whole=False):
        """Return the samples of the twin; `whole` returns one sample per sequence, with the labels that were drawn."""
        L, samples, first = len(self.classes), [], 0
        of_sequences = np.ones(len(self.rows)) if whole else self.sequence_weights
        for i, (sets, weight) in enumerate(zip(self.allowed, of_sequences, strict=True)):
            q = None
            T = len(sets)
            every = [y for y in itertools.product(range(L), repeat=T) if self.is_legal(y)]
            labellings = np.array(every, int).reshape(len(every), T)
            if whole and self.is_soft:
                sets = [{label} for label in self.truth[i].tolist()]
            elif self.is_soft:
                q = np.array([np.prod(self.q[i][np.arange(T), list(y)]) for y in every])
                q /= q.sum()
            allowed = np.array([all(label in one for label, one in zip(y, sets, strict=True)) for y in every])
            pairs = labellings[:, :-1] * L + labellings[:, 1:]
            into = np.arange(first + 1, first + T)
            tokens = np.arange(first, first + T)
            cliques = {"node": (tokens, labellings), "edge": (into, pairs), "steps": (into, pairs)}
            cliques |= {"bias": (tokens, labellings), "start": (tokens[:1], labellings[:, :1])}
            cliques["end"] = (tokens[-1:], labellings[:, -1:])
            first += T
            if self.targets != "token weights" or whole:
                samples.append(Sample(labellings, allowed, cliques, weight, q))
                continue
            before = 0.0
            for value in np.unique(np.append(self.weights[i], 0.0))[1:]:
                rest = np.flatnonzero(self.weights[i] < value)
                agrees = (labellings[:, rest] == self.truth[i][rest]).all(axis=1)
                part = {name: (rows, labels[agrees]) for name, (rows, labels) in cliques.items()}
                samples.append(Sample(labellings[agrees], allowed[agrees], part, weight * (value - before)))
                before = value
        return samples

    def whole(self, twin):
        """Return the twin with one sample per sequence."""
        return twin if self.targets is None else Twin(twin.terms, self.samples(whole=True), twin.centre)

    def _input(self, model, name):
        """Return the kernel and the landmarks of a term of the model; None for the linear kernel, which has none."""
        return model.model_.layout.by_name[name].kernel, getattr(model.model_.maps[name], "landmarks", None)

    def weights_of(self, model):
        """Return the weights that the model reports, by term."""
        L = len(self.classes)
        weights = {"node": model.coef_, "edge": model.transitions_.reshape(1, L * L)}
        if self.edge_kernel is not None:
            weights["steps"] = model.edge_coef_.reshape(-1, L * L)
        if self.fit_intercept:
            weights["bias"] = model.intercept_[None]
        if self.fit_intercept == "boundaries":
            weights |= {"start": model.start_scores_[None], "end": model.end_scores_[None]}
        return weights

    def check_predictions(self, model, twin, z, atol):
        """Compare marginals and log-probabilities with enumeration."""
        X, whole = self.X(self.rows), self.whole(twin)
        for p, expected in zip(model.predict_proba(X), whole.marginals(z, len(self.classes)), strict=True):
            np.testing.assert_allclose(p, expected, rtol=0, atol=atol)
        loss = -model.log_prob(X, self.labels)
        np.testing.assert_allclose(loss, whole.loss(z), rtol=atol, atol=10 * atol)
        # Whatever the rounding of features, the model that is held is the one that the certificate speaks of.
        if self.dtype == np.float32 or self.targets:
            loss = self._held_twin(model, twin).loss(z)
        own, certificate = twin.omega @ loss + 0.5 * np.square(z - twin.centre).sum(), model.certificate_
        assert abs(own - certificate.objective) <= certificate.rounding * max(1.0, abs(own)), (own, certificate)

    def check_certified(self, model, twin, optimum, slack, *, full=False):
        """Check that the optimum predicts each certified label, and has the scores that are promised."""
        if not model.certificate_.is_certified:
            return
        X, n_tokens, twin = self.X(self.rows), int(self.lengths.sum()), self.whole(twin)
        found, scores = model.distribution(X).certify(full=full), np.split(twin.phi @ optimum.z, twin.starts[1:])
        index = {label: k for k, label in enumerate(self.classes)}
        for i, (sample, own) in enumerate(zip(twin.samples, scores, strict=True)):
            phi = twin.phi[twin.owner == i]
            reach = optimum.distance * np.linalg.norm(phi[:, None] - phi[None], axis=2).max(initial=0.0) + slack
            for t, (label, sure) in enumerate(zip(found.labels[i].tolist(), found.tokens[i], strict=True)):
                same = sample.labellings[:, t] == index[label]
                rival = own[~same].max(initial=-np.inf)
                assert not sure or own[same].max() >= rival - reach, f"token {t} of sequence {i} is wrongly certified"
        if self.is_missing or any(len(one) > 1 for sets in self.allowed for one in sets if not self.is_soft):
            return
        bounds = model.distribution(X).score_bounds(self.labels, full=full)
        loss = twin.loss(optimum.z).sum() / n_tokens
        near = (
            1e-9
            + slack
            + optimum.distance
            * sum(np.linalg.norm(twin.phi[twin.owner == i], axis=1).max() * 2 for i in range(len(self.rows)))
        )
        assert bounds.log_loss[0] - near <= loss <= bounds.log_loss[1] + near, "the loss is out of its bounds"
        predicted = [sample.labellings[own.argmax()] for sample, own in zip(twin.samples, scores, strict=True)]
        right = sum(int((y == truth).sum()) for y, truth in zip(predicted, self.truth, strict=True)) / n_tokens
        assert bounds.accuracy[0] - 1e-12 <= right <= bounds.accuracy[1] + 1e-12, "the accuracy is out of its bounds"

    def _held_twin(self, model, twin):
        """Return the twin on the features that the model itself computes.

        Predictions of float32 inputs are less exact than these: they multiply kernel values by R^-T W in float32, and
        may lose as many digits as K_BB has in its condition number (see `kernelcrf.basis.kernel_weights`).
        """
        X, terms = self.matrix(np.vstack([x.reshape(-1, self.d) for x in self.rows])), dict(twin.terms)
        for name, held in model.model_.maps.items():
            F, name = held.transform(X), {"inputs__tokens": "node", "inputs__steps": "steps"}.get(name, name)
            terms[name] = replace(terms[name], A=np.asarray(F.toarray() if sp.issparse(F) else F, np.float64))
        return Twin(terms, twin.samples)

    def held_out(self):
        """Return data to calibrate a temperature with."""
        return self.X(self.rows), self.labels

    def check_same(self, model, again):
        """Compare two models to the bit."""
        X = self.X(self.rows)
        for p, q in zip(model.predict_proba(X), again.predict_proba(X), strict=True):
            np.testing.assert_array_equal(p, q)


class TargetProblem(ChainProblem):
    """Sequences with soft labels or with weights of tokens."""

    share_of_targets = 1.0
