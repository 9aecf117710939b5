"""Regularity of trained networks: read a file safely, measure, conclude."""

from riesz_lab.inspection.inspection import DIRECTIONS, Inspection, Layer, inspect, inspect_tensors
from riesz_lab.inspection.reading import read_tensors
from riesz_lab.inspection.regularity import Regularity, regularity

__all__ = [
    "DIRECTIONS",
    "Inspection",
    "Layer",
    "Regularity",
    "inspect",
    "inspect_tensors",
    "read_tensors",
    "regularity",
]
