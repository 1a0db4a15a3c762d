"""Draws docs/figures/cover.png, the picture of the README: sequences of a known law that no linear rule can label.

Left and middle, the plane of inputs with the tokens of the test sequences by their true labels; the ground is the label
that a token gets where it stands alone, under a linear and under a Gaussian kernel, fitted to the same sequences.
Right, the probabilities of one test sequence under the kernel CRF, with the true labels above.
"""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap

import common
from kernelcrf import ChainCRF
from kernelcrf.datasets import make_sequences

LABELS = ("a", "b", "c")
COLOURS = tuple(common.COLOURS[i] for i in (0, 1, 2))
PALE = ListedColormap(["#cfe3f0", "#f7dcc9", "#cdeae0"])
REACH, STEPS = 2.1, 160
MARKERS = ("o", "s", "^")


def regions(ax: plt.Axes, crf: ChainCRF, test: object, title: str) -> None:
    """The label of single tokens over the plane, and the tokens of the test sequences."""
    axis = np.linspace(-REACH, REACH, STEPS)
    grid = np.column_stack([part.ravel() for part in np.meshgrid(axis, axis)])
    labels = np.concatenate(crf.predict(grid, lengths=np.ones(len(grid), int))).reshape(STEPS, STEPS)
    ax.pcolormesh(axis, axis, labels, cmap=PALE, vmin=0, vmax=2, shading="nearest", rasterized=True)
    X, y = np.concatenate(test.X), np.concatenate(test.y)
    for label, (colour, marker) in enumerate(zip(COLOURS, MARKERS, strict=True)):
        ax.scatter(*X[y == label][:150].T, s=7, color=colour, marker=marker, linewidths=0, label=LABELS[label])
    ax.set(xlim=(-REACH, REACH), ylim=(-REACH, REACH), xticks=[], yticks=[], aspect="equal")
    ax.set_title(f"{title}\n{crf.score(test.X, test.y):.0%} of test tokens right", fontsize=11)


def sequence(ax: plt.Axes, crf: ChainCRF, x: np.ndarray, y: np.ndarray) -> None:
    """Probabilities along one sequence, as bars that fill up to one."""
    p, floor = crf.predict_proba([x])[0], np.zeros(len(x))
    for label, colour in enumerate(COLOURS):
        ax.bar(np.arange(len(x)), p[:, label], bottom=floor, color=colour, width=0.92)
        floor += p[:, label]
    for t, label in enumerate(y):
        ax.text(t, 1.03, LABELS[label], color=COLOURS[label], ha="center", va="bottom", fontweight="bold")
    ax.set(
        xlim=(-0.6, len(x) - 0.4), ylim=(0, 1.12), xticks=[], yticks=[0, 0.5, 1], xlabel="tokens of one test sequence"
    )
    ax.set_ylabel("probability of each label")
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title("normalised probabilities\ntrue labels above the bars", fontsize=11)


def main() -> None:
    train, test = make_sequences(200, random_state=0), make_sequences(200, random_state=1)
    kernel = ChainCRF("rbf", C=10.0, n_components=200, random_state=0).fit(train.X, train.y)
    linear = ChainCRF("linear", C=10.0).fit(train.X, train.y)
    figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained", width_ratios=(1, 1, 1.25))
    regions(axes[0], linear, test, "linear CRF")
    regions(axes[1], kernel, test, f"kernel CRF, certified gap below {kernel.tol:.2%}")
    axes[0].legend(loc="lower left", fontsize=9, framealpha=0.9, handletextpad=0.1, markerscale=2)
    # The longest sequence of those in which some token is in doubt.
    doubt = [i for i, p in enumerate(kernel.predict_proba(test.X)) if 0.5 < p.max(axis=1).min() < 0.75]
    chosen = max(doubt, key=lambda i: len(test.X[i]))
    sequence(axes[2], kernel, test.X[chosen], test.y[chosen])
    figure.savefig(common.FIGURES / "cover.png", dpi=110)


if __name__ == "__main__":
    main()
