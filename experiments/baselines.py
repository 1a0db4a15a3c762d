"""The models to beat, each on the features that ours has and with a grid of its own.

crfsuite     a linear CRF on feature dicts or lists (python-crfsuite, L-BFGS, c2)
svc          an RBF support vector machine a token (scikit-learn), no structure
nystroem     Nystroem features and multinomial logistic regression a token (scikit-learn), no structure
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.svm import SVC


class CRFsuite:
    """python-crfsuite as an estimator on lists of feature lists or dicts; labels are strings to it."""

    def __init__(self, c2: float = 1.0, c1: float = 0.0, max_iterations: int = 200) -> None:
        self.params = {"c1": c1, "c2": c2, "max_iterations": max_iterations}

    def fit(self, X: Sequence[Any], y: Sequence[Any]) -> CRFsuite:
        import pycrfsuite

        self.classes_ = np.unique(np.concatenate([np.asarray(one) for one in y]))
        names = [str(label) for label in self.classes_.tolist()]
        self._names, self._index = names, {name: k for k, name in enumerate(names)}
        trainer = pycrfsuite.Trainer(algorithm="lbfgs", params=self.params, verbose=False)
        for sequence, labels in zip(X, y, strict=True):
            trainer.append(sequence, [str(label) for label in np.asarray(labels).tolist()])
        self._folder = tempfile.TemporaryDirectory()
        path = str(Path(self._folder.name) / "model")
        trainer.train(path)
        self.n_iter_ = int(trainer.logparser.last_iteration["num"])
        self._tagger = pycrfsuite.Tagger()
        self._tagger.open(path)
        return self

    def predict(self, X: Sequence[Any]) -> list[np.ndarray]:
        return [self.classes_[[self._index[tag] for tag in self._tagger.tag(one)]] for one in X]

    def predict_proba(self, X: Sequence[Any]) -> list[np.ndarray]:
        found = []
        for one in X:
            self._tagger.set(one)
            found.append(np.array([[self._tagger.marginal(name, t) for name in self._names] for t in range(len(one))]))
        return found


class PerToken:
    """A classifier of single tokens, given and giving sequences."""

    def __init__(self, classifier: Any) -> None:
        self.classifier = classifier

    def fit(self, X: Sequence[np.ndarray], y: Sequence[Any]) -> PerToken:
        self.classifier.fit(np.concatenate(list(X)), np.concatenate([np.asarray(one) for one in y]))
        self.classes_ = self.classifier.classes_
        return self

    def predict(self, X: Sequence[np.ndarray]) -> list[np.ndarray]:
        return self._cut(self.classifier.predict(np.concatenate(list(X))), X)

    def predict_proba(self, X: Sequence[np.ndarray]) -> list[np.ndarray]:
        return self._cut(self.classifier.predict_proba(np.concatenate(list(X))), X)

    @staticmethod
    def _cut(rows: np.ndarray, X: Sequence[np.ndarray]) -> list[np.ndarray]:
        return np.split(rows, np.cumsum([len(one) for one in X])[:-1])


def svc(C: float, gamma: float | str = "scale") -> PerToken:
    return PerToken(SVC(C=C, gamma=gamma, cache_size=1000))


def nystroem(C: float, gamma: float | None, n_components: int, random_state: int = 0) -> PerToken:
    steps: Pipeline = make_pipeline(
        Nystroem("rbf", gamma=gamma, n_components=n_components, random_state=random_state),
        LogisticRegression(C=C, max_iter=500),
    )
    return PerToken(steps)
