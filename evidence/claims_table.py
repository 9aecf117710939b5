"""The table of claims: what the paper says, what was run here, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator

from evidence import controls, regularity, sweeps
from evidence.claims import CLAIMS, REGULARITY, Claim
from evidence.data import EvidenceData
from evidence.tables import MISSING, at_one_rate, is_decided, tunes
from riesz_lab.sweeps import SweepResult

KEPT = (
    "The gradient of each layer is rescaled to the norm of the plain one, before momentum and weight decay. Nearly all"
    " components but the mean over channels are then smaller than in SGD, so lower accuracy may come from shorter steps"
    " along those. SobolevTilde is also run with the channels in random order, and compared with the true one"
)

BY_CHANCE = (
    ", as a check: in a network without skip connections the two"
    " [differ by chance alone](theory.md#facts-worth-knowing-before-choosing-lam)"
)


def claims_table(data: EvidenceData) -> list[str]:
    """A row for each claim, for the controls of each sweep in which a metric differs, and for regularity."""
    return [
        "| claim of the paper, and *what was run here* | trials | verdict |",
        "| --- | --- | --- |",
        *(_claim(claim, data) for claim in CLAIMS),
        *_controls(data.tables),
        _regularity(data),
    ]


def _count(table: SweepResult, beside: SweepResult | None = None) -> tuple[int, int]:
    """Trials that are complete and wanted; not those of arms that another table has too."""
    rows = [row for label, row in table.rows.items() if beside is None or label not in beside.rows]
    return sum(len(row.scores) for row in rows), sum(row.wanted for row in rows)


def _claim(claim: Claim, data: EvidenceData) -> str:
    table = data.tables[claim.sweep().name]
    done, wanted = _count(table)
    tuning = " that tune" if tunes(table.sweep) else ""
    if is_decided(table):
        verdict = _lines(claim.conclude(data.tables))
    else:
        why = data.why_not_tuned if claim.sweep is sweeps.tuned_fashion else ""
        verdict = f"not decided: {why or MISSING}"
    return f"| {claim.claim} *{claim.tested}* | {done} of {wanted}{tuning} | {verdict} |"


def _lines(conclusions: list[str]) -> str:
    """One below the other, with what stands before the colon in bold."""
    parts = (line.partition(": ") for line in conclusions)
    return "<br>".join(f"**{head}**{colon}{rest}" if rest else head for head, colon, rest in parts)


def _controls(by_name: dict[str, SweepResult]) -> Iterator[str]:
    """A row for the controls of each sweep in which a metric differs."""
    for name, table in by_name.items():
        controlled = by_name.get(controls.name_of(name))
        if controlled is None:
            continue
        done, wanted = _count(controlled, table)
        verdict = f"not decided: {MISSING}"
        if is_decided(controlled):
            verdict = _lines(controls.conclude(table, controlled))
        where = name.removeprefix("evidence-")
        asked = f"Not in the paper: where [{where}](#{where}) differs, is that still so with the norm kept?"
        by_chance = BY_CHANCE if table.sweep.arms[0].config.model == "cnn" else ""
        yield f"| {asked} *{KEPT}{by_chance}.* | {done} of {wanted} | {verdict} |"


def _regularity(data: EvidenceData) -> str:
    run = at_one_rate(data.tables)
    measured = data.measured
    described = [regularity.describe_order(measured), regularity.along_input(measured)]
    seen = _lines([*regularity.verdicts(data.correlations), *described])
    done, wanted = map(sum, zip(*map(_count, run), strict=True))
    look = "" if all(map(is_decided, run)) else f"not decided: {MISSING}. A first look:<br>"
    tested = f"The trained weights of {len(run)} sweeps above, against those of SGD with the same seed."
    return f"| {REGULARITY} *{tested}* | {done} of {wanted} | {look}{seen} |"
