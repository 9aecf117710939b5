"""The table of a result: a `Row` per arm, from which page, Markdown, terminal, CSV and JSON are written.

A new column is a field of `Row`, which makes it one of CSV and JSON, and an entry of COLUMNS, which shows it.
"""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from riesz_lab.errors import printable
from riesz_lab.experiments import ArmResult, Result
from riesz_lab.experiments.answer import notes as settled_by
from riesz_lab.experiments.arm import format_values
from riesz_lab.report.content import Cell, Table
from riesz_lab.report.labels import common_scale, score_label
from riesz_lab.statistics import Comparison, components
from riesz_lab.statistics.verdict import Interval, Verdict, difference_cells, format_margin, format_p
from riesz_lab.store.export import csv_text, json_text
from riesz_lab.utils.terminal import table as plain_table


@dataclass(frozen=True, kw_only=True)
class Row:
    """What an experiment says of one arm, in plain numbers, in the unit of the scores; None where there is none."""

    experiment: str
    arm: str
    baseline: str | None
    role: str  # compared, baseline, or not compared: nothing is its baseline where none was run
    verdict: str  # better, worse, same, undecided; empty unless it is compared
    reason: str  # what the verdict rests on, beside interval and margin
    score: str
    unit: str  # of differences as they are printed: points, or that of the score
    recipe: str
    metric: str
    lr: float
    settings: str  # those that tuning chose
    at_the_edge: bool  # whether they lie at the edge of the grid, so that better ones may lie beyond it
    trials: int
    wanted: int
    mean: float | None
    sd: float | None
    best_epoch: float | None  # mean of the best epochs' scores, which are chosen by looking at the test set
    pairs: int | None = None
    difference: float | None = None  # mean over pairs, arm less baseline
    low: float | None = None  # the 95% interval of the difference
    high: float | None = None
    every_look: bool | None = None  # whether the interval holds at every look, or for this number of pairs
    alpha: float | None = None  # error rate of an interval that holds at every look: 5% shared by all arms
    margin: float | None = None  # differences up to this do not matter
    wins: int | None = None  # pairs in which the arm is better, equal, worse
    ties: int | None = None
    losses: int | None = None
    p: float | None = None  # of the paired t test
    p_holm: float | None = None  # corrected for `family` comparisons
    family: int | None = None
    p_margin: float | None = None  # that the difference is the margin or more
    p_margin_holm: float | None = None
    p_wilcoxon: float | None = None
    bootstrap_low: float | None = None
    bootstrap_high: float | None = None
    detectable: float | None = None  # the smallest difference that one such comparison finds with 80% power
    error_reduced: float | None = None  # in percent
    error_reduced_low: float | None = None
    error_reduced_high: float | None = None
    variance_ratio: float | None = None
    p_variance: float | None = None
    collapsed: int | None = None  # trials that diverged or collapsed
    baseline_collapsed: int | None = None
    p_collapsed: float | None = None
    diverged: int | None = None  # pairs in which only the arm diverged
    baseline_diverged: int | None = None
    crossed: bool | None = None  # whether pairs share seeds


def rows(result: Result) -> list[Row]:
    """A row per arm that was run, in the order of the experiment."""
    return [_row(result, each) for each in result.arms.values()]


def _row(result: Result, each: ArmResult) -> Row:
    scores, config = each.finite, each.arm.config
    bests = [score for trial in each.trials.values() if (score := trial.score("best")) is not None]
    numbers: dict[str, Any] = {}
    if each.comparison is not None:
        numbers = _numbers(each.comparison)
    elif each.look is not None:
        look, sign = each.look, 1 if each.look.higher_is_better else -1
        gains = [sign * difference for difference in look.differences]
        numbers = {"alpha": look.alpha, "every_look": True} | _ends("", look.interval)
        numbers |= {"wins": sum(gain > 0 for gain in gains), "losses": sum(gain < 0 for gain in gains)}
        numbers |= {"ties": gains.count(0), "baseline_diverged": look.diverged[0], "diverged": look.diverged[1]}
    if (judged := each.judged) is not None:
        numbers |= {"pairs": judged.n, "margin": judged.margin}
        numbers |= {"difference": judged.difference} if judged.n else {}
    role = "compared"
    if each.judged is None:
        is_baseline = any(other.arm.baseline == each.arm.label for other in result.arms.values())
        role = "baseline" if is_baseline or config.metric == "identity" else "not compared"
    return Row(
        experiment=result.experiment.name,
        arm=each.arm.label,
        baseline=each.arm.baseline,
        role=role,
        verdict="" if each.verdict is None else str(each.verdict),
        reason=each.reason,
        score=f"{result.which} {result.score.name}",
        unit=result.score.unit,
        recipe=config.recipe,
        metric=config.metric,
        lr=config.lr,
        settings=format_values(each.chosen),
        at_the_edge=result.tuned is not None and each.arm.label in result.tuned.at_the_edge,
        trials=len(each.trials),
        wanted=each.wanted,
        mean=statistics.fmean(scores) if scores else None,
        sd=statistics.stdev(scores) if len(scores) > 1 else None,
        best_epoch=statistics.fmean(bests) if bests else None,
        **numbers,
    )


def _numbers(comparison: Comparison) -> dict[str, Any]:
    names = {field.name for field in fields(Row)} - {"trials"}  # which counts pairs there
    numbers = {field.name: getattr(comparison, field.name) for field in fields(comparison) if field.name in names}
    for name in ("collapsed", "diverged"):
        numbers[f"baseline_{name}"], numbers[name] = getattr(comparison, name)
    numbers |= _ends("", comparison.interval) | _ends("bootstrap_", comparison.bootstrap)
    return numbers | _ends("error_reduced_", comparison.error_interval) | {"every_look": False}


def _ends(name: str, interval: Interval | None) -> dict[str, float | None]:
    low, high = interval or (None, None)
    return {f"{name}low": low, f"{name}high": high}


def records(*results: Result) -> list[dict[str, Any]]:
    """Every row as plain values, for JSON, CSV or a data frame."""
    return [asdict(row) for result in results for row in rows(result)]


def to_csv(results: Iterable[Result]) -> str:
    """One row per arm, with plain numbers, for a notebook."""
    return csv_text(records(*results), [field.name for field in fields(Row)])


def to_json(results: Iterable[Result]) -> str:
    """The same with a version, for a program."""
    return json_text(records(*results))


# -- as it is shown ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """How a number or two are shown. A column that is empty for all arms is left out."""

    head: str  # {score} and {unit} are filled in
    cell: Callable[[Row], Cell]
    number: bool = True
    statistic: bool = False  # of the second table: what a statistician asks for


def _times(row: Row) -> float:
    return 100.0 if row.unit == "points" else 1.0


def _verdict(row: Row) -> Cell:
    """Same is never said without its margin."""
    if row.verdict == Verdict.SAME and row.margin is not None:
        return Cell(f"same within {format_margin(row.margin, row.unit)}", kind="same")
    return Cell(row.verdict or row.role, kind=row.verdict)


def _score(row: Row) -> Cell:
    if row.mean is None:
        return Cell("")
    digits = 2 if row.unit == "points" else 4
    spread = "" if row.sd is None else f" ({_times(row) * row.sd:.{digits}f})"
    return Cell(f"{_times(row) * row.mean:.{digits}f}{spread}", row.mean)


def _difference(row: Row) -> Cell:
    return Cell(_cells(row)[0], row.difference)


def _cells(row: Row) -> tuple[str, str]:
    if row.difference is None:
        return "", ""
    interval = None if row.low is None or row.high is None else (row.low, row.high)
    return difference_cells(row.difference, interval, row.unit)


def _pairs(row: Row) -> Cell:
    """Of how many, while trials are missing."""
    if row.pairs is None:
        return Cell("")
    return Cell(f"{row.pairs} of {row.wanted}" if row.trials < row.wanted else str(row.pairs), row.pairs)


def _p(name: str) -> Callable[[Row], Cell]:
    def cell(row: Row) -> Cell:
        p = getattr(row, name)
        return Cell("") if p is None else Cell(format_p(p), p)

    return cell


def _won(row: Row) -> Cell:
    return Cell("" if row.wins is None else f"{row.wins} / {row.ties} / {row.losses}", row.wins)


def _error(row: Row) -> Cell:
    return Cell("") if row.error_reduced is None else Cell(f"{row.error_reduced:+.1f}", row.error_reduced)


def _best(row: Row) -> Cell:
    digits = 2 if row.unit == "points" else 4
    return Cell("") if row.best_epoch is None else Cell(f"{_times(row) * row.best_epoch:.{digits}f}", row.best_epoch)


def _variance(row: Row) -> Cell:
    if row.variance_ratio is None:
        return Cell("")
    p = "" if row.p_variance is None else f" ({format_p(row.p_variance)})"
    return Cell(f"{row.variance_ratio:.2g}{p}", row.variance_ratio)


def _collapsed(row: Row) -> Cell:
    if not row.collapsed and not row.baseline_collapsed:
        return Cell("")
    return Cell(f"{row.collapsed} (baseline {row.baseline_collapsed}) of {row.trials}", row.collapsed)


COLUMNS = (
    Column("arm", lambda row: Cell(row.arm), number=False),
    Column("verdict", _verdict, number=False),
    Column("{score} (sd)", _score),
    Column("difference{unit}", _difference),
    Column("95% interval", lambda row: Cell(_cells(row)[1], row.low)),
    Column("pairs", _pairs),
    Column("chosen", lambda row: Cell(row.settings + (" (edge of the grid)" if row.at_the_edge else "")), number=False),
    Column("against", lambda row: Cell(row.baseline or ""), number=False),
    Column("trials", lambda row: Cell(str(row.trials), row.trials), statistic=True),
    Column("p", _p("p"), statistic=True),
    Column("p, Holm", _p("p_holm"), statistic=True),
    Column("p of the margin", _p("p_margin"), statistic=True),
    Column("won / tied / lost", _won, statistic=True),
    Column("error reduced %", _error, statistic=True),
    Column("best epoch", _best, statistic=True),
    Column("variance ratio (p)", _variance, statistic=True),
    Column("collapsed", _collapsed, statistic=True),
)


def result_table(result: Result) -> Table:
    """The answer: verdict, score, difference and interval of every arm."""
    several = len({row.baseline for row in rows(result)} - {None}) > 1
    shown = [column for column in COLUMNS if not column.statistic and (several or column.head != "against")]
    return _table(result, shown, caption(result), " ".join(notes(result)), cards=True)


def statistics_table(result: Result) -> Table:
    """What is behind it."""
    shown = [column for column in COLUMNS if column.statistic or column.head == "arm"]
    note = "" if result.sequential else STATISTICS
    return _table(result, shown, f"{result.experiment.name}: all statistics", note)


STATISTICS = (
    "p: paired t test. Holm: corrected for all comparisons of the experiment. p of the margin: that the difference is"
    " the margin or more. Error reduced: 100 (1 - error / error of the baseline). Best epoch: chosen by looking at the"
    " test set, for comparison with papers that report it. Variance ratio: Brown and Forsythe."
)


def caption(result: Result) -> str:
    return f"{result.experiment.name}: {result.experiment.description}"


def _table(result: Result, shown: Sequence[Column], title: str, note: str, cards: bool = False) -> Table:
    every = rows(result)
    cells = [(column, [column.cell(row) for row in every]) for column in shown]
    kept = [(column, each) for column, each in cells if any(cell.text for cell in each)]
    unit = result.score.unit and f", {result.score.unit}"
    score = score_label(result.score.name) + (" in %" if result.score.percent else "")
    return Table(
        caption=title,
        head=[column.head.format(score=score, unit=unit) for column, _ in kept],
        rows=list(zip(*(each for _, each in kept), strict=True)),
        numbers=frozenset(index for index, (column, _) in enumerate(kept) if column.number),
        note=note,
        cards=cards,
    )


def format_result(result: Result) -> str:
    """The answer for the terminal."""
    table = result_table(result)
    extra = statistics_table(result)
    head, body = list(table.head), [[cell.text for cell in row] for row in table.cells()]
    numbers = set(table.numbers)
    if "p, Holm" in extra.head:  # what a verdict rests on
        index = list(extra.head).index("p, Holm")
        numbers.add(len(head))
        head.append("p, Holm")
        body = [[*row, other[index].text] for row, other in zip(body, extra.cells(), strict=True)]
    lines = [plain_table(head, body, right=numbers), "", *notes(result), *reasons(result)]
    return printable("\n".join(lines), keep="\n")


def notes(result: Result) -> list[str]:
    """How to read the table: what was compared, by which rule, and what is still missing."""
    configs = [each.arm.config for each in result.arms.values()]
    epoch = "" if result.which == "last" else f" Scores are those of the {result.which} epoch."
    margins = sorted({each.judged.margin for each in result.compared.values() if each.judged is not None})
    lines = [f"{common_scale(configs)}.{epoch} Differences are taken seed by seed, arm less baseline."]
    if margins:
        sizes = " to ".join(format_margin(margin, result.score.unit) for margin in (margins[0], margins[-1]))
        size = sizes if len(margins) > 1 else format_margin(margins[0], result.score.unit)
        lines.append(f"Margin: {size}; a smaller difference does not matter.")
    if not result.score.higher_is_better:
        lines.append(f"A lower {score_label(result.score.name)} is better.")
    if result.experiment.stopping.plans:
        lines.append("A pilot: intervals allow for a look after each pair.")
    elif not result.sequential and (family := result.experiment.comparisons) > 1:
        lines.append(f"Intervals are of single comparisons; verdicts are corrected for {family} (Holm).")
    if not result.complete:
        lines.append("Not complete. Stopping as soon as a verdict appears makes false ones more likely.")
    why_not = result.tuned.why_not if result.tuned else ""
    return [*lines, *([f"Not tuned: {why_not}."] if why_not else settled_by(result)), *_spread_sources(result)]


def reasons(result: Result) -> list[str]:
    """What a verdict rests on where it is something else than the interval, a line for each such arm."""
    return [f"{label}: {each.verdict}; {each.reason}." for label, each in result.compared.items() if each.reason]


def _spread_sources(result: Result) -> list[str]:
    """Where the spread comes from, if seeds were crossed."""
    lines = []
    times = 100 if result.score.percent else 1
    for label, each in result.arms.items() if result.experiment.seeds.crossed else ():
        parts = components({key: score for key, score in each.scores.items() if score is not None})
        if parts is not None:
            lines.append(
                f"{label}: standard deviation from initialisation {times * parts.initialisation:.2f}, from the order of"
                f" the data {times * parts.data:.2f}, from both together {times * parts.rest:.2f}."
            )
    return lines
