"""Figures 3 and 10: accuracy by epoch, train and test."""

from __future__ import annotations

from riesz_lab.config import Config
from riesz_lab.report.evidence import Evidence, Methods, band, main_methods, styles
from riesz_lab.report.figure import Figure, Panel
from riesz_lab.report.labels import OPTIMIZERS, scale, short_scale
from riesz_lab.sweeps.results import is_percent

BANDS = "Mean over seeds; bands are one standard deviation over seeds."
MOST_SERIES = 7


def curves(evidence: Evidence) -> Figure | None:
    """The setting that the paper shows, batch size 8 with SGD, or else the one with most trials."""
    chosen = _main(evidence)
    if chosen is None:
        return None
    base, methods = chosen[0], main_methods(chosen[1], MOST_SERIES)
    return Figure(
        name="curves",
        title="Accuracy by epoch",
        caption=f"{scale(base)}. {BANDS} Training accuracy is the mean over the epoch, as it was trained.",
        alt=_last_values(evidence, base, methods),
        panels=panels(evidence, base, methods),
    )


def appendix(evidence: Evidence) -> Figure | None:
    """All other settings, per batch size and optimizer."""
    chosen = _main(evidence)
    rest = [pair for pair in _with_curves(evidence) if chosen is None or pair[0] != chosen[0]]
    rest.sort(key=lambda pair: (pair[0].dataset, pair[0].model, pair[0].optimizer, -pair[0].batch_size))
    made = [panel for base, methods in rest for panel in panels(evidence, base, methods, named=True)]
    if not made:
        return None
    return Figure(
        name="appendix",
        title="Accuracy by epoch, per batch size and optimizer",
        caption=f"Every other setting that was evaluated at two epochs or more. {BANDS}",
        alt=f"Settings: {'; '.join(scale(base) for base, _ in rest)}.",
        panels=made,
    )


def panels(evidence: Evidence, base: Config, methods: Methods, named: bool = False) -> list[Panel]:
    """Train and test panel of a setting."""
    made = []
    dashes = styles(methods)
    test = _score(evidence, methods)
    where = f"{short_scale(base)}, {OPTIMIZERS.get(base.optimizer, base.optimizer)}: " if named else ""
    for key in (test.replace("test", "train"), test):
        series = []
        for name, trials in main_methods(methods, MOST_SERIES).items():
            epochs, values = evidence.curve(trials, key)
            if len(epochs) > 1:
                times = 100.0 if is_percent(key) else 1.0
                series.append(band(name, epochs, values, trials[0].config, times=times, **dashes[name]))
        if series:
            told = key.replace("_", " ")
            unit = " in %" if is_percent(key) else ""
            made.append(Panel(title=where + told, x="epoch", y=told + unit, series=series))
    return made


def _main(evidence: Evidence) -> tuple[Config, Methods] | None:
    def merit(pair: tuple[Config, Methods]) -> tuple[int, bool, bool, int]:
        base, methods = pair
        drawn = len(panels(evidence, base, methods))
        return drawn, base.batch_size == 8, base.optimizer == "sgd", sum(map(len, methods.values()))

    return max(_with_curves(evidence), key=merit, default=None)


def _with_curves(evidence: Evidence) -> list[tuple[Config, Methods]]:
    return [
        (base, methods)
        for base, methods in evidence.settings.items()
        if base.task in ("classification", "own") and panels(evidence, base, methods)
    ]


def _score(evidence: Evidence, methods: Methods) -> str:
    result = next(iter(methods.values()))[0].result
    return "test_accuracy" if result is None else result.score


def _last_values(evidence: Evidence, base: Config, methods: Methods) -> str:
    told = []
    test = _score(evidence, methods)
    for name, trials in methods.items():
        epochs, values = evidence.curve(trials, test)
        if epochs:
            mean = float(values[:, -1].mean())
            told.append(f"{name} {100 * mean:.2f}%" if is_percent(test) else f"{name} {mean:.4g}")
    return f"At the last epoch the test score is {'; '.join(told)}." if told else ""
