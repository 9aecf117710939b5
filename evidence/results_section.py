"""The results of each sweep: a figure, a table of its arms, a sentence for each comparison."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping

from evidence import figures, sweeps
from evidence.claims import CLAIMS
from evidence.data import EvidenceData
from evidence.rows import train_accuracy
from evidence.tables import MISSING, is_decided, search, tuned_rates, tunes
from evidence.wording import interval, points
from riesz_lab.errors import ConfigError
from riesz_lab.report.comparison_view import tuning_notes
from riesz_lab.report.figure import Figure
from riesz_lab.store import Store
from riesz_lab.sweeps import ArmResult, Sweep, SweepResult
from riesz_lab.sweeps.tuning import Choice


def results_sections(data: EvidenceData, drawn: Mapping[str, Figure]) -> Iterator[str]:
    """The lines of all sections."""
    explained = {claim.sweep().name: claim.explain for claim in CLAIMS if claim.explain}
    for name, table in data.tables.items():
        yield from _section(name, table, drawn)
        if name in explained and is_decided(table):
            yield from [
                "What the verdicts of the claim rest on:",
                "",
                *(f"- {line}." for line in explained[name](data.tables)),
                "",
            ]
        if name == sweeps.tuned_fashion().name and data.why_not_tuned != MISSING:
            yield from _rates(data.store)


def _section(name: str, table: SweepResult, drawn: Mapping[str, Figure]) -> list[str]:
    tuning = tunes(table.sweep)
    about = "the rates that are tried, each scored on held-out training images" if tuning else table.sweep.about
    lines = [f"### {name.removeprefix('evidence-')}", "", f"{about[0].upper()}{about[1:]}.", ""]
    if not any(row.scores for row in table.rows.values()):
        return [*lines, "No trial is complete yet.", ""]
    lines += figures.as_markdown(figures.PICTURES.get(name, ""), drawn)
    scored = "held-out" if tuning else "test"
    lines += [f"| arm | trials | train, % | {scored}, %, ± sd | difference | 95% interval |", "| --- " * 6 + "|"]
    lines += [_row(row) for row in table.rows.values()]
    lines.append("")
    sentences = []
    for (label, comparison), sentence in zip(table.comparisons.items(), table.sentences, strict=True):
        if sweeps.repeats_lambda_fashion(table.sweep, table.sweep[label]):
            sentences.append(f"- {label}: the trials of lambda-fashion at lam = 1; see there.")
        elif comparison.trials:
            sentences.append(f"- {sentence}")
    if sentences and not table.complete:
        lines += ["Trials are missing: what follows is a first look, not a verdict.", ""]
    return [*lines, *sentences, ""]


def _rates(store: Store) -> list[str]:
    """The rates that were tried, with the held-out scores that chose among them."""
    try:
        rates = tuned_rates(store)
    except ConfigError as error:
        return [f"- {error}.", ""]
    tried = sorted(next(iter(rates.values())).scores)
    lines = [f"| held-out accuracy, % | {' | '.join(f'rate {rate:g}' for rate in tried)} | best |"]
    lines.append("| --- " * (len(tried) + 2) + "|")
    for label, choice in rates.items():
        cells = ("diverged" if (score := choice.scores[rate]) is None else f"{100 * score:.2f}" for rate in tried)
        lines.append(f"| {label} | {' | '.join(cells)} | {choice.rate:g} |")
    return [*lines, "", *(f"- {note}" for note in [*tuning_notes(rates), _precision(rates, search(store))]), ""]


def _precision(rates: Mapping[str, Choice], tried: Sweep) -> str:
    """How well the held-out images tell rates apart."""
    images = tried.arms[0].config.hold_out
    best = max(score for choice in rates.values() for score in choice.scores.values() if score is not None)
    error = 100 * math.sqrt(best * (1 - best) / images)
    return (
        f"All are scored on the same {images:,} images, {tried.trials} trials each. The standard error of one accuracy"
        f" on so many is {error:.1f} points: rates that score alike are not told apart, and which of them is best is no"
        " finding. Intervals and verdicts at the chosen rates do not include the chance in that choice."
    )


def _row(row: ArmResult) -> str:
    scores = [100 * score for score in row.finite]
    diverged = f", {gone} diverged" if (gone := len(row.scores) - len(scores)) else ""
    mean = f"{statistics.fmean(scores):.2f}" if scores else "-"
    spread = f" ± {statistics.stdev(scores):.2f}" if len(scores) > 1 else ""
    difference = points(row.comparison.difference) if row.comparison and row.comparison.n else ""
    ends = interval(row.comparison) if row.comparison else ""
    train = "" if (seen := train_accuracy(row)) is None else f"{100 * seen:.2f}"
    trials = f"{len(row.scores)}/{row.wanted}{diverged}"
    return f"| {row.arm.label} | {trials} | {train} | {mean}{spread} | {difference} | {ends} |"
