"""Stored benchmark results, the CSV files that `make bench` writes: how they are read, drawn and listed."""

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from riesz_lab.report.content import Cell, Table, number
from riesz_lab.report.figure import Figure, Panel, Series

if TYPE_CHECKING:
    from riesz_lab.report.data import ReportData

COLUMNS = ("claim", "shape", "rival", "median", "p20", "p80", "runs")
SIZE_CAP = 16 * 2**20
DRAWN = "rivals"
"""The claim whose measurements are drawn."""


@dataclass(frozen=True)
class Measurement:
    """One line of a benchmark: the median time in seconds, its 20th and 80th percentile, and the machine."""

    claim: str
    shape: str
    rival: str
    median: float
    p20: float
    p80: float
    runs: int
    where: str


def read_measurements(folder: Path) -> list[Measurement]:
    """All measurements in the CSV files of a folder; other files are ignored."""
    return [measurement for file in sorted(folder.glob("*.csv")) for measurement in _read(file)]


def _read(file: Path) -> Iterator[Measurement]:
    try:
        if file.stat().st_size > SIZE_CAP:
            return
        with file.open(newline="", encoding="utf-8", errors="replace") as stream:
            rows = csv.DictReader(stream)
            if not set(COLUMNS) <= set(rows.fieldnames or ()):
                return
            for row in rows:
                try:
                    median, p20, p80 = (float(row[name]) for name in ("median", "p20", "p80"))
                    runs = int(row["runs"])
                except (TypeError, ValueError):
                    continue
                if math.isfinite(median + p20 + p80):
                    where = f"{row.get('cpu')}, {row.get('threads')} threads, torch {row.get('torch')}"
                    yield Measurement(row["claim"], row["shape"], row["rival"], median, p20, p80, runs, where)
    except (OSError, csv.Error):
        return


def speed(data: "ReportData") -> Figure:
    """The time to direct all gradients of a network once."""
    shapes: dict[str, list[Measurement]] = {}
    for measurement in data.benchmarks:
        if measurement.claim == DRAWN:
            shapes.setdefault(measurement.shape, []).append(measurement)
    ranked = {shape: sorted(rows, key=lambda row: row.median) for shape, rows in shapes.items()}
    where = "; ".join(sorted({row.where for rows in ranked.values() for row in rows}))
    fastest = (f"{shape}: fastest is {rows[0].rival}, {1e3 * rows[0].median:.3g} ms" for shape, rows in ranked.items())
    return Figure(
        name="speed",
        title="Time to direct all gradients of a network",
        caption=f"Median and 20% to 80% of runs; lower is better. {where}.",
        alt=f"{'; '.join(fastest)}.",
        panels=[_panel(shape, rows) for shape, rows in ranked.items()],
    )


def _panel(shape: str, rows: list[Measurement]) -> Panel:
    series = []
    for dash, (name, color) in enumerate((("riesz", 1), ("others", 0))):
        shown = [row for row in rows if row.rival.startswith("riesz") == (name == "riesz")]
        if shown:
            x, note = [row.rival for row in shown], "ms (20% to 80% of runs)"
            y, low, high = ([1e3 * getattr(row, key) for row in shown] for key in ("median", "p20", "p80"))
            series.append(
                Series(name=name, x=x, y=y, low=low, high=high, kind="points", color=color, dash=dash, note=note)
            )
    return Panel(title=shape, y="ms, logarithmic", series=series, sideways=True, log_y=True)


def benchmark_table(measurements: Sequence[Measurement]) -> Table:
    rows: list[list[Cell | str]] = []
    for row in measurements:
        median, span = Cell(f"{1e3 * row.median:.4g}", row.median), f"{1e3 * row.p20:.4g} to {1e3 * row.p80:.4g}"
        rows.append([row.claim, row.shape, row.rival, median, span, number(row.runs)])
    return Table(
        caption="Benchmarks",
        head=("claim", "shape", "who", "ms, median", "20% to 80%", "runs"),
        rows=rows,
        numbers=frozenset((3, 4, 5)),
        note="; ".join(sorted({row.where for row in measurements})),
    )
