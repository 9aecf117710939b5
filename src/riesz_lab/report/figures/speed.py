"""What the stored benchmarks say of the time of one application to all gradients of a network."""

from __future__ import annotations

from riesz_lab.report.evidence import Evidence
from riesz_lab.report.figure import Figure, Panel, Series

CLAIM = "rivals"


def speed(evidence: Evidence) -> Figure | None:
    shapes: dict[str, list[int]] = {}
    found = evidence.benchmarks
    for index, one in enumerate(found):
        if one.claim == CLAIM:
            shapes.setdefault(one.shape, []).append(index)
    if not shapes:
        return None
    panels = []
    for shape, rows in shapes.items():
        rows = sorted(rows, key=lambda index: found[index].median)
        series = [
            Series(
                name=name,
                x=[found[i].rival for i in mine],
                y=[1e3 * found[i].median for i in mine],
                low=[1e3 * found[i].p20 for i in mine],
                high=[1e3 * found[i].p80 for i in mine],
                kind="points",
                color=color,
                dash=dash,
                note="ms (20% to 80% of runs)",
            )
            for dash, (name, color, mine) in enumerate(
                (
                    ("riesz", 1, [i for i in rows if found[i].rival.startswith("riesz")]),
                    ("others", 0, [i for i in rows if not found[i].rival.startswith("riesz")]),
                )
            )
            if mine
        ]
        panels.append(Panel(title=shape, y="ms, logarithmic", series=series, sideways=True, log_y=True))
    where = "; ".join(sorted({one.where for one in found if one.claim == CLAIM}))
    return Figure(
        name="speed",
        title="Time to direct all gradients of a network",
        caption=f"Median and 20% to 80% of runs; lower is better. {where}.",
        alt="; ".join(f"{panel.title}: fastest is {_fastest(panel)}" for panel in panels) + ".",
        panels=panels,
    )


def _fastest(panel: Panel) -> str:
    points = [(y, str(x)) for one in panel.series for x, y in zip(one.x, one.y, strict=True) if y is not None]
    time, name = min(points)
    return f"{name}, {time:.3g} ms"
