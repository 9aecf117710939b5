"""The conclusions: a sentence and a row per comparison."""

from __future__ import annotations

import statistics

from riesz_lab.report.content import Cell, Finding, Section, Table
from riesz_lab.report.evidence import Evidence
from riesz_lab.report.figures import FIGURES
from riesz_lab.report.labels import scale
from riesz_lab.statistics import Comparison
from riesz_lab.sweeps import SWEEPS
from riesz_lab.sweeps import Table as Result
from riesz_lab.utils.tables import table as plain_table

HEAD = (
    "method", "verdict", "trials", "score", "sd", "difference", "95% interval", "p", "p, Holm", "won / tied / lost",
    "error reduced %", "best epoch", "variance ratio (p)", "collapsed", "compared with",
)  # fmt: skip


def summary(evidence: Evidence) -> Section:
    findings = [
        Finding(
            found.verdict,
            f"{label} against {result.rows[label].arm.baseline}",
            f"{found.sentence}.",
            result.sweep.name,
            scale(next(iter(result.rows.values())).arm.config),
        )
        for result, label, found in evidence.comparisons
    ]
    overview = FIGURES["overview"].make(evidence)
    return Section(
        name="summary",
        title="Summary",
        text=(
            "One sentence per comparison, of the score after the last epoch. Trials are paired by seed: the same"
            " initial weights, the same order of the data. p-values are corrected for the number of comparisons in"
            " their table (Holm). Learning rates are those of the recipe for all methods unless they were tuned, and"
            " a metric changes the length of the step, so a difference here may be one of step length: see the"
            " controls.",
        )
        if findings
        else (),
        findings=findings,
        blocks=[overview] if overview else [],
        missing=() if findings else ("No method and its baseline share a seed, so there is nothing to compare yet.",),
    )


def told(result: Result) -> str:
    """A table and its sentences for the terminal."""
    shown = comparison_table(result)
    width = HEAD.index("error reduced %")
    rows = [[cell.text for cell in row[:width]] for row in shown.cells()]
    return "\n".join([plain_table(HEAD[:width], rows, right=shown.numbers), shown.note, *result.sentences])


def comparison_table(result: Result) -> Table:
    """A row per arm with all that the statistics hold."""
    return Table(
        caption=f"{result.sweep.name}: {result.sweep.about}",
        head=HEAD,
        rows=[_row(result, label) for label in result.rows],
        numbers=frozenset(range(2, 13)),
        note=_note(result),
    )


def comparisons(evidence: Evidence) -> Section:
    """A table per sweep."""
    blocks = [comparison_table(result) for result in evidence.tables]
    return Section(
        name="comparisons",
        title="Comparisons in full",
        text=(
            "Score: mean over trials of the last epoch; the best epoch is chosen by looking at the test set and is"
            " shown for comparison with papers that report it. Difference: mean over pairs, method less baseline.",
        ),
        blocks=blocks,
        missing=_unfinished(evidence),
    )


def _row(result: Result, label: str) -> list[Cell | str]:
    row = result.rows[label]
    times, digits = (100.0, 2) if result.percent else (1.0, 4)
    scores = [score for score in row.scores.values() if score is not None]
    bests = [score for trial in row.trials.values() if (score := trial.score("best")) is not None]
    wanted = f" of {row.wanted}" if len(row.trials) < row.wanted else ""
    found = row.comparison
    return [
        label,
        found.verdict if found else "baseline",
        Cell(f"{len(row.trials)}{wanted}", len(row.trials)),
        number(times * statistics.fmean(scores), digits) if scores else "",
        number(times * statistics.stdev(scores), digits) if len(scores) > 1 else "",
        *(_differences(found, times, digits) if found and found.n else [""] * 6),
        number(times * statistics.fmean(bests), digits) if bests else "",
        _variances(found) if found else "",
        _collapsed(found) if found else "",
        row.arm.baseline or "",
    ]


def _differences(found: Comparison, times: float, digits: int) -> list[Cell | str]:
    low_high = "" if found.interval is None else " to ".join(f"{times * end:+.{digits}f}" for end in found.interval)
    return [
        Cell(f"{times * found.difference:+.{digits}f}", found.difference),
        low_high,
        p_value(found.p),
        p_value(found.p_holm),
        f"{found.wins} / {found.ties} / {found.losses}",
        "" if found.error_reduced is None else Cell(f"{found.error_reduced:+.1f}", found.error_reduced),
    ]


def _variances(found: Comparison) -> str:
    if found.variance_ratio is None:
        return ""
    return f"{found.variance_ratio:.2g}" + ("" if found.p_variance is None else f" ({found.p_variance:.2g})")


def _collapsed(found: Comparison) -> str:
    return f"{found.collapsed[1]} (baseline {found.collapsed[0]}) of {found.trials}" if any(found.collapsed) else ""


def _note(result: Result) -> str:
    config = next(iter(result.rows.values())).arm.config
    largest = max((found.margin for found in result.comparisons.values()), default=result.sweep.margin)
    margin = f"{100 * largest:.2g} points" if result.percent else f"{largest:.2g}"
    told = f"{scale(config)}. Score: {result.score.replace('_', ' ')}{' in %' if result.percent else ''}."
    return f"{told} Differences are taken seed by seed; those up to {margin} are taken not to matter."


def _unfinished(evidence: Evidence) -> list[str]:
    told = []
    for result in evidence.tables:
        lacking = {label: row.wanted - len(row.trials) for label, row in result.rows.items()}
        lacking = {label: count for label, count in lacking.items() if count > 0}
        if lacking and result.sweep.name in SWEEPS:
            arms = ", ".join(f"{label} ({count})" for label, count in list(lacking.items())[:8])
            more = f" and {len(lacking) - 8} more" if len(lacking) > 8 else ""
            told.append(
                f"{result.sweep.name}: {sum(lacking.values())} trials are not complete: {arms}{more}."
                f" Run: riesz sweep {result.sweep.name}"
            )
    return told


def number(value: float, digits: int) -> Cell:
    return Cell(f"{value:.{digits}f}", value)


def p_value(p: float | None) -> Cell | str:
    return "" if p is None else Cell("< 0.0001" if p < 1e-4 else f"{p:.2g}", p)
