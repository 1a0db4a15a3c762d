"""Parts of a long study, kept in a folder so that it can be stopped and taken up again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def kept(folder: str, name: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `work` returns, from the folder if it is there; without a folder nothing is kept."""
    path = Path(folder) / f"{name.replace('/', ' ')}.json"
    if folder and path.exists():
        return json.loads(path.read_text())
    found = json.loads(json.dumps(work(), default=_plain))
    if folder:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found))
    return found


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)
