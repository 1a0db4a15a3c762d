"""Load US addresses from XML files.

Each address is an element. It contains one element per token, and the tag of this inner element is the label.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias
from xml.etree import ElementTree

import numpy as np

from kernelcrf.datasets.labelled_sequences import LabelledSequences
from kernelcrf.datasets.source import SOURCES, Folder, check_choice, read_lines

Part: TypeAlias = Literal[
    "train", "train_us50", "train_us50_messy", "train_states", "test", "test_us50", "test_patterns", "test_states"
]
FILES: dict[str, str] = {
    "train": "train_labeled.xml",
    "train_us50": "train_us50_train_tagged.xml",
    "train_us50_messy": "train_us50_messiest_manual_label.xml",
    "train_states": "train_multi_word_state_addresses.xml",
    "test": "test_labeled.xml",
    "test_us50": "test_us50_test_tagged.xml",
    "test_patterns": "test_simple_address_patterns.xml",
    "test_states": "test_multi_word_state_addresses.xml",
}
ALL, ONE = "AddressCollection", "AddressString"


def load_us_addresses(subset: Part = "train", *, folder: Folder = None) -> LabelledSequences:
    """Load US addresses in which each token has a label, such as "AddressNumber" or "StreetName".

    X has one dict per token with its `word`, and y has the labels. Text outside of the labelled tokens, such as a comma
    between two tokens, is left out. So is whitespace around tokens. The usual scores are the percentage of tokens with
    the correct label, and the percentage of addresses in which all labels are correct.

    subset : "train" is the training set of the parser usaddress, and "test" is its main test set. usaddress also has
        the smaller files "train_states", "test_patterns" and "test_states". The us50 files "train_us50",
        "train_us50_messy" and "test_us50" have the conventions of other annotators.
    folder : the folder with all data sets; None means the environment variable KERNELCRF_DATA.

    Examples
    --------
    >>> from kernelcrf.datasets import load_us_addresses
    >>> data = load_us_addresses("test")
    >>> data.X[0][:2], data.y[0][:2].tolist()
    ([{'word': '431'}, {'word': 'Marietta'}], ['AddressNumber', 'StreetName'])
    """
    check_choice("subset", subset, FILES)
    path = SOURCES["us_addresses"].path(folder, FILES[subset])
    X, y = [], []
    for number, address in enumerate(_read_xml(path), 1):
        words = [(token.text or "").strip() for token in address]
        if address.tag != ONE or not words or not all(words) or any(len(token) for token in address):
            raise ValueError(
                f"{path}, address {number}: expected an element {ONE} with one element per token, none of them empty"
            )
        X.append([{"word": word} for word in words])
        y.append(np.array([token.tag for token in address], dtype=np.str_))
    return LabelledSequences(X, y, **SOURCES["us_addresses"].about(f"Part {subset!r}."))


def _read_xml(path: Path) -> ElementTree.Element:
    text = "\n".join(read_lines(path))
    # Declared entities can expand to any length.
    if "<!DOCTYPE" in text:
        raise ValueError(
            f"{path} declares a document type: expected XML without one. Use the original file of the data set"
        )
    try:
        collection = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"{path}: expected XML ({error}). The file may be damaged: use another copy of it") from error
    if collection.tag != ALL or not len(collection):
        raise ValueError(
            f"{path}: the root element is {collection.tag} with {len(collection)} addresses: expected {ALL} with at "
            "least one. Use the original file of the data set"
        )
    return collection
