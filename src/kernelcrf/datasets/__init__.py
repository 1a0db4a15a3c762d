"""Random sequences from a known distribution, and loaders of public data sets on disk.

The loaders read files below one folder, which `folder=` or the environment variable KERNELCRF_DATA names. Nothing is
downloaded. `docs/datasets.md` lists the sets, their sizes and their splits.
"""

from kernelcrf.datasets.archives import MultilabelData, load_gpstruct, load_letters, load_multilabel
from kernelcrf.datasets.labelled import LabelledSequences
from kernelcrf.datasets.synthetic import SequenceData, make_sequences
from kernelcrf.datasets.tables import load_batteryless, load_cb513, load_occupancy, load_qian_sejnowski, load_ts115
from kernelcrf.datasets.tokens import load_conll2000, load_prosody, load_ud_ewt, load_wnut17

__all__ = [
    "LabelledSequences",
    "MultilabelData",
    "SequenceData",
    "load_batteryless",
    "load_cb513",
    "load_conll2000",
    "load_gpstruct",
    "load_letters",
    "load_multilabel",
    "load_occupancy",
    "load_prosody",
    "load_qian_sejnowski",
    "load_ts115",
    "load_ud_ewt",
    "load_wnut17",
    "make_sequences",
]
