"""What every metric is: a symmetric positive definite circulant along one axis, known by its symbol.

Shape suffixes: O outer passengers, N the directed axis, I inner passengers, F frequencies 0..n//2.

A metric never sees a whole weight. It sees columns_ONI: the gradient folded so that the directed axis is in the middle
and everything else is a passenger. `riesz.layout.axis` does the folding.
"""

from __future__ import annotations

import copy
import re
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from riesz.layout.axis import Axis, ColumnView, check_gradient, compute_dtype
from riesz.metrics import _numbers
from riesz.metrics import circulant as solvers

Self = TypeVar("Self", bound="Metric")


@dataclass(frozen=True, repr=False)
class Metric:
    """An inner product on gradients; `gradient` is the Riesz representative of the differential under it.

    What is computed is `A f = scale * G f + blend * f`, where the subclass supplies the symbol of `G`.

    Args:
        scale: factor of the smoothed part, `>= 0`.
        blend: factor of the plain gradient, `>= 0`. Not both may be zero, so that `A` stays positive definite.
    """

    scale: float = field(default=1.0, kw_only=True)
    blend: float = field(default=0.0, kw_only=True)

    tunable_fields: ClassVar[tuple[str, ...]] = ("scale", "blend")
    """The fields that hold floats and may be driven while training."""

    def __post_init__(self) -> None:
        owner = type(self).__name__
        if type(self) is Metric:
            raise TypeError(
                "Metric is what all metrics share; build one of its kinds, for example riesz.SobolevTilde()"
            )
        self._set(scale=_numbers.not_negative(owner, "scale", self.scale))
        self._set(blend=_numbers.not_negative(owner, "blend", self.blend))
        if self.scale == 0 and self.blend == 0:
            raise ValueError(f"{owner}: scale and blend are both 0, so the gradient would vanish; one must be > 0")

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @classmethod
    def kind_name(cls) -> str:
        """The name in texts: SobolevTilde is "sobolev-tilde"."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", cls.__name__).lower()

    @classmethod
    def settings(cls) -> list[Field[Any]]:
        """The fields a user may set, the metric's own before the shared ones."""
        return sorted((f for f in fields(cls) if f.init), key=lambda f: f.name in ("scale", "blend"))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._told()})"

    def __str__(self) -> str:
        told = self._told()
        return f"{self.kind_name()}({told})" if told else self.kind_name()

    def _told(self) -> str:
        # Strengths always, the rest only where it differs from the default.
        shared = ("scale", "blend")
        told = [
            f
            for f in self.settings()
            if getattr(self, f.name) != f.default or (f.name in self.tunable_fields and f.name not in shared)
        ]
        return ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in told)

    # -- the maths -------------------------------------------------------------------------------------------------

    def smoothing_symbol(self, n: int, waves_F: Tensor) -> Tensor:
        """Eigenvalues of G, given `waves_F = 4 sin^2(pi k/n)`, those of minus the periodic second difference."""
        raise NotImplementedError

    def smooth(self, columns_ONI: Tensor) -> Tensor:
        """G f by running sums, for axes where neither a matrix product nor an FFT is fast."""
        raise NotImplementedError

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
        n = _numbers.length(type(self).__name__, n)
        return self._symbol_on(n, torch.device("cpu"))

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
        n = _numbers.length(type(self).__name__, n)
        return solvers.kernel(self.symbol(n), n)

    def gradient(self, f: Tensor, dim: int = 0) -> Tensor:
        """The gradient under this metric, `A f` along `dim`, as a new tensor.

        Autograd passes through. Dtype and order in memory of `f` are kept; half types are computed in float32.

        Args:
            f: the ordinary gradient, real or complex.
            dim: the directed axis.

        Returns:
            A tensor like `f`.

        Example:
            >>> import riesz, torch
            >>> riesz.ReweightedL2(lam=1.0).gradient(torch.tensor([1.0, 3.0]))
            tensor([3., 5.])
        """
        check_gradient(f, "gradient: f")
        axis = Axis.checked(dim, f)
        self.check(tuple(f.shape), axis)
        if f.numel() == 0:
            return f.clone()
        job = ColumnView.open(f, axis)
        with solvers.full_precision(f.device):
            return job.unfold(self.direct(job.read().to(compute_dtype(f.dtype)), job.blocks), f)

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
            raise ValueError(f"inner: a and b must have one shape, got {tuple(a.shape)} and {tuple(b.shape)}")
        dtype = torch.promote_types(a.dtype, b.dtype)
        wide = b.to(torch.complex128 if dtype.is_complex else torch.float64)
        axis = Axis.checked(dim, b)
        if b.numel() == 0:
            return wide.sum().to(dtype)
        job = ColumnView.open(wide, axis)
        represented = job.unfold(self.apply_inverse(job.read()), wide)
        return (a.to(wide.dtype).conj() * represented).sum().to(dtype)

    def apply_inverse(self, columns_ONI: Tensor) -> Tensor:
        """`A^-1 g` for every column: the ordinary gradient whose metric gradient is g."""
        return solvers.by_fft(columns_ONI, self._symbol_on(columns_ONI.shape[1], columns_ONI.device).reciprocal())

    # -- what backends call ----------------------------------------------------------------------------------------

    def direct(self, columns_ONI: Tensor, blocks: int = 1) -> Tensor:
        """`A f` for every column, out of place, in the dtype given, by whatever is fastest at this length.

        Args:
            columns_ONI: the gradient, folded; the directed axis is the middle one.
            blocks: how many independent weights, or groups of one, the outer axis is made of. Only an operator that
                mixes passengers needs to know.
        """
        how = solvers.strategy(columns_ONI)
        if how != "sums":
            symbol_F = self._symbol_on(columns_ONI.shape[1], columns_ONI.device)
            multiply = solvers.by_matmul if how == "matmul" else solvers.by_fft
            return solvers.apart_from_mean(columns_ONI, symbol_F, multiply)
        smooth_ONI = self.smooth(columns_ONI).mul_(self.scale)
        return smooth_ONI.add_(columns_ONI * self.blend)

    def check(self, shape: tuple[int, ...], axis: Axis) -> None:
        """Raise if the operator is not defined for a gradient of this shape."""

    def skip_reason(self, shape: tuple[int, ...], axis: Axis) -> str | None:
        """Why `attach` should leave a weight of this shape alone, or None."""
        length = axis.length(shape)
        return None if length > 1 else f"axis of length {length}: nothing to smooth along"

    def as_tensors(self: Self) -> Self:
        """A copy whose numbers are 0-d float64 tensors on the CPU, to be driven in place while training.

        Tensors, so that a compiled step takes them as inputs and a change recompiles nothing; on the CPU, so that every
        device reads them as scalars and no one waits for a copy.
        """
        driven = copy.copy(self)
        driven._set(
            **{
                name: torch.tensor(getattr(self, name), dtype=torch.float64, device="cpu")
                for name in self.tunable_fields
            }
        )
        return driven

    def _symbol_on(self, n: int, device: torch.device) -> Tensor:
        smooth_F: Any = self.smoothing_symbol(n, solvers.waves(n, device))
        symbol_F: Tensor = self.scale * smooth_F + self.blend
        return symbol_F
