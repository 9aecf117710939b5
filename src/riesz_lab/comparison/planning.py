"""How many pairs a conclusion takes, by those so far, and what they would take here."""

from dataclasses import dataclass

from scipy import stats

from riesz_lab.statistics.sequential import Sequential, pairs_needed, pairs_to_decide
from riesz_lab.statistics.verdict import LEAST_PAIRS

PILOT = 3
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
    arms: dict[str, ArmPlan | None]  # None where the spread is unknown: too few pairs have a difference
    pairs: int  # that the spread was estimated from, at least

    @property
    def spread_factors(self) -> tuple[float, float]:
        """The true spread lies between these multiples of its estimate, with 95% confidence, if it is normal."""
        free = self.pairs - 1
        low, high = ((free / stats.chi2.ppf(q, free)) ** 0.5 for q in (0.975, 0.025))
        return float(low), float(high)


def make_plan(judged: dict[str, Sequential], seconds: float, workers: int = 1) -> Plan:
    """From the spread of a pilot's differences.

    Args:
        judged: the pilot, by arm.
        seconds: of one trial.
        workers: trials at once.

    Returns:
        The plan; hours are those of the arm's own trials and of its baseline's, beyond the pilot.
    """
    arms: dict[str, ArmPlan | None] = {}
    for label, pilot in judged.items():
        if pilot.n < 2:
            arms[label] = None
            continue
        effect = pilot.margin / pilot.spread if pilot.spread > 0 else float("inf")
        sure = PILOT + 1 if effect > 20 else pairs_needed(float(f"{effect:.3g}"), pilot.alpha, POWER)
        # Both trials of a pair may run at once; the next pair waits for them.
        hours = None if sure is None else (2 if workers == 1 else 1) * max(0, sure - pilot.n) * seconds / 3600
        arms[label] = ArmPlan(sure, fixed_pairs(effect, pilot.alpha), hours)
    return Plan(next(iter(judged.values())).margin, arms, min(pilot.n for pilot in judged.values()))


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
