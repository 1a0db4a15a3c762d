"""Summarise a fitted ChainCRF (sizes, gap to the optimum, settings) as plain values, and as HTML for notebooks."""

from __future__ import annotations

import json
from copy import copy
from html import escape
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.rules import AUTO, EVIDENCE, find_C_rule
from kernelcrf.terminal import printable

SHOWN_LABELS = 30
# The entry of metadata_ in which `kernelcrf fit` stores the value "C" and a text: "by" says how C was chosen on the
# file of --dev, and "because" says why C="auto" chose nothing.
CHOICE_OF_C = "choice_of_C"
RULES_OF_C = {AUTO: 'likelihood of held-out sequences (C="auto")', EVIDENCE: 'evidence (C="evidence")'}
STYLE = (
    ".kernelcrf-summary{font-family:system-ui,sans-serif;font-size:.85em;margin:.3em 0}"
    ".kernelcrf-summary table{border-collapse:collapse}"
    ".kernelcrf-summary th{text-align:left;font-weight:600;padding:.15em 1em .15em 0;vertical-align:top}"
    ".kernelcrf-summary td{text-align:left;padding:.15em 0;overflow-wrap:anywhere}"
)


def summarise(crf: BaseEstimator) -> dict[str, Any]:
    """Return a dict that describes a fitted model of sequences: sizes, certified gap, and non-default parameters."""
    # If the original is fitted again, the copy keeps its model.
    crf = copy(crf)
    certificate = crf.certificate_
    _, passes, seconds = crf.gap_curve_[-1].tolist() if len(crf.gap_curve_) else (None, None, None)
    parameters, defaults = crf.get_params(deep=False), type(crf)().get_params(deep=False)
    changed = {name: value for name, value in parameters.items() if not _is_same(value, defaults[name])}
    summary: dict[str, Any] = {
        "kernel": _kernel_text(crf.kernel_),
        "C": float(crf.C_) if np.isfinite(crf.C_) else None,
        **_choice_of_C(crf),
        **_compared(crf),
        "labels": crf.classes_.tolist(),
        "inputs": crf.n_features_in_,
        "landmarks": None if crf.landmark_positions_ is None else len(crf.landmark_positions_),
        "weights": len(crf.model_.theta),
        "status": certificate.status,
        "objective": certificate.objective if np.isfinite(certificate.objective) else None,
        "certified gap": certificate.relative_gap if certificate.is_certified else None,
        "full gap": None if certificate.gap_full is None else certificate.gap_full / abs(certificate.objective),
        "iterations": crf.n_iter_,
        # The dual solver counts only the points at which it evaluates the objective as iterations.
        "passes": passes,
        "solver seconds": seconds,
        "settings": {name: _plain(value) for name, value in changed.items()},
    }
    return {name: value for name, value in summary.items() if value is not None}


def _kernel_text(kernel: InputKernel | dict[str, InputKernel]) -> str:
    if isinstance(kernel, dict):
        return ", ".join(f"{name}: {input_kernel.kernel}" for name, input_kernel in kernel.items())
    return str(kernel.kernel)


def text_of(value: object) -> str:
    """Return a value of the summary as one line of text that is safe to show on a terminal."""
    text = str(value)
    if isinstance(value, dict):
        text = ", ".join(f"{name}={entry}" for name, entry in value.items()) or "defaults"
    elif isinstance(value, list):
        more = f" and {len(value) - SHOWN_LABELS} more" if len(value) > SHOWN_LABELS else ""
        text = f"{len(value)}: {' '.join(map(str, value[:SHOWN_LABELS]))}{more}"
    elif isinstance(value, int | float):
        text = f"{value:,.4g}" if isinstance(value, float) else f"{value:,}"
    return printable(text)


def summary_html(crf: BaseEstimator) -> str:
    """Return the summary of a fitted ChainCRF as an HTML table, in which all names and values are escaped."""
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(text_of(value))}</td></tr>" for name, value in summarise(crf).items()
    )
    return f'<style>{STYLE}</style><div class="kernelcrf-summary"><table>{rows}</table></div>'


def _compared(crf: BaseEstimator) -> dict[str, str]:
    """Return a dict with a text on the best held-out score of each kernel; it is empty if no kernels were compared."""
    table, best = crf.search_, dict[str, float]()
    for kernel, gamma, score in zip(table["kernel"], table["gamma"], table["score"], strict=True):
        if kernel is not None:
            name = kernel if gamma is None else f"{kernel} with gamma {gamma:.3g}"
            best[name] = max(best.get(name, -np.inf), score)
    return {"compared": ", ".join(f"{name} {score:.3f}" for name, score in best.items())} if best else {}


def describe_C(facts: dict[str, Any]) -> str:
    """Return a text to show after the value of C: how C was chosen, or why C is 1; "" if this is unknown."""
    if "C is 1 because" in facts:
        return f"because {facts['C is 1 because']}"
    return f"chosen by {facts['C chosen by']}" if "C chosen by" in facts else ""


def _choice_of_C(crf: BaseEstimator) -> dict[str, str]:
    """Return a dict with a text on how C was chosen, or why C is 1; it is empty if C was given or is not known."""
    # The C of an update is that of its prior, or chosen on held-out sequences.
    if np.isnan(crf.C_) or crf.model_.has_prior:
        return {}
    kept = crf.metadata_.get(CHOICE_OF_C)
    # A later fit in Python may have had another C.
    noted = kept if isinstance(kept, dict) and kept.get("C") == crf.C_ else {}
    rule = find_C_rule(crf.C)
    if rule is not None:
        if rule.of_C == AUTO and "because" in noted:
            return {"C is 1 because": str(noted["because"])}
        return {"C chosen by": RULES_OF_C[rule.of_C]} if isinstance(rule.of_C, str) else {}
    return {"C chosen by": str(noted["by"])} if "by" in noted else {}


def _is_same(value: object, default: object) -> bool:
    return type(value) is type(default) and bool(value == default)


def _plain(value: object) -> object:
    try:
        json.dumps(value)
    except TypeError:
        return repr(value)
    return value
