"""List sentences that are too long, and docstrings that start with a fragment.

    python tools/check_prose.py            all docstrings, messages and pages of the repository
    python tools/check_prose.py FILE ...   the given files alone

A sentence has at most 40 words; code, formulas and addresses count as one word each. A docstring starts with what a
function does or a thing is, not with "Of", "What", "Those", "That of" or "By". The docstring of a function starts with
a verb, not with an article. Messages are the texts of exceptions and warnings.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from draw_texts import written

ROOT = Path(__file__).parents[1]
MOST_WORDS = 40
FRAGMENT = re.compile(r"(Of|What|Those|That of|By)\b")
NO_VERB = re.compile(r"(The|A|An|All|Each|One|For|Whether|Before)\b")
PYTHON = ("src", "tagger", "tools", "studies", "examples", "docs", "hatch_build.py")
PAGES = (
    "README.md",
    "tagger/README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "CODE_OF_CONDUCT.md",
    "docs",
)
MADE = {"_build", "gallery", "generated", "__pycache__"}
# A point ends a sentence unless it belongs to an abbreviation.
END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\bal)(?<!\bvs)[.!?][\"')\]*]*\s+")
FENCE = re.compile(r"^ *```(?!\{).*?^ *```", re.MULTILINE | re.DOTALL)
ITEM = re.compile(r"\s*([-*]|\d+\.) |#|:|\||\w[\w, *]* : |\s*\S.*? {2,}\S")


def blocks(text: str) -> Iterator[str]:
    """Yield the paragraphs, list items, table cells and headings of a text, without its code."""
    lines: list[str] = []
    after_blank, in_example = False, False
    for line in [*FENCE.sub("", text).splitlines(), ""]:
        in_example = bool(line.strip()) and (in_example or line.lstrip().startswith(">>>"))
        # Formulas, tables and code in a docstring are indented behind an empty line; each of their lines is a block.
        alone = after_blank and line.startswith("    ")
        if not line.strip() or alone or in_example or ITEM.match(line):
            yield " ".join(lines)
            lines = []
        after_blank = alone or not line.strip()
        if alone or line.startswith("|"):
            yield from line.split(" | ") if line.startswith("|") else [line]
        elif not in_example:
            lines.append(line)


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text, with one word in place of code, formulas and addresses."""
    for block in blocks(text):
        plain = re.sub(r"``[^`]*``|`[^`]*`|\$\$?[^$]*\$\$?", "code", block)
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", plain)
        yield from END.split(" ".join(plain.split()))


def n_words(sentence: str) -> int:
    """Return the number of words of a sentence; signs between words do not count."""
    return sum(any(letter.isalnum() for letter in word) for word in sentence.split())


def texts(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the text and the kind of each docstring and message of a module, or of a page."""
    content = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield 1, content, "page"
        return
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if docstring := ast.get_docstring(node, clean=False):
                indent = node.body[0].col_offset
                kind = "docstring" if isinstance(node, ast.Module | ast.ClassDef) else "docstring of a function"
                yield getattr(node, "lineno", 1), re.sub(rf"^ {{{indent}}}", "", docstring, flags=re.MULTILINE), kind
        elif isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called == "warn" or called.endswith(("Error", "Warning")):
                yield node.lineno, written(node.args), "message"


def findings(path: Path) -> Iterator[str]:
    """Yield a line for each sentence that is too long and each docstring that starts with a fragment."""
    for line, text, kind in texts(path):
        if kind.startswith("docstring") and FRAGMENT.match(text):
            yield f"{line}: starts with a fragment: {text.splitlines()[0]}"
        if kind == "docstring of a function" and NO_VERB.match(text):
            yield f"{line}: does not start with a verb: {text.splitlines()[0]}"
        for sentence in sentences(text):
            if n_words(sentence) > MOST_WORDS:
                yield f"{line}: {n_words(sentence)} words: {sentence}"


def files() -> list[Path]:
    """Return all Python files and pages of the repository that are written by hand or by studies."""
    found = []
    for names, ending in ((PYTHON, "*.py"), (PAGES, "*.md")):
        for place in (ROOT / name for name in names):
            found += sorted(place.rglob(ending)) if place.is_dir() else [place]
    return [path for path in found if not MADE & set(path.relative_to(ROOT).parts)]


if __name__ == "__main__":
    asked = [Path(name).resolve() for name in sys.argv[1:]] or files()
    lines = [f"{path.relative_to(ROOT)}:{finding}" for path in asked for finding in findings(path)]
    print("\n".join(lines) or f"{len(asked)} files, nothing found")
    sys.exit(1 if lines else 0)
