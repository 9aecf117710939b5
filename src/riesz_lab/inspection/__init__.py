"""Looking for regularity in trained networks: read a file safely, measure, judge."""

from riesz_lab.inspection.inspection import Inspection, Layer, inspect, inspect_tensors
from riesz_lab.inspection.reading import read_tensors
from riesz_lab.inspection.regularity import Regularity, regularity

__all__ = ["Inspection", "Layer", "Regularity", "inspect", "inspect_tensors", "read_tensors", "regularity"]
