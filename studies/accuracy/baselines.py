"""Provide the models to beat, each on the features that kernelcrf has and with its own grid.

CRFsuite       a linear CRF on feature dicts or lists (python-crfsuite, L-BFGS, c2)
PerToken       a classifier of single tokens (scikit-learn), without structure
RbfSVC         an rbf support vector machine whose Gram matrices are computed by BLAS, which is ten times as fast
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC


class CRFsuite:
    """Wrap python-crfsuite as an estimator on lists of feature lists or dicts, or on the columns of CSR arrays."""

    def __init__(self, c2: float = 1.0, c1: float = 0.0, max_iterations: int = 200) -> None:
        self.params = {"c1": c1, "c2": c2, "max_iterations": max_iterations}

    def fit(self, X: Sequence[Any], y: Sequence[Any]) -> CRFsuite:
        import pycrfsuite

        self.classes_ = np.unique(np.concatenate([np.asarray(one) for one in y]))
        names = [str(label) for label in self.classes_.tolist()]
        self._names, self._index = names, {name: k for k, name in enumerate(names)}
        trainer = pycrfsuite.Trainer(algorithm="lbfgs", params=self.params, verbose=False)
        for sequence, labels in zip(X, y, strict=True):
            trainer.append(named(sequence), [str(label) for label in np.asarray(labels).tolist()])
        self._folder = tempfile.TemporaryDirectory()
        self.path = Path(self._folder.name) / "model"
        trainer.train(str(self.path))
        self.n_iter_ = int(trainer.logparser.last_iteration["num"])
        self.tagger = pycrfsuite.Tagger()
        self.tagger.open(str(self.path))
        return self

    def predict(self, X: Sequence[Any]) -> list[np.ndarray]:
        return [self.classes_[[self._index[tag] for tag in self.tagger.tag(named(one))]] for one in X]

    def predict_proba(self, X: Sequence[Any]) -> list[np.ndarray]:
        found = []
        for one in map(named, X):
            self.tagger.set(one)
            found.append(np.array([[self.tagger.marginal(name, t) for name in self._names] for t in range(len(one))]))
        return found


def named(sequence: Any) -> Any:
    """Return the names of the columns of a CSR array, and other sequences as they are."""
    if not sp.issparse(sequence):
        return sequence
    return [[str(j) for j in row] for row in np.split(sequence.indices, sequence.indptr[1:-1])]


class PerToken:
    """Fit a classifier to single tokens, on the columns that training shows; it takes and returns sequences."""

    def __init__(self, classifier: Any) -> None:
        self.classifier = classifier

    def fit(self, X: Sequence[Any], y: Sequence[Any]) -> PerToken:
        self.columns = np.unique(sp.vstack(X).indices) if sp.issparse(X[0]) else slice(None)
        self.classifier.fit(self._rows(X), np.concatenate([np.asarray(one) for one in y]))
        self.classes_ = self.classifier.classes_
        return self

    def predict(self, X: Sequence[Any]) -> list[np.ndarray]:
        return cut(self.classifier.predict(self._rows(X)), X)

    def predict_proba(self, X: Sequence[Any]) -> list[np.ndarray]:
        if not hasattr(self.classifier, "predict_proba"):
            return [(labels[:, None] == self.classes_).astype(float) for labels in self.predict(X)]
        return cut(self.classifier.predict_proba(self._rows(X)), X)

    def _rows(self, X: Sequence[Any]) -> Any:
        if sp.issparse(X[0]):
            return sp.csr_matrix(sp.csr_array(sp.vstack(X))[:, self.columns])
        return np.concatenate(list(X))


def cut(rows: np.ndarray, X: Sequence[Any]) -> list[np.ndarray]:
    """Split rows into sequences of the lengths of X."""
    return np.split(rows, np.cumsum([one.shape[0] for one in X])[:-1])


class RbfSVC:
    """Fit an rbf SVC to at most n_rows rows, drawn at random."""

    def __init__(self, C: float, gamma: float, n_rows: int | None = None) -> None:
        self.svc, self.gamma, self.n_rows = SVC(C=C, kernel="precomputed", cache_size=1000), gamma, n_rows

    def fit(self, X: np.ndarray, y: np.ndarray) -> RbfSVC:
        if self.n_rows is not None:
            drawn = np.random.default_rng(0).permutation(len(X))[: self.n_rows]
            X, y = X[drawn], y[drawn]
        self.svc.fit(rbf_kernel(X, gamma=self.gamma), y)
        self.classes_, self.support = self.svc.classes_, X[self.svc.support_]
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        blocks = np.array_split(X, max(1, len(X) // 5000))
        return np.concatenate([self._predict_block(block) for block in blocks])

    def _predict_block(self, X: np.ndarray) -> np.ndarray:
        K = np.zeros((len(X), self.svc.shape_fit_[0]))
        K[:, self.svc.support_] = rbf_kernel(X, self.support, gamma=self.gamma)
        return self.svc.predict(K)


def nystroem(C: float, gamma: float | None, n_components: int, max_iter: int = 500) -> Any:
    """Return Nystroem features with multinomial logistic regression."""
    features = Nystroem("rbf", gamma=gamma, n_components=n_components, random_state=0)
    return make_pipeline(features, LogisticRegression(C=C, max_iter=max_iter))
