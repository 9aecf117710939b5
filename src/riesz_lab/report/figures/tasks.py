"""Figures 8 and 9: segmentation with its generalisation gap, and image synthesis."""

from __future__ import annotations

import numpy as np

from riesz_lab.config import Config
from riesz_lab.report.evidence import Evidence, Methods, band, styles
from riesz_lab.report.figure import Figure, Panel, Series
from riesz_lab.report.labels import color, scale, short_scale
from riesz_lab.sweeps.results import is_percent


def segmentation(evidence: Evidence) -> Figure | None:
    found = _settings(evidence, "segmentation")
    several = len(found) > 1
    panels = [panel for base, methods in found for panel in _segmentation_panels(evidence, base, methods, several)]
    if not panels:
        return None
    return Figure(
        name="voc",
        title="Segmentation: losses, accuracy and generalisation gap",
        caption="The gap is training accuracy less test accuracy at the last epoch. Bands and bars are one standard"
        f" deviation over seeds. {'; '.join(scale(base) for base, _ in found)}.",
        alt=" ".join(
            f"{panel.title}: {', '.join(f'{one.x[0]} {one.y[0]:.3f}' for one in panel.series)}."
            for panel in panels
            if "gap" in panel.title and all(one.y[0] is not None for one in panel.series)
        ),
        panels=panels,
    )


def fid(evidence: Evidence) -> Figure | None:
    panels = []
    found = _settings(evidence, "generation")
    for base, methods in found:
        score = str(next(iter(methods.values()))[0].result.score)  # type: ignore[index]
        series = _series(evidence, methods, score)
        if series:
            panels.append(Panel(title=short_scale(base), x="epoch", y=score.replace("_", " "), series=series))
    if not panels:
        return None
    return Figure(
        name="fid",
        title="Image synthesis: FID by epoch",
        caption="Lower is better. A score that says proxy comes from a small fixed network and is comparable with no"
        f" published FID. Bands are one standard deviation over seeds. {'; '.join(scale(base) for base, _ in found)}.",
        alt=_collapses(found),
        panels=panels,
    )


def _settings(evidence: Evidence, task: str) -> list[tuple[Config, Methods]]:
    return [(base, methods) for base, methods in evidence.settings.items() if base.task == task]


def _segmentation_panels(evidence: Evidence, base: Config, methods: Methods, named: bool) -> list[Panel]:
    panels = []
    where = f"{short_scale(base)}: " if named else ""
    for key in ("train_loss", "test_loss", "train_accuracy", "test_accuracy", "test_miou"):
        series = _series(evidence, methods, key)
        if series:
            told = key.replace("_", " ")
            unit = " in %" if is_percent(key) else ""
            panels.append(Panel(title=where + told, x="epoch", y=told + unit, series=series))
    bars = []
    for name, trials in methods.items():
        gaps = []
        for trial in trials:
            last = trial.last()
            if all(isinstance(last.get(f"{split}_accuracy"), float) for split in ("train", "test")):
                gaps.append(last["train_accuracy"] - last["test_accuracy"])
        if gaps:
            mean = float(np.mean(gaps))
            spread = float(np.std(gaps, ddof=1)) if len(gaps) > 1 else None
            note = f"one standard deviation, {len(gaps)} trials"
            bars.append(
                Series(
                    name=name,
                    x=[name],
                    y=[mean],
                    low=None if spread is None else [mean - spread],
                    high=None if spread is None else [mean + spread],
                    kind="bars",
                    color=color(trials[0].config),
                    note=note,
                )
            )
    if bars:
        panels.append(Panel(title=f"{where}generalisation gap", y="train - test accuracy", series=bars))
    return panels


def _series(evidence: Evidence, methods: Methods, key: str) -> list[Series]:
    dashes = styles(methods)
    series = []
    for name, trials in methods.items():
        epochs, values = evidence.curve(trials, key)
        if len(epochs) > 1:
            times = 100.0 if is_percent(key) else 1.0
            series.append(band(name, epochs, values, trials[0].config, times=times, **dashes[name]))
    return series


def _collapses(found: list[tuple[Config, Methods]]) -> str:
    told = []
    for _, methods in found:
        for name, trials in methods.items():
            fallen = sum(trial.status in ("collapsed", "diverged") for trial in trials)
            told.append(f"{name}: {fallen} of {len(trials)} trials collapsed or diverged")
    return "; ".join(told) + "."
