"""The metric H1-tilde, the paper's main method: free translation, smooth deformation."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from riesz.metrics import circulant
from riesz.metrics.base import Metric
from riesz.metrics.low_rank import Parabola


@dataclass(frozen=True, repr=False)
class SobolevTilde(Metric):
    """`mean(g) - lam n^2 D g = f` with D the periodic second difference; then `blend * f` is added.

    Per column the metric (blend = 0) is `<a, b> = n mean(a) mean(b) + lam n^2 sum da db`. The mean is kept, the mode of
    frequency k is divided by `4 lam n^2 sin^2(pi k/n)`.

    Below lam = 1/24 the kernel turns negative far from its centre, and below about 1/(4 pi^2) = 0.025 the first mode is
    amplified above the mean (25 times at lam = 1e-3).

    Args:
        lam: strength of the smoothing, `> 0`, independent of n. At 1 the smoothed part is nearly the mean alone.
        blend: how much of the plain gradient is added against over-smoothing. The paper adds some and does not print
            how much; 1 here.
        riemann: use the paper's left Riemann sum, which multiplies the mean by `1 + 1/(12 lam n^2)`, instead of the
            exact discrete solution.
        scale: see `riesz.Metric`.

    Example:
        >>> import riesz, torch
        >>> riesz.SobolevTilde(lam=0.25, blend=0.0).gradient(torch.tensor([1.0, 3.0]))
        tensor([1.7500, 2.2500])

    Paper: equation `H1_grad`, second part, solved as in `tildeH1_linear_soln_1` to `_3`.
    """

    lam: float = 1.0
    blend: float = field(default=1.0, kw_only=True)
    riemann: bool = field(default=False, kw_only=True)

    tunable_fields = ("lam", "scale", "blend")
    strength_field = "lam"
    native_kind = 3
    off_diagonal = Parabola

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.riemann, bool):
            raise TypeError(f"SobolevTilde: expected riemann to be True or False, got {self.riemann!r}")

    def mean_factor(self, n: int) -> float:
        """What the mean is multiplied by: 1, or the error of the paper's Riemann sum."""
        return 1.0 + 1.0 / (12.0 * self.lam * n**2) if self.riemann else 1.0

    @property
    def native_riemann(self) -> bool:
        return self.riemann

    def smoothing_symbol(self, n: int, waves_F: Tensor) -> Tensor:
        at_mean_F = torch.zeros_like(waves_F)
        at_mean_F[0] = 1.0
        # waves_F[0] is 0: the 1 put in its place only keeps the unused quotient finite.
        others_F = (1.0 - at_mean_F) / (self.lam * (n**2 * waves_F + at_mean_F))
        return self.mean_factor(n) * at_mean_F + others_F

    def smoothing_factor(self, n: int, wave: float) -> Any:
        return 1.0 / (self.lam * (n**2 * wave))

    def smooth(self, columns_ONI: Tensor) -> Tensor:
        mean_O1I = circulant.mean(columns_ONI)
        deformation_ONI = circulant.poisson(columns_ONI - mean_O1I).div_(self.lam)
        return deformation_ONI.add_(mean_O1I * self.mean_factor(columns_ONI.shape[1]))
