"""Figure 7: how much of the metric, on MNIST and Fashion-MNIST."""

from __future__ import annotations

import statistics

import riesz
from riesz_lab.report.evidence import Evidence
from riesz_lab.report.figure import Figure, Panel, Series
from riesz_lab.report.labels import scale, short_scale
from riesz_lab.sweeps import Table

READINGS = ("ReweightedL2", "SobolevTilde, lam as scale", "SobolevTilde, lam in G")
COLORS = (2, 1, 4)


def lambda_sweep(evidence: Evidence) -> Figure | None:
    tables = [table for table in evidence.tables_of("lambda-mnist", "lambda-fashion") if _points(table)]
    if not tables:
        return None
    return Figure(
        name="lambda",
        title="Test accuracy by lam",
        caption="Of the last epoch. lam = 0 is the plain optimizer. The paper's H1-tilde at lam has two readings:"
        " f + lam G f with G at 1, and f + G f with lam inside G. Bands are one standard deviation over seeds. "
        + "; ".join(sorted({scale(table.sweep.arms[0].config) for table in tables}))
        + ".",
        alt=" ".join(_told(table) for table in tables),
        panels=[_panel(table) for table in tables],
    )


def _points(table: Table) -> dict[str, dict[float, list[float]]]:
    """Scores by reading and lam; the plain optimizer belongs to all readings, at 0."""
    found: dict[str, dict[float, list[float]]] = {}
    plain: list[float] = []
    for row in table.rows.values():
        scores = [100 * score for score in row.scores.values() if score is not None]
        if not scores:
            continue
        metric = riesz.metric(row.arm.config.metric)
        if isinstance(metric, riesz.Identity):
            plain = scores
        elif isinstance(metric, riesz.ReweightedL2):
            found.setdefault(READINGS[0], {})[metric.lam] = scores
        elif isinstance(metric, riesz.SobolevTilde):
            if metric.lam == 1:
                found.setdefault(READINGS[1], {})[metric.scale] = scores
            if metric.scale == 1:
                found.setdefault(READINGS[2], {})[metric.lam] = scores
    if plain:
        for points in found.values():
            points[0.0] = plain
    return found


def _panel(table: Table) -> Panel:
    series = []
    points = _points(table)
    for index, name in enumerate(READINGS):
        rows = sorted(points.get(name, {}).items())
        if not rows:
            continue
        means = [statistics.fmean(scores) for _, scores in rows]
        spreads = [statistics.stdev(scores) if len(scores) > 1 else 0.0 for _, scores in rows]
        series.append(
            Series(
                name=name,
                x=[lam for lam, _ in rows],
                y=list(means),
                low=[mean - spread for mean, spread in zip(means, spreads, strict=True)],
                high=[mean + spread for mean, spread in zip(means, spreads, strict=True)],
                color=COLORS[index],
                dash=index,
                note=f"one standard deviation, {max(len(scores) for _, scores in rows)} trials",
            )
        )
    return Panel(title=short_scale(table.sweep.arms[0].config), x="lam", y="test accuracy in %", series=series)


def _told(table: Table) -> str:
    told = []
    for name, points in _points(table).items():
        best = max(points, key=lambda lam: statistics.fmean(points[lam]))
        told.append(f"{name} is highest at lam = {best:g} ({statistics.fmean(points[best]):.2f}%)")
    return f"{short_scale(table.sweep.arms[0].config)}: {'; '.join(told)}."
