"""Random problems of SegmentCRF and their twins, which enumerate all segmentations."""

import itertools
from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from certificates.chains import ChainProblem
from certificates.twins import Sample, Term, Twin, psd_factor
from kernelcrf import SegmentCRF

POOLED = {
    "mean": lambda x: x.mean(axis=0),
    "max": lambda x: x.max(axis=0),
    "ends": lambda x: np.concatenate([x[0], x[-1]]),
}


@dataclass(frozen=True)
class Optional(Term):
    """A term whose cliques may be absent from a labelling: their joint label is -1, and they have no score."""

    @property
    def B(self):
        own = psd_factor(self.k_y)
        return np.vstack([own, np.zeros((1, own.shape[1]))])


class SegmentProblem(ChainProblem):
    """Sequences of a few tokens, whose runs of equal labels are segments."""

    estimator = SegmentCRF
    share_of_targets = 0.0

    def draw(self):
        pick = self.dice.pick
        self.D = self.dice.count("max_duration", 1, 4)
        self.tail = pick("tail", True, False, share=0.3)
        self.durations = pick("durations", "smooth", "free", None, share=0.6)
        self.ends = pick("ends", True, False, share=0.4)
        self.segment_kernel = pick("segment_kernel", None, "linear", "rbf", share=0.4)
        self.pooling = pick("pooling", "mean", "max", "ends", share=0.6)
        super().draw()
        every = max(e - b for y in self.truth for _, b, e in segments(y))
        if not self.tail and every > self.D and (self.missing or self._longest() <= self.D):
            # A sequence that does not count, or whose labels are missing, would be impossible.
            self.tail = self.dice.replace("tail", True)

    def mend(self):
        replace = self.dice.replace
        self.prior = replace("prior", None)
        super().mend()
        if self.segment_kernel is None:
            self.pooling = replace("pooling", "mean")
        self.edge_kernel = replace("edge_kernel", None)
        self.dtype = np.float64
        if self.constraints == "BIO":
            self.constraints = replace("constraints", None)
        if self.kernel not in ("linear", "rbf", "poly", "laplacian"):
            self.kernel = replace("kernel", "rbf")
        if self.pivots in ("kmeans", "lloyd", "exact"):
            self.pivots = replace("pivots", "random")
        if self.warm_start == "other data":
            self.warm_start = replace("warm_start", "other C")
        if self.checkpoint in ("other data", "other weights"):
            self.checkpoint = replace("checkpoint", None)
        if self.kernel == "poly" and self.coef0 == 0:
            self.coef0 = 1.0
        if not self.stays_odd and self.solver == "dual":
            self.solver = replace("solver", "auto")
        if self.container == "flat" and not self.stays_odd:
            self.container = replace("container", "dense")

    @property
    def refusal(self):
        if not self.tail and not self.is_missing and self._longest() > self.D:
            return "has a segment of"
        if self.checkpoint and (self.n_components == "auto" or self.by_evidence):
            return "checkpoint="
        if self.solver == "dual":
            return "dual"
        return "missing" if (self.laplace or self.by_evidence) and self.is_missing else self.changed_refusal

    @property
    def kernels(self):
        return [*super().kernels, self.segment_kernel]

    def _longest(self):
        weights = zip(self.truth, self.sequence_weights, strict=True)
        return max((e - b for y, weight in weights if weight for _, b, e in segments(y)), default=1)

    @property
    def parameters(self):
        own = {name: getattr(self, name) for name in ("tail", "durations", "ends", "segment_kernel", "pooling")}
        return super().parameters | own | {"max_duration": self.D}

    def fit(self, folder):
        model, own = SegmentCRF(**self.parameters), self.given(self.rows)
        if self.warm_start == "other C":
            changed = {self.changed: self.earlier_value} if self.changed else {}
            model.set_params(**changed, C=self.C * 30).fit(**own)
            model.set_params(**{name: self.parameters[name] for name in ("C", *changed)})
        if self.checkpoint:
            model.set_params(checkpoint=str(folder / "run.ckpt"))
            deepcopy(model).set_params(max_iter=2).fit(**own, sample_weight=self.weights)
        return model.fit(**own, sample_weight=self.weights)

    def is_legal(self, y):
        own = segments(y)
        if not self.tail and any(e - b > self.D for _, b, e in own):
            return False
        if self.constraints is None or not own:
            return True
        steps, first, last = self.pairs
        inside = all((a, b) in steps for (a, *_), (b, *_) in itertools.pairwise(own))
        return inside and own[0][0] in first and own[-1][0] in last

    def _observed(self):
        """Return which weights of tokens, steps, first and last tokens, and segments there are; None for all."""
        counted = [i for i, weight in enumerate(self.sequence_weights) if weight]
        if any(len(one) > 1 for i in counted for one in self.allowed[i]):
            return dict.fromkeys(("node", "edge", "first", "last", "segment"))
        L, width = len(self.classes), self.d * (2 if self.pooling == "ends" else 1)
        found = {name: np.zeros((self.d, L + 1), bool) for name in ("node", "first", "last")}
        found |= {"edge": np.zeros((1, L * L + 1), bool), "segment": np.zeros((width, L + 1), bool)}

        def occurs(row):
            return (row != 0) | (self.container == "dicts")

        for i in counted:
            own = segments(self.truth[i])
            for k, (a, b, e) in enumerate(own):
                for t in range(b, e):
                    found["node"][:, a] |= occurs(self.rows[i][t])
                found["first"][:, a] |= occurs(self.rows[i][b])
                found["last"][:, a] |= occurs(self.rows[i][e - 1])
                pooled = POOLED[self.pooling](self.rows[i][b : min(e, b + self.D)])
                found["segment"][:, a] |= pooled != 0
                if self.container == "dicts" and self.pooling == "ends":
                    found["segment"][:, a] = True
                if k:
                    found["edge"][0, own[k - 1][0] * L + a] = True
        sparse = self.is_sparse and not self.every_state
        plain = sparse and self.kernel == "linear"
        found["node"] = found["node"][:, :L] if plain and self.label_kernel == "delta" else None
        for name in ("first", "last"):
            found[name] = found[name] if plain else None
        found["segment"] = found["segment"] if sparse and self.segment_kernel == "linear" else None
        found["edge"] = None if self.every_step else found["edge"]
        return found

    def twin(self, model, *, exact):
        X, L = np.vstack([x.reshape(-1, self.d) for x in self.rows]), len(self.classes)
        kept, C, ones = self._observed(), model.C_, np.ones((len(X), 1))
        A = self.features(self.kernel, X, model.kernel_, model.landmarks_, exact=exact)
        terms = {"node": Term(A, self.label_gram, C, kept["node"])}
        terms["edge"] = Optional(ones, np.eye(L * L), C, kept["edge"])
        if self.fit_intercept:
            terms["bias"] = Term(ones, self.label_gram, C)
        if self.fit_intercept == "boundaries":
            terms |= {name: Term(ones, np.eye(L), C) for name in ("start", "end")}
        if self.ends:
            terms |= {name: Optional(A, np.eye(L), C, kept[name]) for name in ("first", "last")}
        if self.durations is not None:
            logs = np.log(np.arange(1, self.D + 1))
            squares = np.square(logs[:, None] - logs)
            smooth = (np.exp(-squares / (2 * 0.2**2)) + np.exp(-squares / 2)) / 2
            K = smooth if self.durations == "smooth" else np.eye(self.D)
            terms["duration"] = Optional(ones, np.kron(K, np.eye(L)), C)
        if self.tail:
            terms["tail"] = Optional(ones, np.eye(L), C)
        candidates = []
        for i, x in enumerate(self.rows):
            T = len(x)
            candidates += [(i, b, b + d) for b in range(T) for d in range(1, min(self.D, T - b) + 1)]
        if self.segment_kernel is not None:
            pooled = np.array([POOLED[self.pooling](self.rows[i][b:e]) for i, b, e in candidates])
            fitted, own = model.model_.kernels["segment_kernel"], model.model_.maps["segment"]
            F = self.features(self.segment_kernel, pooled, fitted, getattr(own, "landmarks", None), exact=exact)
            terms["segment"] = Optional(F, np.eye(L), C, kept["segment"])
        return Twin(terms, self._samples(L, candidates))

    def _samples(self, L, candidates):
        samples, first, row = [], 0, {one: k for k, one in enumerate(candidates)}
        for i, (sets, weight) in enumerate(zip(self.allowed, self.sequence_weights, strict=True)):
            T = len(sets)
            every = [y for y in itertools.product(range(L), repeat=T) if self.is_legal(y)]
            labellings, n = np.array(every, int).reshape(len(every), T), len(every)
            allowed = np.array([all(label in one for label, one in zip(y, sets, strict=True)) for y in every])
            tokens, mine = np.arange(first, first + T), [k for one, k in row.items() if one[0] == i]
            seen = {name: np.full((n, T), -1) for name in ("edge", "first", "last", "duration", "tail")}
            whole, place = np.full((n, len(mine)), -1), {k: at for at, k in enumerate(mine)}
            for k, y in enumerate(every):
                own = segments(y)
                for at, (a, b, e) in enumerate(own):
                    d = min(e - b, self.D)
                    seen["first"][k, b] = seen["last"][k, e - 1] = a
                    seen["duration"][k, b] = (d - 1) * L + a
                    seen["tail"][k, b + d : e] = a
                    whole[k, place[row[i, b, b + d]]] = a
                    if at:
                        seen["edge"][k, b] = own[at - 1][0] * L + a
            cliques = dict.fromkeys(("node", "bias"), (tokens, labellings)) | {"segment": (np.array(mine, int), whole)}
            cliques |= {name: (tokens, own) for name, own in seen.items()}
            cliques |= {"start": (tokens[:1], labellings[:, :1]), "end": (tokens[-1:], labellings[:, -1:])}
            samples.append(Sample(labellings, allowed, cliques, weight))
            first += T
        return samples

    def weights_of(self, model):
        held = model.model_
        weights = {"node": model.coef_, "edge": model.transitions_.reshape(1, -1)}
        weights |= {"bias": model.intercept_[None], "start": model.start_scores_[None], "end": model.end_scores_[None]}
        weights |= {"duration": model.duration_scores_.reshape(1, -1), "tail": model.tail_scores_[None]}
        weights |= {name: held._expand(name) for name in ("first", "last", "segment") if name in held.maps}
        # The last label is the absent one.
        optional = ("edge", "duration", "tail", "first", "last", "segment")
        return {name: np.hstack([W, np.zeros((len(W), 1))]) if name in optional else W for name, W in weights.items()}

    def check_certified(self, model, twin, optimum, slack, *, full=False):
        """Do nothing: SegmentCRF certifies its objective, and no single labels."""


def segments(y):
    """Return the runs of equal labels as (label, start, end)."""
    found, start = [], 0
    for label, run in itertools.groupby(y):
        n = len(list(run))
        found.append((int(label), start, start + n))
        start += n
    return found
