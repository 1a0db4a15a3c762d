"""Random chains of all options that the tagger covers, fitted with a few iterations, and new sequences for them."""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from kernelcrf import ChainCRF, Input
from kernelcrf.decoding import ExpectedCost, ExpectedF1, ExpectedSpanCost
from kernelcrf.kernels import Polynomial
from kernelcrf.penalties import ElasticNet
from kernelcrf.preprocessing import PerToken

KERNELS = ("linear", "rbf", "poly", "laplacian", "cosine", "chi2")
TAGS = ["O", "B-X", "I-X", "B-Y", "I-Y"]
LABELS = (TAGS, ["a", "b"], [0, 1, 2], [("x", 1), ("y", 2), ("z", 3)], [0.5, 1.5], [True, False])
SCORES = ("tokens", "steps", "starts", "ends")
WORDS = [f"w{k}" for k in range(30)]


def pick(rng: np.random.Generator, options: Any) -> Any:
    """Return one of the options."""
    return options[int(rng.integers(len(options)))]


def flip(rng: np.random.Generator, p: float = 0.5) -> bool:
    """Return True with probability p."""
    return bool(rng.random() < p)


def token(rng: np.random.Generator, form: str) -> Any:
    """Return one token as a list of names, a dict of strings, or a dict with values of all types."""
    n = int(rng.integers(0, 4))
    if form == "names":
        return [f"{k}={pick(rng, WORDS)}" for k in range(n)]
    strings = {f"f{k}": pick(rng, WORDS) for k in range(n)}
    if form == "strings":
        return strings
    return strings | {
        "up": flip(rng),
        "size": float(np.round(rng.normal(), 2)),
        "count": int(rng.integers(3)),
        "set": {pick(rng, WORDS), pick(rng, WORDS)} if flip(rng) else [pick(rng, WORDS)],
        "next": {"word": pick(rng, WORDS), "up": flip(rng), "deep": {"x": 0.5}},
    }


def sequence(rng: np.random.Generator, kind: str, T: int) -> Any:
    """Return a sequence of T tokens of one kind."""
    if kind in ("names", "strings", "values"):
        return [token(rng, kind) for _ in range(T)]
    x = rng.random((T, 4))
    return sp.csr_array(np.where(x > 0.5, x, 0.0)) if kind == "sparse" else x


def kernel_for(rng: np.random.Generator, kind: str) -> Any:
    """Return a kernel that takes this kind of inputs."""
    chosen = pick(rng, KERNELS if kind == "dense" else ("linear", "linear", *KERNELS[1:-1]))
    return Polynomial(int(rng.integers(1, 5)), 0.5) if chosen == "poly" and flip(rng) else chosen


def steps(rng: np.random.Generator) -> list[Any]:
    """Return the transformers of a pipeline."""
    reducer = pick(rng, (PCA(3, whiten=flip(rng)), TruncatedSVD(3)))
    scaler = pick(rng, (StandardScaler(with_mean=flip(rng)), RobustScaler(), MaxAbsScaler()))
    return [scaler, *([reducer] if flip(rng) else []), MinMaxScaler(clip=True)]


def model(seed: int) -> tuple[Any, list[Any]]:
    """Return a fitted model or pipeline, and new sequences for it, some of them empty."""
    rng = np.random.default_rng(seed)
    kind = pick(rng, ("names", "strings", "values", "dense", "dense", "sparse", "several", "columns"))
    labels = pick(rng, LABELS)
    lengths = [int(T) for T in rng.integers(1, 8, 6)]
    new = [0, 1, *map(int, rng.integers(1, 12, 3))]
    options: dict[str, Any] = {"C": float(pick(rng, (0.1, 1.0, 30.0))), "max_iter": int(rng.integers(1, 6))}
    options |= {"fit_intercept": pick(rng, (True, False, "boundaries")), "random_state": 0, "classes": labels}
    y = [[labels[int(k)] for k in rng.integers(len(labels), size=T)] for T in lengths]
    if flip(rng, 0.3):
        L = len(labels)
        options["label_kernel"] = pick(
            rng, ("centred", (np.eye(L) + 0.5).tolist(), np.outer(range(1, L + 1), range(1, L + 1)).tolist())
        )
    else:
        options["weights"] = pick(rng, ("observed", "all", 2.0, ("observed", "observed")))
    if labels is TAGS:
        options["decoding"] = pick(
            rng, ("auto", "viterbi", "marginal", "f1", ExpectedF1("IOB2"), ExpectedSpanCost(4.0), ExpectedCost())
        )
        if flip(rng, 0.4):
            y = [["O", "B-X", "I-X", "O", "B-Y", "I-Y", "I-Y"][:T] for T in lengths]
            options["constraints"] = "BIO"
    else:
        L = len(labels)
        costs = ExpectedCost(np.add.outer(range(L), range(L)) + 1.0 - np.eye(L), labels[::-1])
        options["decoding"] = pick(rng, ("auto", "viterbi", "marginal", ExpectedF1("runs"), costs))
        if flip(rng, 0.2):
            pairs = {(a, b) for one in y for a, b in pairwise(one)}
            ends = {(None, one[0]) for one in y} | {(one[-1], None) for one in y}
            options["constraints"] = sorted(pairs, key=str) + sorted(ends, key=str)
    wrap = None
    if kind in ("several", "columns"):
        kinds = {"words": pick(rng, ("names", "strings", "values")), "vectors": "dense", "extra": "dense"}
        if kind == "columns":
            kinds = dict.fromkeys(kinds, pick(rng, ("dense", "sparse")))
            chosen = dict(zip(kinds, (None, [2, 0], slice(1, 3)), strict=True))
        else:
            chosen = dict.fromkeys(kinds)
        options["inputs"] = {
            name: Input(
                kernel_for(rng, one),
                n_components=5,
                columns=chosen[name],
                scores=pick(rng, SCORES) if name == "extra" else "tokens",
            )
            for name, one in kinds.items()
        }

        def make(T: int) -> Any:
            if kind == "columns":
                return sequence(rng, kinds["words"], T)
            return {name: sequence(rng, one, T) for name, one in kinds.items()}

    else:
        token = Input(kernel_for(rng, kind), n_components=5, gamma=pick(rng, ("scale", 0.3)))
        if flip(rng, 0.3):
            options["inputs"] = {"tokens": token, "next": Input(kernel_for(rng, kind), n_components=5, scores="steps")}
        else:
            options |= {"kernel": token.kernel, "n_components": 5, "gamma": token.gamma}
        if options.get("kernel") == "linear" and flip(rng, 0.3):
            options["penalty"] = ElasticNet(0.05)
            options.pop("label_kernel", None)
        if kind in ("names", "strings", "values") and flip(rng, 0.3):
            options["hash_features"] = 64
        if kind == "dense" and flip(rng, 0.5):
            wrap = PerToken(make_pipeline(*steps(rng)))

        def make(T: int) -> Any:
            return sequence(rng, kind, T)

    crf = ChainCRF(**options)
    X = [make(T) for T in lengths]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = (crf if wrap is None else make_pipeline(wrap, crf)).fit(X, y)
    return fitted, [make(T) for T in new]
