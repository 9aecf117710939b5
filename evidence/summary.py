"""The evidence in five sentences, which open the page and the README."""

from __future__ import annotations

from evidence import controls, small_batches, sweeps
from evidence.data import EvidenceData
from evidence.rows import compared, metrics, strength
from evidence.tables import MISSING, is_decided, planned, select
from evidence.wording import count_verdicts, points
from riesz_lab.store import StoredTrial
from riesz_lab.sweeps import ArmResult, SweepResult
from riesz_lab.sweeps.paper import CHANCE

TWO_LAYER_SWEEPS = (sweeps.lambda_fashion, sweeps.lambda_mnist, sweeps.plain_sgd)
"""The sweeps of the two-layer CNN in which metrics meet SGD at the same rate."""

TWO_LAYERS = (
    "On a two-layer CNN like the paper's (Fashion-MNIST, MNIST, and Fashion-MNIST without momentum and weight decay),"
    " `ReweightedL2(lam)` and `SobolevTilde(lam=1, scale=lam)` with lam up to 20, against SGD at the same learning rate"
)

TUNED = "At lam = 1 on Fashion-MNIST, each method at the learning rate chosen for it on held-out images"

SMALL_BATCHES = "Whether small batches gain most on CIFAR-10 is undecided: its trials are not complete."


def summary(data: EvidenceData) -> list[str]:
    """Whether it helps; what the complete sweeps say; how much was run, and what was not."""
    by_name = data.tables
    at_one_rate = select(by_name, *TWO_LAYER_SWEEPS)
    controlled = [by_name[name] for make in TWO_LAYER_SWEEPS if (name := controls.name_of(make().name)) in by_name]
    tuned, regimes = by_name[sweeps.tuned_fashion().name], by_name[sweeps.regimes().name]
    of_regimes = by_name.get(controls.name_of(regimes.sweep.name))
    return [
        _headline(at_one_rate, tuned, regimes),
        _against_sgd(TWO_LAYERS, at_one_rate, MISSING) + _norm_kept(controlled) + ".",
        _against_sgd(TUNED, [tuned], data.why_not_tuned or MISSING) + ".",
        small_batches.in_short(regimes, of_regimes) if is_decided(regimes) else SMALL_BATCHES,
        f"{_amount(data)}; at lam = 1 the two metrics are nearly the same operator, so their results count as one"
        " finding, not two; the paper's ResNet-56 and VGG-16 on all of CIFAR-10, its segmentation and its image"
        " synthesis were not trained here.",
    ]


def _headline(at_one_rate: list[SweepResult], tuned: SweepResult, regimes: SweepResult) -> str:
    """Does it help? In the comparisons that the sentences below count."""
    rows = [row for table in (*at_one_rate, tuned, regimes) if is_decided(table) for row in _not_repeated(table)]
    if not rows:
        return "Whether a metric improves test accuracy over SGD is undecided: no sweep is complete."
    better = [row for row in rows if compared(row).verdict == "better"]
    shows = f"{len(better) or 'None'} of {len(rows)} comparisons with SGD {'show' if len(better) > 1 else 'shows'}"
    parts = [f"{shows} that a metric improves test accuracy"]
    at_lam_1 = [row for table in at_one_rate if is_decided(table) for row in metrics(table) if _lam(row) == 1]
    ends = [one.interval[1] for row in at_lam_1 if (one := compared(row)).interval is not None]
    if ends and not better:
        parts.append(f"at lam = 1 on the two-layer CNN, 95% intervals end at {points(max(ends))} points or below")
    if is_decided(regimes) and small_batches.underpowered(regimes):
        spread = f"our {regimes.sweep.trials} trials per arm vary too much to detect a gain of that size reliably"
        parts.append(f"{small_batches.WHERE}, {spread}")
    return f"{'; '.join(parts)}."


def _lam(row: ArmResult) -> float:
    return strength(row.arm.config)


def _not_repeated(table: SweepResult) -> list[ArmResult]:
    """The metrics of a table, without comparisons that repeat those of another."""
    return [row for row in metrics(table) if not sweeps.repeats_lambda_fashion(table.sweep, row.arm)]


def _against_sgd(setting: str, tables: list[SweepResult], why_not: str) -> str:
    """How many comparisons of the sweeps that are complete came out which way, and the range of their differences."""
    complete = [table for table in tables if is_decided(table)]
    if not complete:
        return f"{setting}, nothing is decided yet: {why_not}"
    rows = [row for table in complete for row in metrics(table)]
    new = [row for table in complete for row in _not_repeated(table)]
    if not new:
        return f"{setting}: all chose the rate above, so that trials and verdicts are those above"
    repeated = "; where both sides chose the rate above, the trials are those above" if len(new) < len(rows) else ""
    return f"{setting}: {_outcomes(new)}{repeated}"


def _norm_kept(tables: list[SweepResult]) -> str:
    """What became of the differences with the norm of the gradient kept, once all of these controls are complete."""
    if not tables or not all(map(is_decided, tables)):
        return ""
    kept = [row for table in tables for row in metrics(table) if row.arm.config.control == "norm"]
    text = (
        f"; the {len(kept)} that differ, trained again with the gradient rescaled to its plain norm: {_outcomes(kept)}"
    )
    if any(compared(row).verdict == "worse" for row in kept):
        text += "; what is still worse may be so by its direction or by shorter steps"
    return text


def _outcomes(rows: list[ArmResult]) -> str:
    """Their verdicts, with the lam of what is better or worse, and the range of their differences."""
    text = count_verdicts(rows)
    for verdict in ("better", "worse"):
        lams = sorted({_lam(row) for row in rows if compared(row).verdict == verdict})
        if lams and len({_lam(row) for row in rows}) > 1:
            text += f"; {verdict} only at lam = {' and '.join(f'{lam:g}' for lam in lams)}"
    found = [one.difference for row in rows if (one := compared(row)).n]
    return text + (f"; mean differences {points(min(found))} to {points(max(found))} points" if found else "")


def _amount(data: EvidenceData) -> str:
    ids, unknown = planned(data.store, data.tables)
    complete = [trial for trial in data.store.trials if trial.result is not None and trial.config.id in ids]
    scores = [trial.score() if trial.status == "finished" else None for trial in complete]
    failed = sum(score is None or score <= CHANCE for score in scores)
    hours = sum(map(_hours, data.store.trials))
    return (
        f"{len(complete)} of {len(ids) + unknown} planned trials are complete, after {hours:.1f} hours of training on"
        f" one core each; {failed or 'none'} of them diverged or collapsed"
    )


def _hours(trial: StoredTrial) -> float:
    rows = trial.timing()
    seconds = sum(row["steps"] * (row["step_ms"] or 0.0) / 1000 + (row.get("eval_seconds") or 0.0) for row in rows)
    return float(seconds) / 3600
