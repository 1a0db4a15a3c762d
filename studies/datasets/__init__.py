"""Read public data sets from plain conversions of the authors' files, which only the studies have.

Data sets whose own files are read are in `kernelcrf.datasets`. Both find their files in the folder KERNELCRF_DATA.
"""

from studies.datasets.archives import MultilabelData, load_gpstruct, load_letters, load_multilabel
from studies.datasets.chorales import load_chorales
from studies.datasets.grobid import grobid_columns, grobid_templates, load_grobid
from studies.datasets.names import load_names
from studies.datasets.references import load_references, reference_features
from studies.datasets.tables import (
    load_batteryless,
    load_cb513,
    load_crossner,
    load_occupancy,
    load_qian_sejnowski,
    load_ts115,
    load_ud_ewt,
)

__all__ = [
    "MultilabelData",
    "grobid_columns",
    "grobid_templates",
    "load_batteryless",
    "load_cb513",
    "load_chorales",
    "load_crossner",
    "load_gpstruct",
    "load_grobid",
    "load_letters",
    "load_multilabel",
    "load_names",
    "load_occupancy",
    "load_qian_sejnowski",
    "load_references",
    "load_ts115",
    "load_ud_ewt",
    "reference_features",
]
