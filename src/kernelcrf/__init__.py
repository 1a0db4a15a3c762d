"""Conditional random fields with kernels, after Altun, Smola and Hofmann (UAI 2004).

A name is imported when it is first used (PEP 562), because importing scikit-learn and Numba, which the estimators need,
takes many times longer than importing the package itself.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelcrf.estimators.candidates import CandidateCRF
    from kernelcrf.estimators.chain import ChainCRF
    from kernelcrf.estimators.chain_over import ChainOver
    from kernelcrf.estimators.classifier import KernelClassifier
    from kernelcrf.estimators.conformal import ConformalLabels
    from kernelcrf.estimators.conformal_labellings import ConformalLabellings
    from kernelcrf.estimators.conformal_spans import ConformalSpans
    from kernelcrf.estimators.graph import GraphCRF
    from kernelcrf.estimators.input import Input
    from kernelcrf.estimators.markov_network import MarkovNetwork
    from kernelcrf.estimators.multilabel import MultiLabelCRF
    from kernelcrf.estimators.segments import SegmentCRF
    from kernelcrf.estimators.temperature import TemperatureScaling
    from kernelcrf.kernels.label_features import LabelFeatures
    from kernelcrf.kernels.symmetry import Symmetry
    from kernelcrf.persistence import ModelFileError
    from kernelcrf.preprocessing.files import load, save
    from kernelcrf.readers.frames import from_frame
    from kernelcrf.report import make_report
else:
    _HOMES = {
        "CandidateCRF": "kernelcrf.estimators.candidates",
        "ChainCRF": "kernelcrf.estimators.chain",
        "ChainOver": "kernelcrf.estimators.chain_over",
        "ConformalLabellings": "kernelcrf.estimators.conformal_labellings",
        "ConformalLabels": "kernelcrf.estimators.conformal",
        "ConformalSpans": "kernelcrf.estimators.conformal_spans",
        "GraphCRF": "kernelcrf.estimators.graph",
        "Input": "kernelcrf.estimators.input",
        "KernelClassifier": "kernelcrf.estimators.classifier",
        "LabelFeatures": "kernelcrf.kernels.label_features",
        "MarkovNetwork": "kernelcrf.estimators.markov_network",
        "ModelFileError": "kernelcrf.persistence",
        "MultiLabelCRF": "kernelcrf.estimators.multilabel",
        "SegmentCRF": "kernelcrf.estimators.segments",
        "Symmetry": "kernelcrf.kernels.symmetry",
        "TemperatureScaling": "kernelcrf.estimators.temperature",
        "from_frame": "kernelcrf.readers.frames",
        "load": "kernelcrf.preprocessing.files",
        "make_report": "kernelcrf.report",
        "save": "kernelcrf.preprocessing.files",
    }

    _PACKAGES = {"crfsuite", "datasets", "metrics", "plotting", "preprocessing"}

    def __getattr__(name):
        if name in _PACKAGES:
            return import_module(f"{__name__}.{name}")
        if name not in _HOMES:
            raise AttributeError(
                f"module {__name__!r} has no attribute {name!r}: expected one of the names that dir(kernelcrf) lists"
            )
        globals()[name] = value = getattr(import_module(_HOMES[name]), name)
        return value

    def __dir__():
        return sorted({*globals(), *_HOMES, *_PACKAGES})


__version__ = version("kernelcrf")

__all__ = [
    "CandidateCRF",
    "ChainCRF",
    "ChainOver",
    "ConformalLabellings",
    "ConformalLabels",
    "ConformalSpans",
    "GraphCRF",
    "Input",
    "KernelClassifier",
    "LabelFeatures",
    "MarkovNetwork",
    "ModelFileError",
    "MultiLabelCRF",
    "SegmentCRF",
    "Symmetry",
    "TemperatureScaling",
    "__version__",
    "from_frame",
    "load",
    "make_report",
    "save",
]
