"""A sweep's table for the terminal and for files."""

from __future__ import annotations

import dataclasses
import math
import statistics
from typing import Any

from riesz_lab.statistics import Comparison, components
from riesz_lab.sweeps.results import Row, Table
from riesz_lab.sweeps.tuning import Choice
from riesz_lab.utils.tables import table as plain_table

HEAD = (
    "arm",
    "trials",
    "mean ± sd",
    "difference",
    "95% interval",
    "p",
    "p Holm",
    "better/equal/worse",
    "error reduced",
)


def told(table: Table, chosen: dict[str, Choice] | None = None) -> str:
    """Table, notes and verdicts."""
    head = (*HEAD, "lr") if chosen else HEAD
    rows = [
        (*_cells(row, table), *((f"{chosen[label].rate:g}",) if chosen else ())) for label, row in table.rows.items()
    ]
    unit = " in %" if table.percent else ""
    lines = [plain_table(head, rows, right=range(1, len(head)))]
    lines.append(
        f"Score: {table.score.replace('_', ' ')}{unit}, {table.which} epoch. Differences are taken pair by pair (equal "
        "initial weights and order of images); p is that of the paired t test, Holm-corrected over the table."
    )
    if any(len(row.scores) < row.wanted for row in table.rows.values()):
        lines.append("Not complete. Who looks again and again, and stops at the first claim, claims too much.")
    lines += [*_tuning_notes(chosen), *_sources(table), "", *table.sentences]
    return "\n".join(lines)


def _cells(row: Row, table: Table) -> tuple[str, ...]:
    finite = [score for score in row.scores.values() if score is not None]
    cells = [row.arm.label, f"{len(row.scores)}/{row.wanted}", _spread(finite, table.percent)]
    found = row.comparison
    if found is None or found.n == 0:
        return (*cells, "", "", "", "", "", "")
    scale = 100 if table.percent else 1
    low, high = found.interval or (math.nan, math.nan)
    return (
        *cells,
        f"{scale * found.difference:+.2f}",
        "" if found.interval is None else f"{scale * low:+.2f} to {scale * high:+.2f}",
        _p(found.p),
        _p(found.p_holm),
        f"{found.wins}/{found.ties}/{found.losses}",
        "" if found.error_reduced is None else f"{found.error_reduced:+.1f}%",
    )


def _spread(scores: list[float], percent: bool) -> str:
    if not scores:
        return ""
    scale = 100 if percent else 1
    mean = f"{scale * statistics.mean(scores):.2f}"
    return mean + (f" ± {scale * statistics.stdev(scores):.2f}" if len(scores) > 1 else "")


def _p(p: float | None) -> str:
    return "" if p is None else "<0.0001" if p < 1e-4 else f"{p:.4f}"


def _tuning_notes(chosen: dict[str, Choice] | None) -> list[str]:
    if not chosen:
        return [
            "The learning rate is the recipe's for every arm, tuned for none. A metric changes the length of steps "
            "too: tune before you conclude (--tune-lr)."
        ]
    notes = ["Each arm has its own rate: the best of one grid, tried equally often, on held-out training images."]
    edge = [label for label, choice in chosen.items() if choice.at_the_edge]
    if edge:
        notes.append(f"At the edge of the grid, so a better rate may lie beyond it: {', '.join(edge)}.")
    return notes


def _sources(table: Table) -> list[str]:
    """Where the spread comes from, for sweeps that cross the seeds."""
    if not table.sweep.crossed:
        return []
    lines = []
    scale = 100 if table.percent else 1
    for label, row in table.rows.items():
        found = components({key: score for key, score in row.scores.items() if score is not None})
        if found is not None:
            lines.append(
                f"{label}: standard deviation from initialisation {scale * found.initialisation:.2f}, from the order "
                f"of the data {scale * found.data:.2f}, from both together {scale * found.rest:.2f}."
            )
    return lines


def records(table: Table, chosen: dict[str, Choice] | None = None) -> list[dict[str, Any]]:
    """One flat record per arm, with every figure of its comparison, in the unit of the scores."""
    return [_record(row, table, chosen) for row in table.rows.values()]


def _record(row: Row, table: Table, chosen: dict[str, Choice] | None) -> dict[str, Any]:
    finite = [score for score in row.scores.values() if score is not None]
    record: dict[str, Any] = {
        "sweep": table.sweep.name,
        "arm": row.arm.label,
        "baseline": row.arm.baseline,
        "recipe": row.arm.config.recipe,
        "metric": row.arm.config.metric,
        "lr": row.arm.config.lr,
        "lr_tuned": chosen is not None,
        "score": f"{table.which} {table.score}",
        "trials": len(row.scores),
        "mean": statistics.mean(finite) if finite else None,
        "sd": statistics.stdev(finite) if len(finite) > 1 else None,
    }
    return record | ({} if row.comparison is None else _flat(row.comparison))


def _flat(found: Comparison) -> dict[str, Any]:
    """Every figure under a name of its own: intervals as _low and _high, counts of both sides as _baseline, _method."""
    flat: dict[str, Any] = {}
    for field in dataclasses.fields(found):
        value = getattr(found, field.name)
        if field.name in ("collapsed", "diverged"):
            flat[f"{field.name}_baseline"], flat[f"{field.name}_method"] = value
        elif field.name in ("interval", "bootstrap", "error_interval"):
            flat[f"{field.name}_low"], flat[f"{field.name}_high"] = value or (None, None)
        else:
            flat[field.name] = value
    return flat | {"verdict": found.verdict, "sentence": found.sentence}
