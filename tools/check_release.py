"""Build the release, look into it, and test it as a user would have it.

python tools/check_release.py                                     all of it
python tools/check_release.py --python python3.13 --resolution newest
python tools/check_release.py --tests all                         not only those marked `smoke`
python tools/check_release.py --tag v1.2.3 --step build --dist FOLDER     build, and keep the files there
python tools/check_release.py --step test --dist FOLDER --digest HEX      test these files, which must have this digest
python tools/check_release.py --step digest --dist FOLDER                 print the digest of the files there

1. The tag, if one is given, is the version of pyproject.toml, and its commit lies on the branch `main` of `origin`.
2. An sdist from what is committed, and a wheel from the sdist, by the tools of requirements/release.txt, whose digests
   pip checks; `twine check --strict`; a bill of materials (CycloneDX) of what requirements/lock.txt installs.
3. The wheel holds the package and nothing else, the sdist all that is committed.
4. In a fresh environment for each resolution, the wheel with its extras: `lowest` has every dependency of the package
   at the bound that pyproject.toml declares, `locked` at the version of requirements/lock.txt, `newest` at the last
   release. There the tests of the unpacked sdist that are marked `smoke` pass, or all of them. Lower bounds are those
   of the oldest Python: later ones have no wheels of them.
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

ROOT = Path(__file__).parent.parent
RESOLUTIONS = ("lowest", "locked", "newest")
SBOM = "kernelcrf.cdx.json"
BOUND = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(\[[^\]]*\])?>=(?P<bound>[0-9.]+)")


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
        files = distributions(options.dist) if options.step == "test" else built(work)
        check_contents(*files)
        if options.step != "build":
            for resolution in options.resolution or RESOLUTIONS:
                test(*files, resolution, options.python, work / resolution, options.tests)
        if options.dist is not None and options.step != "test":
            options.dist.mkdir(parents=True, exist_ok=True)
            for file in (*files, work / SBOM):
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


def distributions(folder: Path) -> tuple[Path, Path]:
    """Return the sdist and the wheel of a folder."""
    return next(folder.glob("*.tar.gz")), next(folder.glob("*.whl"))


def built(work: Path) -> tuple[Path, Path]:
    """Build the sdist and the wheel of what is committed, and their bill of materials."""
    tree = work / "tree"
    tree.mkdir()
    archive = run(["git", "archive", "--format=tar", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE).stdout
    run(["tar", "-x", "-C", str(tree)], input=archive)
    python = environment(work / "tools", sys.executable)
    install(python, "--require-hashes", "--no-deps", "--requirement", str(tree / "requirements" / "release.txt"))
    # Without isolation, for the tools of the build are those of the requirements and no others.
    run([python, "-m", "build", "--no-isolation", "--outdir", work / "dist", tree], stdout=subprocess.DEVNULL)
    sdist, wheel = distributions(work / "dist")
    run([python, "-m", "twine", "check", "--strict", sdist, wheel])
    bill_of_materials(python, tree, work / SBOM)
    return sdist, wheel


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
    with tarfile.open(sdist) as archive:
        in_sdist = {member.name.split("/", 1)[1] for member in archive if member.isfile()}
    expected = committed | {"PKG-INFO"}
    if in_sdist != expected:
        raise SystemExit(f"{sdist.name}: missing {sorted(expected - in_sdist)}, too much {sorted(in_sdist - expected)}")
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = set(archive.namelist())
    info = "-".join(wheel.name.split("-")[:2]) + ".dist-info"
    beside = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
    expected = {name.removeprefix("src/") for name in committed if name.startswith("src/")}
    expected |= {f"{info}/{name}" for name in beside}
    if in_wheel != expected or "kernelcrf/py.typed" not in in_wheel:
        raise SystemExit(f"{wheel.name}: missing {sorted(expected - in_wheel)}, too much {sorted(in_wheel - expected)}")
    for file, count in ((sdist, in_sdist), (wheel, in_wheel)):
        print(f"{file.name}: {len(count)} files, {file.stat().st_size / 1e6:.2f} MB, as committed", flush=True)


def test(sdist: Path, wheel: Path, resolution: str, interpreter: str, work: Path, tests: str) -> None:
    """Run the tests of the sdist with the wheel installed in a new environment."""
    work.mkdir()
    with tarfile.open(sdist) as archive:
        archive.extractall(work, filter="data")
    tree = next(path for path in work.iterdir() if path.is_dir())
    python = environment(work / "environment", interpreter)
    constraints = work / "constraints.txt"
    held = {"lowest": lowest(tree / "pyproject.toml"), "locked": locked(tree / "requirements" / "lock.txt")}
    constraints.write_text("\n".join(held.get(resolution, [])))
    install(python, f"{wheel}[test]", "--constraint", str(constraints))
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


def lowest(pyproject: Path) -> list[str]:
    """Return constraints that pin the dependencies of users to their lower bounds."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    declared = [*project["dependencies"], *extras["cli"], *extras["plot"], *extras["dask"]]
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
