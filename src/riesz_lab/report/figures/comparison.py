"""Differences between arms and their baselines: seed by seed, and all comparisons of an experiment with intervals."""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from riesz_lab.experiments import ArmResult, Result
from riesz_lab.report.data import ReportData
from riesz_lab.report.figure import Figure, Panel, Series
from riesz_lab.report.labels import COLORS, metric_kind, scale, score_label
from riesz_lab.statistics.verdict import Interval, Verdict, format_margin
from riesz_lab.utils.amounts import count

INTERVAL = "95% interval"
INTERVALS = "Points are mean differences over pairs of trials with the same seed; bars are 95% intervals."
MOST_COLORS = 7
MAX_PANELS = 8


def arm_colors(result: Result) -> dict[str, int]:
    """One colour per arm, wherever it is drawn on the page: grey for a baseline, that of its metric if it is free."""
    colors: dict[str, int] = {}
    baselines = {each.arm.baseline for each in result.arms.values()}
    for label, each in result.arms.items():
        wanted = COLORS.get(metric_kind(each.arm.config), 0)
        if label in baselines and not {0} & set(colors.values()):
            wanted = 0
        elif wanted == 0 or wanted in colors.values():
            taken = list(colors.values())
            wanted = min(range(1, MOST_COLORS + 1), key=lambda color: (taken.count(color), color))
        colors[label] = wanted
    return colors


def pairs(result: Result, colors: Mapping[str, int]) -> Figure | None:
    """The difference of every pair as a dot, their mean with its interval below, and the margin as a band."""
    times = 100.0 if result.score.percent else 1.0
    series: list[Series] = []
    for label, each in result.compared.items():
        differences = [times * one for one in _differences(result, each)]
        if not differences:
            continue
        low, high = each.interval or (None, None)
        series += [
            Series(name="one pair", x=[label] * len(differences), y=differences, kind="dots", color=colors[label]),
            Series(
                name=f"mean, {INTERVAL}",
                x=[label],
                y=[statistics.fmean(differences)],
                low=[None if low is None else times * low],
                high=[None if high is None else times * high],
                kind="points",
                color=colors[label],
                dash=2,
                note=f"({INTERVAL})",
            ),
        ]
    if not series:
        return None
    margin = max(each.judged.margin for each in result.compared.values() if each.judged is not None)
    return Figure(
        name="pairs",
        title="Seed by seed",
        caption="A dot is a pair of trials with the same seed: the arm's score less its baseline's."
        f" {'Right' if result.score.higher_is_better else 'Left'} of zero the arm is better. Within the band,"
        f" {format_margin(margin, result.score.unit)} to either side, a difference does not matter.",
        alt=" ".join(_won(result, label, each) for label, each in result.compared.items()),
        panels=[
            Panel(
                y=difference_label(result),
                series=series,
                zero=True,
                margin=times * margin,
                sideways=True,
            )
        ],
    )


def difference_label(result: Result) -> str:
    label = f"difference in {score_label(result.score.name)}" + (result.score.unit and f", {result.score.unit}")
    return label if result.score.higher_is_better else f"{label} (lower is better)"


def _differences(result: Result, each: ArmResult) -> Sequence[float]:
    """Of the pairs that it was judged by; it may have more trials, as another's baseline or of an earlier run."""
    if each.look is not None:
        return each.look.differences
    before = result.arms[each.arm.baseline or ""].scores
    return [
        after - base
        for key, after in each.scores.items()
        if after is not None and (base := before.get(key)) is not None
    ]


def _won(result: Result, label: str, each: ArmResult) -> str:
    sign = 1 if result.score.higher_is_better else -1
    gains = [sign * difference for difference in _differences(result, each)]
    wins, losses = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    return f"{label}: pairs won {wins}, tied {gains.count(0)}, lost {losses}."


def forest(result: Result, title: str = "") -> Panel:
    """All comparisons of an experiment, one below the other, with a colour for each metric."""
    plain = {label for label, each in result.arms.items() if each.arm.config.metric == "identity"}
    against = {each.arm.baseline for each in result.compared.values()} & plain
    rows = []
    for label, each in result.compared.items():
        judged, baseline = each.judged, each.arm.baseline
        assert judged is not None
        text = label.removeprefix(f"{baseline}, ")
        # With its baseline, unless that is the only plain one.
        text += "" if text == label and against == {baseline} else f" against {baseline}"
        rows.append((text, metric_kind(each.arm.config), judged.difference if judged.n else None, judged.interval))
    times = 100.0 if result.score.percent else 1.0
    margins = [each.judged.margin for each in result.compared.values() if each.judged is not None]
    panel = forest_panel(title or result.experiment.name, difference_label(result), rows, times)
    return Panel(
        title=panel.title,
        y=panel.y,
        series=panel.series,
        zero=True,
        sideways=True,
        margin=times * max(margins) if margins else None,
    )


def forest_panel(
    title: str, y: str, rows: Iterable[tuple[str, str, float | None, Interval | None]], times: float = 1.0
) -> Panel:
    """Differences with their intervals, one below the other, with a colour for each metric.

    Args:
        title: of the panel.
        y: what the differences are of.
        rows: label, metric without its settings, difference and interval of each; those without a difference are left
            out.
        times: what differences are multiplied by.
    """
    by_metric: dict[str, list[tuple[str, float, Interval | None]]] = {}
    for label, kind, difference, interval in rows:
        if difference is not None:
            by_metric.setdefault(kind, []).append((label, difference, interval))
    series = []
    for kind, of_metric in by_metric.items():
        ends = [interval or (None, None) for _, _, interval in of_metric]
        color = COLORS.get(kind, 6)
        series.append(
            Series(
                name=METRIC_NAMES.get(kind, kind),
                x=[label for label, _, _ in of_metric],
                y=[times * difference for _, difference, _ in of_metric],
                low=[None if low is None else times * low for low, _ in ends],
                high=[None if high is None else times * high for _, high in ends],
                kind="points",
                # One colour and one shape in all panels.
                color=color,
                dash=color,
                note=f"({INTERVAL})",
            )
        )
    return Panel(title=title, y=y, series=series, zero=True, sideways=True)


METRIC_NAMES = {
    "identity": "plain optimizer", "sobolev-tilde": "SobolevTilde", "reweighted-l2": "ReweightedL2",
    "laplacian-smoothing": "LaplacianSmoothing", "sobolev": "Sobolev",
}  # fmt: skip


def overview(data: ReportData) -> Figure:
    found = _with_pairs(data.of_recipes)
    lower = any(not each.score.higher_is_better for each in found)
    but = ", which is worse where the axis says that lower is better" if lower else ""
    return Figure(
        name="overview",
        title="All comparisons at a glance",
        caption=f"{INTERVALS} Right of zero, the arm has the higher score{but}. The band is the margin.",
        alt=verdicts(found),
        panels=[forest(each) for each in found[:MAX_PANELS]],
    )


def directions(data: ReportData) -> Figure:
    return _figure(
        data.named("directions"),
        "directions",
        "Direction of smoothing",
        "Smoothed along output channels, input channels, or all weights in rasterized order; conv layers alone or all"
        " layers; SobolevTilde and LS.",
    )


def controls(data: ReportData) -> Figure:
    # Not by name: `riesz compare --controls` belongs to no named experiment.
    return _figure(
        [found for found in data.results if any(map(_is_control, found.compared.values()))],
        "controls",
        "Controls: step length and neighbourhood",
        "Norm kept: the directed gradient has the length of the original, so a gain is not one of a longer gradient."
        " Channels permuted: smoothed along a random order, compared with the true order; in a network without skip"
        " connections, trained from random weights, the two differ by chance alone.",
    )


def verdicts(found: Iterable[Result]) -> str:
    """How many comparisons have each verdict, in words."""
    counts = Counter(verdict for each in found for verdict in each.verdicts.values())
    said = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])
    return f"Of {count(counts.total(), 'comparison')}: {said}."


def _is_control(each: ArmResult) -> bool:
    return each.arm.config.control != "none" and each.judged is not None and each.judged.n > 0


def _with_pairs(found: Iterable[Result]) -> list[Result]:
    return [each for each in found if any(arm.judged is not None and arm.judged.n for arm in each.arms.values())]


def _figure(found: Iterable[Result], name: str, title: str, caption: str) -> Figure:
    found = _with_pairs(found)
    scales = "; ".join(dict.fromkeys(scale(next(iter(each.arms.values())).arm.config) for each in found))
    return Figure(
        name=name,
        title=title,
        caption=f"{caption} {INTERVALS} {scales}.",
        alt=verdicts(found),
        panels=[forest(each) for each in found],
    )
