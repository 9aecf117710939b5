"""What an attachment reports, one line per parameter, printed as tables."""

from collections.abc import Iterable
from dataclasses import dataclass

from riesz._table import table
from riesz.layout.records import Record


class Report(tuple[Record, ...]):
    """Records that print as a table, with a note on the attachment where there is something to say."""

    note: str

    def __new__(cls, records: Iterable[Record], note: str = "") -> "Report":
        self = super().__new__(cls, records)
        self.note = note
        return self

    def __str__(self) -> str:
        rows = [
            (
                r.name,
                r.layer,
                "x".join(map(str, r.shape)) or "scalar",
                ", ".join(str(axis) for axis in (r.where, r.second) if axis is not None) or "-",
                ", ".join(str(axis.length(r.shape)) for axis in (r.where, r.second) if axis is not None) or "-",
                (f"applied: {r.metric}" if r.metric else "applied") if r.applied else f"skipped: {r.reason}",
            )
            for r in self
        ]
        printed = table(("parameter", "layer", "shape", "axis", "n", ""), rows)
        total = f"{sum(r.applied for r in self)} of {len(self)} directed"
        return "\n".join(filter(None, (printed, total, self.note)))

    __repr__ = __str__


@dataclass(frozen=True)
class Diagnosis:
    """What the last step did to one parameter's gradient."""

    name: str  # of the parameter
    ratio: float  # |g| / |f|, the directed gradient's norm over the original's
    cosine: float  # cos(f, g), positive for a descent direction


class Diagnoses(tuple[Diagnosis, ...]):
    """Diagnoses that print as a table, with notes on the parameters left out."""

    notes: tuple[str, ...]

    def __new__(cls, diagnoses: Iterable[Diagnosis], notes: tuple[str, ...] = ()) -> "Diagnoses":
        self = super().__new__(cls, diagnoses)
        self.notes = notes
        return self

    def __str__(self) -> str:
        rows = [(d.name, f"{d.ratio:.4g}", f"{d.cosine:.4f}") for d in self]
        return "\n".join([table(("parameter", "|g|/|f|", "cos(f,g)"), rows), *self.notes])

    __repr__ = __str__
