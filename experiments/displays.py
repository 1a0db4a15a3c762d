"""Draws docs/figures/displays.png: the seven displays of `kernelcrf.plotting` on sequences of a known law."""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import common
from kernelcrf import ChainCRF
from kernelcrf.datasets import make_sequences
from kernelcrf.plotting import (
    ConfusionDisplay,
    GapDisplay,
    LabelGraphDisplay,
    MarginalsDisplay,
    ReliabilityDisplay,
    ResidualDisplay,
    TransitionsDisplay,
)


def main() -> None:
    train, test = make_sequences(200, random_state=0), make_sequences(200, random_state=1)
    crf = ChainCRF("rbf", C=10.0, n_components=100, solver="lbfgs", random_state=0).fit(train.X, train.y)
    linear = ChainCRF("linear", C=10.0, solver="lbfgs").fit(train.X, train.y)
    figure, axes = plt.subplots(3, 3, figsize=(15, 12), layout="constrained")
    TransitionsDisplay.from_estimator(crf, ax=axes[0, 0])
    MarginalsDisplay.from_estimator(crf, test.X[0], test.y[0], ax=axes[0, 1])
    ConfusionDisplay.from_estimator(crf, test.X, test.y, ax=axes[0, 2])
    for column, against in enumerate(("passes", "seconds")):
        for name, model in (("rbf", crf), ("linear", linear)):
            GapDisplay.from_estimator(model, against=against, name=name, ax=axes[1, column])
    for name, model in (("rbf", crf), ("linear", linear)):
        ReliabilityDisplay.from_estimator(model, test.X, test.y, name=name, ax=axes[1, 2])
    ResidualDisplay.from_estimator(crf, train.X, ax=axes[2, 0])
    LabelGraphDisplay.from_estimator(crf, ax=axes[2, 1])
    LabelGraphDisplay(linear.transitions_ + linear.transitions_.T, linear.classes_).plot(ax=axes[2, 2])
    figure.savefig(common.FIGURES / "displays.png", dpi=80)


if __name__ == "__main__":
    main()
