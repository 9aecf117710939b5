"""Names of methods; see `experiments.arm`."""

from riesz_lab.experiments.arm import OPTIMIZERS, PLAIN, baseline, method, setting

__all__ = ["OPTIMIZERS", "PLAIN", "baseline", "method", "setting"]
