"""Figure 5, the controls and the overview: each arm's difference to its baseline, with its interval."""

from collections.abc import Iterable, Sequence, Set

import riesz
from riesz_lab.config import Config
from riesz_lab.report.evidence import ReportData
from riesz_lab.report.figure import Figure, Panel, Series
from riesz_lab.report.labels import COLORS, metric_kind, scale, score_label
from riesz_lab.statistics import Comparison
from riesz_lab.sweeps import Arm, ArmResult, SweepResult
from riesz_lab.utils.amounts import count

MAX_PANELS = 8
INTERVALS = "Points are mean differences over pairs of trials with the same seed; bars are paired-t 95% intervals."


def overview(evidence: ReportData) -> Figure:
    return Figure(
        name="overview",
        title="All comparisons at a glance",
        caption=f"{INTERVALS} Right of zero, the method has the higher score, which is worse where the axis says that"
        " lower is better."
        if any(not table.higher_is_better for table in evidence.tables)
        else f"{INTERVALS} Right of zero, the method has the higher score.",
        alt=f"Of {count(len(evidence.comparisons), 'comparison')}: {evidence.verdicts}.",
        panels=[forest(table) for table in _compared(evidence.tables)[:MAX_PANELS]],
    )


def directions(evidence: ReportData) -> Figure:
    return _figure(
        evidence.tables_of("directions"),
        "directions",
        "Direction of smoothing",
        "Smoothed along output channels, input channels, or all weights in rasterized order; conv layers alone or all"
        " layers; SobolevTilde and LS.",
    )


def controls(evidence: ReportData) -> Figure:
    # Not by name: `riesz compare --controls` belongs to no named sweep.
    return _figure(
        [table for table in evidence.tables if any(map(_is_control, table.rows.values()))],
        "controls",
        "Controls: step length and neighbourhood",
        "Norm kept: the directed gradient has the length of the original, so a gain is not one of a longer gradient."
        " Channels permuted: smoothed along a random order, compared with the true order; in a network without skip"
        " connections, trained from random weights, the two differ by chance alone.",
    )


def _is_control(row: ArmResult) -> bool:
    return row.arm.config.control != "none" and row.comparison is not None and row.comparison.n > 0


def _compared(tables: Sequence[SweepResult]) -> list[SweepResult]:
    return [table for table in tables if any(one.n for one in table.comparisons.values())]


def _figure(tables: Sequence[SweepResult], name: str, title: str, caption: str) -> Figure:
    tables = _compared(tables)
    scales = "; ".join(dict.fromkeys(scale(table.sweep.arms[0].config) for table in tables))
    verdicts = [one.verdict for table in tables for one in table.comparisons.values() if one.n]
    return Figure(
        name=name,
        title=title,
        caption=f"{caption} {INTERVALS} {scales}.",
        alt=f"{verdicts.count('better')} of {len(verdicts)} are better than their baseline, {verdicts.count('worse')}"
        " worse; of the rest no such claim is made.",
        panels=[forest(table) for table in tables],
    )


def forest(table: SweepResult) -> Panel:
    """All comparisons of a table."""
    y = f"difference in {score_label(table.score)}" + (", points" if table.percent else "")
    y += "" if table.higher_is_better else " (lower is better)"
    arms = {label: table.rows[label].arm for label in table.comparisons}
    plain = {arm.baseline for arm in arms.values() if table.sweep[arm.baseline or ""].config.metric == "identity"}
    rows = [(_label(arms[label], plain), arms[label].config, one) for label, one in table.comparisons.items()]
    return forest_panel(table.sweep.name, y, rows, 100.0 if table.percent else 1.0)


def forest_panel(title: str, y: str, rows: Iterable[tuple[str, Config, Comparison]], times: float = 1.0) -> Panel:
    """Differences with their intervals, one below the other, with a colour for each metric.

    Args:
        title: of the panel.
        y: what the differences are of.
        rows: label, settings and comparison of each; those without a pair are left out.
        times: what differences are multiplied by.
    """
    by_metric: dict[str, list[tuple[str, Config, Comparison]]] = {}
    for label, config, comparison in rows:
        if comparison.n:
            by_metric.setdefault(metric_kind(config), []).append((label, config, comparison))
    series = []
    for kind, of_metric in by_metric.items():
        labels, configs, comparisons = zip(*of_metric, strict=True)
        ends = [one.interval or (None, None) for one in comparisons]
        series.append(
            Series(
                name=_metric_name(configs[0].metric),
                x=labels,
                y=[times * one.difference for one in comparisons],
                low=[low and times * low for low, _ in ends],
                high=[high and times * high for _, high in ends],
                kind="points",
                # One colour and one shape in all panels.
                color=COLORS.get(kind, 6),
                dash=COLORS.get(kind, 6),
                note="(95% interval)",
            )
        )
    return Panel(title=title, y=y, series=series, zero=True, sideways=True)


def _metric_name(metric: str) -> str:
    kind = type(riesz.metric(metric))
    return "plain optimizer" if kind is riesz.Identity else kind.__name__


def _label(arm: Arm, plain: Set[str | None]) -> str:
    """With its baseline, unless that is the only plain one of the table."""
    label, baseline = arm.label, arm.baseline
    if label.startswith(f"{baseline}, "):
        return f"{label.removeprefix(f'{baseline}, ')} against {baseline}"
    return label if plain == {baseline} else f"{label} against {baseline}"
