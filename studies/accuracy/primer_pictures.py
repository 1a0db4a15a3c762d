"""Draw the pictures of docs/primer.md, from the models that the examples on that page fit.

The examples of the page are run first, so that the pictures show the same data and models as its text.
"""

from __future__ import annotations

import doctest
from typing import Any

import numpy as np

from studies import common
from studies.common import COLOURS, ROOT

PAGE = ROOT / "docs" / "primer.md"
RECORDING = 23  # a test recording with all activities, and with a mistake of the chain
PALE = {"rest": "#56B4E9", "walk": "#E69F00", "run": "#D55E00"}
LETTERS = {"rest": "-", "walk": "w", "run": "R"}


def names_of_page() -> dict[str, Any]:
    """Run the examples of the page and return the variables that they leave."""
    names: dict[str, Any] = {}
    for example in doctest.DocTestParser().get_examples(PAGE.read_text(encoding="utf-8")):
        exec(compile(example.source, str(PAGE), "exec"), names)
    return names


def draw_chain(page: dict[str, Any]) -> None:
    """Draw the labels of one recording: the true ones, those of single tokens, and those of the chain."""
    x, y = page["test"].X[RECORDING], page["y_test"][RECORDING]
    rows = {"true": y, "each token alone": page["alone"].predict(x), "as a chain": page["crf"].predict([x])[0]}
    with common.picture("primer_chain", 1, 1, dpi=130, figsize=(7, 2)) as (_, ax):
        for row, (name, labels) in enumerate(rows.items()):
            for t, label in enumerate(labels):
                ax.barh(row, 1, left=t, height=0.86, color=PALE[label], edgecolor="white", linewidth=1)
                ax.text(t + 0.5, row, LETTERS[label], ha="center", va="center", fontsize=9)
            if name != "true":
                ax.text(len(x) + 0.3, row, f"{np.mean(labels == y):.0%}", va="center", fontsize=10)
        ax.set(yticks=range(3), yticklabels=rows, xticks=[], xlim=(0, len(x) + 3), xlabel="seconds")
        ax.invert_yaxis()
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        patches = [ax.barh(0, 0, color=colour, label=f"{name} ({LETTERS[name]})") for name, colour in PALE.items()]
        ax.legend(handles=patches, loc="lower center", bbox_to_anchor=(0.42, 1.0), ncols=3, frameon=False, fontsize=10)


def draw_transitions(page: dict[str, Any]) -> None:
    """Draw the scores of transitions, and the probabilities of the second token alone and in the chain."""
    alone, crf, x = page["alone"], page["crf"], page["x"]
    table = crf.transition_table()
    with common.picture("primer_transitions", 1, 2, dpi=130, figsize=(7, 2.9), width_ratios=(1, 1.5)) as (_, axes):
        left, right = axes
        left.imshow(table, cmap="PuOr_r", vmin=-3, vmax=3)
        for (i, j), value in np.ndenumerate(table.to_numpy()):
            left.text(j, i, f"{value:.1f}", ha="center", va="center")
        left.set(xticks=range(3), yticks=range(3), xticklabels=table.columns, yticklabels=table.index)
        left.set(xlabel="label of the next token", ylabel="label of a token", title="transitions")
        bars = {"alone": alone.predict_proba(x)[1], "in the chain": crf.predict_proba([x])[0][1]}
        for k, (name, p) in enumerate(bars.items()):
            drawn = right.bar(
                np.arange(3) + 0.4 * k - 0.2, p, 0.38, color=COLOURS[1 - k], hatch="//" * (1 - k), label=name
            )
            right.bar_label(drawn, fmt="%.2f", fontsize=9)
        right.set(xticks=range(3), xticklabels=crf.classes_, ylim=(0, 1.12), ylabel="probability")
        right.set_title("labels of the second token")
        right.spines[["top", "right"]].set_visible(False)
        right.legend(frameon=False, loc="upper left")


def draw_kernel(page: dict[str, Any]) -> None:
    """Draw the score of "on" less that of "off" against the temperature, for both kernels."""
    grid = np.linspace(5, 35, 300)[:, None]
    temperature, is_on = np.vstack(page["X"])[:, 0], np.hstack(page["y"]) == "on"
    with common.picture("primer_kernel", 1, 2, dpi=130, figsize=(7, 2.9), sharey=True) as (_, axes):
        for ax, name, colour in zip(axes, ("linear", "kernel"), COLOURS[:2], strict=True):
            model = page[name]
            # A sequence with one token has no transitions: its log odds are the difference of the scores.
            p = np.concatenate(model.predict_proba(grid, lengths=np.ones(len(grid), int)))
            ax.plot(grid, np.log(p[:, 1] / p[:, 0]), color=colour, linewidth=2)
            ax.axhline(0, color="#999999", linewidth=0.8)
            for on, height, mark, place in ((True, 9.2, "on", 20), (False, -9.2, "off", 30)):
                ax.plot(
                    temperature[is_on == on], np.full((is_on == on).sum(), height), "|", color="#555555", alpha=0.25
                )
                ax.text(place, height, mark, ha="center", va="center")
            score = model.score(page["X_new"], page["y_new"])
            ax.set(xlim=(5, 35), ylim=(-10.5, 10.5), xlabel="temperature, °C; a line for each hour")
            ax.set_title(f"{'linear' if name == 'linear' else 'kernel rbf'}: {score:.0%} of new tokens right")
            ax.spines[["top", "right"]].set_visible(False)
        axes[0].set_ylabel("score of on minus score of off", fontsize=9)


def draw_certificate(page: dict[str, Any]) -> None:
    """Draw the objective and its lower bound against the passes over the data."""
    model = page["kernel"]
    gap, passes, _ = model.gap_curve_.T
    objective = model.objective_curve_
    lower = np.maximum.accumulate(np.maximum(objective * (1 - gap), 0))
    with common.picture("primer_certificate", 1, 1, dpi=130, figsize=(7, 2.6)) as (_, ax):
        ax.plot(passes, objective, ".-", color=COLOURS[0], label="objective")
        ax.plot(passes, lower, ".--", color=COLOURS[1], label="lower bound")
        ax.fill_between(passes, lower, objective, color="#cccccc", alpha=0.4, label="the minimum is in here")
        ax.set(xlabel="passes over the data", xlim=(0, None), ylim=(0, 2.2 * objective[-1]))
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False)


def main(arguments: list[str]) -> None:
    """Draw all pictures."""
    if arguments:
        raise SystemExit(__doc__)
    page = names_of_page()
    draw_chain(page)
    draw_transitions(page)
    draw_kernel(page)
    draw_certificate(page)
