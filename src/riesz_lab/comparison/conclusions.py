"""The sentence on every arm of an answer: does it help, by how much, how sure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from riesz_lab.comparison.margin import Margin
from riesz_lab.comparison.planning import duration, fixed_pairs, pairs_to_conclude
from riesz_lab.comparison.rounds import judge_table
from riesz_lab.statistics import Comparison
from riesz_lab.statistics.sequential import Sequential, decidable
from riesz_lab.statistics.verdict import ALPHA, LEAST_PAIRS, describe_p, format_signed, format_size
from riesz_lab.utils.amounts import count

if TYPE_CHECKING:
    from riesz_lab.comparison.answer import Answer

WAS = {"better": "helps", "worse": "hurts"}


def answers(answer: Answer) -> list[str]:
    """One sentence per arm."""
    if answer.plan is not None:
        return _plan(answer)
    if answer.verdicts is not None:
        return [_sequential(answer, label, judged) for label, judged in answer.verdicts.arms.items()]
    return [_fixed(answer, label, comparison) for label, comparison in answer.comparisons.items()]


def _fixed(answer: Answer, label: str, comparison: Comparison) -> str:
    name, verdict = _name(answer, label), comparison.verdict
    if verdict == "identical":
        return f"{name} changes nothing: identical scores in all {comparison.n} pairs{_without_steps(answer, label)}."
    if verdict == "no claim" or comparison.interval is None:
        return f"{name}: {comparison.sentence}."
    size = _size(answer, comparison.difference, comparison.interval)
    if verdict == "no evidence":
        if (comparison.p or 0.0) < ALPHA and comparison.p_holm is not None:  # the interval excludes zero
            corrected = f"the correction for {comparison.family} comparisons ({describe_p(comparison.p_holm)})"
            size += f", which does not survive {corrected}"
        pairs = fixed_pairs(comparison.margin / _spreads(answer)[label], 0.05 / max(1, comparison.family))
        # As many or fewer would only say again that the margin is within reach of such a test.
        needed = "" if pairs is not None and pairs <= comparison.n else f"; {_needed(answer, pairs, comparison.margin)}"
        return f"Undecided on {name} after {comparison.n} pairs: {size}{needed}."
    if verdict in WAS and comparison.equivalent:
        less = f"but by less than {format_size(comparison.margin, answer.percent)}"
        return f"{name} {WAS[verdict]}, {less}: {size}{_where(answer)}, {comparison.n} pairs."
    if verdict == "no difference" and max(map(abs, comparison.interval)) >= comparison.margin:
        p = comparison.p_margin if comparison.p_margin_holm is None else comparison.p_margin_holm
        size += f", {describe_p(p or 0.0)} of two one-sided tests"
    return _claim(answer, name, verdict, size, comparison.n, comparison.margin)


def _sequential(answer: Answer, label: str, judged: Sequential) -> str:
    name = _name(answer, label)
    if judged.identical and judged.conclusion == "no difference":
        margin = format_size(judged.margin, answer.percent)
        all_ = count(judged.n, "pair") + _without_steps(answer, label)
        return f"{name} makes no difference larger than {margin}: identical scores in all {all_}."
    if judged.conclusion == "undecided" and any(judged.diverged):
        return _left_out(answer, label, judged)
    if judged.interval is None:
        few = f"at least {LEAST_PAIRS} are needed"
        why = few if judged.n < LEAST_PAIRS else "all differences are equal, so no interval can be computed"
        return f"Undecided on {name} after {count(judged.n, 'pair')}: {why}."
    size = _size(answer, judged.difference, judged.interval)
    if judged.conclusion != "undecided":
        return _claim(answer, name, judged.conclusion, size, judged.n, judged.margin)
    assert answer.verdicts is not None
    stopped = f"no conclusion is in reach by {answer.verdicts.budget} pairs, so it was stopped"
    why = f"; {stopped}" if label in answer.verdicts.futile else ""
    pairs = pairs_to_conclude(judged)
    needed = f"about {pairs} pairs in all would decide it"
    if pairs is None:
        needed = f"more than {decidable(judged.n)} pairs would be needed to decide it"
    return (
        f"Undecided on {name} after {count(judged.n, 'pair')}: {size}{why}; with such a mean and spread, {needed} "
        "with 80% power."
    )


def _without_steps(answer: Answer, label: str) -> str:
    """Why a directed optimizer changed nothing, if it made no step in any trial; trials may not say."""
    seen = [row.get("stepped") for trial in answer.rows[label].trials.values() for row in trial.timing()]
    if not seen or any(stepped is not False for stepped in seen):
        return ""
    return "; the optimizer that was attached made no step: attach the one that steps"


def _left_out(answer: Answer, label: str, judged: Sequential) -> str:
    """Pairs in which one side diverged have no difference; what the others show would flatter that side."""
    assert answer.verdicts is not None
    baseline, method = (each or "none" for each in judged.diverged)
    pairs = count(answer.verdicts.pairs[label], "pair")
    who = f"it alone diverged in {method} of {pairs}, {answer.rows[label].arm.baseline} alone in {baseline}"
    stopped = "; it was stopped" if label in answer.verdicts.futile else ""
    if not judged.n:
        return f"No claim on {_name(answer, label)}: {who}{stopped}."
    size = _size(answer, judged.difference, judged.interval or (-math.inf, math.inf))
    return f"No claim on {_name(answer, label)}: {who}; the {judged.n} that are left have {size}{stopped}."


def _claim(answer: Answer, name: str, verdict: str, size: str, pairs: int, margin: float) -> str:
    where = _where(answer)
    if verdict in WAS:
        return f"{name} {WAS[verdict]}: {size}{where}, {pairs} pairs."
    return (
        f"{name} makes no difference larger than {format_size(margin, answer.percent)}: {size}{where}, {pairs} pairs."
    )


def _needed(answer: Answer, pairs: int | None, margin: float) -> str:
    size = format_size(margin, answer.percent)
    if pairs is None:
        return f"more than 2,000 pairs would be needed to detect {size} with 80% power"
    return f"about {pairs} pairs would detect {size} with 80% power"


def _size(answer: Answer, difference: float, interval: tuple[float, float]) -> str:
    unit = " points" if answer.percent else ""
    if not math.isfinite(interval[0]):
        return f"{format_signed(difference, answer.percent)}{unit}, too few pairs for an interval"
    low, high = (format_signed(end, answer.percent) for end in interval)
    return f"{format_signed(difference, answer.percent)}{unit} (95%: {low} to {high})"


def _name(answer: Answer, label: str) -> str:
    baseline = answer.rows[label].arm.baseline
    plain = answer.rows[baseline or label].arm.config.metric == "identity"
    return label if plain else f"{label}, against {baseline},"


def _where(answer: Answer) -> str:
    if answer.tuned is not None:
        return f" at each arm's best {' and '.join(answer.tuned.grid)}"
    return ""


def _spreads(answer: Answer) -> dict[str, float]:
    judged = judge_table(answer, Margin(answer.sweep.margin))
    return {label: each.spread for label, each in judged.items()}


def _plan(answer: Answer) -> list[str]:
    assert answer.plan is not None
    size = format_size(answer.plan.margin, answer.percent)
    lines = [f"To notice a difference of {size} with 80% power:"]
    for label, arm in answer.plan.arms.items():
        if arm is None:
            lines.append(f"  {label}: unknown, since trials diverged and fewer than two pairs have a difference")
            continue
        if arm.until_sure is None or arm.hours is None:
            lines.append(f"  {label}: more than 2,000 pairs; a wider margin needs fewer")
            continue
        fixed = "" if arm.fixed is None else f"; {arm.fixed} if their number is fixed in advance"
        lines.append(f"  {label}: {arm.until_sure} pairs with --until-sure, {duration(arm.hours)} here{fixed}")
    if answer.plan.pairs > 1:
        low, high = answer.plan.spread_factors
        lines.append(
            f"{answer.plan.pairs} pairs estimate the spread: the true one may be {low:.1f} to {high:.1f} times as large"
            " (95%), and the pairs needed scale with its square."
        )
    return lines
