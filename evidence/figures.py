"""The figures of the pages. Captions and descriptions stand in the templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evidence import regularity
from evidence.names import AT_ONE_RATE, paper_gains
from evidence.numbers import Arm, Difference, arms_of, metrics
from evidence.results import Evidence
from riesz_lab.report.drawing import picture
from riesz_lab.report.figure import Figure, Panel, Series
from riesz_lab.report.figures.lambda_sweep import lambda_figure
from riesz_lab.report.figures.regimes import regime_figure

COLORS = {"SobolevTilde": 1, "ReweightedL2": 2}
PAPER = "the paper, ResNet-56"

Row = tuple[str, str, Difference]
"""Label, metric and difference."""


def files(evidence: Evidence) -> dict[str, bytes]:
    """By file name, as SVG."""
    results = evidence.results
    figures = (
        Figure(name="differences", title="Every comparison with SGD", panels=_differences(evidence), columns=2),
        lambda_figure([results["lambda-fashion"], results["lambda-mnist"]]),
        regime_figure([results["regimes"]]),
        Figure(name="regularity", title="Correlation of filters", panels=_regularity(evidence), columns=2),
    )
    return {f"evidence-{figure.name}.svg": picture(figure, "svg") for figure in figures if figure is not None}


def _differences(evidence: Evidence) -> list[Panel]:
    """All comparisons of a metric with SGD, and the gains that the paper prints for the same batch size and rate."""
    arms = {name: metrics(arms_of(result)) for name, result in evidence.results.items()}
    panels = {
        "Fashion-MNIST, two conv layers": arms["lambda-fashion"],
        "MNIST, two conv layers": arms["lambda-mnist"],
        "Fashion-MNIST, plain SGD": arms["plain-sgd"],
        "Fashion-MNIST, each at its own rate": arms["tuned-fashion"],
        "CIFAR-10, batch 8": [arm for arm in arms["regimes"] if arm.config.batch_size == 8],
        "CIFAR-10, batch 128": [arm for arm in arms["regimes"] if arm.config.batch_size == 128],
    }
    return [
        _forest(
            title,
            "difference from SGD, points",
            [(_label(arm), arm.metric, arm) for arm in each],
            times=100.0,
            published=_published(each),
        )
        for title, each in panels.items()
    ]


def _label(arm: Arm) -> str:
    """What tells it from the others of its panel: lam on the two-layer network, else the rate."""
    setting = f"lam {arm.lam:g}" if arm.config.model == "cnn" else f"rate {arm.config.lr:g}"
    return f"{arm.metric}, {setting}"


def _published(arms: Sequence[Arm]) -> dict[str, float]:
    """What the paper gains at the batch sizes of these arms, at its rate of 0.1."""
    gains = paper_gains()
    shown = [arm for arm in arms if arm.config.dataset == "cifar10" and arm.config.lr == 0.1]
    return {_label(arm): float(gains[arm.metric][arm.config.batch_size]) for arm in shown}


def _regularity(evidence: Evidence) -> list[Panel]:
    """Level and order, each minus that of SGD."""
    experiments = {name: arms_of(evidence.results[name]) for name in AT_ONE_RATE}
    compared = regularity.against_sgd(experiments)
    return [
        _forest(
            f"{name}: {quantity}",
            f"{quantity} minus SGD's",
            [(arm.label, arm.metric, compared[name, arm.label, quantity]) for arm in metrics(arms)],
        )
        for name, arms in experiments.items()
        for quantity in regularity.QUANTITIES
    ]


def _forest(
    title: str, y: str, rows: Sequence[Row], times: float = 1.0, published: Mapping[str, float] | None = None
) -> Panel:
    """Differences with their intervals, one below the other, and the margin."""
    series = []
    for metric, color in COLORS.items():
        shown = [(label, one) for label, of, one in rows if of == metric]
        series.append(
            Series(
                name=metric,
                x=[label for label, _ in shown],
                y=[times * one.comparison.difference for _, one in shown],
                low=[times * one.ends[0] for _, one in shown],
                high=[times * one.ends[1] for _, one in shown],
                kind="points",
                color=color,
                dash=color,
                note="(95% interval)",
            )
        )
    if published:
        series.append(Series(name=PAPER, x=list(published), y=list(published.values()), kind="points", color=5, dash=3))
    margin = times * rows[0][2].comparison.margin
    return Panel(title=title, y=y, series=series, zero=True, margin=margin, sideways=True)
