"""The Sobolev metric H1: neighbouring channels should move alike."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from riesz.metrics import circulant
from riesz.metrics.base import Metric
from riesz.metrics.low_rank import Exponentials


@dataclass(frozen=True, repr=False)
class Sobolev(Metric):
    """`g - lam n^2 D g = f` with D the periodic second difference: the paper's H1 gradient.

    Per column the metric is `<a, b> = sum ab + lam n^2 sum da db`. The mean is kept, the mode of frequency k is divided
    by `1 + 4 lam n^2 sin^2(pi k/n)`.

    Args:
        lam: strength of the smoothing, `> 0`, independent of n.
        scale, blend: see `riesz.Metric`.

    Example:
        >>> import riesz, torch
        >>> riesz.Sobolev(lam=0.25).gradient(torch.tensor([1.0, 3.0]))
        tensor([1.8000, 2.2000])

    Paper: equation `H1_grad`, first part.
    """

    lam: float = 1.0

    tunable_fields = ("lam", "scale", "blend")
    strength_field = "lam"
    native_kind = 2
    off_diagonal = Exponentials

    def smoothing_symbol(self, n: int, waves_F: Tensor) -> Tensor:
        return 1.0 / (1.0 + self.lam * (n**2 * waves_F))

    def smoothing_factor(self, n: int, wave: float) -> Any:
        return 1.0 / (1.0 + self.lam * (n**2 * wave))

    def smooth(self, columns_ONI: Tensor) -> Tensor:
        return circulant.screened_poisson(columns_ONI, self.grid_strength(columns_ONI.shape[1]))

    def grid_strength(self, n: int) -> Any:
        return self.lam * n**2
