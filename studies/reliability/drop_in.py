"""Parsers with another model file, or without python-crfsuite.

usaddress and probablepeople are installed from the package index into fresh environments. Their own tests run three
times: with their model; with a model of `tools/train_parser.py` in its place; and with that model and kernelcrf-tagger
in the place of python-crfsuite. The second way replaces one file, and the third changes the lines that the page shows.
The model is trained on the data of the source distribution that the parser's own model comes from. probablepeople has
two more models, for a part of the data; its tests do not use them, and the third way converts them as they are.

The source distributions have the tests and not all of the data that the tests read. The labelled files of the
repositories stand in `KERNELCRF_DATA`. One file of synthetic addresses is in neither: the first `--synthetic` addresses
of `training/synthetic_osm_data_xml.xml` take its place, on which no model was trained. The tests read XML by
parserator, which imports python-crfsuite for its trainer. In the third environment, an empty module has that name, so
that a parser that still called python-crfsuite would fail.

Seconds are the CPU time of `import` in a fresh process beyond that of an empty one, and microseconds those of `parse`
per item of the tests, both medians of `--rounds` rounds. Megabytes are those of the installed files that only one side
needs: python-crfsuite, or NumPy, safetensors and the tagger. `--folds` are those of the cross-validation of usaddress;
the other parser has none here.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Any

import numpy as np

from kernelcrf import load
from studies import common

PAGE = common.ROOT / "docs" / "guide" / "parsers.md"
THEIRS, OURS, TAGGER = "their model", "our model", "our model and kernelcrf-tagger"
SYNTHETIC = "training/synthetic_osm_data_xml.xml"
NEEDED = {"python-crfsuite": ("python_crfsuite",), "kernelcrf-tagger": ("numpy", "safetensors", "kernelcrf_tagger")}
IMPORT = "import kernelcrf_tagger.crfsuite as pycrfsuite"
EMPTY_MODULE = 'import sys, types\n\nsys.modules["pycrfsuite"] = types.ModuleType("pycrfsuite")\n'
PROBE = """
import json, sys, time
texts = json.loads(sys.stdin.read())
start = time.process_time()
import {module} as parser
seconds = [time.process_time() - start]
labels = [[label for _, label in parser.parse(text)] for text in texts]
for _ in range({rounds}):
    start = time.process_time()
    for text in texts:
        parser.parse(text)
    seconds.append((time.process_time() - start) / len(texts))
refused = 0
for text in texts:
    try:
        parser.tag(text)
    except parser.RepeatedLabelError:
        refused += 1
loaded = "pycrfsuite" in sys.modules
print(json.dumps([seconds, labels, refused, loaded]))
"""


@dataclass(frozen=True)
class Parser:
    """A package with a parser.

    data : the labelled files of the source distribution from which its model is trained.
    model : the name of the model file in the package.
    tests : for each file that the tests read and the source distribution lacks, its place in KERNELCRF_DATA.
    """

    name: str
    version: str
    data: tuple[str, ...]
    model: str
    tests: dict[str, str]


PERFORMANCE = "measure_performance/test_data"
PARSERS = (
    Parser(
        "usaddress",
        "0.5.16",
        ("training/labeled.xml",),
        "usaddr.crfsuite",
        {
            f"{PERFORMANCE}/simple_address_patterns.xml": "us_addresses/test_simple_address_patterns.xml",
            f"{PERFORMANCE}/labeled.xml": "us_addresses/test_labeled.xml",
            f"{PERFORMANCE}/us50_test_tagged.xml": "us_addresses/test_us50_test_tagged.xml",
            f"{PERFORMANCE}/synthetic_osm_data.xml": "",
        },
    ),
    Parser(
        "probablepeople",
        "0.5.6",
        ("name_data/labeled/person_labeled.xml", "name_data/labeled/company_labeled.xml"),
        "generic_learned_settings.crfsuite",
        {"tests/test_data_labeled.xml": "probablepeople/test_labeled.xml.gz"},
    ),
)


def changed(code: str) -> str:
    """Return the code of a parser that opens .kcrf files by kernelcrf-tagger."""
    return re.sub("^import pycrfsuite$", IMPORT, code, flags=re.MULTILINE).replace('.crfsuite"', '.kcrf"')


def difference(before: str, after: str, name: str) -> list[str]:
    """Return the changed lines of a file, with "-" before an old line and "+" before a new one."""
    lines = unified_diff(before.splitlines(), after.splitlines(), name, name, n=0, lineterm="")
    return [line for line in lines if not line.startswith("@@")]


def command(*words: object, **options: Any) -> str:
    """Run a command and return what it printed."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout


def environments(folder: Path) -> dict[str, Path]:
    """Make one fresh environment with python-crfsuite and one with kernelcrf-tagger; return their packages' folders."""
    packages = [f"{parser.name}=={parser.version}" for parser in PARSERS]
    found = {}
    for side in NEEDED:
        command(sys.executable, "-m", "venv", folder / side)
        pip = (python(folder / side), "-m", "pip", "install", "--quiet")
        if side == "python-crfsuite":
            command(*pip, *packages)
        else:
            command(*pip, "--no-deps", *packages)
            command(*pip, "probableparsing", "doublemetaphone", common.ROOT / "tagger")
        command(*pip, "pytest", "lxml")
        command(*pip, "--no-deps", "parserator")
        where = "import sysconfig; print(sysconfig.get_path('purelib'))"
        found[side] = Path(command(python(folder / side), "-c", where).strip())
    assert not (found["kernelcrf-tagger"] / "pycrfsuite").exists()
    return found


def python(environment: Path) -> Path:
    """Return the interpreter of an environment."""
    return environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def megabytes(packages: Path, names: tuple[str, ...]) -> float:
    """Return the size of the installed files of some distributions."""
    total = 0
    for name in names:
        (record,) = packages.glob(f"{name}-*.dist-info/RECORD")
        paths = [packages / line.split(",")[0] for line in record.read_text(encoding="utf-8").splitlines()]
        total += sum(path.stat().st_size for path in paths if path.is_file())
    return total / 1e6


def unpacked(parser: Parser, folder: Path) -> Path:
    """Download and unpack the source distribution of a parser."""
    options = ("--quiet", "--no-deps", "--no-binary", parser.name, "--dest", folder)
    command(sys.executable, "-m", "pip", "download", *options, f"{parser.name}=={parser.version}")
    (path,) = folder.glob(f"{parser.name}-*.tar.gz")
    with tarfile.open(path) as file:
        file.extractall(folder, filter="data")
    return folder / path.name.removesuffix(".tar.gz")


def add_data(parser: Parser, source: Path, n_synthetic: int) -> list[str]:
    """Write the files that the tests read to the unpacked source distribution; return the texts of all items."""
    texts = []
    for name, stored in parser.tests.items():
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if stored:
            content = common.data_folder(stored).read_bytes()
            target.write_bytes(gzip.decompress(content) if stored.endswith(".gz") else content)
        else:
            lines = (source / SYNTHETIC).read_text(encoding="utf-8").splitlines()
            items = [line for line in lines if line.strip().startswith("<AddressString>")][:n_synthetic]
            target.write_text("\n".join(["<AddressCollection>", *items, "</AddressCollection>"]), encoding="utf-8")
        texts += ["".join(item.itertext()) for item in ElementTree.parse(target).getroot()]
    return texts


def reason(message: str) -> str:
    """Return the line of a failure that names the first difference, or its first line."""
    line = re.search(r"^ *(At index .*)", message, re.MULTILINE)
    return line[1] if line else message.splitlines()[0]


def run_tests(interpreter: Path, source: Path, report: Path, *, empty_module: bool) -> dict[str, str]:
    """Run the tests of a parser; return the outcome of each test: "passed", or the reason of its failure."""
    (source / "conftest.py").write_text(EMPTY_MODULE if empty_module else "", encoding="utf-8")
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", "--rootdir", source, "-c")
    report.unlink(missing_ok=True)
    done = subprocess.run(
        [str(interpreter), *map(str, words), os.devnull, f"--junitxml={report}", "--tb=no", "tests"],
        cwd=source,
        capture_output=True,
        text=True,
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"pytest ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    found: dict[str, str] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        bad = [child for child in case if child.tag in ("failure", "error")]
        name = f"{case.get('classname', '').split('.')[1]}.{case.get('name')}"
        found[name] = reason(bad[0].get("message") or "failed") if bad else "passed"
    return found


def probe(interpreter: Path, parser: Parser, texts: list[str], folder: Path, rounds: int) -> dict[str, Any]:
    """Return the labels, the seconds and the number of refused items of an installed parser."""
    imports, found = [], []
    for _ in range(rounds):
        script = PROBE.format(module=parser.name, rounds=1)
        found = json.loads(command(interpreter, "-c", script, input=json.dumps(texts), cwd=folder))
        imports.append(found[0])
    seconds = np.median(imports, axis=0).tolist()
    keys = ("import_seconds", "parse_seconds", "labels", "refused", "loads_pycrfsuite")
    return dict(zip(keys, (*seconds, *found[1:]), strict=True))


def try_parser(parser: Parser, sides: dict[str, Path], folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Return what the three variants of a parser did."""
    source = unpacked(parser, folder)
    texts = add_data(parser, source, options.synthetic)
    made = folder / f"{parser.name}_models"
    search = [common.source().parent, sides["python-crfsuite"]]
    printed = command(
        *(sys.executable, common.ROOT / "tools" / "train_parser.py", "--module", parser.name, "--data", *parser.data),
        *("--out", made, "--folds", options.folds if parser is PARSERS[0] else 0, "--epsilon", options.epsilon),
        *("--name", parser.model),
        cwd=source,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, search)), "PYTHONSAFEPATH": "1"},
    ).replace(str(made), "models")
    print(printed, flush=True)
    found: dict[str, Any] = {"printed": printed, "items": len(texts), "variants": {}, "kB": {}}
    package = {side: path / parser.name for side, path in sides.items()}
    # The folder of the source has a package of the same name, without a model: tests must import the installed one.
    (source / parser.name).rename(source / "left_out")
    for variant, side in ((THEIRS, "python-crfsuite"), (OURS, "python-crfsuite"), (TAGGER, "kernelcrf-tagger")):
        model = package[side] / parser.model
        if variant == OURS:
            model.write_bytes((made / parser.model).read_bytes())
        if variant == TAGGER:
            for other in package[side].glob("*.crfsuite"):
                load(other).save(other.with_suffix(".kcrf"))
                other.unlink()
            model = model.with_suffix(".kcrf")
            model.write_bytes((made / model.name).read_bytes())
            code = package[side] / "__init__.py"
            before = code.read_text(encoding="utf-8")
            code.write_text(changed(before), encoding="utf-8")
            found["changes"] = difference(before, code.read_text(encoding="utf-8"), f"{parser.name}/__init__.py")
        found["kB"][variant] = model.stat().st_size / 1e3
        interpreter = python(folder / side)
        outcomes = run_tests(interpreter, source, folder / "report.xml", empty_module=side == "kernelcrf-tagger")
        known = probe(interpreter, parser, texts, folder, options.rounds)
        found["variants"][variant] = known | {"outcomes": outcomes}
        print(parser.name, variant, Counter(one == "passed" for one in outcomes.values()), flush=True)
    return summary(found)


def summary(found: dict[str, Any]) -> dict[str, Any]:
    """Return what is kept of the variants: counts of tests, and the tests whose outcomes differ."""
    variants = found.pop("variants")
    outcomes = {name: one.pop("outcomes") for name, one in variants.items()}
    labels = {name: one.pop("labels") for name, one in variants.items()}
    groups = list(dict.fromkeys(test.partition("[")[0] for test in outcomes[THEIRS]))
    for name, one in variants.items():
        one["tests"] = {
            group: [
                sum(outcome == "passed" for test, outcome in outcomes[name].items() if test.partition("[")[0] == group),
                sum(test.partition("[")[0] == group for test in outcomes[name]),
            ]
            for group in groups
        }
        pairs = [(a, b) for x, y in zip(labels[name], labels[THEIRS], strict=True) for a, b in zip(x, y, strict=True)]
        one["other_labels"], one["tokens"] = sum(a != b for a, b in pairs), len(pairs)
        passed = {test for test, outcome in outcomes[name].items() if outcome == "passed"}
        before = {test for test, outcome in outcomes[THEIRS].items() if outcome == "passed"}
        one["failed"] = {test: outcome for test, outcome in outcomes[name].items() if outcome != "passed"}
        one["lost"] = {test: outcomes[name][test] for test in sorted(before - passed)}
        one["gained"] = sorted(passed - before)
    return found | {"variants": variants}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sides = environments(folder)
        sizes = {side: megabytes(sides[side], names) for side, names in NEEDED.items()}
        found = {parser.name: try_parser(parser, sides, folder, options) for parser in PARSERS}
    versions = {parser.name: parser.version for parser in PARSERS}
    return {"versions": versions, "MB": sizes, "synthetic": options.synthetic, "parsers": found}


def n_lines(changes: list[str]) -> int:
    """Return the number of new lines of a difference."""
    return sum(line.startswith("+") and not line.startswith("+++") for line in changes)


def table(results: dict[str, Any]) -> str:
    """Return the tables of the page."""
    return "\n\n".join((tests(results), costs(results), failures(results)))


def tests(results: dict[str, Any]) -> str:
    """Return the table of tests that passed; tests of one item are counted together."""
    rows = []
    for name, found in results["parsers"].items():
        counts = [found["variants"][variant]["tests"] for variant in (THEIRS, OURS, TAGGER)]
        many = [group for group, (_, total) in counts[0].items() if total > 1]
        parts = {f"`{group}`": [group] for group in many}
        parts |= {"others": [group for group in counts[0] if group not in many], "all": list(counts[0])}
        for part, groups in parts.items():
            passed = [sum(one[group][0] for group in groups) for one in counts]
            total = sum(counts[0][group][1] for group in groups)
            rows.append([name, part, f"{total:,}", *(f"{n:,}" for n in passed)])
    return common.markdown(["package", "tests", "number", THEIRS, OURS, TAGGER], rows, words=(0, 1))


def costs(results: dict[str, Any]) -> str:
    """Return the table of sizes, seconds and changes."""
    rows = []
    for name, found in results["parsers"].items():
        for variant in (THEIRS, OURS, TAGGER):
            one = found["variants"][variant]
            side = "kernelcrf-tagger" if variant == TAGGER else "python-crfsuite"
            rows.append(
                [
                    name,
                    variant,
                    f"{n_lines(found['changes']) if variant == TAGGER else 0}",
                    f"{found['kB'][variant]:,.0f}",
                    f"{one['other_labels']:,} of {one['tokens']:,}",
                    f"{one['refused']:,} of {found['items']:,}",
                    f"{results['MB'][side]:.1f}",
                    f"{one['import_seconds']:.2f}",
                    f"{1e6 * one['parse_seconds']:,.0f}",
                ]
            )
    header = ["package", "", "lines changed", "model, kB", "labels other than theirs", "refused by `tag`"]
    header += ["installed for it, MB", "import, CPU s", "parse, CPU µs"]
    return common.markdown(header, rows, words=(0, 1))


def failures(results: dict[str, Any]) -> str:
    """Return a list of the tests that failed with some model."""
    rows: dict[tuple[str, str], list[str]] = {}
    for name, found in results["parsers"].items():
        for variant in (THEIRS, OURS, TAGGER):
            for test in found["variants"][variant]["failed"]:
                rows.setdefault((name, test), []).append(variant)
    if not rows:
        return "All tests passed with each of them."
    cells = [
        [name, f"`{re.sub('-components[0-9]+', '', test)}`", ", ".join(of) if len(of) < 3 else "all three"]
        for (name, test), of in rows.items()
    ]
    return common.markdown(["package", "test that failed", "with"], cells, (0, 1, 2))


def write_page() -> None:
    """Write the figures to docs/guide/parsers.md, between their marks."""
    results = common.load("reliability.drop_in")
    if results is None:
        return
    facts = ", ".join(f"{package} {version}" for package, version in results["environment"].items())
    usaddress = results["parsers"]["usaddress"]
    changes = "\n".join(line for found in results["parsers"].values() for line in found["changes"])
    parts = {
        "printed": f"```text\n{usaddress['printed'].strip()}\n```",
        "changes": f"```diff\n{changes}\n```",
        "tests": tests(results),
        "failures": failures(results),
        "costs": costs(results),
        "facts": f"*`python -m studies reliability.drop_in`, commit {results['commit']}, {facts}.*",
    }
    text = PAGE.read_text(encoding="utf-8")
    for mark, part in parts.items():
        pattern = rf"(<!-- {mark} -->\n).*?(<!-- end of {mark} -->)"
        text = re.sub(pattern, lambda found, part=part: f"{found[1]}\n{part}\n\n{found[2]}", text, flags=re.DOTALL)
    PAGE.write_text(text, encoding="utf-8")


OPTIONS = {"folds": 3, "epsilon": 1e-3, "synthetic": 1000, "rounds": 2}
