"""Labels while tokens arrive: accuracy against the number of later tokens that a label waits for.

Activities of people who wear a sensor without battery, room S1 -> S2, and occupancy of an office, train -> test1 and
test2, by day; columns are scaled by the training data. A ChainCRF with all its defaults is fitted to whole sequences,
and streams give each token of the test sequences the likeliest label at a lag: given the tokens so far and `lag` more.
*Whole* is the likeliest label given the whole sequence, as `predict_proba` has it. *C at lag 0* is a ChainCRF with
C=HeldOut("flat_accuracy", lag=0) and the kernel of the first: C is chosen by the labels that a stream gives at once.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from kernelcrf import ChainCRF
from kernelcrf.rules import HeldOut
from studies import common
from studies.accuracy.activity import DATA

LAGS = (0, 1, 2, 3, 5, 10, 20, 50, 100)
SETS = {"activity": "activity, S1 to S2", "occupancy": "occupancy"}
OPTIONS = {"data": ";".join(SETS)}


def labels_of(crf: Any, x: np.ndarray, lag: int) -> np.ndarray:
    """Return the labels at a lag."""
    live = crf.stream(lag=lag)
    return np.concatenate([live.extend(x).lagged.labels, live.finish().lagged.labels])


def accuracies(crf: Any, Z: list[Any], z: list[Any]) -> dict[str, Any]:
    """Return the share of right labels at each lag, and given whole sequences."""
    found = {
        lag: {"lagged": common.accuracy(common.right_tokens([labels_of(crf, x, lag) for x in Z], z))} for lag in LAGS
    }
    whole = [crf.classes_[p.argmax(axis=1)] for p in crf.predict_proba(Z)]
    return {"lags": found, "whole": common.accuracy(common.right_tokens(whole, z)), "tokens": sum(map(len, z))}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in options.data.split(";"):
        train, test = DATA[SETS[name]]()[0]
        scaler = StandardScaler().fit(np.concatenate([x for x, _ in train]))
        (X, y), (Z, z) = (
            ([scaler.transform(x) for x, _ in part], [np.asarray(labels) for _, labels in part])
            for part in (train, test)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            crf = ChainCRF(random_state=0).fit(X, y)
            kernel = crf.kernel_.kernel
            own = ChainCRF(kernel, C=HeldOut("flat_accuracy", lag=0), random_state=0).fit(X, y)
        found[name] = accuracies(crf, Z, z) | {"C": [crf.C_, own.C_], "kernel": str(kernel)}
        found[name]["own"] = {lag: one["lagged"] for lag, one in accuracies(own, Z, z)["lags"].items()}
        print(name, found[name], flush=True)
    return {"data": found}


def figure(results: dict[str, Any]) -> None:
    with common.picture("streams", 1, 2, figsize=(8, 3)) as (_, axes):
        for axis, (name, one) in zip(axes, results["data"].items(), strict=False):
            lags = [int(lag) for lag in one["lags"]]
            sides = {
                "C by likelihood": [row["lagged"] for row in one["lags"].values()],
                "C by right labels at lag 0": list(one["own"].values()),
            }
            for (label, right), colour, marker in zip(sides.items(), common.COLOURS, "os", strict=False):
                axis.plot(
                    range(len(lags)), [100 * value for value in right], color=colour, marker=marker, markersize=4,
                    label=label,
                )  # fmt: skip
            axis.axhline(
                100 * one["whole"], color="0.5", linestyle="--", linewidth=1, label="C by likelihood, whole sequence"
            )
            axis.set_xticks(range(len(lags)), [str(lag) for lag in lags])
            axis.set(title=name, xlabel="lag in tokens", ylabel="right labels, %")
        axes[0].legend(frameon=False, fontsize=8)


def section(results: dict[str, Any]) -> str:
    tables, changes = [], []
    for name, one in results["data"].items():
        rows = [[lag, f"{100 * row['lagged']:.2f}", f"{100 * one['own'][lag]:.2f}"] for lag, row in one["lags"].items()]
        header = ["lag", "right labels, %", "right labels with the C chosen for lag 0, %"]
        chosen, at_lag = one["C"]
        tables.append(
            f"**{name[0].upper()}{name[1:]}**: {one['tokens']:,} test tokens, kernel {one['kernel']}. C is {chosen:g}, "
            f"and {at_lag:g} if it is chosen for lag 0. With whole sequences, {100 * one['whole']:.2f} % are right.\n\n"
            f"{common.markdown(header, rows, words=())}"
        )
        gain = 100 * (one["own"]["0"] - one["lags"]["0"]["lagged"])
        changes.append(f"{abs(gain):.2f} points {'more' if gain > 0 else 'fewer'} right labels on {name}")
    joined = "\n\n".join(tables)
    return f"""## Labels while tokens arrive

With `stream(lag=lag)`, a ChainCRF labels each token when `lag` more tokens have arrived. The data are *S1 to S2* and
*occupancy* of the section above. The second column has the C of `C="auto"`, which is chosen by the likelihood of whole
sequences. The third has a C that is chosen by the labels that a stream gives at once: `C=HeldOut("flat_accuracy",
lag=0)`.

![Right labels against the lag](figures/streams.png)

{joined}

At lag 0, the C that is chosen for lag 0 gives {" and ".join(changes)}. It is chosen on training data, which for
activity are from another room than the test data.
"""
