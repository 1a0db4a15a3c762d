"""A tagger with the methods of python-crfsuite, for packages that call these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from ..arrays import UserData
from ..persistence import PathLike
from ..validation import shown, shown_list
from .tagger import Tagger as ModelTagger


class Tagger:
    """A tagger with the methods of python-crfsuite's tagger, for the model files of kernelcrf.

    A package that calls python-crfsuite runs with kernelcrf-tagger if `import pycrfsuite` is replaced by `import
    kernelcrf_tagger.crfsuite as pycrfsuite`, and its model file by one that `ChainCRF.save` wrote. `probability` and
    `marginal` are about the sequence that was last passed to `set` or `tag`. Threads should therefore not share such a
    tagger, unless they call nothing but `tag` with a sequence.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.tagger.crfsuite import Tagger  # in kernelcrf-tagger: kernelcrf_tagger.crfsuite
    >>> X = [[{"word": "12"}, {"word": "Oak"}], [{"word": "7"}, {"word": "Elm"}]]
    >>> ChainCRF("linear", C=10.0).fit(X, [["Number", "Street"], ["Number", "Street"]]).save("addresses.kcrf")
    >>> tagger = Tagger()
    >>> with tagger.open("addresses.kcrf"):
    ...     tagger.tag([{"word": "7"}, {"word": "Oak"}])
    ...     round(tagger.probability(["Number", "Street"]), 2), round(tagger.marginal("Street", 1), 2)
    ['Number', 'Street']
    (0.93, 0.96)
    """

    def __init__(self) -> None:
        self._tagger: ModelTagger | None = None
        self._x: UserData = []

    def open(self, name: PathLike) -> Self:
        """Open a model file of kernelcrf, and return this object, so that `with tagger.open(name):` closes it.

        Raise OSError if there is no such file, and ModelFileError if it is of another kind, or damaged.
        """
        self._tagger = ModelTagger.open(name)
        self._x = []
        return self

    def close(self) -> None:
        """Forget the model."""
        self._tagger = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def labels(self) -> list[Any]:
        """Return all labels of the model."""
        return self._opened().classes

    def set(self, xseq: UserData) -> None:
        """Set the sequence for later calls of `tag`, `probability` and `marginal`."""
        self._opened()
        self._x = xseq

    def tag(self, xseq: UserData = None) -> list[Any]:
        """Return the labels of a sequence, which is a list of feature dicts or of lists of feature names.

        xseq : the sequence; None means the sequence that was last passed to `set` or `tag`.
        """
        if xseq is not None:
            self._x = xseq
        return self._opened().tag(self._x)

    def probability(self, yseq: Sequence[object]) -> float:
        """Return the probability of the labels yseq of the sequence that was last passed to `set` or `tag`."""
        return float(np.exp(self._opened().log_prob(self._x, yseq)))

    def marginal(self, y: object, pos: int) -> float:
        """Return the probability of the label y at token pos of the sequence that was last passed to `set` or `tag`."""
        tagger = self._opened()
        p = tagger.probabilities(self._x)
        if y not in tagger.classes or not 0 <= pos < len(p):
            raise ValueError(
                f"y={shown(y)}, pos={shown(pos)}: expected one of the labels {shown_list(tagger.classes)}, and the "
                f"index of a token, from 0 to {len(p) - 1}"
            )
        return float(p[pos, tagger.classes.index(y)])

    def _opened(self) -> ModelTagger:
        if self._tagger is None:
            raise ValueError("this tagger has no model: call open with the path of a model file first")
        return self._tagger
