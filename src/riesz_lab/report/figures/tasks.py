"""Figures 8 and 9: segmentation with its generalisation gap, and image synthesis."""

from dataclasses import replace

import numpy as np

from riesz_lab.config import Config
from riesz_lab.report.evidence import Methods, ReportData, count_collapsed, score_of
from riesz_lab.report.figure import Figure, Panel
from riesz_lab.report.figures.series import band, epoch_panels
from riesz_lab.report.labels import scale, short_scale
from riesz_lab.utils.amounts import count

SEGMENTATION_KEYS = ("train_loss", "test_loss", "train_accuracy", "test_accuracy", "test_miou")


def segmentation(evidence: ReportData) -> Figure:
    settings = evidence.settings_of("segmentation")
    panels = []
    for base, methods in settings:
        prefix = f"{short_scale(base)}: " if len(settings) > 1 else ""
        panels += epoch_panels(evidence, methods, SEGMENTATION_KEYS, prefix) + _gap_panels(methods, prefix)
    return Figure(
        name="voc",
        title="Segmentation: losses, accuracy and generalisation gap",
        caption="The gap is training accuracy less test accuracy at the last epoch. Bands and bars are one standard"
        f" deviation over seeds. {_scales(settings)}.",
        alt=" ".join(
            f"{panel.title}: {', '.join(f'{bar.x[0]} {bar.y[0]:.3f}' for bar in panel.series)}."
            for panel in panels
            if "gap" in panel.title
        ),
        panels=panels,
    )


def fid(evidence: ReportData) -> Figure:
    settings = evidence.settings_of("generation")
    panels = [
        replace(panel, title=short_scale(base))
        for base, methods in settings
        for panel in epoch_panels(evidence, methods, [score_of(methods)[0]])
    ]
    collapsed = (
        f"{name}: {count_collapsed(trials)} of {count(len(trials), 'trial')} collapsed or diverged"
        for _, methods in settings
        for name, trials in methods.items()
    )
    return Figure(
        name="fid",
        title="Image synthesis: FID by epoch",
        caption="Lower is better. A score that says proxy comes from a small fixed network and is comparable with no"
        f" published FID. Bands are one standard deviation over seeds. {_scales(settings)}.",
        alt=f"{'; '.join(collapsed)}.",
        panels=panels,
    )


def _scales(settings: list[tuple[Config, Methods]]) -> str:
    return "; ".join(scale(base) for base, _ in settings)


def _gap_panels(methods: Methods, prefix: str) -> list[Panel]:
    bars = []
    for name, trials in methods.items():
        rows = [(row.get("train_accuracy"), row.get("test_accuracy")) for row in (trial.last() for trial in trials)]
        gaps = [[train - test] for train, test in rows if isinstance(train, float) and isinstance(test, float)]
        if gaps:
            bars.append(band(name, [name], np.array(gaps), trials[0].config, kind="bars"))
    title, y = f"{prefix}generalisation gap", "train - test accuracy"
    return [Panel(title=title, y=y, series=bars, sideways=True)] if bars else []
