"""The page of one result: the table and one picture on the first screen, then what is behind them.

It has nothing of the paper: it is about somebody's network.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from riesz_lab.experiments import Result
from riesz_lab.report import sections
from riesz_lab.report.content import Page, Section, Table
from riesz_lab.report.data import Files, Methods, trains_itself
from riesz_lab.report.figure import Figure
from riesz_lab.report.figures.comparison import arm_colors, pairs
from riesz_lab.report.figures.epochs import epoch_panels
from riesz_lab.report.figures.tuning import tuning_figures
from riesz_lab.report.table import notes, reasons, result_table, statistics_table
from riesz_lab.store import Store

MOST_CURVES = 6
NO_PAIRS = "No arm and its baseline share a seed, so there is nothing to compare yet."


def result_page(
    result: Result, title: str, *, advice: Sequence[str] = (), remarks: Sequence[str] = (), home: Path | None = None
) -> Page:
    """The content of the page.

    Args:
        result: what is shown.
        title: the question, or what was compared.
        advice: what to do now, below the table.
        remarks: how the answer came about, with the statistics.
        home: the folder of the page, for links to trials; there are none if it is None.
    """
    files, colors, arms = Files(), arm_colors(result), by_arm(result)
    layers = sections.layer_table(arms, files, "")
    times = _step_times(result, arms, files)
    store = Store()
    store.trials = result.trials
    labels = {trial.config.id: label for label, trials in arms.items() for trial in trials}
    curves, tuned = curve_figure(result, files, colors), tuning_figures(result, colors)
    return Page(
        title=title,
        sections=[
            _answer(result, colors, advice),
            Section(name="statistics", title="Statistics", text=(*notes(result), *remarks), blocks=_statistics(result)),
            *([Section(name="rates", title="Tuning", blocks=tuned)] if tuned else []),
            *([Section(name="curves", title="Learning curves", blocks=[curves])] if curves else []),
            *([Section(name="layers", title="Layer by layer", blocks=[layers])] if layers else []),
            *([Section(name="times", title="Step times", blocks=[times])] if times else []),
            sections.settings(store.trials),
            sections.trials(store, home, labels),
        ],
    )


def by_arm(result: Result) -> Methods:
    """The trials of every arm that has some."""
    return {label: list(each.trials.values()) for label, each in result.arms.items() if each.trials}


def _answer(result: Result, colors: Mapping[str, int], advice: Sequence[str]) -> Section:
    figure = pairs(result, colors)
    # How to read the table stands with the statistics: the picture shares the first screen with the answer.
    table = replace(result_table(result), note="", quiet=True)
    blocks: list[Figure | Table | str] = [table, *reasons(result), *advice, *([figure] if figure else [])]
    return Section(name="answer", title="Answer", blocks=blocks, missing=() if figure else (NO_PAIRS,))


def _statistics(result: Result) -> list[Table]:
    table = statistics_table(result)
    return [table] if len(table.head) > 2 else []


def curve_figure(result: Result, files: Files, colors: Mapping[str, int]) -> Figure | None:
    """The scores by epoch: training and test score of the lab's loop, what a user's loop logged."""
    arms, score = by_arm(result), result.score
    keys = dict.fromkeys((score.name.replace("test", "train"), score.name))
    if trains_itself(result):
        rows = [row for trials in arms.values() for trial in trials for row in files.rows(trial, "history")]
        keys |= dict.fromkeys(key for row in rows for key in row if key not in ("epoch", "step"))
    panels = epoch_panels(files, arms, list(keys)[:MOST_CURVES], colors, (score.name, score.percent))
    if not panels:
        return None
    return Figure(
        name="curves",
        title="Scores by epoch",
        caption="Mean over seeds; bands are one standard deviation over seeds.",
        alt=f"{', '.join(arms)}: {', '.join(panel.y for panel in panels)}.",
        panels=panels,
    )


def _step_times(result: Result, arms: Methods, files: Files) -> Table | None:
    rows = sections.step_times(arms, {label: each.arm.baseline for label, each in result.arms.items()}, files)
    head = ("arm", "epochs", "ms a step, median", "relative to its baseline")
    caption = "Time of a training step in these trials"
    table = Table(caption=caption, head=head, rows=rows, numbers=frozenset((1, 2, 3)), note=sections.CLOCK)
    return table if rows else None
