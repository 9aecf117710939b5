"""Re-weighted L2: the part of the gradient that all channels share counts more."""

from dataclasses import dataclass

import torch
from torch import Tensor

from riesz.metrics import _numbers, circulant
from riesz.metrics.base import Metric
from riesz.metrics.low_rank import Constant


@dataclass(frozen=True, repr=False)
class ReweightedL2(Metric):
    """`g = f + lam mean(f)`, the paper's re-weighted H0 metric in the form its code and experiments use.

    Per column the metric is `<a, b> = sum ab - lam/(1+lam) n mean(a) mean(b)`.

    Args:
        lam: extra weight of the mean, `> -1`; 0 is the ordinary gradient.
        scale, blend: see `riesz.Metric`.

    Example:
        >>> import riesz, torch
        >>> riesz.ReweightedL2(lam=2.0).gradient(torch.tensor([1.0, 3.0]))
        tensor([5., 7.])

    Paper: the code figure; equation `reweightedH0_grad` up to the factor in `from_weight`.
    """

    lam: float = 1.0

    tunable_fields = ("lam", "scale", "blend")
    strength_field = "lam"
    native_kind = 1
    off_diagonal = Constant

    def _checked_strength(self, owner: str, name: str, value: object) -> float:
        lam = _numbers.checked(owner, name, value, "lam > -1")
        if not -1 < lam <= _numbers.LARGEST:
            raise ValueError(f"{owner}: expected -1 < lam <= {_numbers.LARGEST}, got {lam}")
        return lam

    @classmethod
    def from_weight(cls, w: float) -> "ReweightedL2":
        """The paper's printed equation, `mean(f) + (f - mean(f)) / w`, with `w > 0`: lam = w - 1, scale = 1/w.

        Example:
            >>> import riesz, torch
            >>> riesz.ReweightedL2.from_weight(2.0).gradient(torch.tensor([1.0, 3.0]))
            tensor([1.5000, 2.5000])
        """
        w = _numbers.positive("ReweightedL2.from_weight", "w", w)
        if w < 1e-6:
            raise ValueError(f"ReweightedL2.from_weight: expected w >= 1e-6, got {w}: w - 1 would lose its digits")
        return cls(lam=w - 1.0, scale=1.0 / w)

    def mean_factor(self, n: int) -> float:
        return 1.0 + self.lam

    def smoothing_symbol(self, n: int, waves_F: Tensor) -> Tensor:
        at_mean_F = torch.zeros_like(waves_F)
        at_mean_F[0] = 1.0
        return 1.0 + self.lam * at_mean_F

    def direct(self, columns_ONI: Tensor, blocks: int = 1) -> Tensor:
        # A mean in the dtype of the columns: what it multiplies is added to them, and no mode is damped.
        mean_O1I = columns_ONI.mean(1, keepdim=True)
        factor, strength = self.scale + self.blend, self.scale * self.lam
        if circulant.is_traced():
            return columns_ONI * factor + mean_O1I * strength
        return torch.add(columns_ONI if factor == 1 else columns_ONI * factor, mean_O1I, alpha=float(strength))
