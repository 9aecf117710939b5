"""The evidence in five sentences, which open the page and the README."""

from __future__ import annotations

from evidence import controls, small_batches, sweeps
from evidence.data import EvidenceData
from evidence.rows import compared, metrics
from evidence.tables import MISSING, is_decided, planned, select
from evidence.wording import count_verdicts, points
from riesz_lab.store import StoredTrial
from riesz_lab.sweeps import ArmResult, SweepResult
from riesz_lab.sweeps.paper import CHANCE

TWO_LAYERS = (
    "ReweightedL2 and SobolevTilde at lam 1, 5 and 20 on a two-layer CNN like the paper's, against SGD at the same rate"
)


def summary(data: EvidenceData) -> list[str]:
    """What the complete sweeps say; how much was run; and what was not."""
    by_name = data.tables
    makers = (sweeps.lambda_fashion, sweeps.lambda_mnist, sweeps.plain_sgd)
    at_one_rate = select(by_name, *makers)
    controlled = [by_name[name] for make in makers if (name := controls.name_of(make().name)) in by_name]
    tuned, regimes = by_name[sweeps.tuned_fashion().name], by_name[sweeps.regimes().name]
    small = "Whether small batches gain most on CIFAR-10 is undecided: its trials are not complete."
    return [
        _against_sgd(TWO_LAYERS, at_one_rate, MISSING) + _norm_kept(controlled) + ".",
        _against_sgd(
            "At lam 1 on Fashion-MNIST, each at the rate chosen on held-out images",
            [tuned],
            data.why_not_tuned or MISSING,
        )
        + ".",
        small_batches.in_short(regimes) if is_decided(regimes) else small,
        _amount(data),
        "At these settings the two metrics are nearly the same operator, so that their results are one finding rather"
        " than two; the paper's ResNet-56 and VGG-16 on all of CIFAR-10, its segmentation and its image synthesis were"
        " not trained here.",
    ]


def _against_sgd(setting: str, tables: list[SweepResult], why_not: str) -> str:
    """How many comparisons of the sweeps that are complete came out which way, and the range of their differences."""
    rows = [(table.sweep, row) for table in tables if is_decided(table) for row in metrics(table)]
    if not rows:
        return f"{setting}, nothing is decided yet: {why_not}"
    new = [row for sweep, row in rows if not sweeps.repeats_lambda_fashion(sweep, row.arm)]
    if not new:
        return f"{setting}: all chose the rate above, so that trials and verdicts are those above"
    repeated = "" if len(new) == len(rows) else "; where both sides chose the rate above, the trials are those above"
    return f"{setting}: {_outcomes(new)}{repeated}"


def _norm_kept(tables: list[SweepResult]) -> str:
    """What became of the differences with the norm of the gradient kept, once all of these controls are complete."""
    if not tables or not all(map(is_decided, tables)):
        return ""
    kept = [row for table in tables for row in metrics(table) if row.arm.config.control == "norm"]
    return f"; what differs, with the norm of the gradient kept: {_outcomes(kept)}"


def _outcomes(rows: list[ArmResult]) -> str:
    found = [one.difference for row in rows if (one := compared(row)).n]
    sizes = f" (mean differences {points(min(found))} to {points(max(found))} points)" if found else ""
    return count_verdicts(rows) + sizes


def _amount(data: EvidenceData) -> str:
    ids, unknown = planned(data.store, data.tables)
    complete = [trial for trial in data.store.trials if trial.result is not None and trial.config.id in ids]
    scores = [trial.score() if trial.status == "finished" else None for trial in complete]
    failed = sum(score is None or score <= CHANCE for score in scores)
    hours = sum(map(_hours, data.store.trials))
    return (
        f"{len(complete)} of {len(ids) + unknown} planned trials are complete, after {hours:.1f} hours of training;"
        f" {failed} of them diverged or collapsed."
    )


def _hours(trial: StoredTrial) -> float:
    rows = trial.timing()
    seconds = sum(row["steps"] * (row["step_ms"] or 0.0) / 1000 + (row.get("eval_seconds") or 0.0) for row in rows)
    return float(seconds) / 3600
