"""Weights of a fitted model as tables: the features or landmarks with the largest weights for each label.

Only differences between labels matter, so the weight of a feature f for label j is compared with its mean over labels,

    coef_fj - mean_l coef_fl.

If the kernel k has landmarks b, the score of label j for a token x is sum_b k(x, b) a_b(j). The weight of landmark b
for label j is then a_b(j) - mean_l a_b(l).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelcrf.arrays import Places, UserData
from kernelcrf.models.kernel import KernelModel


def top_terms(
    model: KernelModel, labels: Sequence[UserData], n: int, positions: Places | None = None
) -> dict[str, list[Any]]:
    """Return the n features or landmarks with the largest weights for each label, as a dict from column names to lists.

    positions : the sequence and the token of each landmark, which are added as two columns; None adds no column.
    """
    names, weights = np.array(model.term_names, object), model.dual_coef
    weights = weights - weights.mean(axis=1, keepdims=True)
    order = np.argsort(-weights, axis=0, kind="stable")[:n]
    rows = order.T.ravel()
    columns: dict[str, list[Any]] = {
        "label": [label for label in labels for _ in range(len(order))],
        "feature": names[rows].tolist(),
    }
    if positions is not None:
        columns["sequence"], columns["token"] = positions[rows].T.tolist()
    return columns | {"weight": np.take_along_axis(weights, order, axis=0).T.ravel().tolist()}


def data_frame(caller: str, advice: str, data: UserData, **options: UserData) -> Any:
    """Return pandas.DataFrame(data, **options); raise an error if pandas is not installed.

    caller, advice : for the error message, the method that needs pandas, and what to use instead of this method.
    """
    try:
        import pandas as pd
    except ImportError:
        raise ImportError(
            f"{caller} needs pandas, which is not installed: run pip install pandas, or use {advice}"
        ) from None
    return pd.DataFrame(data, **options)
