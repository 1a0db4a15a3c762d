"""Docstrings as this library writes them, made ready for numpydoc.

- `name : what it is` lines outside of any section, where the names are arguments or fields, become Parameters;
- entries of Attributes have no type of their own: what follows the colon is their description;
- indented formulas and tables become literal blocks;
- bars and trailing underscores, which reStructuredText would read as markup, are plain characters.
"""

import inspect
import re

from sphinx.application import Sphinx

ENTRY = re.compile(r"`?([A-Za-z_]\w*(?:, [A-Za-z_]\w*)*)`? ?: (?=\S)")
CODE = re.compile(r"(`[^`]*`)")
SKIPPED = re.compile(r"set_\w+_request|get_metadata_routing|set_params|get_params")
TUPLE = ("count", "index")


def _names(thing: object) -> set[str]:
    try:
        arguments = set(inspect.signature(thing).parameters)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        arguments = set()
    return arguments | set(getattr(thing, "__annotations__", {}))


def _escaped(line: str) -> str:
    parts = CODE.split(line)
    for k in range(0, len(parts), 2):
        parts[k] = re.sub(r"(?<=\w)_(?=\W|$)", r"\\_", parts[k].replace("|", r"\|").replace("*", r"\*"))
    return "".join(parts)


def _sections(lines: list[str]) -> list[tuple[str, list[str]]]:
    """Return titles and lines of the sections; the first has no title."""
    found: list[tuple[str, list[str]]] = [("", [])]
    k = 0
    while k < len(lines):
        if k + 1 < len(lines) and lines[k].strip() and re.fullmatch(r"-{3,}", lines[k + 1]):
            found.append((lines[k], []))
            k += 2
        else:
            found[-1][1].append(lines[k])
            k += 1
    return found


def _entries(lines: list[str], names: set[str]) -> tuple[list[str], list[str]]:
    """Return the prose, and the entries that describe arguments."""
    prose: list[str] = []
    entries: list[str] = []
    k = 0
    while k < len(lines):
        match = ENTRY.match(lines[k])
        if match is None or not set(match[1].split(", ")) <= names:
            prose.append(lines[k])
            k += 1
            continue
        entries += [match[1], "    " + lines[k][match.end() :]]
        k += 1
        while k < len(lines) and lines[k].startswith(" "):
            entries.append("    " + lines[k].strip())
            k += 1
    return prose, entries


def _prose(lines: list[str]) -> list[str]:
    """Return prose with its indented parts as literal blocks."""
    result: list[str] = []
    literal = False
    for k, line in enumerate(lines):
        if not line.strip():
            result.append(line)
            continue
        indented = line.startswith("  ")
        if indented and not literal and (k == 0 or not lines[k - 1].strip()):
            result += ["::", ""]
            literal = True
        elif not indented:
            literal = False
        result.append(line if literal else _escaped(line))
    return result


def prepare(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Rewrite the docstring that autodoc passes on, before numpydoc reads it."""
    if not name.startswith("kernelcrf"):
        return
    sections = _sections(lines)
    prose, entries = _entries(sections[0][1], _names(thing))
    result = [*_prose(prose), ""]
    if entries:
        sections.insert(1, ("Parameters", entries))
    for title, own in sections[1:]:
        if title == "Attributes":
            own = [re.sub(r"^(\w[\w, ]*) : (.*)$", "\\1\n    \\2", line) for line in own]
            own = "\n".join(own).split("\n")
        if title != "Examples":
            own = [_escaped(line) if line.startswith(" ") else line for line in own]
        result += [title, "-" * len(title), *own, ""]
    lines[:] = result


def skip(app: Sphinx, what: str, name: str, thing: object, skipped: bool, options: object) -> bool | None:
    """Leave out members that a class inherits from scikit-learn or from tuples."""
    if SKIPPED.fullmatch(name) or (name in TUPLE and isinstance(thing, type(tuple.count))):
        return True
    return None


def signature(
    app: Sphinx, what: str, name: str, thing: object, options: object, arguments: str | None, returned: str | None
) -> tuple[str, None] | None:
    """Leave out the signature of a protocol, which nobody calls."""
    return ("", None) if what == "class" and getattr(thing, "_is_protocol", False) else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to events before numpydoc, whose priority is the usual 500."""
    app.connect("autodoc-process-docstring", prepare, priority=100)
    app.connect("autodoc-process-signature", signature)
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
