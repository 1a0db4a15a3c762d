"""Joins the sections of all studies whose results are on file into docs/results.md.

python experiments/report.py
"""

from __future__ import annotations

from importlib import import_module

import common

STUDIES = (
    "figure_1",
    "prosody",
    "letters",
    "gpstruct",
    "tagging_tasks",
    "proteins",
    "occupancy",
    "multilabel",
    "structure",
    "label_efficiency_letters",
    "label_efficiency_prosody",
    "active_learning",
    "evidence",
    "calibration",
)
HEAD = """# Results

What was measured, good or bad, on public data. Every section is written by `python experiments/report.py` from the
results that the study's own script left in `experiments/results/`; the script's docstring has the protocol.
Hyperparameters are chosen without test labels, for baselines as for kernelcrf. Long studies were run in parts, beside
other work and over several commits, and put together by their scripts from what each part had left: the minutes and
the commit below a section are those of its last run.
"""


def main() -> None:
    parts = [HEAD]
    for name in STUDIES:
        results = common.load(name)
        if results is None:
            continue
        text = import_module(name).section(results)
        facts = ", ".join(f"{package} {value}" for package, value in results["environment"].items())
        run = f"`python experiments/{name}.py`, {results['seconds'] / 60:.0f} min, commit {results['commit']}"
        parts.append(f"{text.strip()}\n\n*{run}, {facts}.*\n")
    (common.ROOT / "docs" / "results.md").write_text("\n".join(parts))


if __name__ == "__main__":
    main()
