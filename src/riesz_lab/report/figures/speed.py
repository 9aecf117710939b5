"""Stored benchmarks: the time to direct all gradients of a network once."""

from riesz_lab.report.benchmarks import Measurement
from riesz_lab.report.evidence import ReportData
from riesz_lab.report.figure import Figure, Panel, Series

CLAIM = "rivals"


def speed(evidence: ReportData) -> Figure:
    shapes: dict[str, list[Measurement]] = {}
    for measurement in evidence.benchmarks:
        if measurement.claim == CLAIM:
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
