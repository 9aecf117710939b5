"""Stored benchmarks: the time to direct all gradients of a network once."""

from __future__ import annotations

from riesz_lab.report.benchmarks import Measurement
from riesz_lab.report.evidence import Evidence
from riesz_lab.report.figure import Figure, Panel, Series

CLAIM = "rivals"


def speed(evidence: Evidence) -> Figure | None:
    shapes: dict[str, list[Measurement]] = {}
    for measurement in evidence.benchmarks:
        if measurement.claim == CLAIM:
            shapes.setdefault(measurement.shape, []).append(measurement)
    if not shapes:
        return None
    ranked = {shape: sorted(rows, key=lambda row: row.median) for shape, rows in shapes.items()}
    where = "; ".join(sorted({row.where for rows in ranked.values() for row in rows}))
    return Figure(
        name="speed",
        title="Time to direct all gradients of a network",
        caption=f"Median and 20% to 80% of runs; lower is better. {where}.",
        alt="; ".join(
            f"{shape}: fastest is {rows[0].rival}, {1e3 * rows[0].median:.3g} ms" for shape, rows in ranked.items()
        )
        + ".",
        panels=[_panel(shape, rows) for shape, rows in ranked.items()],
    )


def _panel(shape: str, rows: list[Measurement]) -> Panel:
    series = []
    for dash, (name, color) in enumerate((("riesz", 1), ("others", 0))):
        shown = [row for row in rows if row.rival.startswith("riesz") == (name == "riesz")]
        if shown:
            series.append(
                Series(
                    name=name,
                    x=[row.rival for row in shown],
                    y=[1e3 * row.median for row in shown],
                    low=[1e3 * row.p20 for row in shown],
                    high=[1e3 * row.p80 for row in shown],
                    kind="points",
                    color=color,
                    dash=dash,
                    note="ms (20% to 80% of runs)",
                )
            )
    return Panel(title=shape, y="ms, logarithmic", series=series, sideways=True, log_y=True)
