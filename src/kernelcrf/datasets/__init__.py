"""Draw random sequences from a known distribution, or load public data sets from files.

The argument `folder` of the loaders, or the environment variable KERNELCRF_DATA, names the folder with all data sets.
Nothing is downloaded. `docs/datasets.md` lists the data sets, their sizes and their splits.
"""

from kernelcrf.datasets.addresses import load_us_addresses
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
    "load_us_addresses",
    "load_wnut17",
    "make_sequences",
]
