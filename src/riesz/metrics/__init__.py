"""Operators and metrics: pure maths, one file each."""

from riesz.metrics.base import Metric
from riesz.metrics.centralization import Centralization
from riesz.metrics.identity import Identity
from riesz.metrics.laplacian_smoothing import LaplacianSmoothing
from riesz.metrics.operator import Operator
from riesz.metrics.reweighted_l2 import ReweightedL2
from riesz.metrics.sobolev import Sobolev
from riesz.metrics.sobolev_tilde import SobolevTilde
from riesz.metrics.text import metric

__all__ = [
    "Centralization",
    "Identity",
    "LaplacianSmoothing",
    "Metric",
    "Operator",
    "ReweightedL2",
    "Sobolev",
    "SobolevTilde",
    "metric",
]
