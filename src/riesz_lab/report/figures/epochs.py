"""Scores by epoch: Figures 3, 8, 9 and 10 of the paper, and the curves of an experiment's arms."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from riesz_lab.config import Config
from riesz_lab.report.data import Array, Files, Methods, ReportData, count_collapsed, main_methods, score_of
from riesz_lab.report.figure import Figure, Panel, Points, Series, series_around
from riesz_lab.report.labels import color, differing_scale, scale, score_label, short_scale
from riesz_lab.store.result import is_percent
from riesz_lab.utils.amounts import count

BANDS = "Mean over seeds; bands are one standard deviation over seeds."
MAX_SERIES = 7
MAX_POINTS = 80
"""Points of a curve over epochs; longer ones are thinned to keep the page small."""
SEGMENTATION_KEYS = ("train_loss", "test_loss", "train_accuracy", "test_accuracy", "test_miou")


def curves(data: ReportData) -> Figure | None:
    """The setting of the paper's figure, batch size 8 with SGD, or else the one with most trials."""
    chosen = _main_setting(data)
    if chosen is None:
        return None
    base, methods = chosen
    return Figure(
        name="curves",
        title="Accuracy by epoch",
        caption=f"{scale(base)}. {BANDS} Training accuracy is the mean over the epoch, as it was trained.",
        alt=_describe(data, main_methods(methods, MAX_SERIES)),
        panels=_panels(data, methods),
    )


def appendix(data: ReportData) -> Figure:
    """All other settings, per batch size and optimizer."""
    chosen = _main_setting(data)
    rest = [pair for pair in _with_curves(data) if chosen is None or pair[0] != chosen[0]]
    rest.sort(key=lambda pair: (pair[0].dataset, pair[0].model, pair[0].optimizer, -pair[0].batch_size))
    panels: list[Panel] = []
    for base, methods in rest:
        panels += _panels(data, methods, f"{differing_scale(base, data.settings) or short_scale(base)}: ")
    return Figure(
        name="appendix",
        title="Accuracy by epoch, per batch size and optimizer",
        caption=f"Every other setting that was evaluated at two epochs or more. {BANDS}",
        alt=f"Settings: {'; '.join(scale(base) for base, _ in rest)}.",
        panels=panels,
    )


def segmentation(data: ReportData) -> Figure:
    """Figure 8, with the generalisation gap."""
    settings = data.settings_of("segmentation")
    panels = []
    for base, methods in settings:
        prefix = f"{short_scale(base)}: " if len(settings) > 1 else ""
        panels += _method_panels(data, methods, SEGMENTATION_KEYS, prefix) + _gap_panels(methods, prefix)
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


def fid(data: ReportData) -> Figure:
    """Figure 9."""
    settings = data.settings_of("generation")
    panels = [
        replace(panel, title=short_scale(base))
        for base, methods in settings
        for panel in _method_panels(data, methods, [score_of(methods)[0]])
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


# -- series ------------------------------------------------------------------------------------------------------------


def band(name: str, x: Points, values_TX: Array, times: float = 1.0, **style: Any) -> Series:
    """Mean over trials with a band of one standard deviation."""
    step = -(-len(x) // MAX_POINTS)
    x, values_TX = x[::-1][::step][::-1], values_TX[:, ::-1][:, ::step][:, ::-1]  # the last epoch stays
    spread_X = values_TX.std(0, ddof=1) * times if len(values_TX) > 1 else None
    note = f"(one standard deviation, {count(len(values_TX), 'trial')})"
    return series_around(name, x, values_TX.mean(0) * times, spread_X, note=note, **style)


def dashes(methods: Iterable[str]) -> dict[str, int]:
    """A dash for each method, so that lines differ in more than colour, and show where they overlap."""
    return {name: (0, 1, 3)[index % 3] for index, name in enumerate(methods)}


def epoch_panels(
    files: Files, arms: Methods, keys: Sequence[str], colors: Mapping[str, int], score: tuple[str, bool]
) -> list[Panel]:
    """Values of the history by epoch, one panel per key that has two epochs or more; `score` is as `score_of` says."""
    panels = []
    styles = dashes(arms)
    for key in keys:
        times, unit = (100.0, " in %") if is_percent(key, *score) else (1.0, "")
        series = []
        for label, trials in arms.items():
            epochs, values_TE = files.curve(trials, key)
            if len(epochs) > 1:
                series.append(band(label, epochs, values_TE, times, color=colors[label], dash=styles[label]))
        if series:
            panels.append(Panel(x="epoch", y=score_label(key) + unit, series=series))
    return panels


def method_colors(methods: Methods) -> dict[str, int]:
    return {name: color(trials[0].config) for name, trials in methods.items()}


def _method_panels(data: ReportData, methods: Methods, keys: Sequence[str], prefix: str = "") -> list[Panel]:
    panels = epoch_panels(data.files, methods, keys, method_colors(methods), score_of(methods))
    return [replace(panel, title=prefix + panel.y.removesuffix(" in %")) for panel in panels]


def _panels(data: ReportData, methods: Methods, prefix: str = "") -> list[Panel]:
    """Train and test panel of a setting."""
    test, _ = score_of(methods)
    return _method_panels(data, main_methods(methods, MAX_SERIES), (test.replace("test", "train"), test), prefix)


def _main_setting(data: ReportData) -> tuple[Config, Methods] | None:
    def merit(pair: tuple[Config, Methods]) -> tuple[int, bool, bool, int]:
        base, methods = pair
        drawn = len(_panels(data, methods))
        return drawn, base.batch_size == 8, base.optimizer == "sgd", sum(map(len, methods.values()))

    return max(_with_curves(data), key=merit, default=None)


def _with_curves(data: ReportData) -> list[tuple[Config, Methods]]:
    return [pair for pair in data.settings_of("classification") if _panels(data, pair[1])]


def _describe(data: ReportData, methods: Methods) -> str:
    scores = []
    test, percent = score_of(methods)
    for name, trials in methods.items():
        epochs, values_TE = data.files.curve(trials, test)
        if epochs:
            mean = float(values_TE[:, -1].mean())
            scores.append(f"{name} {100 * mean:.2f}%" if percent else f"{name} {mean:.4g}")
    return f"At the last epoch the test score is {'; '.join(scores)}." if scores else ""


def _scales(settings: list[tuple[Config, Methods]]) -> str:
    return "; ".join(scale(base) for base, _ in settings)


def _gap_panels(methods: Methods, prefix: str) -> list[Panel]:
    bars, colors = [], method_colors(methods)
    for name, trials in methods.items():
        rows = [(row.get("train_accuracy"), row.get("test_accuracy")) for row in (trial.last() for trial in trials)]
        gaps = [[train - test] for train, test in rows if isinstance(train, float) and isinstance(test, float)]
        if gaps:
            bars.append(band(name, [name], np.array(gaps), color=colors[name], kind="bars"))
    title, y = f"{prefix}generalisation gap", "train - test accuracy"
    return [Panel(title=title, y=y, series=bars, sideways=True)] if bars else []
