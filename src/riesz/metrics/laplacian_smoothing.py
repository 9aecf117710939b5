"""Laplacian smoothing, the baseline LS-SGD: H1 with its strength in grid units."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from riesz.metrics import circulant
from riesz.metrics.base import Metric
from riesz.metrics.low_rank import Exponentials


@dataclass(frozen=True, repr=False)
class LaplacianSmoothing(Metric):
    """`g - sigma D g = f` with D the periodic second difference.

    The baseline LS-SGD is this with `direction="rasterized"` and `layers="all"`; along the output channels it is the
    paper's LS-ChanOrd. Per column the metric is `<a, b> = sum ab + sigma sum da db`.

    Args:
        sigma: strength of the smoothing, `> 0`, in units of the grid: its reach does not grow with n.
        scale, blend: see `riesz.Metric`.

    Example:
        >>> import riesz, torch
        >>> riesz.LaplacianSmoothing(sigma=1.0).gradient(torch.tensor([1.0, 3.0]))
        tensor([1.8000, 2.2000])
    """

    sigma: float = 1.0

    tunable_fields = ("sigma", "scale", "blend")
    strength_field = "sigma"
    native_kind = 4
    off_diagonal = Exponentials

    def smoothing_symbol(self, n: int, waves_F: Tensor) -> Tensor:
        return 1.0 / (1.0 + self.sigma * waves_F)

    def smoothing_factor(self, n: int, wave: float) -> Any:
        return 1.0 / (1.0 + self.sigma * wave)

    def smooth(self, columns_ONI: Tensor) -> Tensor:
        return circulant.screened_poisson(columns_ONI, self.sigma)
