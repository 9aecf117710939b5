"""The page of one comparison: the answer and one picture on the first screen, then what is behind them.

It has no table of the paper: it is about somebody's network.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from riesz_lab.report import appendix, page
from riesz_lab.report.comparison_view import comparison_table
from riesz_lab.report.content import Cell, Finding, Page, Section, number
from riesz_lab.report.content import Table as PageTable
from riesz_lab.report.evidence import Evidence
from riesz_lab.report.figure import Figure
from riesz_lab.report.figures.pairs import Intervals, pairs, rate_curves, trials_by_rate, tuning_curves
from riesz_lab.report.figures.series import epoch_panels
from riesz_lab.store import Store
from riesz_lab.sweeps import Table


def compare_page(
    table: Table,
    store: Store,
    *,
    title: str,
    answer: Sequence[str] = (),
    notes: Sequence[str] = (),
    intervals: Intervals | None = None,
    home: Path | None = None,
) -> str:
    """The page as HTML.

    Args:
        table: the comparison.
        store: its trials, and those that tuned it.
        title: the question, or what was compared.
        answer: the answer in words; the conclusions of the table if there is none.
        notes: what to do next and how the answer came about, below the picture.
        intervals: by label, the intervals of a comparison that was looked at after every pair. Statistics of a fixed
            number of pairs are left out then.
        home: the folder of the page, for links to trials; there are none if it is None.
    """
    return page.html(compare_content(table, store, title, answer, notes, intervals, home))


def compare_content(
    table: Table,
    store: Store,
    title: str,
    answer: Sequence[str] = (),
    notes: Sequence[str] = (),
    intervals: Intervals | None = None,
    home: Path | None = None,
) -> Page:
    """The content of the page."""
    evidence = Evidence(store, margin=table.sweep.margin)
    sections = [_answer(table, answer, intervals), *_notes(notes)]
    if intervals is None:
        full = Section(name="statistics", title="Statistics", blocks=[comparison_table(table)])
        sections.append(full)
    sections += [*_rates(table, store), *_curves(table, evidence)]
    layers = appendix.layers(evidence)
    sections += [layers] if layers.blocks else []
    sections += [*_step_times(table), appendix.settings(evidence), appendix.trials(evidence, home)]
    return Page(title=title, sections=sections)


def _answer(table: Table, answer: Sequence[str], intervals: Intervals | None) -> Section:
    findings = []
    if not answer and intervals is None:
        for label, comparison in table.comparisons.items():
            subject = f"{label} against {table.rows[label].arm.baseline}"
            findings.append(Finding(comparison.verdict, subject, f"{comparison.sentence}."))
    figure = pairs(table, intervals)
    missing = () if figure else ("No method and its baseline share a seed, so there is nothing to compare yet.",)
    blocks = [figure] if figure else []
    return Section(name="answer", title="Answer", text=answer, findings=findings, blocks=blocks, missing=missing)


def _notes(notes: Sequence[str]) -> list[Section]:
    return [Section(name="next", title="What to do next", text=notes)] if notes else []


def _rates(table: Table, store: Store) -> list[Section]:
    by_rate = trials_by_rate(store.trials)
    higher = next((one.higher_is_better for one in table.comparisons.values()), True)
    figures = (
        rate_curves(by_rate, table.score, table.percent),
        tuning_curves(by_rate, table.score, table.percent, higher),
    )
    blocks = [figure for figure in figures if figure is not None]
    return [Section(name="rates", title="Learning rates", blocks=blocks)] if blocks else []


def _curves(table: Table, evidence: Evidence) -> list[Section]:
    methods = {label: list(row.trials.values()) for label, row in table.rows.items() if row.trials}
    keys = dict.fromkeys((table.score.replace("test", "train"), table.score))
    panels = [replace(panel, title="") for panel in epoch_panels(evidence, methods, list(keys))]
    if not panels:
        return []
    figure = Figure(
        name="curves",
        title="Scores by epoch",
        caption="Mean over seeds; bands are one standard deviation over seeds.",
        alt=f"{len(methods)} methods, {len(panels)} scores.",
        panels=panels,
    )
    return [Section(name="curves", title="Learning curves", blocks=[figure])]


def _step_times(table: Table) -> list[Section]:
    medians = {
        label: statistics.median(times)
        for label, row in table.rows.items()
        if (times := appendix.step_times(list(row.trials.values())))
    }
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
