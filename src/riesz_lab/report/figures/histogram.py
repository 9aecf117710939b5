"""Figure 4: how test accuracy scatters over trials."""

from dataclasses import replace

import numpy as np

from riesz_lab.config import Config
from riesz_lab.report.data import Methods, ReportData, score_of
from riesz_lab.report.figure import Figure, Panel, Series
from riesz_lab.report.figures.epochs import dashes
from riesz_lab.report.labels import color, score_label, tell_apart

MIN_TRIALS = 5
BINS = 12
MAX_PANELS = 4
MAX_METHODS = 4


def histogram(data: ReportData) -> Figure:
    """The settings with most trials per method; fewer than `MIN_TRIALS` make no histogram."""
    panels: list[Panel] = []
    deviations: list[str] = []
    bases: list[Config] = []
    ranked = sorted(data.settings.items(), key=lambda pair: -min(sorted(map(len, pair[1].values()), reverse=True)[:2]))
    for base, methods in ranked:
        score, percent = score_of(methods)
        scores = _scores(methods, 100.0 if percent else 1.0)
        pooled = np.concatenate([*scores.values(), np.zeros(0)])
        if len(scores) < 2 or len(panels) == MAX_PANELS or pooled.min() == pooled.max():
            continue
        edges = np.linspace(pooled.min(), pooled.max() or 1.0, BINS + 1)
        centres, styles, series = (edges[1:] + edges[:-1]) / 2, dashes(scores), []
        for name, values in scores.items():
            counts = np.histogram(values, edges)[0].astype(float).tolist()
            tint, dash = color(methods[name][0].config), styles[name]
            series.append(Series(name=name, x=centres.tolist(), y=counts, kind="bars", color=tint, dash=dash))
        bases.append(base)
        x = score_label(score) + (" in %" if percent else "")
        panels.append(Panel(x=x, y="trials", series=series))
        spreads = ", ".join(f"{name} {np.std(values, ddof=1):.2g}" for name, values in scores.items())
        deviations.append(f"standard deviations: {spreads}")
    titles = tell_apart(bases)
    return Figure(
        name="histogram",
        title="Test scores over trials",
        caption=f"How many trials ended at which score of the last epoch, of {MIN_TRIALS} or more per method. Whether"
        " the spread differs is tested in the table of comparisons (Brown and Forsythe).",
        alt="; ".join(f"{title}, {deviation}" for title, deviation in zip(titles, deviations, strict=True)) + ".",
        panels=[replace(panel, title=title) for panel, title in zip(panels, titles, strict=True)],
    )


def _scores(methods: Methods, times: float) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Last scores of the methods with most trials, in the order of the methods."""
    scores = {
        name: times * np.array([score for trial in trials if (score := trial.score("last")) is not None])
        for name, trials in methods.items()
    }
    scores = {name: values for name, values in scores.items() if len(values) >= MIN_TRIALS}
    most = sorted(scores, key=lambda name: -len(scores[name]))[:MAX_METHODS]
    return {name: values for name, values in scores.items() if name in most}
