"""List and run the studies, and write the pages of the documentation that show their results.

python -m studies                            list all studies
python -m studies speed.letters --rounds 2   run one; --help shows its options
python -m studies run                        run all studies that are not on file for this code of the library, except
                                             mutation, branches and compatibility of reliability: name them to run them
python -m studies run speed                  run those of a group, or those that are named
python -m studies pages                      write the pages of docs/ from the results on file

A run of an accuracy or speed study keeps its results in studies/<group>/results; `--show` only prints and draws them,
and `--discard` keeps nothing, for a quick try with small options.
Long studies keep their parts in a cache (KERNELCRF_CACHE) and go on from there after an interruption.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from studies import common, runs
from studies.common import ROOT

DOCS = ROOT / "docs"

# The studies of each group; those before the bar have a section on the page of their group, in this order, except
# speed.cluster, which is on the page on scaling.
STUDIES = {
    "accuracy": (
        "letters label_efficiency_letters activity streams segments proteins several_inputs tagging_tasks multilabel "
        "parsers references chorales lexicon gpstruct prosody figure_1 defaults elastic_net spans costs conformal "
        "calibration certified hidden structure annotators updates adaptation active_learning evidence variances "
        "leave_one_out "
        "| pictures primer_pictures"
    ),
    "speed": (
        "training penalties elastic tagging streaming streams evaluation letters classifier growth stored_features "
        "inputs graphs startup getting_started shipping chain_inference segments missing_labels solvers basis "
        "cluster | commits"
    ),
    "reliability": (
        "findings numerics concurrency interruption cluster_faults files compatibility crfsuite_models mutation "
        "branches | fuzz drop_in"
    ),
}  # fmt: skip
PAGES = {"accuracy": "results.md", "speed": "benchmarks.md", "reliability": "reliability.md"}
# Trials of the tests themselves, which run them many times: `run` leaves them out unless they are named.
OF_TESTS = ("reliability.compatibility", "reliability.mutation", "reliability.branches")
# Trials that the tests run too, with smaller numbers.
IN_TESTS = ("numerics", "concurrency", "interruption", "cluster_faults")
HEADS = {
    "accuracy": """# Results

All figures here were measured on public data, good or bad. `python -m studies pages` writes every section from the
results that the study left in `studies/accuracy/results`; the docstring of the study states its protocol.
Hyperparameters are chosen without test labels, for baselines as for kernelcrf, unless a section says otherwise. The
commits below the sections differ, but the code of the library is the same in all of them, except for the rule of
`C="auto"`, which is new since commit 6d35dd3. The older rule chose C for two tasks of
[Segments](#segments-beside-chains). Faults that were found later are listed in [reliability](reliability.md). Each
study used one thread, and two or three ran at a time, some of them beside other work, so that seconds and minutes are
rough; the minutes add up to {minutes}. [What we could not show](limits.md) has its own page.

The same data, read by four kinds of model; the last column is an SVC, on prosody Nystroem features with logistic
regression:

{quality}
""",
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


def names(group: str, *, on_page: bool = False) -> list[str]:
    """Return the names of the studies of a group, such as "speed.letters"."""
    first, _, others = STUDIES[group].partition("|")
    return [f"{group}.{name}" for name in (first if on_page else first + others).split()]


def module_name(name: str) -> str:
    """Return the name of the module of a study."""
    group, _, study = name.partition(".")
    return f"trials.{study}" if study in IN_TESTS else f"studies.{group}.{study}"


def load_module(name: str) -> ModuleType:
    """Import a study; some trials live with the tests."""
    sys.path.append(str(ROOT / "tests"))
    return import_module(module_name(name))


def title(name: str) -> str:
    """Return the first line of a study's docstring without importing the study."""
    sys.path.append(str(ROOT / "tests"))
    spec = find_spec(module_name(name))
    assert spec is not None
    assert spec.origin is not None
    doc = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8")))
    return (doc or "").splitlines()[0]


def run(name: str, arguments: list[str]) -> None:
    """Run a study with the arguments of its command."""
    module = load_module(name)
    if hasattr(module, "main"):
        return module.main(arguments)
    text = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(f"python -m studies {name}", description=module.__doc__, formatter_class=text)
    if hasattr(module, "trials"):
        parser.add_argument("--before", action="store_true", help="keep the results as those of an earlier commit")
    else:
        parser.add_argument("--show", action="store_true", help="print and draw the results on file")
    parser.add_argument("--discard", action="store_true", help="print the results and do not keep them")
    for option, default in getattr(module, "OPTIONS", {}).items():
        parser.add_argument(f"--{option.replace('_', '-')}", type=type(default), default=default)
    options = parser.parse_args(arguments)
    return try_all(name, module, options) if hasattr(module, "trials") else measure(name, module, options)


def measure(name: str, module: ModuleType, options: argparse.Namespace) -> None:
    """Measure, keep the results, draw and print them."""
    results = common.load(name) if options.show else None
    if options.show and results is None:
        raise SystemExit(f"no results of {name} on file: run it without --show")
    if results is None:
        start = time.perf_counter()
        found = module.measure(options)
        spent = time.perf_counter() - start + sum(common.SECONDS_KEPT)
        results = common.complete({**found, "seconds": spent} | unusual(module, options))
        if options.discard:
            print(json.dumps(results, indent=1)[:10_000])
            return
        common.save(name, results)
    if hasattr(module, "figure"):
        module.figure(results)
    print(module.section(results) if hasattr(module, "section") else module.table(results))


def unusual(module: ModuleType, options: argparse.Namespace) -> dict[str, Any]:
    """Return what marks results of other options than the default ones, so that `run` measures them again."""
    usual = all(getattr(options, name) == value for name, value in getattr(module, "OPTIONS", {}).items())
    return {} if usual else {"code": ""}


def try_all(name: str, module: ModuleType, options: argparse.Namespace) -> None:
    """Run trials, keep each result as it comes, and exit with 1 if any failed."""
    started, done = time.perf_counter(), []
    print(f"{name}: {common.source()} at {common.commit()}", flush=True)
    for trial in module.trials(options):
        done.append(trial)
        print(f"{trial.tried}: {trial.times:,} times, {len(trial.failures):,} failed", flush=True)
        for line in trial.failures[: common.SHOWN_FAILURES]:
            print(f"    {line}", flush=True)
        if not options.discard:
            common.save_trials(name, done, time.perf_counter() - started, before=options.before)
    if not options.before and any(trial.failures for trial in done):
        raise SystemExit(f"{name}: {sum(bool(trial.failures) for trial in done)} of {len(done)} trials failed")


def run_many(arguments: list[str]) -> None:
    """Run groups of studies or single ones, and write the pages."""
    parser = argparse.ArgumentParser("python -m studies run", description=runs.__doc__)
    known = [name for group in STUDIES for name in names(group, on_page=True)]
    parser.add_argument("studies", nargs="*", default=list(STUDIES), help="groups or names; default: all")
    parser.add_argument("--processes", type=int, default=2, help="studies at a time, if they measure no seconds")
    options = parser.parse_args(arguments)
    if unknown := set(options.studies) - {*known, *STUDIES}:
        parser.error(f"{', '.join(sorted(unknown))}: expected groups or names that `python -m studies` lists")
    of_groups = [name for name in known if name.partition(".")[0] in options.studies and name not in OF_TESTS]
    asked = [name for name in known if name in options.studies or name in of_groups]
    failed = runs.run_all(asked, options.processes)
    write_pages()
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def write_pages() -> None:
    """Write the pages of docs/ that show results."""
    from studies import readme
    from studies.reliability import drop_in
    from studies.speed import cluster_model

    for group, page in PAGES.items():
        found = {name: results for name in names(group, on_page=True) if (results := common.load(name))}
        sections = [page_section(group, name, results) for name, results in found.items() if name != "speed.cluster"]
        minutes = sum(results.get("seconds", 0.0) for results in found.values()) / 60
        head = HEADS[group].replace("{quality}", readme.quality()).replace("{minutes}", f"{minutes:,.0f}")
        (DOCS / page).write_text("\n".join([head, *sections]), encoding="utf-8")
    cluster_model.write_page()
    drop_in.write_page()
    readme.write()


def page_section(group: str, name: str, results: dict[str, Any]) -> str:
    """Return the section of a study on the page of its group."""
    module = load_module(name)
    heading, _, text = (module.__doc__ or "").strip().partition("\n\n")
    facts = ", ".join(f"{package} {value}" for package, value in results["environment"].items())
    ran = f"`python -m studies {name}`"
    if "seconds" in results and "commit" in results:
        ran += f", {results['seconds'] / 60:.0f} min, commit {results['commit']}"
    if group == "accuracy":
        return f"{module.section(results).strip()}\n\n*{ran}, {facts}.*\n"
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


def main() -> None:
    """Run the command."""
    asked, *arguments = sys.argv[1:] or ["list"]
    if asked in ("list", "-h", "--help"):
        print(f"{__doc__}\n")
        for group in STUDIES:
            print("\n".join(f"{name:<38}{title(name)}" for name in names(group)))
    elif asked == "pages":
        write_pages()
    elif asked == "run":
        run_many(arguments)
    elif any(asked in names(group) for group in STUDIES):
        run(asked, arguments)
    else:
        raise SystemExit(f"{asked!r} is not a study: run `python -m studies` for a list")


if __name__ == "__main__":
    main()
