"""Write the pages of the documentation that show results, from the results on file."""

from __future__ import annotations

import re
from typing import Any

from studies import common, readme
from studies.catalogue import FOLDERS, SUBJECTS, load_module
from studies.common import ROOT
from studies.reliability import drop_in
from studies.speed import cluster_model

DOCS = ROOT / "docs"
TITLES = {
    "letters": "Handwriting",
    "signals": "Signals, streams and segments",
    "speech": "Speech, and Figure 1 of the paper",
    "gpstruct": "Beside GPstruct",
    "label_sets": "Label sets and graphs",
    "choosing": "Defaults and choices",
    "updates": "Updates, and annotators who disagree",
    "kernels": "Training with kernels",
    "training": "Training linear models",
    "startup": "Start-up and size",
    "tests": "Tests of the tests",
}
# The first paragraph of all pages of a group.
WORDS = {
    "accuracy": ["[Words of the tables](index.md#words-of-the-tables) says what log-loss, landmarks and the like mean."]
}


def printed() -> list[str]:
    """Return the pages that consist of what studies printed, below docs/."""
    return [f"{FOLDERS[group]}/{subject}.md" for group, subjects in SUBJECTS.items() for subject in subjects]


def write() -> None:
    """Write the pages of docs/ that show results, and the tables of others."""
    for group, subjects in SUBJECTS.items():
        for subject, studies in subjects.items():
            found = {
                f"{group}.{name}": results for name in studies.split() if (results := common.load(f"{group}.{name}"))
            }
            sections = [section(group, name, results) for name, results in found.items()]
            title = TITLES.get(subject, subject.capitalize())
            text = "\n\n".join([f"# {title}", *WORDS.get(group, ()), *map(below, sections), footer(found)])
            (DOCS / FOLDERS[group] / f"{subject}.md").write_text(f"{text}\n", encoding="utf-8")
    cluster_model.write_page()
    drop_in.write_page()
    readme.write()


def section(group: str, name: str, results: dict[str, Any]) -> str:
    """Return the section of a study."""
    module = load_module(name)
    if group == "accuracy":
        return str(module.section(results)).strip()
    heading, _, text = (module.__doc__ or "").strip().partition("\n\n")
    body = module.table(results) if group == "speed" else trial_table(name)
    return f"## {heading.rstrip('.')}\n\n{text.strip()}\n\n{body.strip()}"


def below(section: str) -> str:
    """Return a section with links as they are one folder further down."""
    return re.sub(r"\]\((?=figures/|[a-z_]+/|[a-z_]+\.md)", "](../", section)


def footer(found: dict[str, Any]) -> str:
    """Return how a page was made: the versions that its sections share, and the command of each section."""
    environments = [results["environment"] for results in found.values()]
    everything: dict[str, str] = {}
    for environment in environments:
        everything |= environment
    shared = {key: value for key, value in everything.items() if all(e.get(key, value) == value for e in environments)}
    lines = []
    for name, results in found.items():
        facts = []
        if "seconds" in results and "commit" in results:
            minutes = round(results["seconds"] / 60)
            facts = [f"{minutes} min" if minutes else "less than 1 min", f"commit {results['commit']}"]
        facts += [version(key, value) for key, value in results["environment"].items() if key not in shared]
        lines.append(f"- `python -m studies {name}`: {', '.join(facts)}")
    versions = ", ".join(version(key, value) for key, value in shared.items())
    return "\n".join(["## Commits and versions", "", f"{versions}.", "", *lines])


def version(name: str, value: str) -> str:
    """Return the version of a package, or the number of cores, in words."""
    named = {"python": f"Python {value}", "blas": f"BLAS of {value.replace(', ', ' and ')}", "cores": f"{value} cores"}
    return named.get(name, f"{name} {value}")


def trial_table(name: str) -> str:
    """Return the trials of a study as a table, with the list of findings below theirs."""
    rows = []
    for row in common.known_trials(name).values():
        failed = f"{row['failed']:,}" if row["times"] else readme.NONE
        cells = (row["tried"], f"{row['times']:,}", failed, row["holds"])
        rows.append([cell.replace("|", "\\|") for cell in cells])
    text = common.markdown(("what was tried", "times", "fails now", "what holds now"), rows, (0, 3))
    return text if name != "reliability.findings" else f"{text}\n\n{load_module(name).faults()}"
