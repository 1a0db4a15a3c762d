"""Train the model of a parserator project with kernelcrf, and compare it with that of python-crfsuite.

A parserator project, such as usaddress or probablepeople, has a module with a function `tokens2features`, and XML files
in which each item is an element whose children are tokens, with their labels as tags. Run this script in the folder of
the project, with the module importable:

    pip install kernelcrf python-crfsuite
    python train_parser.py --module usaddress --data training/labeled.xml --out models

It reads the items as `parserator train` does, each distinct one once, and uses the penalties of parserator unless you
pass others. In cross-validation, both libraries are trained and tested on the same items with the same features. Then
kernelcrf is trained on all items, and its model is written twice: as a file of CRFsuite, which takes the place of the
file in your package, and as a .kcrf file for kernelcrf-tagger, which needs no python-crfsuite. Both files are opened
and compared before the script ends.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
import warnings
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pycrfsuite
from scipy.stats import binomtest
from sklearn.model_selection import KFold

import kernelcrf
from kernelcrf.crfsuite import CRF
from kernelcrf.tagger.crfsuite import Tagger

Item = tuple[tuple[str, str], ...]
"""The pairs of a token and its label of one address, name or other text."""


class Peer:
    """CRFsuite as parserator trains it."""

    def __init__(self, c1: float, c2: float) -> None:
        self.parameters = {"c1": c1, "c2": c2}

    def fit(self, X: list[Any], y: list[list[str]]) -> Peer:
        trainer = pycrfsuite.Trainer(verbose=False, params=self.parameters)
        for x, labels in zip(X, y, strict=True):
            trainer.append(x, labels)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.crfsuite"
            trainer.train(str(path))
            self.content = path.read_bytes()
        self.tagger = pycrfsuite.Tagger()
        self.tagger.open_inmemory(self.content)  # It copies nothing: the content must live as long as the tagger.
        return self

    def predict(self, X: list[Any]) -> list[list[str]]:
        return [self.tagger.tag(x) for x in X]


def read_items(path: Path) -> list[Item]:
    """Return the labelled items of an XML file; exit if one is not labelled."""
    items = []
    for number, element in enumerate(ElementTree.parse(path).getroot(), 1):
        item = tuple((token.text or "", token.tag) for token in element)
        if not item or not all(text.strip() for text, _ in item):
            sys.exit(f"{path}: item {number} is {item}: expected children with a text, such as <Surname>Lee</Surname>")
        items.append(item)
    return items


def load_parser(name: str) -> ModuleType:
    """Return the module of a parser; exit if it has no `tokens2features`."""
    sys.path.insert(0, str(Path.cwd()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # A parser without a model warns that it must be trained.
        module = importlib.import_module(name)
    if not callable(getattr(module, "tokens2features", None)):
        sys.exit(f"--module {name}: expected a module of parserator, which has a function tokens2features")
    return module


def read_data(module: ModuleType, items: Iterable[Item]) -> tuple[list[Any], list[list[str]]]:
    """Return the features and the labels of items."""
    X, y = [], []
    for item in items:
        X.append(module.tokens2features([text for text, _ in item]))
        y.append([label for _, label in item])
    return X, y


def compare(
    makers: dict[str, Callable[[], Any]], X: Sequence[Any], y: Sequence[list[str]], n_folds: int
) -> tuple[dict[str, list[Any]], dict[str, float]]:
    """Return which tokens of each item each library labels right in cross-validation, and its CPU seconds of training.

    makers : the name of each library, and a function that makes an estimator.
    """
    right: dict[str, list[Any]] = {name: [None] * len(X) for name in makers}
    seconds = dict.fromkeys(makers, 0.0)
    for train, test in KFold(n_folds, shuffle=True, random_state=0).split(X):
        for name, make in makers.items():
            start = time.process_time()
            model = make().fit([X[i] for i in train], [y[i] for i in train])
            seconds[name] += time.process_time() - start
            for i, labels in zip(test, model.predict([X[i] for i in test]), strict=True):
                right[name][i] = np.array(labels) == np.array(y[i])
    return right, seconds


def describe(right: dict[str, list[Any]], seconds: dict[str, float]) -> str:
    """Return what `compare` found as text."""
    lines = [f"{'':<18}{'tokens wrong':>14}{'items wrong':>14}{'CPU s of training':>20}"]
    whole = {name: np.array([one.all() for one in rows]) for name, rows in right.items()}
    for name, rows in right.items():
        errors = [1 - np.concatenate(rows).mean(), 1 - whole[name].mean()]
        lines.append(f"{name:<18}" + "".join(f"{100 * error:>12.2f} %" for error in errors) + f"{seconds[name]:>20.0f}")
    first, second = whole
    one, other = (int((whole[a] & ~whole[b]).sum()) for a, b in ((first, second), (second, first)))
    p = binomtest(one, one + other).pvalue if one + other else 1.0
    lines.append(f"{one} items are right by {first} alone, {other} by {second} alone (sign test: p = {p:.2f}).")
    return "\n".join(lines)


def n_different(tag: Callable[[Any], list[str]], X: Iterable[Any], known: Iterable[list[str]]) -> int:
    """Return how many tokens have another label than the known one."""
    return sum(a != b for x, labels in zip(X, known, strict=True) for a, b in zip(tag(x), labels, strict=True))


def write_models(crf: CRF, X: list[Any], folder: Path, name: str) -> str:
    """Write both files, open them again, and return what they are as text."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / Path(name).with_suffix(".crfsuite"), folder / Path(name).with_suffix(".kcrf")
    known, theirs, ours = crf.predict(X), pycrfsuite.Tagger(), Tagger()
    crf.save(paths[0])
    kernelcrf.load(paths[0]).save(paths[1])  # A file of CRFsuite has no weights that are zero, so that both are small.
    theirs.open(str(paths[0]))
    ours.open(paths[1])
    n_tokens = sum(map(len, known))
    lines = []
    for path, tagger, reader in zip(paths, (theirs, ours), ("python-crfsuite", "kernelcrf-tagger"), strict=True):
        different = n_different(tagger.tag, X, known)
        lines.append(
            f"{path} ({path.stat().st_size / 1e3:,.0f} kB) is for {reader}, which gives another label than kernelcrf "
            f"to {different:,} of {n_tokens:,} tokens."
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    text = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=text)
    parser.add_argument("--module", required=True, help="the module of the parser, such as usaddress")
    parser.add_argument("--data", required=True, nargs="+", type=Path, help="XML files with labelled items")
    parser.add_argument("--out", default=Path("models"), type=Path, help="the folder for both models (default: models)")
    parser.add_argument("--name", help="the name of the model file (default: MODEL_FILE of the module)")
    parser.add_argument(
        "--folds", default=5, type=int, help="folds of the cross-validation; 0 leaves it out (default: 5)"
    )
    parser.add_argument("--c1", default=0.1, type=float, help="the L1 penalty (default: 0.1, as in parserator)")
    parser.add_argument("--c2", default=0.01, type=float, help="the L2 penalty (default: 0.01, as in parserator)")
    parser.add_argument(
        "--epsilon",
        default=1e-3,
        type=float,
        help="the certified relative distance to the optimum at which kernelcrf stops (default: 0.001)",
    )
    options = parser.parse_args(arguments)
    if options.folds < 0 or options.folds == 1:
        parser.error(f"--folds {options.folds}: expected 0, or at least 2")

    module = load_parser(options.module)
    every = [item for path in options.data for item in read_items(path)]
    items = list(dict.fromkeys(every))
    X, y = read_data(module, items)
    print(
        f"{len(items):,} labelled items ({len(every) - len(items):,} more are repetitions), {sum(map(len, y)):,} "
        f"tokens, {len({label for labels in y for label in labels})} labels; c1 = {options.c1:g}, c2 = {options.c2:g}."
    )

    def make() -> CRF:
        return CRF(c1=options.c1, c2=options.c2, epsilon=options.epsilon, delta=options.epsilon)

    if options.folds:
        make().fit(X[:10], y[:10])  # After an install, the first fit compiles loops.
        makers = {"kernelcrf": make, "python-crfsuite": lambda: Peer(options.c1, options.c2)}
        print(f"\n{options.folds} folds:\n{describe(*compare(makers, X, y, options.folds))}")
    crf = make().fit(X, y)
    gap = crf.certificate_
    print(f"\nThe model of all items is {gap.status}, at most {100 * gap.relative_gap:.2g} % above the optimum.")
    name = options.name or getattr(module, "MODEL_FILE", f"{options.module}.crfsuite")
    print(write_models(crf, X, options.out, name))


if __name__ == "__main__":
    main()
