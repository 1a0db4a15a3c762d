"""Write the pages of the documentation that show results, from the results on file."""

from __future__ import annotations

import re
from typing import Any

from studies import common, readme
from studies.catalogue import SUBJECTS, load_module, names
from studies.common import ROOT
from studies.reliability import drop_in
from studies.speed import cluster_model

DOCS = ROOT / "docs"
TITLES = {
    "letters": "Handwriting",
    "signals": "Signals, streams and segments",
    "proteins": "Proteins",
    "text": "Text",
    "parsers": "Parsers",
    "music": "Music",
    "speech": "Speech, and Figure 1 of the paper",
    "gpstruct": "Beside GPstruct",
    "label_sets": "Label sets and graphs",
    "probabilities": "Probabilities",
    "choosing": "Defaults and choices",
    "updates": "Updates, and annotators who disagree",
}
PAGES = {"speed": "benchmarks.md", "reliability": "reliability.md"}
HEADS = {
    "speed": """# Benchmarks

Each table is printed by the study that it names (`python -m studies NAME`), which runs both sides in turn, in one
process or in alternating ones. Unless a section says otherwise, times are wall clock, on a machine that others may use
too: read the ratios.
`python -m studies run speed` measures all of them again. The tables of `speed.cluster` are in [scaling](scaling.md).
The rule of `C="auto"` is new since commit 6d35dd3: tables of older commits have the rule before it, which tried half as
many tokens.
""",
    "reliability": """# Reliability

This page lists what was tried to break kernelcrf, how many times, what failed before, and what holds now.
`python -m studies pages` writes each table from the results in `studies/reliability/results`; quick versions of the
trials run with the tests. *Failed before* counts the same trials on the commit named below the table, before the faults
that they found were mended; each fault has a test that failed then.

An audit, an attack and a trial of version 0.1.0 found correct answers to questions that the user had not asked. Each
class of these faults ended with one change of structure, so that the next fault of its kind cannot be written:

- *An answer of two models.* A method reads the fitted model once, and wrappers, reports and plots copy the estimator
  first (`estimators/base.py`). A test exchanges the model after its first read, for every public method and attribute.
- *A model other than the one asked for.* A model keeps the specification of its fit (`fitting/specification.py`). A
  warm start, a prior and a checkpoint compare it with what the new fit asks for, and refuse every difference that is
  not on a short list (`estimators/inheritance.py`).
- *A file that claims more than it holds.* One budget, made from the size of the file, pays for the memory that the
  first answer takes (`persistence/budget.py`). Each kind of model must say how much that is.
- *Data that are read by position, and labels that mean two things.* The names of columns have one reader for all
  estimators, whatever their type (`readers/columns.py`), and one rule says whether -1 is a label
  (`readers/missing_labels.py`).
- *Work that is lost at the end.* Files are written in one way (`persistence/output_file.py`). Before a fit, the
  temporary file is opened exactly as the save will open it. A lock says whether such a file is abandoned, and the next
  writer removes it.
- *A kind of clique that a short cut forgets.* The short cut for sequences of one token counts all terms except
  transitions, which such sequences lack (`solvers/preconditioners.py`), so that a new kind of clique takes the general
  way.
- *Work on a cluster that a failure leaves behind.* All work of a call is released when the call ends, whatever fails. A
  lost client or scheduler is one error that names `checkpoint=` (`distributed/cluster.py`).

Walks of 2,000 random steps over `fit`, `set_params`, `warm_start`, `prior`, `save` and `load`, and threads that fit
again, run with the tests (`tests/reliability/test_walk.py`): every answer is that of a fresh estimator, or an error
names a parameter.
""",
}


def printed() -> list[str]:
    """Return the pages that consist of what studies printed, below docs/."""
    return [*(f"results/{subject}.md" for subject in SUBJECTS), *PAGES.values()]


def write() -> None:
    """Write the pages of docs/ that show results, and the tables of others."""
    (DOCS / "results").mkdir(exist_ok=True)
    for subject, studies in SUBJECTS.items():
        found = on_file([f"accuracy.{name}" for name in studies.split()])
        sections = [load_module(name).section(results).strip() for name, results in found.items()]
        text = "\n\n".join([f"# {TITLES[subject]}", *map(below, sections), footer(found)])
        (DOCS / "results" / f"{subject}.md").write_text(f"{text}\n", encoding="utf-8")
    for group, page in PAGES.items():
        found = on_file(names(group, on_page=True))
        sections = [page_section(group, name, results) for name, results in found.items() if name != "speed.cluster"]
        (DOCS / page).write_text("\n".join([HEADS[group], *sections]), encoding="utf-8")
    cluster_model.write_page()
    drop_in.write_page()
    readme.write()


def on_file(names: list[str]) -> dict[str, Any]:
    """Return the results of those studies that have left some."""
    return {name: results for name in names if (results := common.load(name))}


def below(section: str) -> str:
    """Return a section with links as they are one folder further down."""
    return re.sub(r"\]\((?=figures/|[a-z_]+/|[a-z_]+\.md)", "](../", section)


def footer(found: dict[str, Any]) -> str:
    """Return a list that says how the sections of a page were made: commands, minutes, commits and versions."""
    lines = []
    for name, results in found.items():
        versions = ", ".join(f"{package} {value}" for package, value in results["environment"].items())
        ran = f"{results['seconds'] / 60:.0f} min, commit {results['commit']}"
        lines.append(f"- *`python -m studies {name}`, {ran}, {versions}.*")
    return "\n".join(["## Commits and versions", "", *lines])


def page_section(group: str, name: str, results: dict[str, Any]) -> str:
    """Return the section of a study on the page of its group."""
    module = load_module(name)
    heading, _, text = (module.__doc__ or "").strip().partition("\n\n")
    facts = ", ".join(f"{package} {value}" for package, value in results["environment"].items())
    ran = f"`python -m studies {name}`"
    if "seconds" in results and "commit" in results:
        ran += f", {results['seconds'] / 60:.0f} min, commit {results['commit']}"
    body = module.table(results) if group == "speed" else trial_table(name)
    earlier = common.load(name, before=True) if group == "reliability" else None
    ran += f"; before: {earlier['commit']}" if earlier else ""
    return f"## {heading.rstrip('.')}\n\n{text.strip()}\n\n{body}\n\n*{ran}, {facts}.*\n"


def trial_table(name: str) -> str:
    """Return the trials of a study as a table, with the list of findings below theirs."""
    then = common.known_trials(name, before=True)
    rows = []
    for row in common.known_trials(name).values():
        was = row["before"]
        if row["tried"] in then:
            old = then[row["tried"]]
            was = f"{old['failed']:,} of {old['times']:,}" + (f"; {was}" if was else "")
        cells = (row["tried"], f"{row['times']:,}", was or "not measured", f"{row['failed']:,}", row["holds"])
        rows.append([cell.replace("|", "\\|") for cell in cells])
    text = common.markdown(("what was tried", "times", "failed before", "fails now", "what holds now"), rows, (0, 2, 4))
    if name != "reliability.findings":
        return text
    return f"{text}\n\nThe faults:\n\n{load_module(name).faults()}"
