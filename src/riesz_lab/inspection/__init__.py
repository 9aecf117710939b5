"""Regularity of trained networks: read a file safely, measure, conclude."""

from riesz_lab.inspection.gradients import GradientModes, Mode, gradient_modes
from riesz_lab.inspection.inspection import DIRECTIONS, Inspection, Layer, inspect, inspect_tensors
from riesz_lab.inspection.regularity import Regularity, regularity
from riesz_lab.utils.tensor_files import read_tensors

__all__ = [
    "DIRECTIONS",
    "GradientModes",
    "Inspection",
    "Layer",
    "Mode",
    "Regularity",
    "gradient_modes",
    "inspect",
    "inspect_tensors",
    "read_tensors",
    "regularity",
]
