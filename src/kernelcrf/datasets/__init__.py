"""Draw random sequences from a known distribution, or load public data sets from files.

The argument `folder` of the loaders, or the environment variable KERNELCRF_DATA, names the folder with all data sets.
Nothing is downloaded. `docs/datasets.md` lists the data sets, their sizes and their splits.
"""

from kernelcrf.datasets.addresses import load_us_addresses
from kernelcrf.datasets.labelled_sequences import LabelledSequences
from kernelcrf.datasets.synthetic import SequenceData, make_sequences
from kernelcrf.datasets.tokens import load_conll2000, load_prosody, load_wnut17

__all__ = [
    "LabelledSequences",
    "SequenceData",
    "load_conll2000",
    "load_prosody",
    "load_us_addresses",
    "load_wnut17",
    "make_sequences",
]
