"""How sure is this entity? Probabilities of spans, and labels that are chosen by spans.

Chunking (CoNLL-2000) and emerging entities (WNUT-17): a linear ChainCRF on the usual templates for chunks and on those
for entities (`accuracy.tagging_tasks`), C = 1, fitted to 1e-3. It is fitted to train without its last tenth, or to
train; temperatures are chosen on that tenth, or on dev, and scores are those of the test set.

The spans are those of the likeliest labelling. Each has the exact probability of `predict_spans`, also after
temperatures that are chosen by the likelihood of labellings and of spans. Beside it stand the least, the product and
the mean of the marginals of its labels, which can be computed without the library. A span is right if the true labels
have it. The log-loss, the Brier score and the calibration error (15 bins) are those of the event that it is right.

F1 scores compare the likeliest labelling with decoding="f1"; p-values are those of a bootstrap over sentences.

US addresses, five folds: a parser like usaddress fails if a label occurs in two places of an address. The likeliest
labelling is compared with the likeliest one in which all tokens of a label are next to each other, from
`k_best(where=...)`; the features are those of the package usaddress, and ChainCRF has C = 5 and all weights.
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.model_selection import KFold

from kernelcrf import ChainCRF, TemperatureScaling
from kernelcrf.answers.spans import PredictedSpan, right_spans
from kernelcrf.datasets import load_us_addresses
from kernelcrf.metrics import span_f1, span_reliability, spans
from studies import common
from studies.accuracy.tagging_tasks import TASKS, TEMPLATES, TOL, Data, f1_difference, parts_of
from studies.accuracy.text_features import WindowFeatures

SETS = {"chunking": "usual", "entities": "entities"}
NAMES = {"chunking": "CoNLL-2000", "entities": "WNUT-17"}
LEAST_SHOWN = 10  # spans in a bin of the picture
TOKENS = {"least marginal": np.min, "product of marginals": np.prod, "mean of marginals": np.mean}


def rows_of(window: WindowFeatures, data: Data) -> list[Any]:
    X = window.transform(data.columns)
    ends = np.append(0, np.cumsum(data.lengths))
    return [X[low:high] for low, high in pairwise(ends)]


def scores(y: list[list[str]], found: list[list[PredictedSpan]]) -> dict[str, Any]:
    """Return the log-loss, the Brier score and the calibration error of the probabilities of spans."""
    p, right = right_spans(y, found)
    q = np.clip(np.where(right, p, 1 - p), 1e-12, 1.0)
    bins = span_reliability(y, found, n_bins=10)
    filled = bins.weight >= LEAST_SHOWN
    return {
        "log_loss": float(-np.log(q).mean()),
        "brier": float(np.square(p - right).mean()),
        "error": span_reliability(y, found).error,
        "curve": [bins.confidence[filled].tolist(), bins.accuracy[filled].tolist()],
    }


def by_tokens(crf: ChainCRF, X: list[Any], found: list[list[PredictedSpan]], rule: Any) -> list[list[PredictedSpan]]:
    """Return the spans with probabilities that a rule computes from the marginals of their labels."""
    chosen = [p.max(axis=1) if len(p) else np.empty(0) for p in crf.predict_proba(X)]
    column = {label: k for k, label in enumerate(crf.classes_.tolist())}
    for own, P, labels in zip(chosen, crf.predict_proba(X), crf.predict(X), strict=True):
        own[:] = P[np.arange(len(own)), [column[label] for label in labels.tolist()]]
    return [
        [span._replace(probability=float(rule(own[span.start : span.end]))) for span in row]
        for own, row in zip(chosen, found, strict=True)
    ]


def counts(y: list[list[str]], tags: list[Any]) -> list[tuple[int, int, int]]:
    both = [(set(spans(a)), set(spans(b.tolist()))) for a, b in zip(y, tags, strict=True)]
    return [(len(a & b), len(a), len(b)) for a, b in both]


def task(name: str) -> dict[str, Any]:
    """Return the calibration of spans and the F1 scores on one data set."""
    part, held_out, _, test = parts_of(TASKS[name], vectors=False)
    window = WindowFeatures(TEMPLATES[SETS[name]])
    X = window.fit_transform(part.columns)
    crf = ChainCRF("linear", C=1.0, tol=TOL).fit(X, np.concatenate(part.y), lengths=part.lengths)
    Z, D = rows_of(window, test), rows_of(window, held_out)
    found = crf.distribution(Z).spans()
    rows = {"exact": scores(test.y, found)}
    for likelihood in ("labelling", "span"):
        scaled = TemperatureScaling(crf, likelihood=likelihood).fit(D, held_out.y)
        row = scores(test.y, scaled.estimator_.distribution(Z).spans())
        rows[f"exact, temperature by {likelihood}s"] = row | {"temperature": scaled.temperature_}
    for rule, function in TOKENS.items():
        rows[rule] = scores(test.y, by_tokens(crf, Z, found, function))
    start = time.perf_counter()
    best = crf.predict(Z)
    middle = time.perf_counter()
    by_f1 = crf.set_params(decoding="f1").predict(Z)
    end = time.perf_counter()
    gain, p = f1_difference(counts(test.y, by_f1), counts(test.y, best))
    return {
        "spans": sum(map(len, found)),
        "right": float(right_spans(test.y, found)[1].mean()),
        "rows": rows,
        "viterbi": span_f1(test.y, [one.tolist() for one in best]),
        "f1": span_f1(test.y, [one.tolist() for one in by_f1]),
        "gain": gain,
        "p": p,
        "times": (end - middle) / (middle - start),
    }


def is_together(labels: np.ndarray) -> bool:
    """Return whether all tokens of each label are next to each other."""
    runs = spans(labels.tolist(), "runs")
    return len({run.label for run in runs}) == len(runs)


def addresses(folds: int) -> dict[str, Any]:
    """Return how often a label is in two places of an address, and the share of right addresses."""
    import usaddress

    data = load_us_addresses("train")
    X = [usaddress.tokens2features([token["word"] for token in one]) for one in data.X]
    y = [one.tolist() for one in data.y]
    best, kept, true = [], [], []
    for train, test in KFold(folds, shuffle=True, random_state=0).split(X):
        crf = ChainCRF("linear", C=5.0, tol=1e-3, weights="all")
        crf.fit([X[i] for i in train], [y[i] for i in train])
        Z = [X[i] for i in test]
        best += [labels.tolist() for labels in crf.predict(Z)]
        kept += [own[0][0].tolist() if own else None for own in crf.distribution(Z).k_best(where=is_together)]
        true += [y[i] for i in test]
    return {
        "addresses": len(true),
        "true": sum(not is_together(np.array(one)) for one in true),
        "predicted": sum(not is_together(np.array(one)) for one in best),
        "not_found": sum(one is None for one in kept),
        "best": float(np.mean([a == b for a, b in zip(best, true, strict=True)])),
        "kept": float(np.mean([(a or b) == c for a, b, c in zip(kept, best, true, strict=True)])),
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    return {"tasks": {name: task(name) for name in SETS}, "addresses": addresses(options.folds)}


def section(results: dict[str, Any]) -> str:
    tasks = results["tasks"]
    names = list(next(iter(tasks.values()))["rows"])
    lines = [
        [
            name,
            *(
                f"{own['rows'][name][key]:.{digits}f}"
                for own in tasks.values()
                for key, digits in (("log_loss", 3), ("brier", 3), ("error", 3))
            ),
        ]
        for name in names
    ]
    measures = ("log-loss", "Brier", "calibration error")
    header = ["probability of a span", *(f"{NAMES[name]} {one}" for name in tasks for one in measures)]
    f1 = [
        [
            NAMES[name],
            f"{100 * own['viterbi']:.2f}",
            f"{100 * own['f1']:.2f}",
            f"{100 * own['gain']:+.2f} ({own['p']:.3f})",
        ]
        for name, own in tasks.items()
    ]
    place = results["addresses"]
    sizes = [
        f"{own['spans']:,} predicted spans of {NAMES[name]} ({100 * own['right']:.1f} % right)"
        for name, own in tasks.items()
    ]
    return f"""## How sure is this entity?

Each predicted span has a probability that it is right. The table says how good these probabilities are,
for {" and ".join(sizes)}. The models are linear, with C = 1, which is not tuned, and fitted to train alone. Their F1 is
therefore not that of other sections.

- *exact*: the probability that `predict_spans` gives.
- *temperature by labellings*: the same, after a temperature that makes held-out labellings most likely.
- *temperature by spans*: the same, after a temperature that best says which predicted spans of held-out data are right.
- *least*, *product* and *mean of marginals*: computed from the probabilities of single labels, without the library.

{common.markdown(header, lines)}

![Share of right spans against their probability](figures/sure.png)

The next table has the F1 of spans by the likeliest labelling, and by the labels of the best expected F1.

{common.markdown(["data", "likeliest labelling", '`decoding="f1"`', "difference (p)"], f1)}

The likeliest labelling leaves out an entity when "no entity" is more probable. For F1 it can pay to predict it even
then: if its probability is above half of the F1 that can be reached.

US addresses, C = 5: {place["predicted"]} of {place["addresses"]:,} predictions have a label in two separate places, and
so have {place["true"]} of the true labellings. With `k_best(where=...)`, every label is in one place. Then
{100 * place["kept"]:.2f} % of the addresses are right; by the likeliest labelling, it is {100 * place["best"]:.2f} %.
"""


def figure(results: dict[str, Any]) -> None:
    shown = {
        "exact": "exact",
        "exact, temperature by labellings": "exact, with a temperature",
        "least marginal": "least marginal",
        "product of marginals": "product of marginals",
    }
    with common.picture("sure", 1, 2, figsize=(8, 3.8), sharey=True) as (_, axes):
        for ax, (name, own) in zip(axes, results["tasks"].items(), strict=True):
            ax.plot([0, 1], [0, 1], "--", color="grey", linewidth=1)
            for colour, (row, label) in zip(common.COLOURS, shown.items(), strict=False):
                ax.plot(*own["rows"][row]["curve"], "o-", color=colour, label=label, markersize=4)
            ax.set(title=NAMES[name], xlabel="probability of the span", xlim=(0, 1), ylim=(0, 1.02))
        axes[0].set(ylabel="share of right spans")
        axes[0].legend(frameon=False, loc="upper left")


OPTIONS: dict[str, Any] = {"folds": 5}
