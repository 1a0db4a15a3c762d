"""Build the release, look into it, and test it as a user would have it.

python tools/check_release.py                                     all of it
python tools/check_release.py --python python3.13 --resolution newest
python tools/check_release.py --tests all                         not only those marked `smoke`
python tools/check_release.py --tag v1.2.3 --step build --dist FOLDER     build, and keep the files there
python tools/check_release.py --step test --dist FOLDER --digest HEX      test these files, which must have this digest
python tools/check_release.py --step digest --dist FOLDER                 print the digest of the files there

1. The tag, if one is given, is the version of pyproject.toml, and its commit lies on the branch `main` of `origin`.
2. For kernelcrf and for kernelcrf-tagger, an sdist from what is committed, and a wheel from the sdist. The versions of
   both agree. The tools are those of requirements/release.txt, whose digests pip checks. Then `twine check --strict`,
   and a bill of materials (CycloneDX) of what requirements/lock.txt installs.
3. The wheels hold their package and nothing else, the sdist of kernelcrf all that is committed.
4. In a fresh environment for each resolution, the wheel of kernelcrf with its extras: `lowest` has every dependency of
   the package at the bound that pyproject.toml declares, `locked` at the version of requirements/lock.txt, `newest` at
   the last release. There the tests of the unpacked sdist that are marked `smoke` pass, or all of them. Lower bounds
   are those of the oldest Python: later ones have no wheels of them.
5. In a second environment of the same resolution, the wheel of kernelcrf-tagger alone gives the labels and the
   probabilities of the library for a model that the library has fitted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
RESOLUTIONS = ("lowest", "locked", "newest")
SBOM = "kernelcrf.cdx.json"
BOUND = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(\[[^\]]*\])?>=(?P<bound>[0-9.]+)")
FIT = """
import json, sys
from kernelcrf import ChainCRF
X = [[{"word": "the"}, {"word": "dog"}, {"word": "barks"}], [{"word": "a"}, {"word": "cat"}]]
crf = ChainCRF("linear", C=1.0).fit(X, [["DET", "NOUN", "VERB"], ["DET", "NOUN"]])
crf.save("model.kcrf")
answers = [one.tolist() for one in crf.predict(X)], [one.tolist() for one in crf.predict_proba(X)]
json.dump([X, *answers], open("answers.json", "w"))
"""
TAG = """
import json, sys, numpy
from kernelcrf_tagger import Tagger
X, labels, probabilities = json.load(open("answers.json"))
tagger = Tagger.open("model.kcrf")
assert tagger.tag_all(X) == labels, tagger.tag_all(X)
for ours, theirs in zip(tagger.probabilities_all(X), probabilities, strict=True):
    numpy.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)
assert not {"kernelcrf", "scipy", "sklearn", "numba"} & set(sys.modules)
"""
"""Programs that fit a model with the library, and answer from its file with the tagger."""


class Files(NamedTuple):
    """The two files that are released of one package."""

    sdist: Path
    wheel: Path


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", choices=("all", "build", "test", "digest"), default="all", help="default: all")
    parser.add_argument("--python", default=sys.executable, help="interpreter to test with")
    parser.add_argument("--resolution", choices=RESOLUTIONS, action="append", help="default: all")
    parser.add_argument("--tests", choices=("smoke", "all"), default="smoke", help="which tests to run")
    parser.add_argument("--tag", help="v and the version that pyproject.toml must have; its commit must lie on main")
    parser.add_argument("--dist", type=Path, help="folder of the files built")
    parser.add_argument("--digest", help="the digest that the files of --dist must have")
    options = parser.parse_args()
    if options.step in ("build", "test", "digest") and options.dist is None:
        parser.error(f"--step {options.step} needs --dist")
    if options.tag is not None:
        check_tag(options.tag, ROOT)
    if options.digest is not None and digest(options.dist) != options.digest:
        raise SystemExit(f"{options.dist}: the files have the digest {digest(options.dist)}, expected {options.digest}")
    if options.step == "digest":
        print(digest(options.dist))
        return
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        library, tagger = released(options.dist) if options.step == "test" else built(work)
        check_contents(*library)
        check_tagger(*tagger)
        if options.step != "build":
            for resolution in options.resolution or RESOLUTIONS:
                test(*library, resolution, options.python, work / resolution, options.tests)
                test_tagger(tagger.wheel, resolution, options.python, work / resolution)
        if options.dist is not None and options.step != "test":
            options.dist.mkdir(parents=True, exist_ok=True)
            for file in (*library, *tagger, work / SBOM):
                shutil.copy(file, options.dist)


def check_tag(tag: str, root: Path) -> None:
    """Raise unless the tag is the version, and the commit that is checked out lies on main."""
    version = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    if tag != f"v{version}":
        raise SystemExit(f"--tag {tag}: pyproject.toml has version {version}, expected the tag v{version}")
    command = ["git", "merge-base", "--is-ancestor", "HEAD", "origin/main"]
    if subprocess.run(command, cwd=root, capture_output=True).returncode:
        raise SystemExit(f"--tag {tag}: its commit is not on origin/main: expected a tag of a commit on main")


def digest(folder: Path) -> str:
    """Return one SHA-256 digest of the names and contents of the files of a folder."""
    found = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        found.update(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n".encode())
    return found.hexdigest()


def released(folder: Path) -> tuple[Files, Files]:
    """Return the files of kernelcrf and of kernelcrf-tagger in a folder; raise unless their versions agree."""
    found = [
        Files(next(folder.glob(f"{name}-*.tar.gz")), next(folder.glob(f"{name}-*.whl")))
        for name in ("kernelcrf", "kernelcrf_tagger")
    ]
    versions = {files.wheel.name.split("-")[1] for files in found}
    if len(versions) > 1:
        raise SystemExit(f"{folder}: kernelcrf and kernelcrf-tagger have the versions {versions}: expected the same")
    return found[0], found[1]


def built(work: Path) -> tuple[Files, Files]:
    """Build the sdists and the wheels of what is committed, and the bill of materials of kernelcrf."""
    tree = work / "tree"
    tree.mkdir()
    archive = run(["git", "archive", "--format=tar", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE).stdout
    run(["tar", "-x", "-C", str(tree)], input=archive)
    python = environment(work / "tools", sys.executable)
    install(python, "--require-hashes", "--no-deps", "--requirement", str(tree / "requirements" / "release.txt"))
    # Without isolation, for the tools of the build are those of the requirements and no others.
    for project in (tree, tree / "tagger"):
        run([python, "-m", "build", "--no-isolation", "--outdir", work / "dist", project], stdout=subprocess.DEVNULL)
    library, tagger = released(work / "dist")
    run([python, "-m", "twine", "check", "--strict", *library, *tagger])
    bill_of_materials(python, tree, work / SBOM)
    return library, tagger


def bill_of_materials(python: str, tree: Path, target: Path) -> None:
    """Write what the lock file installs as CycloneDX, the same bytes each time."""
    command = [python, "-m", "cyclonedx_py", "requirements", "requirements/lock.txt", "--pyproject", "pyproject.toml"]
    options = ["--output-reproducible", "--output-format", "JSON", "--output-file", target]
    run([*command, *options], cwd=tree)
    found = json.loads(target.read_text(encoding="utf-8"))
    print(f"{target.name}: {len(found['components'])} components, CycloneDX {found['specVersion']}", flush=True)


def check_contents(sdist: Path, wheel: Path) -> None:
    """Raise unless both hold exactly the files that belong to them."""
    committed = set(run(["git", "ls-files"], cwd=ROOT, stdout=subprocess.PIPE).stdout.decode().splitlines())
    check_files(sdist, committed | {"PKG-INFO"})
    expected = {name.removeprefix("src/") for name in committed if name.startswith("src/")}
    check_files(wheel, expected | information(wheel, "entry_points.txt", "licenses/LICENSE"))


def check_tagger(sdist: Path, wheel: Path) -> None:
    """Raise unless the files of kernelcrf-tagger hold what tagger/pyproject.toml says."""
    settings = tomllib.loads((ROOT / "tagger" / "pyproject.toml").read_text(encoding="utf-8"))
    own = [path.name for path in (ROOT / "tagger" / "kernelcrf_tagger").glob("*.py")]
    package = {
        f"kernelcrf_tagger/{name}" for name in (*settings["tool"]["hatch"]["build"]["hooks"]["custom"]["files"], *own)
    }
    package.add("kernelcrf_tagger/LICENSE")
    check_files(sdist, package | {".gitignore", "PKG-INFO", "README.md", "hatch_build.py", "pyproject.toml"})
    check_files(wheel, package | information(wheel))


def information(wheel: Path, *more: str) -> set[str]:
    """Return the names of the files of a wheel that describe it."""
    folder = "-".join(wheel.name.split("-")[:2]) + ".dist-info"
    return {f"{folder}/{name}" for name in ("METADATA", "WHEEL", "RECORD", *more)}


def check_files(file: Path, expected: set[str]) -> None:
    """Raise unless an sdist or a wheel holds exactly the expected files."""
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            found = set(wheel.namelist())
    else:
        with tarfile.open(file) as sdist:
            found = {member.name.split("/", 1)[1] for member in sdist if member.isfile()}
    if found != expected:
        raise SystemExit(f"{file.name}: missing {sorted(expected - found)}, too much {sorted(found - expected)}")
    print(f"{file.name}: {len(found)} files, {file.stat().st_size / 1e6:.2f} MB, as committed", flush=True)


def test(sdist: Path, wheel: Path, resolution: str, interpreter: str, work: Path, tests: str) -> None:
    """Run the tests of the sdist with the wheel installed in a new environment."""
    work.mkdir()
    with tarfile.open(sdist) as archive:
        archive.extractall(work, filter="data")
    tree = next(path for path in work.iterdir() if path.is_dir())
    python = environment(work / "environment", interpreter)
    install_held(python, f"{wheel}[test]", resolution, tree / "pyproject.toml", tree / "requirements" / "lock.txt")
    shown = run([python, "-m", "pip", "freeze"], stdout=subprocess.PIPE).stdout.decode().splitlines()
    names = {line.split("==")[0] for line in lowest(tree / "pyproject.toml")}
    kept = " ".join(line for line in shown if line.split("==")[0].lower() in names)
    print(f"{resolution}, {run([python, '-V'], stdout=subprocess.PIPE).stdout.decode().strip()}: {kept}", flush=True)
    # Old releases warn of what newer ones beside them have deprecated: that is not ours to mend.
    extra = ["-W", "default"] if resolution == "lowest" else []
    extra += ["-m", "smoke"] if tests == "smoke" else []
    place = "import kernelcrf, pathlib, sys; sys.exit(not pathlib.Path(kernelcrf.__file__).is_relative_to(sys.prefix))"
    run([python, "-I", "-c", place])
    # The tests must import the wheel, and not a checkout.
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run([python, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", *extra], cwd=tree, env=variables)
    run([python, "-I", "-c", FIT], cwd=work)


def test_tagger(wheel: Path, resolution: str, interpreter: str, work: Path) -> None:
    """Answer from the model file that `test` left in the folder `work`, in a new environment without the library."""
    python = environment(work / "tagger", interpreter)
    install_held(python, str(wheel), resolution, ROOT / "tagger" / "pyproject.toml", ROOT / "requirements" / "lock.txt")
    shown = run([python, "-m", "pip", "list", "--format=freeze"], stdout=subprocess.PIPE).stdout.decode().split()
    run([python, "-I", "-c", TAG], cwd=work)
    print(f"{resolution}, kernelcrf-tagger alone gives the answers of the library: {' '.join(shown)}", flush=True)


def install_held(python: str, what: str, resolution: str, pyproject: Path, lock: Path) -> None:
    """Install a package with the dependencies that a resolution allows."""
    held = {"lowest": lowest(pyproject), "locked": locked(lock)}
    with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False) as constraints:
        constraints.write("\n".join(held.get(resolution, [])))
    install(python, what, "--constraint", constraints.name)
    os.unlink(constraints.name)


def lowest(pyproject: Path) -> list[str]:
    """Return constraints that pin the dependencies of users to their lower bounds."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    extras = project.get("optional-dependencies", {})
    declared = [*project["dependencies"], *(one for name in ("cli", "plot", "dask") for one in extras.get(name, []))]
    found = [BOUND.fullmatch(requirement) for requirement in declared]
    if None in found:
        raise SystemExit(f"pyproject.toml: expected name>=version of each of {declared}")
    return [f"{match['name']}=={match['bound']}" for match in found if match is not None]


def locked(lock: Path) -> list[str]:
    """Return constraints that pin the dependencies of users to the lock file."""
    found = re.findall(r"^[A-Za-z0-9._-]+==[^\\\n]+", lock.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [line.strip() for line in found]


def environment(folder: Path, interpreter: str) -> str:
    """Return the interpreter of a new virtual environment."""
    run([interpreter, "-m", "venv", folder])
    return str(folder / ("Scripts" if os.name == "nt" else "bin") / "python")


def install(python: str, *what: str) -> None:
    """Install packages with pip, quietly."""
    run([python, "-m", "pip", "install", "--quiet", *what])


def run(command: Sequence[str | Path], **options: object) -> subprocess.CompletedProcess[bytes]:
    """Run a command and raise if it fails."""
    return subprocess.run([str(part) for part in command], check=True, **options)  # type: ignore[call-overload,no-any-return]


if __name__ == "__main__":
    main()
