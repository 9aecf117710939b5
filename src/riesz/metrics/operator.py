"""An operator: what is applied to gradients along one axis.

Shape suffixes: O outer batch, N the directed axis, I inner batch.

An operator never sees a whole weight. It sees columns_ONI: the gradient folded so that the directed axis is in the
middle and everything else is batch. `riesz.layout.axis` does the folding.
"""

import copy
import re
from dataclasses import Field, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch
from torch import Tensor

from riesz.layout.axis import Axis, ColumnView, check_gradient, compute_dtype
from riesz.metrics import circulant

if TYPE_CHECKING:
    from riesz.metrics.low_rank import LowRank

Self = TypeVar("Self", bound="Operator")

SHARED_FIELDS = ("scale", "blend")
"""The settings every metric has; they are listed after a metric's own."""


@dataclass(frozen=True, repr=False)
class Operator:
    """A linear operator on gradients: what `riesz.attach` and `riesz.precondition_` apply.

    `riesz.Metric` is the usual kind, an inner product with an inverse; `riesz.Centralization` is a projection. A
    subclass supplies `direct`. What else differs by kind is an attribute of its class:

    Attributes:
        tunable_fields: the fields that hold floats and may change while training.
        strength_field: the tunable field that sets how strongly it smooths, None without one.
        mixes_columns: whether an entry of the result depends on columns other than its own.
        native_kind: its number in csrc/riesz.h, None where the compiled kernels do not know it.
        off_diagonal: the form of its matrix off the diagonal, a class of `metrics/low_rank.py`: ranks that share a
            column exchange a few sums of it. None where no form is known: then they exchange the column.
        mixes_rows: whether an entry of the result depends on other entries of its column.

    The last three describe one class only. A subclass does not inherit them, because it may compute something else.
    """

    tunable_fields: ClassVar[tuple[str, ...]] = ()
    strength_field: ClassVar[str | None] = None
    mixes_columns: ClassVar[bool] = False
    native_kind: ClassVar[int | None] = None
    off_diagonal: "ClassVar[type[LowRank] | None]" = None
    mixes_rows: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        cls.native_kind = cls.__dict__.get("native_kind")
        cls.off_diagonal = cls.__dict__.get("off_diagonal")
        cls.mixes_rows = cls.__dict__.get("mixes_rows", True)

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    # -- as text -----------------------------------------------------------------------------------------------------

    @classmethod
    def kind_name(cls) -> str:
        """The name in texts: SobolevTilde is "sobolev-tilde"."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", cls.__name__).lower()

    @classmethod
    def settings(cls) -> list[Field[Any]]:
        """The fields a user may set, the operator's own before the shared ones."""
        return sorted((f for f in fields(cls) if f.init), key=lambda f: f.name in SHARED_FIELDS)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._format_settings()})"

    def __str__(self) -> str:
        settings = self._format_settings()
        return f"{self.kind_name()}({settings})" if settings else self.kind_name()

    def _format_settings(self) -> str:
        # Its own numbers always, the rest only where it differs from the default.
        own = [name for name in self.tunable_fields if name not in SHARED_FIELDS]
        return ", ".join(
            f"{f.name}={getattr(self, f.name)!r}"
            for f in self.settings()
            if f.name in own or getattr(self, f.name) != f.default
        )

    # -- what is applied ---------------------------------------------------------------------------------------------

    def gradient(self, f: Tensor, dim: int = 0) -> Tensor:
        """The gradient under this operator, `A f` along `dim`, as a new tensor.

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
        columns = ColumnView.open(f, axis, self.mixes_columns)
        with circulant.full_precision(f.device):
            return columns.unfold(self.direct(columns.read().to(compute_dtype(f.dtype)), columns.blocks), f)

    def direct(self, columns_ONI: Tensor, blocks: int = 1) -> Tensor:
        """`A f` for every column, out of place, in the dtype given.

        Args:
            columns_ONI: the gradient, folded; the directed axis is the middle one.
            blocks: how many independent weights, or groups of one, the outer axis is made of. Only an operator that
                mixes columns needs it.
        """
        raise NotImplementedError

    def check(self, shape: tuple[int, ...], axis: Axis) -> None:
        """Raise if the operator is not defined for a gradient of this shape."""

    def skip_reason(self, shape: tuple[int, ...], axis: Axis) -> str | None:
        """Why `attach` leaves a weight of this shape alone, or None."""
        length = axis.length(shape)
        return None if length > 1 else f"axis of length {length}: nothing to smooth along"

    @property
    def returns_input(self) -> bool:
        """Whether `A f` is `f` itself, so that there is nothing to compute."""
        return False

    # -- its numbers -------------------------------------------------------------------------------------------------

    @property
    def strength(self) -> Any:
        """How strongly it smooths, 1 where there is nothing to set: a float, or a 0-d tensor after `as_tensors`."""
        return 1.0 if self.strength_field is None else getattr(self, self.strength_field)

    def fixed_settings(self) -> list[object]:
        """The values of the settings that are not tunable."""
        return [getattr(self, field.name) for field in self.settings() if field.name not in self.tunable_fields]

    def native_numbers(self) -> tuple[Any, Any, Any]:
        """Strength, scale and blend, as the compiled kernels take them."""
        return self.strength, 1.0, 0.0

    @property
    def native_riemann(self) -> bool:
        """Whether the compiled kernels use the paper's Riemann sum."""
        return False

    def as_tensors(self: Self) -> Self:
        """A copy whose numbers are 0-d float64 tensors on the CPU, to be set in place while training.

        Tensors, so that a compiled step takes them as inputs and a change recompiles nothing; on the CPU, so that every
        device reads them as scalars and none waits for a copy.
        """
        tensors = copy.copy(self)
        for name in self.tunable_fields:
            tensors._set(**{name: torch.tensor(getattr(self, name), dtype=torch.float64, device="cpu")})
        return tensors
