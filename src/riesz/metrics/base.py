"""A metric: a symmetric positive definite circulant along one axis, known by its symbol.

Shape suffixes: O outer batch, N the directed axis, I inner batch, F frequencies 0..n//2.
"""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from riesz.layout.axis import Axis, ColumnView, check_gradient
from riesz.metrics import _numbers, circulant
from riesz.metrics.operator import SHARED_FIELDS, Operator

MOST_DAMPED = 1.3
"""How far apart two modes may be in float32. Its matrix products are off by up to 3e-6 of the lowest mode already."""

MOST_APART_FROM_MEAN = 3.0
"""How far the mean and another mode may be apart in float32: the rounding of a mean is that of one sum."""


@dataclass(frozen=True, repr=False)
class Metric(Operator):
    """An inner product on gradients; `gradient` is the Riesz representative of the differential under it.

    What is computed is `A f = scale * G f + blend * f`, where the subclass supplies the symbol of `G`.

    Args:
        scale: factor of the smoothed part, `>= 0`.
        blend: factor of the plain gradient, `>= 0`. Not both may be zero, so that `A` stays positive definite.
    """

    scale: float = field(default=1.0, kw_only=True)
    blend: float = field(default=0.0, kw_only=True)

    tunable_fields: ClassVar[tuple[str, ...]] = SHARED_FIELDS

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "smoothing_symbol" in cls.__dict__ and "smoothing_factor" not in cls.__dict__:
            cls.smoothing_factor = Metric.smoothing_factor  # type: ignore[method-assign]  # the parent's is of its symbol

    def __post_init__(self) -> None:
        owner = type(self).__name__
        if type(self) is Metric:
            raise TypeError("expected a kind of metric, for example riesz.SobolevTilde(), got Metric, their base class")
        self._set(scale=_numbers.not_negative(owner, "scale", self.scale))
        self._set(blend=_numbers.not_negative(owner, "blend", self.blend))
        if self.scale == 0 and self.blend == 0:
            raise ValueError(f"{owner}: expected scale > 0 or blend > 0, got 0 for both: the gradient would vanish")
        if self.strength_field is not None:
            self._set(**{self.strength_field: self._checked_strength(owner, self.strength_field, self.strength)})

    def _checked_strength(self, owner: str, name: str, value: object) -> float:
        return _numbers.positive(owner, name, value)

    # -- the maths -------------------------------------------------------------------------------------------------

    def smoothing_symbol(self, n: int, waves_F: Tensor) -> Tensor:
        """Eigenvalues of G, given `waves_F = 4 sin^2(pi k/n)`, those of minus the periodic second difference."""
        raise NotImplementedError

    def smoothing_factor(self, n: int, wave: float) -> Any:
        """The eigenvalue of G at one mode other than the mean; None where only `smoothing_symbol` knows it."""
        return None

    def smooth(self, columns_ONI: Tensor) -> Tensor:
        """G f on axes where neither a matrix product nor an FFT is fast: by running sums in metrics that have them."""
        n = columns_ONI.shape[1]
        symbol_F = self.smoothing_symbol(n, circulant.waves(n, columns_ONI.device))
        return circulant.apart_from_mean(columns_ONI, symbol_F, circulant.by_fft)

    def mean_factor(self, n: int) -> float:
        """What G multiplies the mean of a column by."""
        return 1.0

    def grid_strength(self, n: int) -> Any:
        """The sigma of `g - sigma D g = f`, where that is the equation of G: the strength in units of the grid."""
        return self.strength

    def symbol(self, n: int) -> Tensor:
        """Eigenvalues of A along an axis of length `n`.

        Args:
            n: length of the axis.

        Returns:
            A float64 tensor of `n // 2 + 1` eigenvalues in the order of `torch.fft.rfft`.

        Example:
            >>> import riesz
            >>> riesz.ReweightedL2(lam=1.0).symbol(4).tolist()
            [2.0, 1.0, 1.0]
        """
        return self._symbol_on(_numbers.length(type(self).__name__, n), torch.device("cpu"))

    def kernel(self, n: int) -> Tensor:
        """First column of A along an axis of length `n`: the weights of the circular convolution.

        Args:
            n: length of the axis.

        Returns:
            A float64 tensor of length `n` that sums to `symbol(n)[0]`. The paper's curves are `n` times it.

        Example:
            >>> import riesz
            >>> riesz.ReweightedL2(lam=1.0).kernel(4).tolist()
            [1.25, 0.25, 0.25, 0.25]
        """
        return circulant.kernel(self.symbol(n), n)

    def inner(self, a: Tensor, b: Tensor, dim: int = 0) -> Tensor:
        """The metric itself: `<a, A^-1 b>` along `dim`, summed over all columns.

        It is the inner product for which `gradient` is the gradient: `inner(gradient(f), k) == <f, k>`.

        Args:
            a, b: tensors of one shape.
            dim: the directed axis.

        Returns:
            A 0-d tensor in the dtype of `a` and `b`; for complex tensors `a` is conjugated, as in `torch.vdot`.

        Example:
            >>> import riesz, torch
            >>> metric = riesz.Sobolev(lam=0.5)
            >>> f, k = torch.tensor([1.0, -2.0, 4.0]), torch.tensor([3.0, 1.0, 1.0])
            >>> float(metric.inner(metric.gradient(f), k).round(decimals=4)), float(f @ k)
            (5.0, 5.0)
        """
        check_gradient(a, "inner: a")
        check_gradient(b, "inner: b")
        if a.shape != b.shape:
            raise ValueError(f"inner: expected a and b of one shape, got {tuple(a.shape)} and {tuple(b.shape)}")
        dtype = torch.promote_types(a.dtype, b.dtype)
        wide = b.to(torch.complex128 if dtype.is_complex else torch.float64)
        axis = Axis.checked(dim, b)
        if b.numel() == 0:
            return wide.sum().to(dtype)
        columns = ColumnView.open(wide, axis)
        represented = columns.unfold(self.apply_inverse(columns.read()), wide)
        return (a.to(wide.dtype).conj() * represented).sum().to(dtype)

    def apply_inverse(self, columns_ONI: Tensor) -> Tensor:
        """`A^-1 g` for every column: the ordinary gradient whose metric gradient is g."""
        return circulant.by_fft(columns_ONI, self._symbol_on(columns_ONI.shape[1], columns_ONI.device).reciprocal())

    def direct(self, columns_ONI: Tensor, blocks: int = 1) -> Tensor:
        """`A f` for every column, by the fastest algorithm for this length that keeps its digits.

        In float32, what rounding adds to the low modes is of the size of high ones that A damps: those are computed in
        float64, on devices that have it.
        """
        may_widen = columns_ONI.dtype == torch.float32 and columns_ONI.device.type != "mps"
        if may_widen and self._damps(columns_ONI.shape[1]):
            return self._direct(columns_ONI.double()).float()
        return self._direct(columns_ONI)

    def _direct(self, columns_ONI: Tensor) -> Tensor:
        algorithm, n = circulant.strategy(columns_ONI), columns_ONI.shape[1]
        if algorithm == "matmul":
            return circulant.left_multiply(self._matrix(n, columns_ONI.dtype, columns_ONI.device), columns_ONI)
        if algorithm == "fft":
            return circulant.apart_from_mean(columns_ONI, self._symbol_on(n, columns_ONI.device), circulant.by_fft)
        smooth_ONI = self.smooth(columns_ONI).mul_(self.scale)
        return smooth_ONI.add_(columns_ONI * self.blend)

    def _matrix(self, n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """A as a matrix, kept for the next step unless a tracer sees it."""

        def build() -> Tensor:
            return circulant.matrix(self._symbol_on(n, device), n).to(dtype)

        if circulant.is_traced():
            return build()
        # Numbers that are tensors count by their values, since those change in place.
        numbers = [float(getattr(self, name)) for name in self.tunable_fields]
        return circulant.kept((type(self), *numbers, *map(repr, self.fixed_settings()), n, dtype, device), build)

    def native_numbers(self) -> tuple[Any, Any, Any]:
        return self.strength, self.scale, self.blend

    def _damps(self, n: int) -> bool:
        """Whether a mode is damped so far below another one that float32 loses its digits."""
        if any(isinstance(number, Tensor) for number in self.native_numbers()) and circulant.is_traced():
            return True  # no graph may depend on their values
        if n == 1:
            return False
        lowest, highest = (self.smoothing_factor(n, 4 * math.sin(math.pi * k / n) ** 2) for k in (1, n // 2))
        if lowest is None or highest is None:
            return True
        mean, low, high = (self.scale * g + self.blend for g in (self.mean_factor(n), lowest, highest))
        apart = MOST_APART_FROM_MEAN
        return bool(low > MOST_DAMPED * high or mean > apart * high or low > apart * mean)

    def _symbol_on(self, n: int, device: torch.device) -> Tensor:
        smooth_F: Any = self.smoothing_symbol(n, circulant.waves(n, device))
        symbol_F: Tensor = self.scale * smooth_F + self.blend
        return symbol_F
