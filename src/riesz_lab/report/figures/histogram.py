"""Figure 4: how test accuracy scatters over trials."""

from __future__ import annotations

import numpy as np

from riesz_lab.report.evidence import Evidence, styles
from riesz_lab.report.figure import Figure, Panel, Series
from riesz_lab.report.labels import color, short_scale
from riesz_lab.sweeps.results import is_percent

LEAST = 5
BINS = 12
MOST_PANELS = 4
MOST_METHODS = 4


def histogram(evidence: Evidence) -> Figure | None:
    """The settings with most trials per method; from `LEAST` trials on a histogram says something."""
    panels, told = [], []
    ranked = sorted(
        evidence.settings.items(), key=lambda pair: -min(sorted(map(len, pair[1].values()), reverse=True)[:2])
    )
    for base, methods in ranked:
        scores = {
            name: [score for trial in trials if (score := trial.score("last")) is not None]
            for name, trials in methods.items()
        }
        scores = {name: values for name, values in scores.items() if len(values) >= LEAST}
        if len(scores) < 2 or len(panels) == MOST_PANELS:
            continue
        score = str(methods[next(iter(scores))][0].result.score)  # type: ignore[index]
        times = 100.0 if is_percent(score) else 1.0
        most = sorted(scores, key=lambda name: -len(scores[name]))[:MOST_METHODS]
        chosen = {name: scores[name] for name in scores if name in most}
        pooled = np.concatenate([np.array(values) * times for values in chosen.values()])
        edges = np.linspace(pooled.min(), pooled.max() or 1.0, BINS + 1)
        if edges[0] == edges[-1]:
            continue
        middles = (edges[1:] + edges[:-1]) / 2
        dashes = styles({name: methods[name] for name in chosen})
        panels.append(
            Panel(
                title=f"{short_scale(base)}: {min(map(len, chosen.values()))} or more trials each",
                x=score.replace("_", " ") + (" in %" if times == 100 else ""),
                y="trials",
                series=[
                    Series(
                        name=name,
                        x=middles.tolist(),
                        y=np.histogram(np.array(values) * times, edges)[0].astype(float).tolist(),
                        kind="bars",
                        color=color(methods[name][0].config),
                        dash=dashes[name]["dash"],
                    )
                    for name, values in chosen.items()
                ],
            )
        )
        told.append(
            f"{short_scale(base)}, standard deviations: "
            + ", ".join(f"{name} {times * float(np.std(values, ddof=1)):.2g}" for name, values in chosen.items())
        )
    if not panels:
        return None
    return Figure(
        name="histogram",
        title="Test scores over trials",
        caption="How many trials ended at which score of the last epoch. Whether the spread differs is tested in the"
        " table of comparisons (Brown and Forsythe).",
        alt="; ".join(told) + ".",
        panels=panels,
    )
