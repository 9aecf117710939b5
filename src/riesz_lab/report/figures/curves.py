"""Figures 3 and 10: accuracy by epoch, train and test."""

from riesz_lab.config import Config
from riesz_lab.report.evidence import Methods, ReportData, main_methods, score_of
from riesz_lab.report.figure import Figure, Panel
from riesz_lab.report.figures.series import epoch_panels
from riesz_lab.report.labels import scale, short_scale
from riesz_lab.sweeps.methods import OPTIMIZERS

BANDS = "Mean over seeds; bands are one standard deviation over seeds."
MAX_SERIES = 7


def curves(evidence: ReportData) -> Figure | None:
    """The setting of the paper's figure, batch size 8 with SGD, or else the one with most trials."""
    chosen = _main_setting(evidence)
    if chosen is None:
        return None
    base, methods = chosen
    return Figure(
        name="curves",
        title="Accuracy by epoch",
        caption=f"{scale(base)}. {BANDS} Training accuracy is the mean over the epoch, as it was trained.",
        alt=_describe(evidence, main_methods(methods, MAX_SERIES)),
        panels=_panels(evidence, methods),
    )


def appendix(evidence: ReportData) -> Figure:
    """All other settings, per batch size and optimizer."""
    chosen = _main_setting(evidence)
    rest = [pair for pair in _with_curves(evidence) if chosen is None or pair[0] != chosen[0]]
    rest.sort(key=lambda pair: (pair[0].dataset, pair[0].model, pair[0].optimizer, -pair[0].batch_size))
    panels: list[Panel] = []
    for base, methods in rest:
        panels += _panels(evidence, methods, f"{short_scale(base)}, {OPTIMIZERS.get(base.optimizer, base.optimizer)}: ")
    return Figure(
        name="appendix",
        title="Accuracy by epoch, per batch size and optimizer",
        caption=f"Every other setting that was evaluated at two epochs or more. {BANDS}",
        alt=f"Settings: {'; '.join(scale(base) for base, _ in rest)}.",
        panels=panels,
    )


def _panels(evidence: ReportData, methods: Methods, prefix: str = "") -> list[Panel]:
    """Train and test panel of a setting."""
    test, _ = score_of(methods)
    return epoch_panels(evidence, main_methods(methods, MAX_SERIES), (test.replace("test", "train"), test), prefix)


def _main_setting(evidence: ReportData) -> tuple[Config, Methods] | None:
    def merit(pair: tuple[Config, Methods]) -> tuple[int, bool, bool, int]:
        base, methods = pair
        drawn = len(_panels(evidence, methods))
        return drawn, base.batch_size == 8, base.optimizer == "sgd", sum(map(len, methods.values()))

    return max(_with_curves(evidence), key=merit, default=None)


def _with_curves(evidence: ReportData) -> list[tuple[Config, Methods]]:
    return [pair for pair in evidence.settings_of("classification", "own") if _panels(evidence, pair[1])]


def _describe(evidence: ReportData, methods: Methods) -> str:
    scores = []
    test, percent = score_of(methods)
    for name, trials in methods.items():
        epochs, values_TE = evidence.curve(trials, test)
        if epochs:
            mean = float(values_TE[:, -1].mean())
            scores.append(f"{name} {100 * mean:.2f}%" if percent else f"{name} {mean:.4g}")
    return f"At the last epoch the test score is {'; '.join(scores)}." if scores else ""
