"""Every public name has a docstring, an example that runs, and a place in the reference.

A public name is one that a package lists in `__all__`. Names of modules without such a list are building blocks: they
have docstrings too, and a page of the reference with examples of its own.

public_names.txt has all public names, with their parameters, defaults, methods and attributes, and the options of the
command line. `python tests/docs/test_public_names.py --record` writes it after a change that is meant to change them;
docs/about.md says what users are promised.
"""

import ast
import doctest
import importlib.util
import inspect
import os
import pkgutil
import re
import sys
from enum import EnumType
from pathlib import Path

import pytest
import typer

import kernelcrf
from kernelcrf.cli.app import app

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "api"
LIST = Path(__file__).parent / "public_names.txt"
SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)


def modules():
    found = [kernelcrf]
    skipped = (
        {"kernelcrf.__main__"} if importlib.util.find_spec("sktime") else {"kernelcrf.__main__", "kernelcrf.sktime"}
    )
    for info in pkgutil.walk_packages(kernelcrf.__path__, "kernelcrf."):
        if info.name not in skipped:
            found.append(importlib.import_module(info.name))
    return found


MODULES = modules()
PUBLIC = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in MODULES
    for name in getattr(module, "__all__", [])
    if name != "__version__"
}
CALLABLE = {name: thing for name, thing in PUBLIC.items() if inspect.isclass(thing) or inspect.isfunction(thing)}
EXAMPLES = {id(thing): name for name, thing in CALLABLE.items()}.values()  # one name for each thing
CLASSES = {name: thing for name, thing in CALLABLE.items() if inspect.isclass(thing)}
ESTIMATORS = {name: thing for name, thing in CLASSES.items() if hasattr(thing, "fit")}
WITH_PARAMETERS = {name: thing for name, thing in CLASSES.items() if hasattr(thing, "get_params")}


def defaults_of(thing):
    """The parameters that have a default, with their defaults."""
    taken = inspect.signature(thing).parameters.items()
    return {name: one.default for name, one in taken if one.default is not inspect.Parameter.empty}


DEFAULTS = defaults_of(kernelcrf.ChainCRF)


def own_members(cls):
    """Public functions and properties of a class that this library defines."""
    for name, member in inspect.getmembers(cls):
        code = member.fget if isinstance(member, property) else inspect.unwrap(member) if callable(member) else None
        if not name.startswith("_") and (getattr(code, "__module__", None) or "").startswith("kernelcrf"):
            yield name, member


def sections(thing):
    """The sections of a docstring by their titles."""
    parts = SECTION.split(inspect.getdoc(thing) or "")
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def referenced():
    """The names that the pages of the reference list."""
    found, module = set(), None
    for page in REFERENCE.glob("*.rst"):
        for line in page.read_text(encoding="utf-8").splitlines() if page.stem != "index" else ():
            if line.startswith(".. currentmodule::"):
                module = line.split("::")[1].strip()
            elif re.fullmatch(r"   [\w.]+", line) or line.startswith(".. autodata:: "):
                found.add(f"{module}.{line.split()[-1]}")
    return found


def thing_named(name):
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


def parameters_of(thing):
    """The parameters of a class or function with their defaults, and * before those that have to be named."""
    if inspect.isclass(thing) and (issubclass(thing, BaseException) or getattr(thing, "_is_protocol", False)):
        return []
    taken = [one for one in inspect.signature(thing).parameters.values() if one.name != "self"]
    found = [str(one.replace(annotation=inspect.Parameter.empty)) for one in taken]
    to_name = [k for k, one in enumerate(taken) if one.kind is one.KEYWORD_ONLY]
    return [*found[: to_name[0]], "*", *found[to_name[0] :]] if to_name else found


def listed_names():
    """Every public name, and below it its parameters, methods and attributes; then the commands and their options."""
    lines = []
    for name in sorted(PUBLIC):
        thing = PUBLIC[name]
        lines.append(name)
        if name in CLASSES:
            lines += [f"    {parameter}" for parameter in parameters_of(thing)]
            stated = re.findall(r"^(\w[\w, ]*?) : ", sections(thing).get("Attributes", ""), re.MULTILINE)
            members = dict(own_members(thing))
            attributes = {member for member, value in members.items() if isinstance(value, property)}
            lines += [f"    .{member}" for member in sorted(attributes.union(*(entry.split(", ") for entry in stated)))]
            methods = [member for member in members if member not in attributes]
            lines += [f"    .{member}({', '.join(parameters_of(members[member]))})" for member in methods]
        elif name in CALLABLE:
            lines += [f"    {parameter}" for parameter in parameters_of(thing)]
        else:
            lines += [f"    [{key!r}]" for key in thing]
    for name, command in typer.main.get_command(app).commands.items():
        lines.append(f"kernelcrf {name}")
        lines += [f"    {', '.join(parameter.opts)}" for parameter in command.params]
    return lines


def test_the_public_names_are_those_on_file():
    """A name that goes needs a deprecation (docs/about.md); for a new one, run this file with --record."""
    assert listed_names() == LIST.read_text(encoding="utf-8").splitlines()


def test_the_reference_lists_every_public_name():
    listed = {id(thing_named(name)) for name in referenced()}
    assert [name for name, thing in PUBLIC.items() if id(thing) not in listed] == []


def test_every_name_of_the_reference_has_a_docstring():
    assert [name for name in referenced() if not thing_named(name).__doc__] == []


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_everything_without_an_underscore_has_a_docstring(module):
    if ".loops" in module.__name__ or module.__name__ == "kernelcrf.solvers.ascent_loops":
        pytest.skip("compiled loops are described at the head of their module")
    assert module.__doc__
    for name, thing in vars(module).items():
        ours = getattr(thing, "__module__", None) == module.__name__ and (
            inspect.isclass(thing) or inspect.isfunction(thing)
        )
        if name.startswith("_") or not ours or isinstance(thing, EnumType):
            continue
        assert thing.__doc__, f"{module.__name__}.{name}"
        for member_name, member in own_members(thing) if inspect.isclass(thing) else ():
            assert inspect.getdoc(member), f"{module.__name__}.{name}.{member_name}"


@pytest.mark.parametrize("name", WITH_PARAMETERS)
def test_the_defaults_in_docstrings_are_those_of_the_signature(name):
    """An entry of a parameter states its default, unless it has none, or refers to ChainCRF, which has the same."""
    text = sections(WITH_PARAMETERS[name])["Parameters"]
    stated = dict(re.findall(r"^(\w+) : .*, default=(.+)$", text, re.MULTILINE))
    found = {parameter: ast.literal_eval(default) for parameter, default in stated.items()}
    if WITH_PARAMETERS[name] is not kernelcrf.ChainCRF:
        shared = re.findall(r"^(\w[\w, ]*?) : as in ChainCRF$", text, re.MULTILINE)
        found |= {parameter: DEFAULTS[parameter] for entry in shared for parameter in entry.split(", ")}
    assert found == defaults_of(WITH_PARAMETERS[name])


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_parameters_of_an_estimator_are_those_of_its_docstring(name):
    taken = list(inspect.signature(ESTIMATORS[name]).parameters)
    entries = re.findall(r"^(\w[\w, ]*?) : ", sections(ESTIMATORS[name])["Parameters"], re.MULTILINE)
    assert sorted(", ".join(entries).split(", ")) == sorted(taken)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_example_of_an_estimator_shows_all_of_its_methods(name):
    example = sections(ESTIMATORS[name])["Examples"]
    shown = {member for member, thing in own_members(ESTIMATORS[name]) if f".{member}(" in example}
    methods = {member for member, thing in own_members(ESTIMATORS[name]) if inspect.isfunction(thing)}
    assert methods - shown == set()


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_prints_what_it_says(name, tmp_path, monkeypatch):
    if (".load_" in name or name.endswith("MultilabelData")) and "KERNELCRF_DATA" not in os.environ:
        pytest.skip("KERNELCRF_DATA names no folder of data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    source = sections(CALLABLE[name]).get("Examples", "")
    example = doctest.DocTestParser().get_doctest(source, {}, name, None, None)
    assert example.examples, f"{name} has no example"
    report = []
    doctest.DocTestRunner(verbose=False).run(example, out=report.append)
    assert not report, "".join(report)
    if ".plotting." in name:
        from matplotlib import pyplot

        pyplot.close("all")


if __name__ == "__main__" and sys.argv[1:] == ["--record"]:
    LIST.write_text("\n".join(listed_names()) + "\n", encoding="utf-8")
