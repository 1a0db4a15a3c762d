"""Does one mistake cost more than another? Labels and spans by expected cost, beside Viterbi.

Emerging entities (WNUT-17): the linear ChainCRF of `accuracy.spans`, C = 1, fitted to train; a temperature is chosen on
dev. Costs are those of the test set, and no number is chosen on it.

Tokens: a token of an entity that is labelled O costs 2, 5 or 20, and every other wrong label costs 1. The labels of
ExpectedCost are compared with the likeliest labelling and with the likeliest label of each token. Spans: an entity that
is missed costs 2, 5 or 20, and an entity that is not there costs 1. Here the labels of ExpectedSpanCost are
compared with the likeliest labelling and with decoding="f1".

Costs are given per 1,000 tokens. Differences from the likeliest labelling have 95 % intervals of a paired bootstrap:
the same 2,000 draws of sentences for both rules.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from kernelcrf import ChainCRF, TemperatureScaling
from kernelcrf.decoding import ExpectedCost, ExpectedSpanCost
from kernelcrf.metrics import span_f1, spans
from studies import common
from studies.accuracy.spans import rows_of
from studies.accuracy.tagging_tasks import TASKS, TEMPLATES, TOL, parts_of
from studies.accuracy.text_features import WindowFeatures

FACTORS, N_DRAWS = (2.0, 5.0, 20.0), 2000


def token_costs(classes: list[str], missed: float) -> np.ndarray:
    """Return the costs of mistakes: a token of an entity that is labelled O costs `missed`, every other mistake 1."""
    costs = 1.0 - np.eye(len(classes))
    outside = classes.index("O")
    costs[np.arange(len(classes)) != outside, outside] = missed
    return costs


def costs_of_tokens(y: list[list[str]], labels: list[Any], classes: list[str], missed: float) -> np.ndarray:
    """Return the cost of the labels of each sentence."""
    costs, place = token_costs(classes, missed), {label: k for k, label in enumerate(classes)}
    return np.array(
        [
            sum(costs[place[a], place[b]] for a, b in zip(true, one, strict=True))
            for true, one in zip(y, labels, strict=True)
        ]
    )


def costs_of_spans(y: list[list[str]], labels: list[Any], missed: float) -> np.ndarray:
    """Return the cost of the spans of each sentence."""
    both = [(set(spans(true)), set(spans(one.tolist()))) for true, one in zip(y, labels, strict=True)]
    return np.array([missed * len(true - found) + len(found - true) for true, found in both])


def row(costs: np.ndarray, reference: np.ndarray, n_tokens: int) -> dict[str, Any]:
    """Return the cost per 1,000 tokens, and the interval of its difference from that of another rule."""
    differences = 1000 * (costs - reference) / n_tokens
    draws = np.random.default_rng(0).integers(len(costs), size=(N_DRAWS, len(costs)))
    low, high = np.quantile(differences[draws].sum(axis=1), [0.025, 0.975])
    return {"cost": 1000 * costs.sum() / n_tokens, "difference": differences.sum(), "low": low, "high": high}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    part, held_out, _, test = parts_of(TASKS["entities"], vectors=False)
    window = WindowFeatures(TEMPLATES["entities"])
    X = window.fit_transform(part.columns)
    crf = ChainCRF("linear", C=1.0, tol=TOL).fit(X, np.concatenate(part.y), lengths=part.lengths)
    Z, D = rows_of(window, test), rows_of(window, held_out)
    scaled = TemperatureScaling(crf).fit(D, held_out.y)
    plain, calibrated = crf.distribution(Z), scaled.estimator_.distribution(Z)
    classes, n_tokens = crf.classes_.tolist(), sum(map(len, test.y))
    best = plain.decode("viterbi")
    tables: dict[str, Any] = {"tokens": {}, "spans": {}}
    for missed in FACTORS:
        rule = ExpectedCost(token_costs(classes, missed), classes)
        reference = costs_of_tokens(test.y, best, classes, missed)
        tables["tokens"][str(missed)] = {
            name: row(costs_of_tokens(test.y, labels, classes, missed), reference, n_tokens)
            for name, labels in (
                ("viterbi", best),
                ("marginal", plain.decode("marginal")),
                ("ExpectedCost", plain.decode(rule)),
                ("ExpectedCost, with a temperature", calibrated.decode(rule)),
            )
        }
        by_span = ExpectedSpanCost(missed=missed, false=1.0)
        reference = costs_of_spans(test.y, best, missed)
        tables["spans"][str(missed)] = {
            name: row(costs_of_spans(test.y, labels, missed), reference, n_tokens)
            | {"f1": span_f1(test.y, [one.tolist() for one in labels])}
            for name, labels in (
                ("viterbi", best),
                ("f1", plain.decode("f1")),
                ("ExpectedSpanCost", plain.decode(by_span)),
                ("ExpectedSpanCost, with a temperature", calibrated.decode(by_span)),
            )
        }
    return {"temperature": scaled.temperature_, "tokens": n_tokens, "tables": tables}


def section(results: dict[str, Any]) -> str:
    def lines(table: dict[str, Any]) -> list[list[str]]:
        return [
            [
                f"{float(missed):g}",
                name,
                f"{one['cost']:.1f}",
                f"{one['difference']:+.1f} ({one['low']:+.1f} to {one['high']:+.1f})",
            ]
            for missed, rows in table.items()
            for name, one in rows.items()
        ]

    def beyond_chance(table: dict[str, Any], rule: str) -> int:
        return sum(rows[rule]["high"] < 0 for rows in table.values())

    header = ["a miss costs", "rule", "cost per 1,000 tokens", "beside the likeliest labelling (95 % interval)"]
    of_tokens, of_spans = results["tables"]["tokens"], results["tables"]["spans"]
    return f"""## Does one mistake cost more than another?

Entities of WNUT-17 ({results["tokens"]:,} test tokens), with the model of the section above (C = 1, not tuned).

- *viterbi*: the likeliest labelling.
- *marginal*: the likeliest label of each token.
- *f1*: the labels of the best expected F1 of spans.
- *ExpectedCost*, *ExpectedSpanCost*: the labels, or the spans, with the least expected cost.
- *with a temperature*: scores are divided by {results["temperature"]:.2f}, at which the tags of dev are most likely.

A token of an entity that is labelled O costs 2, 5 or 20, every other wrong label 1. ExpectedCost is
cheaper than the likeliest labelling, beyond chance, for {beyond_chance(of_tokens, "ExpectedCost") or "none"} of these
{len(of_tokens)} costs; with a temperature for {beyond_chance(of_tokens, "ExpectedCost, with a temperature") or "none"}.

{common.markdown(header, lines(of_tokens), words=(1,))}

A missed entity costs 2, 5 or 20, and a predicted entity that is not in the data 1. ExpectedSpanCost is cheaper than the
likeliest labelling, beyond chance, for {beyond_chance(of_spans, "ExpectedSpanCost") or "none"} of these {len(of_spans)}
costs; with a temperature for {beyond_chance(of_spans, "ExpectedSpanCost, with a temperature") or "none"}.

{common.markdown(header, lines(of_spans), words=(1,))}
"""


OPTIONS: dict[str, Any] = {}
