"""Draw the pictures of the README and of docs/plotting: sequences of a known law that no linear rule can label.

cover.png: left and middle, the plane of inputs with the tokens of the test sequences by their true labels. The ground
is the label that a single token gets there, under a linear and under a Gaussian kernel, fitted to the same sequences.
Right, the probabilities of one test sequence under the kernel CRF, with the true labels above.
displays.png: the seven displays of `kernelcrf.plotting`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelcrf import ChainCRF, plotting
from kernelcrf.datasets import make_sequences
from studies import common

LABELS, MARKERS, COLOURS = "abc", "os^", common.COLOURS[:3]
REACH, STEPS = 2.1, 160


def draw_regions(ax: Any, crf: ChainCRF, test: Any, title: str) -> None:
    """Draw the labels of single tokens over the plane, and the tokens of the test sequences."""
    from matplotlib.colors import ListedColormap

    axis = np.linspace(-REACH, REACH, STEPS)
    grid = np.column_stack([part.ravel() for part in np.meshgrid(axis, axis)])
    labels = np.concatenate(crf.predict(grid, lengths=np.ones(len(grid), int))).reshape(STEPS, STEPS)
    pale = ListedColormap(["#cfe3f0", "#f7dcc9", "#cdeae0"])
    ax.pcolormesh(axis, axis, labels, cmap=pale, vmin=0, vmax=2, shading="nearest", rasterized=True)
    X, y = np.concatenate(test.X), np.concatenate(test.y)
    for label, (colour, marker) in enumerate(zip(COLOURS, MARKERS, strict=True)):
        ax.scatter(*X[y == label][:150].T, s=7, color=colour, marker=marker, linewidths=0, label=LABELS[label])
    ax.set(xlim=(-REACH, REACH), ylim=(-REACH, REACH), xticks=[], yticks=[], aspect="equal")
    ax.set_title(f"{title}\n{crf.score(test.X, test.y):.0%} of test tokens right", fontsize=11)


def draw_sequence(ax: Any, crf: ChainCRF, x: np.ndarray, y: np.ndarray) -> None:
    """Draw probabilities along one sequence, as bars that fill up to one."""
    p, floor = crf.predict_proba([x])[0], np.zeros(len(x))
    for label, colour in enumerate(COLOURS):
        ax.bar(np.arange(len(x)), p[:, label], bottom=floor, color=colour, width=0.92)
        floor += p[:, label]
    for t, label in enumerate(y):
        ax.text(t, 1.03, LABELS[label], color=COLOURS[label], ha="center", va="bottom", fontweight="bold")
    ax.set(xlim=(-0.6, len(x) - 0.4), ylim=(0, 1.12), xticks=[], yticks=[0, 0.5, 1])
    ax.set(xlabel="tokens of one test sequence", ylabel="probability of each label")
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title("normalised probabilities\ntrue labels above the bars", fontsize=11)


def models() -> tuple[ChainCRF, ChainCRF]:
    """Return the linear CRF and the kernel CRF, not fitted."""
    kernel = ChainCRF("rbf", C=10.0, n_components=200, random_state=0)
    return ChainCRF("linear", C=10.0, solver="lbfgs"), kernel


def main(arguments: list[str]) -> None:
    """Draw both pictures."""
    if arguments:
        raise SystemExit(__doc__)
    train, test = make_sequences(200, random_state=0), make_sequences(200, random_state=1)
    linear, kernel = (model.fit(train.X, train.y) for model in models())
    with common.picture("cover", 1, 3, dpi=110, figsize=(12, 4), width_ratios=(1, 1, 1.25)) as (_, axes):
        draw_regions(axes[0], linear, test, "linear CRF")
        draw_regions(axes[1], kernel, test, f"kernel CRF, certified gap below {kernel.tol:.2%}")
        axes[0].legend(loc="lower left", fontsize=9, framealpha=0.9, handletextpad=0.1, markerscale=2)
        # The longest sequence of those in which some token is in doubt.
        doubt = [i for i, p in enumerate(kernel.predict_proba(test.X)) if 0.5 < p.max(axis=1).min() < 0.75]
        chosen = max(doubt, key=lambda i: len(test.X[i]))
        draw_sequence(axes[2], kernel, test.X[chosen], test.y[chosen])
    with common.picture("displays", 3, 3, dpi=80, figsize=(15, 12)) as (_, axes):
        plotting.TransitionsDisplay.from_estimator(kernel, ax=axes[0, 0])
        plotting.MarginalsDisplay.from_estimator(kernel, test.X[0], test.y[0], ax=axes[0, 1])
        plotting.ConfusionDisplay.from_estimator(kernel, test.X, test.y, ax=axes[0, 2])
        for name, model in (("rbf", kernel), ("linear", linear)):
            for column, against in enumerate(("passes", "seconds")):
                plotting.GapDisplay.from_estimator(model, against=against, name=name, ax=axes[1, column])
            plotting.ReliabilityDisplay.from_estimator(model, test.X, test.y, name=name, ax=axes[1, 2])
        plotting.ResidualDisplay.from_estimator(kernel, train.X, ax=axes[2, 0])
        plotting.LabelGraphDisplay.from_estimator(kernel, ax=axes[2, 1])
        steps = linear.transitions_ + linear.transitions_.T
        plotting.LabelGraphDisplay(steps, linear.classes_).plot(ax=axes[2, 2])
