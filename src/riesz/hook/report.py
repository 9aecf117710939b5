"""What an attachment tells: one record per parameter, printed as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from riesz.layout.axis import Axis


@dataclass(frozen=True)
class Record:
    """What happens to one parameter.

    Attributes:
        name: its name in the model, or its place in the optimizer.
        layer: the class of the layer it serves, empty without a model.
        shape: its shape.
        where: the directed axis and its groups, None where none was chosen.
        applied: whether its gradient is directed.
        reason: why not; empty if it is.
        metric: the metric of its param group where that overrides the attachment's, else empty.
    """

    name: str
    layer: str
    shape: tuple[int, ...]
    where: Axis | None
    applied: bool
    reason: str
    metric: str = ""

    @property
    def axis(self) -> int | str | None:
        """The dim that is smoothed along, or "rasterized"; None where none was chosen."""
        if self.where is None:
            return None
        return "rasterized" if self.where.dim is None else self.where.dim

    @property
    def length(self) -> int | None:
        """How many entries along the axis are smoothed together: within one group, where there are groups."""
        return None if self.where is None else self.where.length(self.shape)


class Report(tuple[Record, ...]):
    """Records that print as a table, with a note on the attachment where there is something to say."""

    note: str

    def __new__(cls, records: Iterable[Record], note: str = "") -> Report:
        self = super().__new__(cls, records)
        self.note = note
        return self

    def __str__(self) -> str:
        rows = [
            (
                r.name,
                r.layer,
                "x".join(map(str, r.shape)) or "scalar",
                "-" if r.where is None else str(r.where),
                "-" if r.length is None else str(r.length),
                (f"applied: {r.metric}" if r.metric else "applied") if r.applied else f"skipped: {r.reason}",
            )
            for r in self
        ]
        applied = sum(r.applied for r in self)
        told = table(("parameter", "layer", "shape", "axis", "n", ""), rows)
        return "\n".join(filter(None, (told, f"{applied} of {len(self)} directed", self.note)))

    __repr__ = __str__


@dataclass(frozen=True)
class Diagnosis:
    """What the last step did to one parameter's gradient.

    Attributes:
        name: the parameter.
        ratio: |g| / |f|, the directed gradient's norm over the original's.
        cosine: cos(f, g), positive for a descent direction.
    """

    name: str
    ratio: float
    cosine: float


class Diagnoses(tuple[Diagnosis, ...]):
    """Diagnoses that print as a table, with notes on what could not be told."""

    notes: tuple[str, ...]

    def __new__(cls, diagnoses: Iterable[Diagnosis], notes: tuple[str, ...] = ()) -> Diagnoses:
        self = super().__new__(cls, diagnoses)
        self.notes = notes
        return self

    def __str__(self) -> str:
        rows = [(d.name, f"{d.ratio:.4g}", f"{d.cosine:.4f}") for d in self]
        return "\n".join([table(("parameter", "|g|/|f|", "cos(f,g)"), rows), *self.notes])

    __repr__ = __str__


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns under a head and a rule."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (head, *rows)]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)
