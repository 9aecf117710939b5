"""Controls of a metric; see `experiments.arm`."""

from riesz_lab.experiments.arm import CONTROLS, controls_of

__all__ = ["CONTROLS", "controls_of"]
