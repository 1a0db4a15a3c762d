"""Symmetry: a group that moves inputs and labels together; the module `orbits` has the kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelcrf.arrays import Config, Places, UserData
from kernelcrf.kernels.chain_labels import LabelStructure, MovedLabels
from kernelcrf.kernels.orbits import Views, read_permutations
from kernelcrf.validation import shown, shown_list


@dataclass(frozen=True, eq=False)
class Symmetry(LabelStructure):
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
            read = {name: read_permutations(columns, "columns") for name, columns in by_name.items()}
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

    def closure(self, labels: Sequence[UserData]) -> list[UserData]:
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

    def images(self, classes: Sequence[UserData]) -> Places:
        """Return an array whose entry [g, y] is the index of the class that element g makes of class y."""
        index = {label: y for y, label in enumerate(classes)}
        return np.array([[index[label] for label in self.labels[y]] for y in classes], np.intp).T

    def label_maps(self, classes: Sequence[UserData]) -> MovedLabels:
        """Return the label kernels of all terms of a chain with these classes."""
        columns = self.columns if isinstance(self.columns, Mapping) else {None: self.columns}
        # The moved inputs are g^-1 x.
        views = {name: Views(np.argsort(one, axis=1)) for name, one in columns.items() if one is not None}
        return MovedLabels(self.images(classes), views)

    def to_config(self) -> Config:
        """Return the group as a dict for JSON, except that labels stay as they are."""
        columns = self.columns
        if isinstance(columns, Mapping):
            columns = {name: one.tolist() for name, one in columns.items()}
        elif columns is not None:
            columns = columns.tolist()
        return {"labels": [list(images) for images in self.labels.values()], "columns": columns}


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
