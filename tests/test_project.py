"""What strangers see of the project agrees with what is in it."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import kernelcrf

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
README = (ROOT / "README.md").read_text(encoding="utf-8")
HOST = {"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "who/kernelcrf", "GITHUB_SHA": "1a2b3c"}


def module(path):
    """A script of the repository."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    found = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = found
    spec.loader.exec_module(found)
    return found


def test_the_readme_and_its_examples_are_short():
    assert len(README.splitlines()) <= 120
    examples = README.split("## A first model")[1].split("\n## ")[0]
    assert examples.count("```python\n") == 2
    assert 10 < sum(line.startswith(">>> ") for line in examples.splitlines()) < 15


def test_links_of_the_readme_lead_somewhere():
    targets = re.findall(r"\]\((?!https?://)([^)#\s]+)", README)
    assert len(targets) > 15
    assert [target for target in targets if not (ROOT / target).is_file()] == []


def test_the_page_of_the_index_has_addresses_that_work_there():
    """Absolute where the host is known; where it is not, neither links nor pictures that would be broken."""
    hook = module(ROOT / "hatch_build.py")
    relative = re.compile(r"\]\((?!https?://)")
    hosted, alone = hook.addressed(README, HOST), hook.addressed(README, {})
    assert not relative.search(hosted)
    assert "](https://github.com/who/kernelcrf/raw/1a2b3c/docs/figures/cover.png)" in hosted
    assert "[changelog](https://github.com/who/kernelcrf/blob/1a2b3c/CHANGELOG.md)" in hosted
    assert not relative.search(alone)
    assert "![" not in alone
    assert "changelog, contributing," in alone
    assert hook.urls(HOST)["Repository"] == "https://github.com/who/kernelcrf"
    assert hook.urls({}) == {}


def test_the_version_is_that_of_the_project_and_typed():
    if kernelcrf.__file__ is None or not Path(kernelcrf.__file__).is_relative_to(ROOT):
        pytest.skip("another installation is tested")
    assert kernelcrf.__version__ == PROJECT["version"]
    assert (Path(kernelcrf.__file__).parent / "py.typed").is_file()


def test_changelog_and_citation_have_the_last_release_and_its_date():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    released = re.search(r"^version: (.+)\ndate-released: (.+)$", citation, re.MULTILINE)
    latest = re.search(r"^## \[(.+)\] - (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert released.groups() == latest.groups()
    assert released[1] == PROJECT["version"] or ".dev" in PROJECT["version"]


def test_the_recipe_of_the_conda_package_says_what_the_project_declares():
    yaml = pytest.importorskip("yaml", reason="PyYAML, which comes with Dask, reads the recipe")
    recipe = yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8"))
    assert recipe["context"] == {"version": PROJECT["version"], "python_min": PROJECT["requires-python"].strip(">=")}

    def of_pip(requirements):
        """The requirements in conda's words, without the extras of the project itself."""
        for requirement in requirements:
            name, bound = requirement.split(">=")
            for part in ("dask", "distributed") if name == "dask[distributed]" else (name,):
                yield f"{'matplotlib-base' if part == 'matplotlib' else part} >={bound}"

    needed = recipe["requirements"]
    assert needed["run"] == ["python >=${{ python_min }}", *of_pip(PROJECT["dependencies"])]
    extras = PROJECT["optional-dependencies"]
    assert needed["run_constraints"] == list(of_pip(extras["dask"] + extras["plot"] + extras["cli"]))
    assert set(of_pip(PYPROJECT["build-system"]["requires"])) <= set(needed["host"])
    scripts = [f"{name} = {target}" for name, target in PROJECT["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == scripts
    assert recipe["about"]["license"] == PROJECT["license"]


def test_workflows_run_the_one_command_on_every_python_that_is_promised():
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    promised = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert re.findall(r'"(3\.\d+)"', workflow.split("python: [")[1].split("]")[0]) == promised
    assert PROJECT["requires-python"] == f">={promised[0]}"
    assert "run: .ci/run" in workflow
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        uses = re.findall(r"uses: (\S+)", path.read_text(encoding="utf-8"))
        assert all(re.search(r"@[0-9a-f]{40}$", action) or action.startswith("./") for action in uses)


def test_lower_bounds_are_constraints():
    lowest = module(ROOT / "tools" / "check_release.py").lowest(ROOT / "pyproject.toml")
    assert {line.split("==")[0] for line in lowest} >= {
        "numpy",
        "scipy",
        "scikit-learn",
        "numba",
        "typer",
        "matplotlib",
    }


@pytest.mark.parametrize("name", ["release", "lock"])
def test_requirements_have_digests_and_no_addresses(name):
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    assert "://" not in text
    assert "--index" not in text
    blocks = re.split(r"\n(?=\S)", text.strip())
    assert len(blocks) > 20
    for block in blocks:
        assert re.match(r"[A-Za-z0-9._-]+==[0-9][^\s]*( ; [^\\]+)? \\\n", block), block.splitlines()[0]
        assert re.fullmatch(r"( +--hash=sha256:[0-9a-f]{64}( \\)?\n?)+", block.split("\n", 1)[1]), block.splitlines()[0]


def test_the_lock_file_has_what_the_project_declares():
    constraints = module(ROOT / "tools" / "check_release.py").locked(ROOT / "requirements" / "lock.txt")
    names = {line.split("==")[0] for line in constraints}
    extras = PROJECT["optional-dependencies"]
    declared = [*PROJECT["dependencies"], *extras["dask"], *extras["plot"], *extras["cli"]]
    assert {re.split(r"[\[>=]", line)[0] for line in declared} <= names
    assert "sys_platform == 'win32'" in " ".join(constraints)


def test_releases_are_built_apart_and_their_digests_compared(tmp_path):
    yaml = pytest.importorskip("yaml")
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))["jobs"]
    commands = {name: [step.get("run", "") for step in job.get("steps", ())] for name, job in jobs.items()}
    assert set(jobs) == {"checks", "build", "test", "publish"}
    assert set(jobs["publish"]["needs"]) == {"checks", "build", "test"}
    assert any("--step build --tag" in command for command in commands["build"])
    assert not any("pip install" in command or "pytest" in command for command in commands["build"])
    for name in ("test", "publish"):
        asked = [step["env"]["DIGEST"] for step in jobs[name]["steps"] if "$DIGEST" in step.get("run", "")]
        assert asked == ["${{ needs.build.outputs.digest }}"]
    assert [name for name, job in jobs.items() if "id-token" in job["permissions"]] == ["publish"]
    known = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text(encoding="utf-8"))["updates"]
    assert {update["package-ecosystem"] for update in known} == {"github-actions", "pip"}
    release = module(ROOT / "tools" / "check_release.py")
    (tmp_path / "a.whl").write_bytes(b"one")
    before = release.digest(tmp_path)
    (tmp_path / "a.whl").write_bytes(b"two")
    assert len(before) == 64
    assert release.digest(tmp_path) != before


def test_a_tag_is_the_version_of_a_commit_on_main(tmp_path):
    check_tag = module(ROOT / "tools" / "check_release.py").check_tag
    here = tmp_path / "here"

    def git(*arguments, cwd=here):
        who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *who, *arguments], cwd=cwd, check=True, capture_output=True)

    git("init", "--bare", "--initial-branch=main", "origin", cwd=tmp_path)
    git("clone", str(tmp_path / "origin"), "here", cwd=tmp_path)
    git("checkout", "-B", "main")
    (here / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    git("add", "pyproject.toml")
    git("commit", "-m", "one")
    git("push", "origin", "main")
    check_tag("v1.2.3", here)
    with pytest.raises(SystemExit, match=r"--tag v1\.2\.4: pyproject\.toml has version 1\.2\.3"):
        check_tag("v1.2.4", here)
    git("commit", "--allow-empty", "-m", "a branch")
    with pytest.raises(SystemExit, match="its commit is not on origin/main"):
        check_tag("v1.2.3", here)
