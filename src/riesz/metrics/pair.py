"""Two operators for one weight, each along an axis of its own: `attach(metric=(first, second), ...)`."""

from dataclasses import dataclass

from riesz.layout.axis import Axis
from riesz.metrics.operator import Operator


@dataclass(frozen=True, repr=False)
class Pair(Operator):
    """What `riesz.metric` makes of a tuple of two: `riesz.attach` applies each of them along its own direction.

    The two directions have no axis in common, so their operators commute, and that of two metrics is again symmetric
    and positive definite.

    Example:
        >>> import riesz
        >>> riesz.metric((riesz.ReweightedL2(lam=-0.5), riesz.Centralization()))
        (ReweightedL2(lam=-0.5), Centralization())
        >>> str(riesz.metric("reweighted-l2(lam=-0.5) + centralization"))
        'reweighted-l2(lam=-0.5) + centralization'
    """

    first: Operator
    second: Operator

    def __repr__(self) -> str:
        return f"({self.first!r}, {self.second!r})"

    def __str__(self) -> str:
        return f"{self.first} + {self.second}"

    def check(self, shape: tuple[int, ...], axis: Axis) -> None:
        raise ValueError(f"expected one metric for one axis, got {self!r}: apply one after the other")

    @property
    def returns_input(self) -> bool:
        return self.first.returns_input and self.second.returns_input


def operators(metric: Operator) -> tuple[Operator, ...]:
    """The operators of a pair, or the one that this is."""
    return (metric.first, metric.second) if isinstance(metric, Pair) else (metric,)
