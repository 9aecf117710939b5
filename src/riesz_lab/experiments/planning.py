"""How many pairs a conclusion takes, by those so far, and what they would take here."""

from dataclasses import dataclass

from scipy import stats

from riesz_lab.experiments.result import Result
from riesz_lab.experiments.stopping import look_at_pairs
from riesz_lab.statistics.sequential import Sequential, pairs_needed, pairs_to_decide
from riesz_lab.statistics.verdict import LEAST_PAIRS, format_margin

PILOT = 3
"""Pairs of a pilot."""
FEW_PAIRS = 10
"""For a first estimate of mean and spread."""

POWER = 0.8
MOST = 2000


@dataclass(frozen=True)
class ArmPlan:
    """Pairs that show a difference of the margin with 80% power: with looks after every pair, and without any."""

    until_sure: int | None
    fixed: int | None
    hours: float | None


@dataclass(frozen=True)
class Plan:
    """What a comparison would take, by arm."""

    margin: float
    arms: dict[str, ArmPlan | None]  # None where the spread is unknown
    pairs: int  # that the spread was estimated from, at least

    @property
    def spread_factors(self) -> tuple[float, float]:
        """The true spread lies between these multiples of its estimate, with 95% confidence, if it is normal."""
        free = self.pairs - 1
        low, high = ((free / stats.chi2.ppf(q, free)) ** 0.5 for q in (0.975, 0.025))
        return float(low), float(high)


def make_plan(result: Result, workers: int = 1) -> Plan:
    """From the spread of a pilot's differences.

    Args:
        result: the pilot.
        workers: trials at once.

    Returns:
        The plan; hours are those of the arm's own trials and of its baseline's, beyond the pilot.
    """
    seconds = [trial.seconds for trial in result.trials]
    each_hours = sum(seconds) / max(1, len(seconds)) / 3600
    looks = {label: as_look(result, label) for label in result.compared}
    arms: dict[str, ArmPlan | None] = {}
    for label, pilot in looks.items():
        if not pilot.spread > 0:
            arms[label] = None
            continue
        effect = pilot.margin / pilot.spread
        sure = PILOT + 1 if effect > 20 else pairs_needed(float(f"{effect:.3g}"), pilot.alpha, POWER)
        # Both trials of a pair may run at once; the next pair waits for them.
        hours = None if sure is None else (2 if workers == 1 else 1) * max(0, sure - pilot.n) * each_hours
        arms[label] = ArmPlan(sure, fixed_pairs(effect, pilot.alpha), hours)
    return Plan(next(iter(looks.values())).margin, arms, min(pilot.n for pilot in looks.values()))


def plan_lines(result: Result, plan: Plan) -> list[str]:
    size = format_margin(plan.margin, result.score.unit)
    lines = [f"To notice a difference of {size} with 80% power:"]
    for label, arm in plan.arms.items():
        if arm is None:
            diverged = "trials diverged and fewer than two pairs have a difference"
            equal = "all pairs have the same difference, which tells nothing of its spread"
            lines.append(f"  {label}: unknown, since {equal if as_look(result, label).n > 1 else diverged}")
            continue
        if arm.until_sure is None or arm.hours is None:
            lines.append(f"  {label}: more than 2,000 pairs; a wider margin needs fewer")
            continue
        fixed = "" if arm.fixed is None else f"; {arm.fixed} if their number is fixed in advance"
        lines.append(f"  {label}: {arm.until_sure} pairs with --until-sure, {duration(arm.hours)} here{fixed}")
    if plan.pairs > 1:
        low, high = plan.spread_factors
        lines.append(
            f"{plan.pairs} pairs estimate the spread: the true one may be {low:.1f} to {high:.1f} times as large"
            " (95%), and the pairs needed scale with its square."
        )
    return lines


def as_look(result: Result, label: str) -> Sequential:
    """An arm as looks after every pair would judge it."""
    arm = result.arms[label]
    if arm.look is not None:
        return arm.look
    assert arm.judged is not None
    baseline = result.arms[arm.arm.baseline or label].scores
    return look_at_pairs(baseline, arm.scores, arm.judged.margin, result.score, arms=result.experiment.comparisons)


def fixed_pairs(effect: float, alpha: float) -> int | None:
    """Pairs for a t test at this level to notice a difference of `effect` standard deviations with 80% power."""
    for n in range(PILOT, MOST):
        shift, critical = effect * n**0.5, stats.t.ppf(1 - alpha / 2, n - 1)
        if shift > critical + 6 or stats.nct.sf(critical, n - 1, shift) >= POWER:
            return n
    return None


def pairs_to_conclude(judged: Sequential) -> int | None:
    """Pairs in all that would decide it, by the mean and the spread of those so far."""
    if judged.n < LEAST_PAIRS or not judged.spread > 0:  # unknown so far
        return FEW_PAIRS if judged.n < FEW_PAIRS else None
    effect, margin = (float(f"{each / judged.spread:.3g}") for each in (judged.difference, judged.margin))
    return pairs_to_decide(judged.n, effect, margin, judged.alpha)


def duration(hours: float) -> str:
    if hours >= 1:
        return f"about {hours:.1f} hours"
    return "about a minute" if (minutes := round(60 * hours)) < 2 else f"about {minutes} minutes"
