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
import json
import sys
import time
from types import ModuleType
from typing import Any

from studies import common, pages, runs
from studies.catalogue import OF_TESTS, SUBJECTS, load_module, names, title


def run(name: str, arguments: list[str]) -> None:
    """Run a study with the arguments of its command."""
    module = load_module(name)
    if hasattr(module, "main"):
        return module.main(arguments)
    text = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(f"python -m studies {name}", description=module.__doc__, formatter_class=text)
    if not hasattr(module, "trials"):
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
            common.save_trials(name, done, time.perf_counter() - started)
    if any(trial.failures for trial in done):
        raise SystemExit(f"{name}: {sum(bool(trial.failures) for trial in done)} of {len(done)} trials failed")


def run_many(arguments: list[str]) -> None:
    """Run groups of studies or single ones, and write the pages."""
    parser = argparse.ArgumentParser("python -m studies run", description=runs.__doc__)
    known = [name for group in SUBJECTS for name in names(group, on_demand=False)]
    parser.add_argument("studies", nargs="*", default=list(SUBJECTS), help="groups or names; default: all")
    parser.add_argument("--processes", type=int, default=2, help="studies at a time, if they do not measure wall clock")
    options = parser.parse_args(arguments)
    if unknown := set(options.studies) - {*known, *SUBJECTS}:
        parser.error(f"{', '.join(sorted(unknown))}: expected groups or names that `python -m studies` lists")
    of_groups = [name for name in known if name.partition(".")[0] in options.studies and name not in OF_TESTS]
    asked = [name for name in known if name in options.studies or name in of_groups]
    failed = runs.run_all(asked, options.processes)
    pages.write()
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def main() -> None:
    """Run the command."""
    asked, *arguments = sys.argv[1:] or ["list"]
    if asked in ("list", "-h", "--help"):
        print(f"{__doc__}\n")
        for group in SUBJECTS:
            print("\n".join(f"{name:<38}{title(name)}" for name in names(group)))
    elif asked == "pages":
        pages.write()
    elif asked == "run":
        run_many(arguments)
    elif any(asked in names(group) for group in SUBJECTS):
        run(asked, arguments)
    else:
        raise SystemExit(f"{asked!r} is not a study: run `python -m studies` for a list")


if __name__ == "__main__":
    main()
