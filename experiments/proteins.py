"""Secondary structure of proteins from single sequences: accuracy of residues, log-loss and calibration.

Protocol. CB513 in the version of NetSurfP-2.0: rows of one and the same chain are merged (432 chains, 106,423
residues, masks united), five folds of whole chains, three states; a fold is scored where its mask is true (83,991
residues in all). No alignments come with the data: these are figures of single sequences, for which the literature has
65 to 70 %. Then the split of Qian and Sejnowski (1988), 111 chains to train, 17 to test.

Every model sees the same window of eight residues to either side, and the composition of the chain:

    one-hot        21 columns a place (20 residues, anything else; all zero beyond the ends), composition
    substitution   a place is the residue's vector in the twelve main axes of BLOSUM62 and a mark beyond the ends, times
                   exp(-(place / 6)^2 / 2): near residues count for more; composition

Linear models and CRFsuite have the first, models with an rbf kernel the second. The "segments" models of kernelcrf have
nine states for three: first, inner and last residue of a run of H, E or C; which may follow which is a constraint,
and the probabilities of the states of a structure are summed. Hyperparameters are chosen in each training set alone,
by the log-loss (SVC: errors) on 40 of its chains after fitting to 100 others; the model is then fitted to the whole
training set. The support vector machine is fitted to 8,000 residues drawn at random, for all would take hours. Labels
are decoded by the marginals.

python experiments/proteins.py [--parts FOLDER]     (FOLDER keeps what is done, to go on later)
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

import common
from baselines import CRFsuite, PerToken
from kernelcrf import ChainCRF
from kernelcrf.datasets import load_cb513, load_qian_sejnowski
from kernelcrf.metrics import expected_calibration_error, log_loss
from parts import kept

HALF = 8
DECAY = 6.0
N_LANDMARKS = 800
RESIDUES = "ARNDCQEGHILKMFPSTWYV"
BLOSUM62 = """
 4 -1 -2 -2  0 -1 -1  0 -2 -1 -1 -1 -1 -2 -1  1  0 -3 -2  0
-1  5  0 -2 -3  1  0 -2  0 -3 -2  2 -1 -3 -2 -1 -1 -3 -2 -3
-2  0  6  1 -3  0  0  0  1 -3 -3  0 -2 -3 -2  1  0 -4 -2 -3
-2 -2  1  6 -3  0  2 -1 -1 -3 -4 -1 -3 -3 -1  0 -1 -4 -3 -3
 0 -3 -3 -3  9 -3 -4 -3 -3 -1 -1 -3 -1 -2 -3 -1 -1 -2 -2 -1
-1  1  0  0 -3  5  2 -2  0 -3 -2  1  0 -3 -1  0 -1 -2 -1 -2
-1  0  0  2 -4  2  5 -2  0 -3 -3  1 -2 -3 -1  0 -1 -3 -2 -2
 0 -2  0 -1 -3 -2 -2  6 -2 -4 -4 -2 -3 -3 -2  0 -2 -2 -3 -3
-2  0  1 -1 -3  0  0 -2  8 -3 -3 -1 -2 -1 -2 -1 -2 -2  2 -3
-1 -3 -3 -3 -1 -3 -3 -4 -3  4  2 -3  1  0 -3 -2 -1 -3 -1  3
-1 -2 -3 -4 -1 -2 -3 -4 -3  2  4 -2  2  0 -3 -2 -1 -2 -1  1
-1  2  0 -1 -3  1  1 -2 -1 -3 -2  5 -1 -3 -1  0 -1 -3 -2 -2
-1 -1 -2 -3 -1  0 -2 -3 -2  1  2 -1  5  0 -2 -1 -1 -1 -1  1
-2 -3 -3 -3 -2 -3 -3 -3 -1  0  0 -3  0  6 -4 -2 -2  1  3 -1
-1 -2 -2 -1 -3 -1 -1 -2 -2 -3 -3 -1 -2 -4  7 -1 -1 -4 -3 -2
 1 -1  1  0 -1  0  0  0 -1 -2 -2  0 -1 -2 -1  4  1 -3 -2 -2
 0 -1  0 -1 -1 -1 -1 -2 -2 -1 -1 -1 -1 -2 -1  1  5 -2 -2  0
-3 -3 -4 -4 -2 -2 -3 -2 -2 -3 -2 -3 -1  1 -4 -3 -2 11  2 -3
-2 -2 -2 -3 -2 -1 -2 -3  2 -1 -1 -2 -1  3 -3 -2 -2  2  7 -1
 0 -3 -3 -3 -1 -2 -2 -3 -3  3  1 -2  1 -1 -2 -2  0 -3 -1  4
"""
PUBLISHED_QIAN_SEJNOWSKI = 64.3


def codes(x: list[dict[str, str]]) -> np.ndarray:
    """Residues as numbers; 20 is anything else."""
    found = [RESIDUES.find(token["residue"]) for token in x]
    return np.where(np.array(found) < 0, 20, found)


def windows(a: np.ndarray) -> np.ndarray:
    """(T, 2 HALF + 1) codes around each residue; 21 is beyond the ends."""
    padded = np.pad(a, HALF, constant_values=21)
    return np.lib.stride_tricks.sliding_window_view(padded, 2 * HALF + 1)


def composition(a: np.ndarray) -> np.ndarray:
    return np.bincount(a, minlength=21)[:20] / len(a)


def one_hot(a: np.ndarray) -> sp.csr_array:
    w = windows(a)
    rows, places = np.nonzero(w < 21)
    columns = places * 21 + w[rows, places]
    dots = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(a), w.shape[1] * 21))
    around = np.tile(5 * (composition(a) - 0.05), (len(a), 1))
    return sp.csr_array(sp.hstack([dots, sp.csr_array(around)]))


def _residue_vectors() -> np.ndarray:
    """(22, 13): axes of BLOSUM62, zero for other residues, and a mark beyond the ends."""
    values, vectors = np.linalg.eigh(np.array(BLOSUM62.split(), float).reshape(20, 20))
    axes = (vectors * np.sqrt(np.maximum(values, 0)))[:, ::-1][:, :12]
    table = np.zeros((22, 13))
    table[:20, :12] = axes
    table[21, 12] = 2.0
    return table


VECTORS = _residue_vectors()


def substitution(a: np.ndarray) -> np.ndarray:
    place = np.exp(-((np.arange(-HALF, HALF + 1) / DECAY) ** 2) / 2)
    near = (VECTORS[windows(a)] * place[:, None]).reshape(len(a), -1)
    around = np.tile(30 * (composition(a) - 0.05), (len(a), 1))
    return np.column_stack([near, around]).astype(np.float32)


def names(a: np.ndarray) -> list[dict[str, float]]:
    around = {f"c{k}": float(5 * (share - 0.05)) for k, share in enumerate(composition(a))}
    letters = [[f"{j}:{code}" for j, code in enumerate(row) if code < 21] for row in windows(a).tolist()]
    return [dict.fromkeys(row, 1.0) | around for row in letters]


ENCODINGS = {"one-hot": one_hot, "substitution": substitution, "names": names}


class Segments:
    """A ChainCRF whose states say where in its run a residue is: first, inner, last or the only one."""

    def __init__(self, **params: Any) -> None:
        self.params = params

    def fit(self, X: list[Any], y: list[np.ndarray]) -> Segments:
        states = [_states(one) for one in y]
        pairs = sorted({pair for one in states for pair in zip(one[:-1].tolist(), one[1:].tolist(), strict=True)})
        self.crf = ChainCRF(**self.params, constraints=pairs).fit(X, states)
        own = np.array([state[0] for state in self.crf.classes_])
        self.classes_ = np.unique(own)
        self.sums = (own[:, None] == self.classes_).astype(float)
        return self

    def predict_proba(self, X: list[Any]) -> list[np.ndarray]:
        return [P @ self.sums for P in self.crf.predict_proba(X)]


def _states(y: np.ndarray) -> np.ndarray:
    first = np.concatenate([[True], y[1:] != y[:-1]])
    last = np.concatenate([y[1:] != y[:-1], [True]])
    return np.char.add(y, np.select([first, last], ["1", "3"], "2"))


def crf(**params: Any) -> ChainCRF:
    return ChainCRF(random_state=0, tol=1e-3, **params)


class Sparse(PerToken):
    """PerToken on CSR sequences."""

    def fit(self, X: list[Any], y: list[np.ndarray]) -> Sparse:
        self.classifier.fit(sp.vstack(X), np.concatenate(y))
        self.classes_ = self.classifier.classes_
        return self

    def predict_proba(self, X: list[Any]) -> list[np.ndarray]:
        rows = self.classifier.predict_proba(sp.vstack(X))
        return np.split(rows, np.cumsum([x.shape[0] for x in X])[:-1])


class Sampled(PerToken):
    """A support vector machine on residues drawn at random."""

    def fit(self, X: list[np.ndarray], y: list[np.ndarray]) -> Sampled:
        flat, labels = np.concatenate(X), np.concatenate(y)
        drawn = np.random.default_rng(0).permutation(len(flat))[:8000]
        self.classifier.fit(flat[drawn], labels[drawn])
        self.classes_ = self.classifier.classes_
        return self


def rbf_crf(C: float, gamma: float, n: int, kind: Any = crf) -> Any:
    return kind(kernel="rbf", C=C, gamma=gamma, n_components=n)


def segments(**params: Any) -> Segments:
    return Segments(random_state=0, tol=1e-3, **params)


GAMMAS = (0.002, 0.004, 0.008)
# name: (encoding, maker from n_landmarks and parameters, values to try)
MODELS: dict[str, tuple[str, Any, dict[str, tuple[float, ...]]]] = {
    "logistic regression": (
        "one-hot",
        lambda n, C: Sparse(LogisticRegression(C=C, max_iter=200)),
        {"C": (0.003, 0.01, 0.03, 0.1)},
    ),
    "CRFsuite": (
        "names",
        lambda n, c2: CRFsuite(c2=c2, max_iterations=100),
        {"c2": (3.0, 10.0, 30.0)},
    ),
    "SVC (rbf), 8,000 residues": (
        "substitution",
        lambda n, C, gamma: Sampled(SVC(C=C, gamma=gamma, cache_size=500)),
        {"gamma": GAMMAS, "C": (1.0, 3.0)},
    ),
    "Nystroem + logistic regression": (
        "substitution",
        lambda n, C, gamma: PerToken(
            make_pipeline(
                Nystroem("rbf", gamma=gamma, n_components=n, random_state=0), LogisticRegression(C=C, max_iter=100)
            )
        ),
        {"gamma": GAMMAS, "C": (0.3, 1.0, 3.0)},
    ),
    "kernelcrf linear": (
        "one-hot",
        lambda n, C: crf(kernel="linear", C=C),
        {"C": (0.003, 0.01, 0.03, 0.1)},
    ),
    "kernelcrf linear, segments": (
        "one-hot",
        lambda n, C: segments(kernel="linear", C=C),
        {"C": (0.003, 0.01, 0.03, 0.1)},
    ),
    "kernelcrf rbf": (
        "substitution",
        lambda n, C, gamma: rbf_crf(C, gamma, n),
        {"gamma": GAMMAS, "C": (0.3, 1.0, 3.0)},
    ),
    "kernelcrf rbf, segments": (
        "substitution",
        lambda n, C, gamma: rbf_crf(C, gamma, n, segments),
        {"gamma": GAMMAS, "C": (0.3, 1.0, 3.0)},
    ),
}


def merged() -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """Chains of CB513 with the union of the masks of their rows."""
    data = load_cb513()
    first: dict[int, int] = {}
    masks: dict[int, np.ndarray] = {}
    for i, group in enumerate(data.groups.tolist()):
        first.setdefault(group, i)
        masks[group] = masks.get(group, False) | data.eval_mask[i]
    rows = list(first.values())
    return [codes(data.X[i]) for i in rows], [data.y[i] for i in rows], list(masks.values())


def _take(items: list[Any], rows: np.ndarray) -> list[Any]:
    return [items[row] for row in rows]


def choose(name: str, X: list[Any], y: list[np.ndarray], mask: list[np.ndarray]) -> dict[str, float]:
    """The best on 40 chains after fitting to 100 others: from the middle values, one parameter after the other."""
    _, make, values = MODELS[name]
    order = np.random.default_rng(0).permutation(len(X))
    held = order[: min(40, len(X) // 3)]
    fitted = order[len(held) : len(held) + 100]
    truth, keep = np.concatenate(_take(y, held)), np.concatenate(_take(mask, held))

    def loss(params: dict[str, float]) -> float:
        model = make(300, **params).fit(_take(X, fitted), _take(y, fitted))
        if "SVC" in name:
            return float(np.mean((np.concatenate(model.predict(_take(X, held))) != truth)[keep]))
        P = np.concatenate(list(model.predict_proba(_take(X, held))))
        own = P[np.arange(len(P)), np.searchsorted(model.classes_, truth)]
        return float(-np.log(np.maximum(own, 1e-12))[keep].mean())

    best = {key: row[len(row) // 2] for key, row in values.items()}
    least = loss(best)
    for key, row in values.items():
        for value in row:
            if value != best[key] and (found := loss(best | {key: value})) < least:
                least, best = found, best | {key: value}
    return best


def assess(
    name: str, train: tuple[list[Any], ...], test: tuple[list[Any], ...], encoded: dict[str, list[Any]]
) -> dict[str, Any]:
    """Choose, fit, score: train and test are (indices, labels, masks) over the encoded chains."""
    encoding, make, _ = MODELS[name]
    X, Z = _take(encoded[encoding], train[0]), _take(encoded[encoding], test[0])
    start = time.perf_counter()
    params = choose(name, X, train[1], train[2])
    search = time.perf_counter() - start
    start = time.perf_counter()
    model = make(N_LANDMARKS, **params).fit(X, train[1])
    row: dict[str, Any] = {"params": params, "search": search, "fit": time.perf_counter() - start}
    y = [one[keep] for one, keep in zip(test[1], test[2], strict=True)]
    if "SVC" in name:
        predicted = [one[keep] for one, keep in zip(model.predict(Z), test[2], strict=True)]
    else:
        P = [one[keep] for one, keep in zip(model.predict_proba(Z), test[2], strict=True)]
        predicted = [model.classes_[p.argmax(axis=1)] for p in P]
        classes = model.classes_.tolist()
        row |= {"log_loss": log_loss(y, P, classes), "ece": expected_calibration_error(y, P, classes)}
        row["bins"] = bins(y, P, model.classes_)
    hits = common.right_tokens(predicted, y)
    row["accuracy"] = common.accuracy(hits)
    row["right"] = [[int(one.sum()), len(one)] for one in hits]
    print(f"{name}: {100 * row['accuracy']:.2f} %, log-loss {row.get('log_loss', np.nan):.4f}, ", end="")
    print(f"calibration {row.get('ece', np.nan):.4f}, {params}, {search:.0f} + {row['fit']:.0f} s", flush=True)
    return row


def bins(y: list[np.ndarray], P: list[np.ndarray], classes: np.ndarray, n_bins: int = 10) -> list[list[float]]:
    """For each bin of the confidence in the label decided on: sums of confidence and of hits, number of residues."""
    flat = np.concatenate(P)
    confidence, hits = flat.max(axis=1), classes[flat.argmax(axis=1)] == np.concatenate(y)
    place = np.minimum((confidence * n_bins).astype(int), n_bins - 1)
    return [np.bincount(place, weights, n_bins).tolist() for weights in (confidence, hits, np.ones(len(hits)))]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    only = [name for name in MODELS if not options.only or name in options.only.split(";")]
    A, y, mask = merged()
    found: dict[str, Any] = {"folds": {name: [] for name in only}, "qian_sejnowski": {}}
    encoded = {name: [encode(a) for a in A] for name, encode in ENCODINGS.items()}
    for fold, (train, test) in enumerate(KFold(5, shuffle=True, random_state=0).split(A)):
        if fold >= options.folds:
            break
        sides = [(rows, _take(y, rows), _take(mask, rows)) for rows in (train, test)]
        for name in only:
            row = kept(options.parts, f"cb513 {fold} {name}", lambda n=name, s=sides, e=encoded: assess(n, *s, e))
            found["folds"][name].append(row)
    two = [load_qian_sejnowski("train"), load_qian_sejnowski("test")]
    A = [codes(x) for data in two for x in data.X]
    encoded = {name: [encode(a) for a in A] for name, encode in ENCODINGS.items()}
    cut = len(two[0].y)
    rows = [np.arange(cut), np.arange(cut, len(A))]
    sides = [(r, d.y, [np.ones(len(one), bool) for one in d.y]) for r, d in zip(rows, two, strict=True)]
    for name in only:
        row = kept(options.parts, f"qian-sejnowski {name}", lambda n=name, s=sides, e=encoded: assess(n, *s, e))
        found["qian_sejnowski"][name] = row
    return found


OURS, LINEAR, TOKEN = "kernelcrf rbf, segments", "kernelcrf linear, segments", "Nystroem + logistic regression"


def section(results: dict[str, Any]) -> str:
    rows = []
    for name, folds in results["folds"].items():
        cells = []
        for key, scale, digits in (("accuracy", 100, 2), ("log_loss", 1, 4), ("ece", 100, 2)):
            if key in folds[0]:
                mean, error = common.mean_and_error([scale * fold[key] for fold in folds])
                cells.append(f"{mean:.{digits}f} ± {error:.{digits}f}")
            else:
                cells.append("")
        other = results["qian_sejnowski"][name]
        cells += [f"{100 * other['accuracy']:.2f}", f"{other['log_loss']:.3f}" if "log_loss" in other else ""]
        rows.append([name, *cells, f"{np.mean([fold['fit'] for fold in folds]):.0f}"])
    head = ["model", "CB513 Q3, %", "log-loss", "calibration error, %", "Q-S accuracy, %", "log-loss", "fit, s"]
    tests = []
    for name in results["folds"]:
        if name != OURS:
            gain, p_q3, p_loss = compare(results, OURS, name)
            loss_text = "" if np.isnan(p_loss) else f" (log-loss {p_loss:.1g})"
            tests.append(f"{name} {gain:+.2f}, p = {p_q3:.1g}{loss_text}")
    best = results["qian_sejnowski"][OURS]["accuracy"]
    return TEXT.format(
        table=common.markdown(head, rows),
        tests="; ".join(tests),
        bar="met" if 100 * best >= PUBLISHED_QIAN_SEJNOWSKI else "missed",
        qian=100 * best,
        published=PUBLISHED_QIAN_SEJNOWSKI,
    )


def compare(results: dict[str, Any], ours: str, other: str) -> tuple[float, float, float]:
    """Gain in Q3, and the p of paired t-tests over folds of Q3 and of log-loss."""
    a, b = results["folds"][ours], results["folds"][other]
    q3 = [[100 * fold["accuracy"] for fold in side] for side in (a, b)]
    gain = float(np.mean(q3[0]) - np.mean(q3[1]))
    if "log_loss" not in b[0]:
        return gain, common.paired_p(*q3), float("nan")
    return gain, common.paired_p(*q3), common.paired_p(*[[fold["log_loss"] for fold in side] for side in (a, b)])


TEXT = """## Secondary structure of proteins

CB513 without alignments, five folds of whole chains (mean ± standard error), and the split of Qian and Sejnowski (Q-S).

{table}

kernelcrf rbf, segments, against the others on CB513, difference in Q3 and p of a paired t-test over the folds: {tests}.

Qian and Sejnowski's own {published} % on their split is {bar} with {qian:.2f} %.

![Reliability of the residues' probabilities](figures/reliability_proteins.png)
"""


def figure(results: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, 2, figsize=(8.4, 3.8), layout="constrained")
    shown = (OURS, LINEAR, TOKEN, "logistic regression")
    for colour, name in zip(common.COLOURS, shown, strict=False):
        confidence, hits, count = np.sum([fold["bins"] for fold in results["folds"][name]], axis=0)
        keep = count >= 50
        axes[0].plot(confidence[keep] / count[keep], hits[keep] / count[keep], "o-", ms=4, color=colour, label=name)
        axes[1].plot((np.arange(10) + 0.5)[keep] / 10, count[keep] / count.sum(), "o-", ms=4, color=colour)
    axes[0].plot([0.3, 1], [0.3, 1], color="0.6", lw=1, zorder=0)
    axes[0].set(xlabel="mean confidence", ylabel="share of residues that are right", title="CB513: reliability")
    axes[0].legend(frameon=False, fontsize=8)
    axes[1].set(xlabel="confidence", ylabel="share of residues", title="how often each confidence is given")
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    common.FIGURES.mkdir(exist_ok=True, parents=True)
    fig.savefig(common.FIGURES / "reliability_proteins.png", dpi=150)
    plt.close(fig)


if __name__ == "__main__":
    common.run(__doc__, __file__, measure, section, figure, parts="", only="", folds=5)
