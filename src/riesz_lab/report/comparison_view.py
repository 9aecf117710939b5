"""One view of a table of comparisons, for the terminal, the page, Markdown and CSV.

`comparison_table` holds what is shown, `records` the plain numbers. Every p-value is printed by `format_p`.
"""

import csv
import io
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from riesz_lab.errors import printable
from riesz_lab.report.content import Cell, Table, number
from riesz_lab.report.labels import scale, score_label
from riesz_lab.statistics import Comparison, components, format_p
from riesz_lab.statistics.verdict import without_noise
from riesz_lab.store.export import csv_text, defuse
from riesz_lab.sweeps import ArmResult, SweepResult
from riesz_lab.sweeps.tuning import EXTENSIONS, Choice
from riesz_lab.utils.tables import table as plain_table

HEAD = (
    "method", "verdict", "trials", "score", "sd", "difference", "95% interval", "p", "p, Holm", "won / tied / lost",
    "error reduced %", "best epoch", "variance ratio (p)", "collapsed", "compared with",
)  # fmt: skip
TERMINAL_COLUMNS = HEAD.index("best epoch")

CSV_COLUMNS = (
    "sweep", "scale", "method", "baseline", "score", "trials", "wanted", "pairs", "mean", "baseline_mean", "difference",
    "low", "high", "p", "p_holm", "wins", "ties", "losses", "error_reduced", "variance_ratio", "collapsed",
    "baseline_collapsed", "verdict", "sentence",
)  # fmt: skip
CSV_NAMES = {
    "method": "arm", "pairs": "n", "mean": "method_mean", "low": "interval_low", "high": "interval_high",
    "collapsed": "collapsed_method", "baseline_collapsed": "collapsed_baseline",
}  # fmt: skip
"""Columns that have another name in `records`."""

Rates = Mapping[str, Choice]


def comparison_table(comparisons: SweepResult) -> Table:
    """A row per arm with all its statistics."""
    return Table(
        caption=f"{comparisons.sweep.name}: {comparisons.sweep.about}",
        head=HEAD,
        rows=[_cells(row, _role(row, comparisons), comparisons.percent) for row in comparisons.rows.values()],
        numbers=frozenset(range(2, 13)),
        note=_note(comparisons),
    )


def format_comparisons(comparisons: SweepResult, rates: Rates | None = None, notes: Iterable[str] = ()) -> str:
    """The table, notes and conclusions for the terminal; with the learning rate of each arm if rates were tuned."""
    table = comparison_table(comparisons)
    head, rows = HEAD[:TERMINAL_COLUMNS], [[cell.text for cell in row[:TERMINAL_COLUMNS]] for row in table.cells()]
    if rates:
        head = (*head, "lr")
        rows = [[*row, f"{rates[label].rate:g}"] for row, label in zip(rows, comparisons.rows, strict=True)]
    lines = [plain_table(head, rows, right=range(2, len(head))), f"{table.note} p is that of the paired t test."]
    if not comparisons.complete:
        lines.append("Not complete. Stopping as soon as a claim appears makes false claims more likely.")
    lines += [*notes, *_spread_sources(comparisons), "", *comparisons.sentences]
    return printable("\n".join(lines), keep="\n")


def tuning_notes(rates: Rates | None) -> list[str]:
    """How the learning rates of a sweep were chosen."""
    if not rates:
        return [
            "All arms use the recipe's learning rate; it is tuned for none. A metric also changes the length of steps:"
            " tune before you conclude (--tune-lr)."
        ]
    notes = ["Each arm has its own rate: the best of one grid, tried equally often, on held-out training images."]
    if edge := [label for label, choice in rates.items() if choice.edge]:
        notes.append(
            f"At the edge of the grid, which was extended {EXTENSIONS} times, so a better rate may lie beyond it:"
            f" {', '.join(edge)}."
        )
    return notes


def records(comparisons: SweepResult, rates: Rates | None = None) -> list[dict[str, Any]]:
    """One flat record per arm, with every number of its comparison, in the unit of the scores."""
    return [
        {
            "sweep": comparisons.sweep.name,
            "arm": label,
            "baseline": row.arm.baseline,
            "recipe": row.arm.config.recipe,
            "metric": row.arm.config.metric,
            "lr": row.arm.config.lr,
            "lr_tuned": rates is not None,
            "score": f"{comparisons.which} {comparisons.score}",
            "trials": len(row.scores),
            "mean": statistics.mean(scores) if (scores := row.finite) else None,
            "sd": statistics.stdev(scores) if len(scores) > 1 else None,
        }
        | ({} if row.comparison is None else _flat(row.comparison))
        for label, row in comparisons.rows.items()
    ]


def comparisons_csv(tables: Iterable[SweepResult]) -> str:
    """One row per comparison, with plain numbers, for a notebook."""
    rows = []
    for table in tables:
        for record, row in zip(records(table), table.rows.values(), strict=True):
            if row.comparison is not None:
                renamed = {column: record[name] for column, name in CSV_NAMES.items()}
                renamed |= {"scale": scale(row.arm.config), "score": table.score, "wanted": row.wanted}
                rows.append(record | renamed)
    return csv_text(rows, CSV_COLUMNS)


def table_csv(table: Table) -> str:
    """A table as it is shown."""
    buffer = io.StringIO()
    rows = [[defuse(cell.text) for cell in row] for row in table.cells()]
    csv.writer(buffer, lineterminator="\n").writerows([table.head, *rows])
    return buffer.getvalue()


def _role(row: ArmResult, comparisons: SweepResult) -> str:
    """What an arm without a comparison is in its table: nothing is its baseline where none was run."""
    compared = any(other.arm.baseline == row.arm.label for other in comparisons.rows.values())
    return "baseline" if compared or row.arm.config.metric == "identity" else "not compared"


def _cells(row: ArmResult, role: str, percent: bool) -> list[Cell | str]:
    times, digits = (100.0, 2) if percent else (1.0, 4)
    scores, comparison, variances, collapsed = row.finite, row.comparison, "", ""
    if comparison and comparison.variance_ratio is not None:
        p = "" if comparison.p_variance is None else f" ({format_p(comparison.p_variance)})"
        variances = f"{comparison.variance_ratio:.2g}{p}"
    if comparison and any(comparison.collapsed):
        base, method = comparison.collapsed
        collapsed = f"{method} (baseline {base}) of {comparison.trials}"
    bests = [score for trial in row.trials.values() if (score := trial.score("best")) is not None]
    wanted = f" of {row.wanted}" if len(row.trials) < row.wanted else ""
    return [
        row.arm.label,
        comparison.verdict if comparison else role,
        Cell(f"{len(row.trials)}{wanted}", len(row.trials)),
        number(times * statistics.fmean(scores) if scores else None, f".{digits}f"),
        number(times * statistics.stdev(scores) if len(scores) > 1 else None, f".{digits}f"),
        *(_difference_cells(comparison, times, digits) if comparison and comparison.n else [""] * 6),
        number(times * statistics.fmean(bests) if bests else None, f".{digits}f"),
        variances,
        collapsed,
        row.arm.baseline or "",
    ]


def _difference_cells(comparison: Comparison, times: float, digits: int) -> list[Cell | str]:
    return [
        Cell(f"{without_noise(times * comparison.difference):+.{digits}f}", comparison.difference),
        " to ".join(f"{times * end:+.{digits}f}" for end in comparison.interval or ()),
        *("" if p is None else Cell(format_p(p), p) for p in (comparison.p, comparison.p_holm)),
        f"{comparison.wins} / {comparison.ties} / {comparison.losses}",
        number(comparison.error_reduced, "+.1f"),
    ]


def _note(comparisons: SweepResult) -> str:
    config = next(iter(comparisons.rows.values())).arm.config
    largest = max((one.margin for one in comparisons.comparisons.values()), default=comparisons.sweep.margin)
    unit, margin = (" in %", f"{100 * largest:.2g} points") if comparisons.percent else ("", f"{largest:.2g}")
    epoch = "" if comparisons.which == "last" else f", {comparisons.which} epoch"
    return (
        f"{scale(config)}. Score: {score_label(comparisons.score)}{unit}{epoch}. Differences are taken seed by seed;"
        f" those up to {margin} are treated as negligible."
    )


def _spread_sources(comparisons: SweepResult) -> list[str]:
    """Where the spread comes from, for sweeps that cross the seeds."""
    lines = []
    times = 100 if comparisons.percent else 1
    for label, row in comparisons.rows.items() if comparisons.sweep.crossed else ():
        parts = components({key: score for key, score in row.scores.items() if score is not None})
        if parts is not None:
            lines.append(
                f"{label}: standard deviation from initialisation {times * parts.initialisation:.2f}, from the order "
                f"of the data {times * parts.data:.2f}, from both together {times * parts.rest:.2f}."
            )
    return lines


def _flat(comparison: Comparison) -> dict[str, Any]:
    """Every number under its own name: intervals as _low and _high, counts of both sides as _baseline and _method."""
    flat: dict[str, Any] = {}
    for field in fields(comparison):
        value = getattr(comparison, field.name)
        if field.name in ("collapsed", "diverged"):
            flat[f"{field.name}_baseline"], flat[f"{field.name}_method"] = value
        elif field.name in ("interval", "bootstrap", "error_interval"):
            flat[f"{field.name}_low"], flat[f"{field.name}_high"] = value or (None, None)
        else:
            flat[field.name] = value
    return flat | {"verdict": comparison.verdict, "sentence": comparison.sentence}
