"""Figure 5 and the controls: each arm's difference to its baseline, with its interval."""

from __future__ import annotations

from collections.abc import Sequence

import riesz
from riesz_lab.report.evidence import Evidence
from riesz_lab.report.figure import Figure, Panel, Series
from riesz_lab.report.labels import COLORS, scale
from riesz_lab.sweeps import Table
from riesz_lab.sweeps.results import Row

INTERVALS = "Points are mean differences over pairs of trials with the same seed; bars are paired-t 95% intervals."


def directions(evidence: Evidence) -> Figure | None:
    return _figure(
        evidence.tables_of("directions"),
        "directions",
        "Direction of smoothing",
        "Smoothed along output channels, input channels, or all weights in rasterized order; conv layers alone or all"
        " layers; SobolevTilde and LS.",
    )


def controls(evidence: Evidence) -> Figure | None:
    # Those of `riesz compare --controls` too, which belong to no named sweep.
    tables = [table for table in evidence.tables if any(map(_is_control, table.rows.values()))]
    return _figure(
        tables,
        "controls",
        "Controls: step length and neighbourhood",
        "Norm kept: the directed gradient has the length of the original, so a gain is none of step length. Channels"
        ' permuted: smoothed along a random order, compared with the true order. "No difference" says that the'
        ' neighbourhood of channels matters by no more than the margin; "no evidence" only that these trials cannot'
        " tell.",
    )


def _is_control(row: Row) -> bool:
    return row.arm.config.control != "none" and row.comparison is not None and row.comparison.n > 0


def _figure(found: Sequence[Table], name: str, title: str, caption: str) -> Figure | None:
    tables = [table for table in found if any(c.n for c in table.comparisons.values())]
    if not tables:
        return None
    scales = "; ".join(dict.fromkeys(scale(table.sweep.arms[0].config) for table in tables))
    return Figure(
        name=name,
        title=title,
        caption=f"{caption} {INTERVALS} {scales}.",
        alt=_told(tables),
        panels=[forest(table) for table in tables],
    )


def forest(table: Table) -> Panel:
    """All comparisons of a table, one below the other."""
    times = 100.0 if table.percent else 1.0
    series: dict[str, list[tuple[str, float, float | None, float | None, int]]] = {}
    for label, found in table.comparisons.items():
        if found.n == 0:
            continue
        low, high = found.interval or (None, None)
        metric = type(riesz.metric(table.rows[label].arm.config.metric)).__name__
        against = table.rows[label].arm.baseline or ""
        name = label if against == next(iter(table.rows)) else f"{label} against {against}"
        if label.startswith(f"{against}, "):
            name = f"{label.removeprefix(f'{against}, ')} against {against}"
        point = (name, times * found.difference, low and times * low, high and times * high)
        kind = table.rows[label].arm.config.metric.partition("(")[0]
        series.setdefault(metric, []).append((*point, COLORS.get(kind, 6)))
    return Panel(
        title=table.sweep.name,
        y=f"difference in {table.score.replace('_', ' ')}" + (", points" if table.percent else ""),
        series=[
            Series(
                name=metric,
                x=[point[0] for point in points],
                y=[point[1] for point in points],
                low=[point[2] for point in points],
                high=[point[3] for point in points],
                kind="points",
                color=points[0][4],
                dash=index,
                note="(95% interval)",
            )
            for index, (metric, points) in enumerate(series.items())
        ],
        zero=True,
        sideways=True,
    )


def _told(tables: Sequence[Table]) -> str:
    found = [one for table in tables for one in table.comparisons.values() if one.n]
    better = sum(one.verdict == "better" for one in found)
    worse = sum(one.verdict == "worse" for one in found)
    return f"{better} of {len(found)} are better than their baseline, {worse} worse; of the rest no such claim is made."
