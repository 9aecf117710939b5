"""The page of one comparison: the answer and one picture on the first screen, then what is behind them.

It has no table of the paper: it is about somebody's network.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from riesz_lab.config import OWN
from riesz_lab.report import appendix
from riesz_lab.report.comparison_view import comparison_table
from riesz_lab.report.content import Cell, Finding, Page, Section, number
from riesz_lab.report.content import Table as PageTable
from riesz_lab.report.evidence import Methods, ReportData
from riesz_lab.report.figure import Figure
from riesz_lab.report.figures.pairs import pairs, rate_curves, tuning_curve
from riesz_lab.report.figures.series import epoch_panels
from riesz_lab.report.labels import color
from riesz_lab.statistics.sequential import Sequential
from riesz_lab.statistics.verdict import format_signed
from riesz_lab.store import Store
from riesz_lab.store.comparison import ComparisonRecord
from riesz_lab.sweeps import SweepResult

MOST_CURVES = 6
HEAD = ("method", "conclusion", "pairs", "difference", "interval, valid at every look", "alpha")


def compare_content(
    table: SweepResult,
    store: Store,
    title: str,
    *,
    record: ComparisonRecord | None = None,
    judged: Mapping[str, Sequential] | None = None,
    home: Path | None = None,
) -> Page:
    """The content of the page.

    Args:
        table: the comparison.
        store: its trials, and those that tuned it.
        title: the question, or what was compared.
        record: the answer in words, and how settings were tuned; without one, the conclusions of the table are shown.
        judged: by label, the judgements of a comparison that was looked at after every pair. Statistics of a fixed
            number of pairs are left out then.
        home: the folder of the page, for links to trials; there are none if it is None.
    """
    evidence = ReportData(store, margin=table.sweep.margin)
    shown = comparison_table(table) if judged is None else sequential_table(judged, table.percent)
    words = [*record.answers, *record.warnings, *record.next_steps] if record else []
    sections = [
        _answer(table, words, judged),
        Section(name="statistics", title="Statistics", text=record.notes if record else (), blocks=[shown]),
        *_tuning(record, table),
        *_curves(table, evidence),
    ]
    layers = appendix.layers(evidence)
    sections += [layers] if layers.blocks else _own_layers(table)
    sections += [*_step_times(table), appendix.settings(evidence), appendix.trials(evidence, home)]
    return Page(title=title, sections=sections)


def sequential_table(judged: Mapping[str, Sequential], percent: bool) -> PageTable:
    """A row per arm; every number holds at every look."""
    rows: list[list[Cell | str]] = []
    for label, each in judged.items():
        low, high = each.interval or (-math.inf, math.inf)
        ends = " to ".join(format_signed(end, percent) for end in (low, high)) if math.isfinite(low) else ""
        difference = Cell(format_signed(each.difference, percent), each.difference) if each.n else ""
        rows.append([label, each.conclusion, number(each.n), difference, ends, number(each.alpha, ".3g")])
    caption = "Conclusions, valid at every look"
    return PageTable(caption=caption, head=HEAD, rows=rows, numbers=frozenset(range(2, len(HEAD))))


def _answer(table: SweepResult, answer: Sequence[str], judged: Mapping[str, Sequential] | None) -> Section:
    findings = []
    if not answer:
        for label, comparison in table.comparisons.items():
            subject = f"{label} against {table.rows[label].arm.baseline}"
            findings.append(Finding(comparison.verdict, subject, f"{comparison.sentence}."))
    figure = pairs(table, judged)
    missing = () if figure else ("No method and its baseline share a seed, so there is nothing to compare yet.",)
    blocks = [figure] if figure else []
    return Section(name="answer", title="Answer", text=answer, findings=findings, blocks=blocks, missing=missing)


def rate_figures(record: ComparisonRecord, colors: Mapping[str, int]) -> list[Figure]:
    """The rate curves of a tuned comparison, and the expected best score after k tuning trials."""
    budget = tuning_curve(record, colors)
    return [*rate_curves(record, colors), *([budget] if budget else [])]


def _tuning(record: ComparisonRecord | None, table: SweepResult) -> list[Section]:
    if record is None:
        return []
    figures = rate_figures(record, {label: color(row.arm.config) for label, row in table.rows.items()})
    return [Section(name="rates", title="Tuning", blocks=figures)] if figures else []


def _logged(table: SweepResult, methods: Methods) -> list[str]:
    """The scores to draw by epoch: training and test score of the lab's loop, what a user's loop logged."""
    keys = dict.fromkeys((table.score.replace("test", "train"), table.score))
    if next(iter(table.rows.values())).arm.config.optimizer == OWN:
        rows = [row for trials in methods.values() for trial in trials for row in trial.history()]
        keys |= dict.fromkeys(key for row in rows for key in row if key not in ("epoch", "step"))
    return list(keys)[:MOST_CURVES]


def _curves(table: SweepResult, evidence: ReportData) -> list[Section]:
    methods = {label: list(row.trials.values()) for label, row in table.rows.items() if row.trials}
    panels = [replace(panel, title="") for panel in epoch_panels(evidence, methods, _logged(table, methods))]
    if not panels:
        return []
    figure = Figure(
        name="curves",
        title="Scores by epoch",
        caption="Mean over seeds; bands are one standard deviation over seeds.",
        alt=f"{', '.join(methods)}: {', '.join(panel.y for panel in panels)}.",
        panels=panels,
    )
    return [Section(name="curves", title="Learning curves", blocks=[figure])]


def _own_layers(table: SweepResult) -> list[Section]:
    """The last step of a user's loop, layer by layer, as its attachments diagnosed it."""
    rows: list[list[Cell | str]] = []
    for label, row in table.rows.items():
        stored = [updates[-1].get("layers") for trial in row.trials.values() if (updates := trial.updates())]
        by_trial = [layers for layers in stored if isinstance(layers, dict)]
        for layer in dict.fromkeys(name for layers in by_trial for name in layers):
            entries = [layers[layer] for layers in by_trial if isinstance(layers.get(layer), dict)]
            means = [appendix.mean_cell(entry.get(key) for entry in entries) for key in ("ratio", "cosine")]
            rows.append([layer, label, *means])
    if not rows:
        return []
    shown = PageTable(
        caption="The last step, mean over trials",
        head=("layer", "method", "|g| / |f|", "cos(f, g)"),
        rows=rows[: appendix.MAX_LAYERS],
        numbers=frozenset((2, 3)),
        note="Length and angle of the directed gradient g against the original f.",
    )
    return [Section(name="layers", title="Layer by layer", blocks=[shown])]


def _step_times(table: SweepResult) -> list[Section]:
    medians = appendix.median_times({label: list(row.trials.values()) for label, row in table.rows.items()})
    rows: list[list[Cell | str]] = []
    for label, median in medians.items():
        plain = medians.get(table.rows[label].arm.baseline or "")
        rows.append([label, number(median, ".2f"), number(median / plain if plain else None, ".2f")])
    if not rows:
        return []
    shown = PageTable(
        caption="Time of a training step in these trials",
        head=("method", "ms a step, median", "relative to its baseline"),
        rows=rows,
        numbers=frozenset((1, 2)),
        note=appendix.CLOCK,
    )
    return [Section(name="times", title="Step times", blocks=[shown])]
