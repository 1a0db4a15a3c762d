"""Load names of people and companies, labelled token by token."""

from __future__ import annotations

import gzip
from typing import Literal
from xml.etree import ElementTree

import numpy as np

from kernelcrf.datasets.labelled_sequences import LabelledSequences
from kernelcrf.datasets.source import Folder, check_choice
from studies.datasets.sources import SOURCES


def load_names(subset: Literal["person", "company"] = "person", *, folder: Folder = None) -> LabelledSequences:
    """Load the training data of probablepeople, one sequence per name.

    X has one dict per token, with the token as `word`, and y has labels such as "GivenName" or "CorporationName".

    subset : "person" has names of people and couples, and "company" has names of companies.
    folder : the folder with all data sets; None means the environment variable KERNELCRF_DATA.

    Examples
    --------
    >>> from studies.datasets import load_names
    >>> data = load_names()
    >>> [token["word"] for token in data.X[0]], data.y[0].tolist()
    (['Drake', 'Rice'], ['GivenName', 'Surname'])
    """
    check_choice("subset", subset, ("person", "company"))
    path = SOURCES["probablepeople"].path(folder, f"{subset}_labeled.xml.gz")
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        root = ElementTree.parse(file).getroot()
    names = [[(word, token.tag) for token in name if (word := (token.text or "").strip())] for name in root]
    names = [name for name in names if name]
    return LabelledSequences(
        X=[[{"word": word} for word, _ in name] for name in names],
        y=[np.array([label for _, label in name]) for name in names],
        **SOURCES["probablepeople"].about(f"Part {subset!r}."),
    )
