"""The ordinary gradient: the null object that every generic test must pass."""

from dataclasses import dataclass

import torch
from torch import Tensor

from riesz.metrics.base import Metric


@dataclass(frozen=True, repr=False)
class Identity(Metric):
    """The Euclidean inner product: `g = f`.

    Example:
        >>> import riesz, torch
        >>> riesz.Identity().gradient(torch.tensor([1.0, 3.0]))
        tensor([1., 3.])
    """

    native_kind = 0
    mixes_rows = False

    @property
    def returns_input(self) -> bool:
        return self == Identity()

    def smoothing_symbol(self, n: int, waves_F: Tensor) -> Tensor:
        return torch.ones_like(waves_F)

    def direct(self, columns_ONI: Tensor, blocks: int = 1) -> Tensor:
        return columns_ONI * (self.scale + self.blend)
