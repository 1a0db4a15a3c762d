"""Secondary structure of proteins: a chain a row, in each column one character a residue."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from kernelcrf.datasets.labelled import Array, LabelledSequences
from kernelcrf.datasets.source import Folder, Source, choice, cut, numbers, read_table

_PS4 = "ps4_data/data of https://github.com/omarperacha/ps4-dataset"
_COLUMNS = ("chain", "group", "sequence", "dssp3", "dssp8", "ordered", "eval_mask")
_LAYOUT = (
    "protein_ss/{name}.tsv.gz with the header chain, group, sequence, dssp3, dssp8, ordered, eval_mask, apart by tabs; "
    "from the third column on, each cell has one character a residue, 0 or 1 in the last two."
)
CB513 = Source(
    folder="protein_ss",
    layout=_LAYOUT.format(name="cb513"),
    origin=f"cb513/CB513_HHblits.csv in {_PS4}",
    description="Secondary structure of the proteins of CB513, in the version of NetSurfP-2.0.",
    licence="CC0 1.0",
    citation=(
        "J. A. Cuff and G. J. Barton, Evaluation and improvement of multiple sequence methods for protein secondary "
        "structure prediction, Proteins 34, 1999; M. S. Klausen et al., NetSurfP-2.0, Proteins 87, 2019"
    ),
)
TS115 = Source(
    folder="protein_ss",
    layout=_LAYOUT.format(name="ts115"),
    origin=f"ts115/TS115_HHblits.csv in {_PS4}",
    description="Secondary structure of the proteins of TS115, in the version of NetSurfP-2.0.",
    licence="CC0 1.0",
    citation=(
        "Y. Yang et al., Sixty-five years of the long march in protein secondary structure prediction: the final "
        "stretch?, Briefings in Bioinformatics 19, 2018; M. S. Klausen et al., NetSurfP-2.0, Proteins 87, 2019"
    ),
)
QIAN_SEJNOWSKI = Source(
    folder="protein_ss",
    layout=(
        "protein_ss/qian_sejnowski_{train,test}.tsv.gz with the header protein, sequence, structure, apart by tabs; "
        "the last two have one character a residue."
    ),
    origin="UCI, Molecular Biology (Protein Secondary Structure)",
    description="Secondary structure of globular proteins.",
    licence="non-commercial research (Copyright 1988 Terrence J. Sejnowski)",
    citation=(
        "N. Qian and T. J. Sejnowski, Predicting the secondary structure of globular proteins using neural network "
        "models, Journal of Molecular Biology 202, 1988"
    ),
)


def load_cb513(*, n_classes: Literal[3, 8] = 3, folder: Folder = None) -> LabelledSequences:
    """CB513: 511 chains whose domains are a benchmark of secondary structure.

    X has dicts with `residue`, a letter; y is H, E or C, or with n_classes=8 one of the letters H G I E B C S T of
    DSSP. Chains are whole (144,011 residues) while the benchmark is of domains: score where `eval_mask` is true (83,991
    residues; two chains have none), and, to compare with NetSurfP, where `extras["ordered"]` is too (83,427).
    Several rows may be domains of one and the same chain: `groups` (432) tell, and cross-validation must keep them
    together, for the row of another domain shows the labels. No official training set; no profiles of alignments.

    extras : `ordered`, true where the residue is resolved (others are labelled C), `dssp3` and `dssp8`.

    Licence: CC0 1.0. Source: github.com/omarperacha/ps4-dataset.
    `folder` : the folder of all data sets, else KERNELCRF_DATA.

    Examples
    --------
    >>> from kernelcrf.datasets import load_cb513
    >>> data = load_cb513()
    >>> data.X[0][:2], data.y[0][:2].tolist()
    ([{'residue': 'R'}, {'residue': 'T'}], ['C', 'C'])
    """
    return _dssp(CB513, "cb513.tsv.gz", n_classes, folder)


def load_ts115(*, n_classes: Literal[3, 8] = 3, folder: Folder = None) -> LabelledSequences:
    """TS115: 115 chains (29,704 residues) of structures newer than CB513, to test what CB513 trained.

    Fields as those of `load_cb513`; every residue belongs to the benchmark and every chain is a group of its own.

    Licence: CC0 1.0. Source: github.com/omarperacha/ps4-dataset.
    `folder` : the folder of all data sets, else KERNELCRF_DATA.

    Examples
    --------
    >>> from kernelcrf.datasets import load_ts115
    >>> load_ts115(n_classes=8).y[0][:5]
    array(['C', 'C', 'H', 'H', 'H'], dtype='<U1')
    """
    return _dssp(TS115, "ts115.tsv.gz", n_classes, folder)


def load_qian_sejnowski(subset: Literal["train", "test"] = "train", *, folder: Folder = None) -> LabelledSequences:
    """The chains of Qian and Sejnowski (1988), who reached an accuracy of 64.3 % on the test set.

    X has dicts with `residue`; y is "h" (helix), "e" (sheet) or "_" (coil). The authors' split: 111 chains (18,105
    residues) to train, 17 (3,520) to test. Scored by the accuracy of residues.

    Licence: non-commercial research. Source: UCI. `folder` : the folder of all data sets, else KERNELCRF_DATA.

    Examples
    --------
    >>> from kernelcrf.datasets import load_qian_sejnowski
    >>> load_qian_sejnowski("test").lengths[:3]
    array([306, 108, 113])
    """
    choice("subset", subset, ("train", "test"))
    path = QIAN_SEJNOWSKI.path(folder, f"qian_sejnowski_{subset}.tsv.gz")
    names, sequences, structures = read_table(path, "\t", ("protein", "sequence", "structure"))
    _check_lengths(path, names, sequences, [structures])
    starts = _starts(sequences)
    y = _letters(path, "structure", structures, "he_")
    return LabelledSequences(
        X=_residues(sequences),
        y=cut(y, starts),
        ids=np.array(names, np.str_),
        **QIAN_SEJNOWSKI.about(f"Part {subset!r}."),
    )


def _dssp(source: Source, file: str, n_classes: int, folder: Folder) -> LabelledSequences:
    choice("n_classes", n_classes, (3, 8))
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
        groups=numbers(path, "group", groups, np.int64),
        eval_mask=cut(_letters(path, "eval_mask", mask, "01") == "1", starts),
        extras={"ordered": cut(_letters(path, "ordered", ordered, "01") == "1", starts), **structure},
        **source.about(f"{n_classes} states."),
    )


def _check_lengths(path: Path, names: Sequence[str], sequences: Sequence[str], others: list[list[str]]) -> None:
    for number, (name, sequence, *cells) in enumerate(zip(names, sequences, *others, strict=True), 2):
        if any(len(cell) != len(sequence) for cell in cells):
            raise ValueError(
                f"{path}, line {number}, {name}: expected one character a residue, got {len(sequence)} residues and "
                f"{', '.join(str(len(cell)) for cell in cells)} characters"
            )


def _letters(path: Path, name: str, cells: Sequence[str], alphabet: str) -> Array:
    """(N,): the characters of all cells."""
    joined = "".join(cells)
    if unknown := set(joined) - set(alphabet):
        raise ValueError(f"{path}, column {name}: expected the characters {alphabet!r}, got {sorted(unknown)[:5]}")
    return np.array([joined]).view("<U1")


def _residues(sequences: Sequence[str]) -> list[list[dict[str, str]]]:
    return [[{"residue": residue} for residue in sequence] for sequence in sequences]


def _starts(sequences: Sequence[str]) -> Array:
    lengths = np.fromiter(map(len, sequences), np.intp, len(sequences))
    return np.cumsum(lengths) - lengths
