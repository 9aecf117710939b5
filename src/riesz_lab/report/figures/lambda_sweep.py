"""Figure 7: how much of the metric, on MNIST and Fashion-MNIST."""

import statistics
from collections.abc import Iterable, Sequence

import numpy as np

import riesz
from riesz_lab.config import Config
from riesz_lab.experiments import Result
from riesz_lab.experiments.arm import setting
from riesz_lab.report.data import ReportData
from riesz_lab.report.figure import Figure, Panel, Series, series_around
from riesz_lab.report.labels import scale, tell_apart
from riesz_lab.utils.amounts import count

READINGS = {"ReweightedL2": 2, "SobolevTilde, lam as scale": 1, "SobolevTilde, lam in G": 4}
"""Ways to read lam, and their colours."""

TILDE = {
    "SobolevTilde, lam as scale": "f + lam G f with G at 1 (lam as scale)",
    "SobolevTilde, lam in G": "f + G f with lam inside G (lam in G)",
}
"""What the readings of SobolevTilde mean."""

PLAIN = "plain optimizer"
IN_PAPER = ("mnist", "fashion-mnist")
"""The datasets of the paper's figure."""

Points = dict[str, dict[float, list[float]]]


def lambda_sweep(data: ReportData) -> Figure:
    names = ("lambda-mnist", "lambda-fashion")
    own = [part for part in data.parts(setting, *names) if _has_two_lams(part)]
    return lambda_figure([*data.named(*names), *own])


def _has_two_lams(found: Result) -> bool:
    """Whether a metric was run at two lam or more, beside the plain optimizer's 0."""
    return found.score.name == "test_accuracy" and any(len(lams.keys() - {0.0}) > 1 for lams in _points(found).values())


def lambda_figure(results: Iterable[Result]) -> Figure:
    """A panel per result; each has one setting."""
    drawable = [(found, points) for found in results if (points := _points(found))]
    titles = _titles([found for found, _ in drawable])
    shown = [(title, _config(found), points) for title, (found, points) in zip(titles, drawable, strict=True)]
    drawn = [reading for name, reading in TILDE.items() if any(name in points for _, _, points in shown)]
    readings = f" The paper's H1-tilde at lam has two readings; drawn: {', '.join(drawn)}." if drawn else ""
    paper = above = ""
    if all(config.dataset in IN_PAPER for _, config, _ in shown):
        paper = " In the paper, both metrics lie above it at every lam and hardly vary with lam; it prints no values."
        above = "; in the paper, accuracy is higher at every lam"
    return Figure(
        name="lambda",
        title="Test accuracy by lam",
        caption=f"Of the last epoch. lam = 0 is the plain optimizer.{paper}{readings} Bands are one standard deviation"
        " over seeds. " + "; ".join(sorted({scale(config) for _, config, _ in shown})) + ".",
        alt=" ".join(f"{title}: {_describe(points)}." for title, _, points in shown),
        panels=[_panel(title, points, PLAIN + above) for title, _, points in shown],
    )


def _config(found: Result) -> Config:
    return next(iter(found.arms.values())).arm.config


def _titles(results: Sequence[Result]) -> list[str]:
    """What tells them apart: their settings, or these with the experiment's name."""
    titles = tell_apart([_config(found) for found in results])
    if len(set(titles)) == len(results):
        return titles
    return [f"{found.experiment.name}: {title}" for found, title in zip(results, titles, strict=True)]


def _points(found: Result) -> Points:
    """Scores by reading and lam; the plain optimizer belongs to all readings, at 0."""
    points: Points = {}
    plain: list[float] = []
    by_scale, by_lam = list(READINGS)[1:]
    for row in found.arms.values():
        scores = [100 * score for score in row.finite]
        if not scores:
            continue
        metric = riesz.metric(row.arm.config.metric)
        if isinstance(metric, riesz.Identity):
            plain = scores
        elif isinstance(metric, riesz.ReweightedL2):
            points.setdefault("ReweightedL2", {})[metric.lam] = scores
        elif isinstance(metric, riesz.SobolevTilde):
            if metric.lam == 1:
                points.setdefault(by_scale, {})[metric.scale] = scores
            if metric.scale == 1:
                points.setdefault(by_lam, {})[metric.lam] = scores
    if points.get(by_lam, {}).keys() == {1.0} and len(points[by_scale]) > 1:
        del points[by_lam]  # both readings are the same at 1: nothing of this one was run
    if plain:
        for scores_by_lam in points.values():
            scores_by_lam[0.0] = plain
    return points


def _panel(title: str, points: Points, plain_name: str) -> Panel:
    series = []
    if plain := next((scores[0.0] for scores in points.values() if 0.0 in scores), None):
        ends = [0.0, max(lam for scores in points.values() for lam in scores)]
        series.append(Series(name=plain_name, x=ends, y=[statistics.fmean(plain)] * 2, dash=2))
    for index, (name, color) in enumerate(READINGS.items()):
        lams, scores = sorted(points.get(name, {})), [values for _, values in sorted(points.get(name, {}).items())]
        if lams:
            mean_X = np.array([statistics.fmean(values) for values in scores])
            spread_X = np.array([statistics.stdev(values) if len(values) > 1 else 0.0 for values in scores])
            note = f"one standard deviation, {count(max(map(len, scores)), 'trial')}"
            series.append(series_around(name, lams, mean_X, spread_X, color=color, dash=index, note=note))
    return Panel(title=title, x="lam", y="test accuracy in %", series=series)


def _describe(points: Points) -> str:
    """The mean at every lam: naming the highest would make a trend of what may be chance."""
    return "; ".join(
        f"{name}: " + ", ".join(f"{statistics.fmean(scores[lam]):.2f}% at lam = {lam:g}" for lam in sorted(scores))
        for name, scores in points.items()
    )
