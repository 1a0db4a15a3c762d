"""Secondary structure of proteins: one chain per row, with one character per residue in each column."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from kernelcrf.arrays import Array
from kernelcrf.datasets.labelled import LabelledSequences
from kernelcrf.datasets.source import SOURCES, Folder, Source, check_choice, cut, read_numbers, read_table

_COLUMNS = ("chain", "group", "sequence", "dssp3", "dssp8", "ordered", "eval_mask")


def load_cb513(*, n_classes: Literal[3, 8] = 3, folder: Folder = None) -> LabelledSequences:
    """Load CB513, 511 chains whose domains are a benchmark of secondary structure.

    X has dicts with the letter `residue`; y is H, E or C, or with n_classes=8 one of the letters H G I E B C S T of
    DSSP. Chains are complete (144,011 residues) while the benchmark is about domains: score the residues whose
    `eval_mask` is true (83,991; two chains have none), and, to compare with NetSurfP, whose `extras["ordered"]` is true
    as well (83,427). Several rows may be domains of the same chain and show each other's labels, so cross-validation
    must keep the 432 `groups` together. There is no official training set, and there are no alignment profiles.

    extras : `ordered`, true if the residue is resolved (others are labelled C), `dssp3` and `dssp8`.

    folder : the folder of all data sets; None takes KERNELCRF_DATA.

    Examples
    --------
    >>> from kernelcrf.datasets import load_cb513
    >>> data = load_cb513()
    >>> data.X[0][:2], data.y[0][:2].tolist()
    ([{'residue': 'R'}, {'residue': 'T'}], ['C', 'C'])
    """
    return _dssp(SOURCES["cb513"], "cb513.tsv.gz", n_classes, folder)


def load_ts115(*, n_classes: Literal[3, 8] = 3, folder: Folder = None) -> LabelledSequences:
    """Load TS115, 115 chains (29,704 residues) newer than CB513, to test models trained on CB513.

    The fields are those of `load_cb513`; every residue belongs to the benchmark, and every chain is a separate group.

    folder : the folder of all data sets; None takes KERNELCRF_DATA.

    Examples
    --------
    >>> from kernelcrf.datasets import load_ts115
    >>> load_ts115(n_classes=8).y[0][:5]
    array(['C', 'C', 'H', 'H', 'H'], dtype='<U1')
    """
    return _dssp(SOURCES["ts115"], "ts115.tsv.gz", n_classes, folder)


def load_qian_sejnowski(subset: Literal["train", "test"] = "train", *, folder: Folder = None) -> LabelledSequences:
    """Load the chains of Qian and Sejnowski (1988), who reached an accuracy of 64.3 % on the test set.

    X has dicts with `residue`; y is "h" (helix), "e" (sheet) or "_" (coil). The authors' split has 111 chains (18,105
    residues) for training and 17 (3,520) for testing. The usual score is the accuracy of residues.

    folder : the folder of all data sets; None takes KERNELCRF_DATA.

    Examples
    --------
    >>> from kernelcrf.datasets import load_qian_sejnowski
    >>> load_qian_sejnowski("test").lengths[:3]
    array([306, 108, 113])
    """
    check_choice("subset", subset, ("train", "test"))
    path = SOURCES["qian_sejnowski"].path(folder, f"qian_sejnowski_{subset}.tsv.gz")
    names, sequences, structures = read_table(path, "\t", ("protein", "sequence", "structure"))
    _check_lengths(path, names, sequences, [structures])
    starts = _starts(sequences)
    y = _letters(path, "structure", structures, "he_")
    return LabelledSequences(
        X=_residues(sequences),
        y=cut(y, starts),
        ids=np.array(names, np.str_),
        **SOURCES["qian_sejnowski"].about(f"Part {subset!r}."),
    )


def _dssp(source: Source, file: str, n_classes: int, folder: Folder) -> LabelledSequences:
    check_choice("n_classes", n_classes, (3, 8))
    path = source.path(folder, file)
    chains, groups, sequences, dssp3, dssp8, ordered, mask = read_table(path, "\t", _COLUMNS)
    _check_lengths(path, chains, sequences, [dssp3, dssp8, ordered, mask])
    starts = _starts(sequences)
    structure = {
        "dssp3": cut(_letters(path, "dssp3", dssp3, "HEC"), starts),
        "dssp8": cut(_letters(path, "dssp8", dssp8, "HGIEBCST"), starts),
    }
    return LabelledSequences(
        X=_residues(sequences),
        y=structure[f"dssp{n_classes}"],
        ids=np.array(chains, np.str_),
        groups=read_numbers(path, "group", groups, np.int64),
        eval_mask=cut(_letters(path, "eval_mask", mask, "01") == "1", starts),
        extras={"ordered": cut(_letters(path, "ordered", ordered, "01") == "1", starts), **structure},
        **source.about(f"{n_classes} states."),
    )


def _check_lengths(path: Path, names: Sequence[str], sequences: Sequence[str], others: list[list[str]]) -> None:
    for number, (name, sequence, *cells) in enumerate(zip(names, sequences, *others, strict=True), 2):
        if any(len(cell) != len(sequence) for cell in cells):
            raise ValueError(
                f"{path}, line {number}, {name}: expected one character per residue, got {len(sequence)} residues and "
                f"{', '.join(str(len(cell)) for cell in cells)} characters"
            )


def _letters(path: Path, name: str, cells: Sequence[str], alphabet: str) -> Array:
    """Return the characters of all cells, (N,)."""
    joined = "".join(cells)
    if unknown := set(joined) - set(alphabet):
        raise ValueError(f"{path}, column {name}: expected the characters {alphabet!r}, got {sorted(unknown)[:5]}")
    return np.array([joined]).view("<U1")


def _residues(sequences: Sequence[str]) -> list[list[dict[str, str]]]:
    return [[{"residue": residue} for residue in sequence] for sequence in sequences]


def _starts(sequences: Sequence[str]) -> Array:
    lengths = np.fromiter(map(len, sequences), np.intp, len(sequences))
    return np.cumsum(lengths) - lengths
