"""Print docstrings and messages of src, drawn at random and without their places, for a stranger to read.

    python tools/draw_texts.py --seed 0

A message is the text of a `raise` or of a warning. `--places` says where each text stands, once it has been read.
"""

from __future__ import annotations

import argparse
import ast
import random
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"


def texts(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the kind, the text and the place of each docstring and each message of a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        place = f"{path.relative_to(SOURCE)}:{getattr(node, 'lineno', 1)}"
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            if docstring := ast.get_docstring(node):
                if isinstance(node, ast.FunctionDef):
                    name = f"def {node.name}({ast.unparse(node.args)})"
                else:
                    name = f"class {node.name}" if isinstance(node, ast.ClassDef) else f"module {path.stem}"
                yield "docstring", f"{name}\n" + docstring.split("\n\nParameters\n")[0], place
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            # A function in place of a class makes the message of parts, which are not read alone.
            is_class = ast.unparse(node.exc.func).split(".")[-1][0].isupper()
            if is_class and (message := written(node.exc.args)):
                yield "message", message, place
        elif (
            isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn" and (message := written(node.args))
        ):
            yield "message", message, place


def written(arguments: list[ast.expr]) -> str:
    """Return the longest text among the arguments of a call."""
    return max((text for text in map(shown, arguments) if " " in text), key=len, default="")


def shown(node: ast.expr) -> str:
    """Return a text as users see it, with {code} in place of each value that is filled in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(shown, node.values))
    if isinstance(node, ast.BinOp):
        return shown(node.left) + shown(node.right)
    return f"{{{ast.unparse(node.value if isinstance(node, ast.FormattedValue) else node)}}}"


if __name__ == "__main__":
    options = argparse.ArgumentParser(description="Print docstrings and messages drawn at random.")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--places", action="store_true", help="say where each text stands")
    asked = options.parse_args()
    generator = random.Random(asked.seed)
    found = [text for path in sorted(SOURCE.rglob("*.py")) for text in texts(path)]
    for kind, count in (("docstring", 60), ("message", 40)):
        drawn = generator.sample([text for text in found if text[0] == kind], count)
        for i, (_, text, place) in enumerate(drawn, 1):
            print(f"--- {kind} {i} {place if asked.places else ''}\n{text}\n")
