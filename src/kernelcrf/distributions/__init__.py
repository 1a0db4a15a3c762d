"""The distribution p(y|x) of the labels of given samples, as `distribution(X)` of a fitted estimator returns it."""

from kernelcrf.distributions.base import Distribution
from kernelcrf.distributions.candidates import CandidateDistribution
from kernelcrf.distributions.chain import ChainDistribution
from kernelcrf.distributions.graph import GraphDistribution
from kernelcrf.distributions.label_sets import LabelSetDistribution
from kernelcrf.distributions.rows import RowDistribution
from kernelcrf.distributions.segments import SegmentDistribution
from kernelcrf.distributions.table import TableDistribution

__all__ = [
    "CandidateDistribution",
    "ChainDistribution",
    "Distribution",
    "GraphDistribution",
    "LabelSetDistribution",
    "RowDistribution",
    "SegmentDistribution",
    "TableDistribution",
]
