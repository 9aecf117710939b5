"""One record per parameter: which axis is directed, or why none is."""

from dataclasses import dataclass

from riesz.layout.axis import Axis


@dataclass(frozen=True)
class Record:
    """What happens to one parameter."""

    name: str  # in the model, or its position in the optimizer
    layer: str  # the class of the layer it serves, empty without a model
    shape: tuple[int, ...]
    where: Axis | None  # the directed axis and its groups, None where none was chosen
    applied: bool  # whether its gradient is directed
    reason: str  # why not; empty if it is
    metric: str = ""  # that of its param group where it overrides the attachment's, else empty
    second: Axis | None = None  # the axis that is directed after it, where two directions apply

    @property
    def axis(self) -> int | str | None:
        """The dim that is smoothed along, "fan_in" or "rasterized"; None where none was chosen."""
        if self.where is None:
            return None
        if self.where.fan_in:
            return "fan_in"
        return "rasterized" if self.where.dim is None else self.where.dim

    @property
    def length(self) -> int | None:
        """How many entries along the axis are smoothed together: within one group, where there are groups."""
        return None if self.where is None else self.where.length(self.shape)
