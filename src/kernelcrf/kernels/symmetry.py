"""Kernels on inputs and labels together, for a group that acts on both.

A group of G elements g moves inputs x and labels y. The kernel of pairs of an input and a label is

    k((x, y), (x', y')) = sum over g with g y' = y of k_x(x, g x').

If k_x(g x, g x') = k_x(x, x'), a function f with this kernel has the same value for (x, y) and (g x, g y). Fitting it
is the same as fitting separate functions of all labels to G copies of the data, one for each element, with 1 / G of
each loss. Take one label r of each orbit, and let s be the number of elements that leave r where it is. Then

    f(x, y) = sum over g with g r = y of f_r(g^-1 x) / sqrt(s),

where f_r is a function of inputs alone, with the kernel k_x. A token therefore has G rows of features, one for each
moved input g^-1 x, and each orbit of labels has one column of weights. Joint labels of a step have orbits, too. If f
does not depend on inputs, all labels of an orbit have the score sqrt(s) f_r.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelcrf.arrays import Array, Config, Floats, Inputs, Places, UserData, is_sparse
from kernelcrf.kernels.labels import LabelMap
from kernelcrf.validation import either, shown, shown_list, whole

NODES = either(whole(least=1, most=2))
ROWS = 4096


@dataclass(frozen=True, eq=False)
class Views:
    """Several orders of the columns of an input, so that each input has several rows, one after the other.

    columns : (G, d), row g has the column of the input that becomes column j of row g.
    """

    columns: Places

    def rows(self, X: Inputs) -> Inputs:
        """Return G rows for each row of X."""
        if is_sparse(X) or X.shape[1] != self.columns.shape[1]:
            kind = "is sparse" if is_sparse(X) else f"has {X.shape[1]} columns"
            raise ValueError(
                f"the input {kind}: expected an array of {self.columns.shape[1]} columns, the number that `columns` of "
                "Symmetry moves; pass such arrays, or other `columns`"
            )
        return X[:, self.columns.ravel()].reshape(-1, X.shape[1])

    def blocks(self, X: Inputs) -> Iterable[Inputs]:
        """Yield the result of `rows` in blocks that take little memory."""
        for low in range(0, max(X.shape[0], 1), ROWS):
            yield self.rows(X[low : low + ROWS])

    def to_config(self) -> list[list[int]]:
        """Return the columns as a value for JSON; `from_config` reads it."""
        columns: list[list[int]] = self.columns.tolist()
        return columns

    @classmethod
    def from_config(cls, config: Any) -> Views:
        """Return the object that `to_config` converted to `config`; raise if the columns are not permutations."""
        return cls(_read_permutations(config, "columns"))


@dataclass(frozen=True, eq=False)
class Orbits(LabelMap):
    """The kernel of labels that a group moves, or of joint labels of `nodes` tokens that it moves together.

    images : (G, n_labels), entry [g, y] is the label that the element g makes of the label y.
    sees_inputs : whether the score depends on inputs, which the group moves, too. There are then G rows of features.
    """

    images: Places
    nodes: int = 1
    sees_inputs: bool = False

    @property
    def L(self) -> int:  # type: ignore[override]
        """Return the number of joint labels."""
        return int(self.images.shape[1] ** self.nodes)

    @property
    def views(self) -> int:
        return len(self.images) if self.sees_inputs else 1

    @property
    def norm(self) -> float:
        return 1.0 if self.sees_inputs else float(len(self.images))

    def _image(self, g: int) -> Places:
        """Return the joint label that element g makes of each joint label."""
        image: Places = self.images[g]
        for _ in range(self.nodes - 1):
            image = (image[:, None] * self.images.shape[1] + self.images[g]).ravel()
        return image

    @cached_property
    def _orbits(self) -> tuple[Places, Places, Floats]:
        """Return the first joint label of each orbit, the orbit of each joint label, and sqrt(s) of each orbit."""
        least = self._image(0).copy()
        for g in range(1, len(self.images)):
            np.minimum(least, self._image(g), out=least)
        first, orbit = np.unique(least, return_inverse=True)
        return first, orbit.ravel(), np.sqrt(len(self.images) / np.bincount(orbit.ravel()))

    @property
    def rank(self) -> int:
        return len(self._orbits[0])

    @cached_property
    def _factor(self) -> Any:
        """Return the factor A as a CSR matrix; its columns are the orbits, for one row of features after the other."""
        first, orbit, roots = self._orbits
        labels = np.arange(self.L)
        if not self.sees_inputs:
            return sp.csr_array((roots[orbit], (labels, orbit)), shape=(self.L, len(first)))
        moved = np.concatenate([self._image(g)[first] for g in range(len(self.images))])
        entries = np.tile(1 / roots, len(self.images)), (moved, np.arange(len(moved)))
        return sp.csr_array(entries, shape=(self.L, len(moved)))

    def expand(self, Z: Array) -> Array:
        return self._product(self._factor, Z)

    def adjoint(self, R: Array) -> Array:
        return self._product(self._factor.T, R)

    @staticmethod
    def _product(A: Any, Z: Array) -> Array:
        rows = np.asarray((A.astype(Z.dtype) @ Z.reshape(-1, Z.shape[-1]).T).T)
        return rows.reshape(*Z.shape[:-1], A.shape[0])

    def to_config(self) -> Config:
        return {
            "kind": "orbits",
            "images": self.images.tolist(),
            "nodes": self.nodes,
            "sees_inputs": self.sees_inputs,
        }

    @classmethod
    def from_config(cls, config: Config, factors: tuple[LabelMap, ...] = ()) -> Orbits:
        images = _read_permutations(config["images"], "images")
        return cls(images, int(NODES.check("nodes", config["nodes"])), config["sees_inputs"] is True)


@dataclass(frozen=True, eq=False)
class Symmetry:
    """A group that acts on inputs and labels, for the parameter `label_kernel` of ChainCRF.

    Use it if a moved input has the moved label, as a chord that is transposed, or an image that is turned. The model
    then gives a moved sequence the moved labels, without moved copies of the training data. Labels that have not been
    seen are predicted, too, if a moved label has been seen. The kernel of a pair of an input and a label is
    k((x, y), (x', y')) = sum over g with g y' = y of k_x(x, g x').

    Parameters
    ----------
    labels : dict from labels to lists of labels
        For each label a list with one label per element of the group: what the element makes of the label. The first
        element is the identity, which moves nothing. A label that does not move is repeated.
    columns : None, array of shape (n_elements, n_columns) or dict from names of inputs to such arrays, default=None
        How the elements move inputs: the element g moves an input x to x[columns[g]]. If you have a function that
        moves an input, apply it to numpy.arange(n_columns). With several `inputs`, pass a dict; inputs that are not in
        the dict do not move. None means that no input moves.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf import ChainCRF, Symmetry
    >>> notes = ["C", "D", "E"]  # a scale of three notes, which goes round
    >>> labels = {note: [notes[(i + k) % 3] for k in range(3)] for i, note in enumerate(notes)}
    >>> columns = [np.roll(np.arange(3), k) for k in range(3)]
    >>> X, y = [np.eye(3)[[0, 1, 0]]], [["C", "D", "C"]]  # there is no E
    >>> crf = ChainCRF("linear", C=10.0, label_kernel=Symmetry(labels, columns)).fit(X, y)
    >>> crf.predict([np.eye(3)[[1, 2, 1]]])[0].tolist()
    ['D', 'E', 'D']
    """

    labels: Mapping[Any, Any]
    columns: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", _read_labels(self.labels))
        n_elements = len(next(iter(self.labels.values())))
        given = self.columns
        if given is not None:
            by_name = given if isinstance(given, Mapping) else {None: given}
            read = {name: _read_permutations(columns, "columns") for name, columns in by_name.items()}
            for name, columns in read.items():
                if len(columns) != n_elements:
                    of_input = "" if name is None else f" of the input {shown(name)}"
                    raise ValueError(
                        f"columns{of_input} has {len(columns)} rows: expected {n_elements}, one for each element of "
                        "the group, as in the lists of `labels`"
                    )
            object.__setattr__(self, "columns", read if isinstance(given, Mapping) else read[None])
        self._check_group()

    def __repr__(self) -> str:
        return f"Symmetry(<{len(self.labels)} labels>, <{len(next(iter(self.labels.values())))} elements>)"

    def columns_of(self, name: str | None) -> Places | None:
        """Return how the elements move the columns of an input; None if they do not move it.

        name : the name of the input, or None if it has none.
        """
        if self.columns is None or isinstance(self.columns, Mapping):
            return None if self.columns is None else self.columns.get(name)
        columns: Places = self.columns
        return columns

    def _check_group(self) -> None:
        """Raise unless the elements differ from each other, and moving by two of them is moving by a third one."""
        names = list(self.labels)
        moves = [self.images(names)]
        if self.columns is not None:
            moves += list(self.columns.values()) if isinstance(self.columns, Mapping) else [self.columns]
        keys: dict[bytes, int] = {}
        for g in range(len(moves[0])):
            same = keys.setdefault(b"".join(move[g].tobytes() for move in moves), g)
            if same != g:
                raise ValueError(
                    f"the elements {same} and {g} of a Symmetry move labels and columns in the same way: expected "
                    "different elements; leave one of them out"
                )
        for g in range(len(moves[0])):
            # A label goes to images[g][images[h][y]]. Columns are read in the other order.
            both = [moves[0][g][moves[0]], *(move[:, move[g]] for move in moves[1:])]
            for h in range(len(moves[0])):
                if b"".join(np.ascontiguousarray(one[h]).tobytes() for one in both) not in keys:
                    raise ValueError(
                        f"a Symmetry has no element that moves as element {h} followed by element {g}: expected a "
                        "group, in which two moves in a row are one of the moves. Add the missing elements, and check "
                        "that `labels` and `columns` have the same order and move in the same direction"
                    )

    def closure(self, labels: Iterable[UserData]) -> list[UserData]:
        """Return the labels that the group makes of the given labels; raise if it does not move one of them."""
        found: dict[UserData, None] = {}
        for label in labels:
            if label not in self.labels:
                raise ValueError(
                    f"y has the label {shown(label)}, which a Symmetry does not move: expected one of "
                    f"{shown_list(self.labels)}; add the label to `labels`, with a list of its images"
                )
            found |= dict.fromkeys(self.labels[label])
        return list(found)

    def images(self, classes: Iterable[UserData]) -> Places:
        """Return an array whose entry [g, y] is the index of the class that element g makes of class y."""
        classes = list(classes)
        index = {label: y for y, label in enumerate(classes)}
        return np.array([[index[label] for label in self.labels[y]] for y in classes], np.intp).T

    def label_maps(self, classes: Iterable[UserData]) -> SymmetricLabels:
        """Return the label kernels of all terms of a chain with these classes."""
        return SymmetricLabels(self, self.images(classes))

    def to_config(self) -> Config:
        """Return the group as a dict for JSON, except that labels stay as they are."""
        columns = self.columns
        if isinstance(columns, Mapping):
            columns = {name: one.tolist() for name, one in columns.items()}
        elif columns is not None:
            columns = columns.tolist()
        return {"labels": [list(images) for images in self.labels.values()], "columns": columns}


@dataclass(frozen=True, eq=False)
class SymmetricLabels:
    """The label kernels of the terms of a chain whose labels a group moves."""

    symmetry: Symmetry
    images: Places

    def of_labels(self, nodes: int) -> LabelMap:
        """Return the kernel of the joint labels of `nodes` neighbouring tokens, for scores that see no inputs."""
        return Orbits(self.images, nodes)

    def of_input(self, nodes: int, name: str | None) -> tuple[LabelMap, Views | None]:
        """Return the kernel for scores that see the input called `name`, and the moved inputs."""
        columns = self.symmetry.columns_of(name)
        if columns is None:
            return Orbits(self.images, nodes), None
        return Orbits(self.images, nodes, sees_inputs=True), Views(np.argsort(columns, axis=1))


def _read_labels(labels: UserData) -> dict[UserData, tuple[UserData, ...]]:
    """Return the images of all labels as tuples; raise if some element does not permute the labels."""
    if not isinstance(labels, Mapping) or not labels:
        raise ValueError(f"labels={shown(labels)}: expected a dict from each label to a list of its images")
    read = {label: tuple(images) for label, images in labels.items()}
    n_elements = len(next(iter(read.values())))
    for label, images in read.items():
        if len(images) != n_elements or not images or images[0] != label:
            raise ValueError(
                f"labels has the images {shown_list(images)} of {shown(label)}: expected {n_elements} labels, as for "
                "all labels, and the label itself as the first of them; the first element of a group moves nothing"
            )
    for g, column in enumerate(zip(*read.values(), strict=True)):
        if set(column) != read.keys():
            lost = [label for label in read if label not in set(column)]
            raise ValueError(
                f"element {g} of a Symmetry moves no label to {shown(lost[0] if lost else column)}: expected each "
                "label exactly once among the images; correct the lists of `labels`"
            )
    return read


def _read_permutations(rows: UserData, name: str) -> Places:
    """Return rows of indices as an array (G, d); raise unless each row is a permutation, and the first the identity."""
    try:
        array = np.array(rows)
    except ValueError:
        array = np.empty(0)
    if array.ndim != 2 or array.dtype.kind not in "iu" or not array.size:
        raise ValueError(f"{name}={shown(rows)}: expected rows of column indices, one row for each element of a group")
    order = np.arange(array.shape[1])
    if not (np.sort(array, axis=1) == order).all() or not (array[0] == order).all():
        raise ValueError(
            f"{name} has a row that is no permutation of 0 to {array.shape[1] - 1}, or moves something in its first "
            "row: expected one permutation for each element of a group, and the identity first"
        )
    return array.astype(np.intp)
