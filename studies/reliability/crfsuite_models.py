"""Models that other packages ship for python-crfsuite.

usaddress, probablepeople and PyThaiNLP ship models and tag with python-crfsuite. Each package tags texts of its own
kind, and the features that it passes to the tagger are kept. For usaddress, the texts are its test addresses. For
probablepeople, they are the names of the recipients in these addresses. For PyThaiNLP, they are all Thai texts in its
source code and lines of words of its dictionary.

kernelcrf loads the model and tags the same features. It then writes the model to a new file, which python-crfsuite
opens. A failure is a sequence with another label, with a marginal that differs by more than 1e-9, or with different
answers from the new file. Packages that are not installed have no row.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pycrfsuite

import kernelcrf
from kernelcrf.datasets import load_us_addresses
from studies.common import Trial

THAI = re.compile(r"[\u0E00-\u0E7F][\u0E00-\u0E7F ]{12,}")
TOLERANCE = 1e-9
SEEN: dict[str, list[Any]] = defaultdict(list)


class Recorder(pycrfsuite.Tagger):
    """A tagger that keeps the features of each sequence by the path of its model."""

    def open(self, name: str) -> Any:
        self.path = name
        return super().open(name)

    def tag(self, xseq: Any = None) -> Any:
        if xseq is not None:
            SEEN[self.path].append(xseq.items() if isinstance(xseq, pycrfsuite.ItemSequence) else list(xseq))
        return super().tag(xseq)


def trials(options: argparse.Namespace) -> Iterator[Trial]:
    # The packages look the class up when they are imported.
    plain, pycrfsuite.Tagger = pycrfsuite.Tagger, Recorder
    for package, tag_texts in {"usaddress": usaddress, "probablepeople": probablepeople, "pythainlp": thai}.items():
        with contextlib.suppress(ModuleNotFoundError):
            SEEN.clear()
            tag_texts(import_module(package))
            for path, sequences in sorted(SEEN.items()):
                yield compare(f"{package} {version(package)}", Path(path), sequences, plain)


def compare(package: str, path: Path, sequences: Sequence[Any], tagger_type: Callable[[], Any]) -> Trial:
    """Tag the sequences with kernelcrf, with python-crfsuite, and with python-crfsuite from the file of kernelcrf."""
    crf, theirs, again = kernelcrf.load(path), tagger_type(), tagger_type()
    theirs.open(str(path))
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.crfsuite"
        crf.save(copy)
        again.open(str(copy))
        same_bytes = copy.read_bytes() == path.read_bytes()
        trial, largest, labels = Trial(f"{package}: {path.name}", ""), 0.0, theirs.labels()
        answers = zip(sequences, crf.predict(sequences), crf.predict_proba(sequences), strict=True)
        for number, (x, found, ours) in enumerate(answers):
            expected = theirs.tag(x)
            p = np.array([[theirs.marginal(label, t) for label in labels] for t in range(len(x))])
            equal = again.tag(x) == expected
            q = np.array([[again.marginal(label, t) for label in labels] for t in range(len(x))])
            error = float(np.abs(ours - p).max(initial=0.0))
            largest = max(largest, error)
            fine = found.tolist() == expected and error <= TOLERANCE and equal and bool((p == q).all())
            trial.check(fine, f"sequence {number}: {found.tolist()} instead of {expected}, marginals differ by {error}")
    trial.holds = (
        f"{sum(map(len, sequences)):,} tokens, {len(labels)} labels: equal labels, marginals within {largest:.0e}; the "
        f"file that kernelcrf writes has {'the same' if same_bytes else 'other'} bytes"
    )
    return trial


def usaddress(package: Any) -> None:
    """Tag all test addresses."""
    for part in ("test", "test_us50", "test_patterns", "test_states"):
        for address in load_us_addresses(part).X:
            package.parse(" ".join(token["word"] for token in address))


def probablepeople(package: Any) -> None:
    """Tag the recipients of all addresses as persons, as companies, and as either."""
    names = ["Mr George 'Gob' Bluth II", "Sitwell Housing Inc"]
    for part in ("train", "test"):
        data = load_us_addresses(part)
        for address, labels in zip(data.X, data.y, strict=True):
            words = [t["word"] for t, label in zip(address, labels, strict=True) if label == "Recipient"]
            names += [" ".join(words)] if words else []
    for kind in ("generic", "person", "company"):
        for name in names:
            package.parse(name, type=kind)


def thai(package: Any) -> None:
    """Tag Thai texts with the models for sentences, syllables, named entities and chunks."""
    from pythainlp.chunk.crfchunk import CRFChunkParser
    from pythainlp.corpus import thai_words
    from pythainlp.tag import pos_tag
    from pythainlp.tag.thainer import ThaiNameTagger
    from pythainlp.tokenize import crfcut, han_solo, word_tokenize

    sources = sorted(Path(package.__file__).parent.rglob("*.py"))
    texts = sorted({text for source in sources for text in THAI.findall(source.read_text(encoding="utf-8"))})
    words, rng = sorted(thai_words()), random.Random(0)
    texts += [" ".join(rng.sample(words, 8)) for _ in range(200)]
    # ThaiNameTagger would download the corpus of its other tagger, which the package does not ship.
    namer, chunker = Recorder(), CRFChunkParser()
    namer.open(str(Path(package.__file__).parent / "corpus" / "thainer_crf_1_5_1.model"))
    for text in texts:
        crfcut.segment(text)
        han_solo.segment(text)
        tagged = pos_tag(word_tokenize(text), engine="perceptron", corpus="orchid")
        namer.tag(ThaiNameTagger._extract_features(tagged))  # noqa: SLF001
        chunker.parse(tagged)
