"""The figures of the page, of complete sweeps: of one seed, a line through noise looks like a trend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from evidence import regularity, sweeps
from evidence.data import EvidenceData
from evidence.regularity import QUANTITIES
from evidence.rows import metrics
from evidence.tables import select
from evidence.wording import count_verdicts
from riesz_lab.report.figure import Figure
from riesz_lab.report.figures.differences import INTERVALS, forest, forest_panel
from riesz_lab.report.figures.lambda_sweep import lambda_figure
from riesz_lab.report.figures.regimes import regime_figure
from riesz_lab.sweeps import SweepResult

DIFFERENCES, LAMBDA, REGIMES, REGULARITY = (
    f"evidence-{name}.svg" for name in ("differences", "lambda", "regimes", "regularity")
)

PICTURES = {sweeps.lambda_fashion().name: LAMBDA, sweeps.regimes().name: REGIMES}
"""The figure of a sweep's section; that of lam has a panel for each dataset."""


def figures(data: EvidenceData) -> dict[str, Figure]:
    """By file name, those that have something to show."""
    complete = {name: table for name, table in data.tables.items() if table.complete}
    drawn = {
        DIFFERENCES: _differences(complete),
        LAMBDA: lambda_figure(select(complete, sweeps.lambda_fashion, sweeps.lambda_mnist)),
        REGIMES: regime_figure(select(complete, sweeps.regimes)),
        REGULARITY: _regularity(data, complete),
    }
    return {name: figure for name, figure in drawn.items() if figure and figure.panels}


def as_markdown(name: str, drawn: Mapping[str, Figure]) -> list[str]:
    """The figure with its caption; nothing if it is not drawn yet."""
    return [f"![{drawn[name].alt}]({name})", "", drawn[name].caption, ""] if name in drawn else []


def _differences(complete: Mapping[str, SweepResult]) -> Figure:
    """All but the regimes and their controls: these are a map, and ten times as large."""
    shown = {
        name.removeprefix("evidence-"): new
        for name, table in complete.items()
        if not name.startswith(sweeps.regimes().name) and (new := _to_show(table)).comparisons
    }
    return Figure(
        name="differences",
        title="Differences to the baseline",
        caption="Differences in test accuracy after the last epoch, a panel for each complete sweep of the two-layer"
        " CNN; right of zero, the arm is better. Points are means over pairs of trials with the same seed; bars are 95%"
        " intervals of single comparisons, not corrected for their number. The scales differ.",
        alt="; ".join(f"{name}: {count_verdicts(metrics(table))}" for name, table in shown.items()) + ".",
        panels=[replace(forest(table), title=name) for name, table in shown.items()],
        columns=2,
    )


def _to_show(table: SweepResult) -> SweepResult:
    """Without arms whose trials are those of another sweep, which has their verdicts, and those with permuted channels.

    The latter are compared with a metric: they say nothing of SGD.
    """
    left_out = {
        row.arm.label
        for row in metrics(table)
        if sweeps.repeats_lambda_fashion(table.sweep, row.arm) or row.arm.config.control == "permuted"
    }
    return replace(table, rows={label: row for label, row in table.rows.items() if label not in left_out})


def _regularity(data: EvidenceData, complete: Mapping[str, SweepResult]) -> Figure:
    """Level and order of complete sweeps, side by side; corrected for all sweeps, complete or not."""
    compared = data.correlations
    shown = {name: arms for name, arms in data.measured.items() if f"evidence-{name}" in complete}
    panels = [
        forest_panel(
            f"{name}: {quantity}",
            f"{quantity} minus SGD's",
            [
                (label, arm.config, compared[name, label, quantity])
                for label, (arm, _) in arms.items()
                if (name, label, quantity) in compared
            ],
        )
        for name, arms in shown.items()
        for quantity in QUANTITIES
    ]
    counted = regularity.verdicts({key: one for key, one in compared.items() if key[0] in shown})
    return Figure(
        name="regularity",
        title="Regularity of trained weights, against SGD's",
        caption=f"Left, the {QUANTITIES['level']} along the output channels (level); right, the {QUANTITIES['order']}"
        f" (order); each minus that of SGD, in complete sweeps. {INTERVALS} The scales differ.",
        alt=f"{'; '.join(counted)}.",
        panels=[panel for panel in panels if panel.series],
        columns=2,
    )
