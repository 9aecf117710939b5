"""The words of an answer: does it help, what to do next, how it came about."""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING, Any

import riesz
from riesz_lab.comparison.arms import format_value, settings_of
from riesz_lab.comparison.display import describe_look
from riesz_lab.comparison.margin import Margin
from riesz_lab.comparison.planning import fixed_pairs
from riesz_lab.comparison.rounds import judge_table
from riesz_lab.comparison.trials import seconds_of, span
from riesz_lab.config import OWN, Config
from riesz_lab.statistics import Comparison
from riesz_lab.statistics.sequential import Sequential, decidable, half_width, pairs_to_decide
from riesz_lab.statistics.verdict import ALPHA, LEAST_PAIRS, describe_p, format_signed, format_size
from riesz_lab.training.progress import clock
from riesz_lab.utils.amounts import count

if TYPE_CHECKING:
    from riesz_lab.comparison.answer import Answer
    from riesz_lab.comparison.tuning import Tuned

FEW_PAIRS = 10
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
    pairs = _to_decide(judged)
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
        if arm.until_sure is None or arm.hours is None:
            lines.append(f"  {label}: more than 2,000 pairs; a wider margin needs fewer")
            continue
        fixed = "" if arm.fixed is None else f"; {arm.fixed} if their number is fixed in advance"
        lines.append(f"  {label}: {arm.until_sure} pairs with --until-sure, {_duration(arm.hours)} here{fixed}")
    return [
        *lines,
        "Three pairs determine the spread poorly: the true value may be half to six times the estimate (95%), and the"
        " pairs needed scale with its square.",
    ]


def _duration(hours: float) -> str:
    if hours >= 1:
        return f"about {hours:.1f} hours"
    return "about a minute" if (minutes := round(60 * hours)) < 2 else f"about {minutes} minutes"


def warnings(answer: Answer) -> list[str]:
    """A margin that excludes nothing, outlying and diverged trials, and arms at the edge of a grid."""
    lines = []
    scores = [score for row in answer.rows.values() for score in row.scores.values() if score is not None]
    if scores and min(scores) >= 0 and max(scores) < answer.sweep.margin:
        lines.append(
            f"The margin, {answer.sweep.margin:g}, is larger than every score ({min(scores):.3g} to {max(scores):.3g}):"
            " no method could exceed it. Give a smaller one with --margin."
        )

    def shown(value: float) -> str:
        return f"{100 * value:.2f}%" if answer.percent else f"{value:.4g}"

    for each in answer.outliers:
        lines.append(
            f"Outlier: {each.label}, seed {each.seed} scored {shown(each.score)}, the other seeds "
            f"{shown(each.low)} to {shown(each.high)}. It is included."
        )
    for label, judged in answer.without_outliers.items():
        if judged.n < LEAST_PAIRS:
            continue
        without = judged.sentence if isinstance(judged, Comparison) else describe_look(judged, answer.percent)
        lines.append(f"  Without such trials, {label}: {without}.")
    for label, row in answer.rows.items():
        if gone := [trial.config.seed for trial in row.trials.values() if trial.score() is None]:
            lines.append(f"Diverged: {label}, seed {', '.join(map(str, sorted(gone)))}.")
    if answer.tuned is not None and answer.tuned.at_the_edge:
        lines.append(
            f"The best value of {', '.join(answer.tuned.at_the_edge)} lies at the edge of the grid, which was extended "
            f"by {count(answer.tuned.extended, 'value')}: a better one may lie beyond."
        )
    return lines


def next_steps(answer: Answer) -> list[str]:
    """A line of code that attaches what won, or the command for what is open."""
    gains = _gains(answer)
    steps = []
    if answer.plan is not None:
        pairs = [arm.until_sure for arm in answer.plan.arms.values()]
        most = max((each for each in pairs if each is not None), default=None)
        return [] if most is None else ["Next: " + _command(answer, until_sure=True, budget=most)]
    if gains:
        best = max(gains, key=lambda label: gains[label])
        steps.append(f"Next: {attach_line(answer.rows[best].arm.config)}{_with(answer.tuned, best)}")
    failed = [label for label, each in _judged(answer).items() if any(each.diverged)]
    if answer.takes_rate:
        looks = {} if answer.verdicts is None else {"until_sure": True, "budget": answer.verdicts.budget}
        steps.append(
            ("Then" if steps else "Next")
            + ": a metric also changes the length of steps; compare at each arm's best rate: "
            + _command(answer, tune=["lr"], **looks)
        )
    elif failed and not steps:
        stable = "a smaller learning rate, or riesz.schedule.warmup(steps), may prevent it"
        steps.append(f"Next: find out why trials diverged; {stable}.")
    elif open_ := _open(answer):
        more = {label: pairs for label, pairs in open_.items() if pairs is not None}
        # A mean and a spread that single trials make say nothing about further pairs.
        steps.append(f"Next: {_more_pairs(answer, more) if more and not answer.outliers else _out_of_reach(answer)}")
    return steps or ["Next: nothing to change; keep the plain optimizer."]


def _gains(answer: Answer) -> dict[str, float]:
    """The arms that help by as much as matters; channels in a random order are a control, not advice."""
    if answer.verdicts is not None:
        judged = answer.verdicts.arms.items()
        gains = {label: abs(each.difference) for label, each in judged if each.conclusion == "better"}
    else:
        compared = answer.comparisons.items()
        helps = {label: each for label, each in compared if each.verdict == "better" and not each.equivalent}
        gains = {label: abs(each.difference) for label, each in helps.items()}
    return {label: gain for label, gain in gains.items() if answer.rows[label].arm.config.control != "permuted"}


def _open(answer: Answer) -> dict[str, int | None]:
    """The arms without a conclusion, and how many more pairs would bring one; None if no reasonable number would."""
    return {
        label: None if (pairs := _to_decide(each)) is None else pairs - each.n
        for label, each in _judged(answer).items()
        if not any(each.diverged)  # more pairs do not undo that
    }


def _to_decide(judged: Sequential) -> int | None:
    """Pairs in all that would decide it, by the mean and the spread of those so far."""
    if judged.n < LEAST_PAIRS or not judged.spread > 0:  # unknown: a first estimate takes about this many
        return FEW_PAIRS if judged.n < FEW_PAIRS else None
    effect, margin = (float(f"{each / judged.spread:.3g}") for each in (judged.difference, judged.margin))
    return pairs_to_decide(judged.n, effect, margin, judged.alpha)


def _more_pairs(answer: Answer, more: dict[str, int]) -> str:
    """The command that adds pairs to those that were run, with what they cost."""
    run = {label: len(answer.rows[label].trials) for label in more}
    budget = max(run[label] + pairs for label, pairs in more.items())
    arms = set(more)
    while baselines := {baseline for label in arms if (baseline := answer.rows[label].arm.baseline)} - arms:
        arms |= baselines
    trained = [answer.rows[label].trials.values() for label in arms]
    pair = sum(fmean(sum(map(seconds_of, trial.timing())) for trial in trials) for trials in trained if trials)
    added = max(more.values())
    cost = f"{count(added, 'more pair')}, {_duration(added * pair / 3600)} of training"
    return f"{cost}: {_command(answer, until_sure=True, budget=budget)}"


def _judged(answer: Answer) -> dict[str, Sequential]:
    """The arms without a conclusion, as looks after every pair would judge them."""
    if answer.verdicts is not None:
        return {k: each for k, each in answer.verdicts.arms.items() if each.conclusion == "undecided"}
    of_table = judge_table(answer, Margin(answer.sweep.margin))
    return {k: each for k, each in of_table.items() if answer.comparisons[k].verdict in ("no evidence", "no claim")}


def _out_of_reach(answer: Answer) -> str:
    """What to do where no number of pairs is enough: single trials that stand apart may make the spread that large."""
    apart = " and ".join(dict.fromkeys(outlier.label for outlier in answer.outliers))
    if not apart:
        return f"stop here, or widen the margin: {_wider(answer)}"
    seeds = ", a rate chosen with more seeds (--tune-seeds 10)" if answer.tuned is not None else ""
    return (
        f"find out why single trials of {apart} stand apart; a smaller learning rate{seeds} or "
        "riesz.schedule.warmup(steps) may prevent it."
    )


def _wider(answer: Answer) -> str:
    """A margin that the pairs so far decide; where they are few, their interval is wide, and 30 are assumed."""
    sizes, few = [answer.sweep.margin], False
    for each in _judged(answer).values():
        if each.n < LEAST_PAIRS or not each.spread > 0:
            continue
        if each.n >= FEW_PAIRS:
            sizes.append(max(map(abs, each.interval or (0.0,))))
        else:
            few, power = True, 0.84 * each.spread / 30**0.5  # 80%
            sizes.append(abs(each.difference) + float(half_width(each.spread, 30, each.alpha)) + power)
    size = max(sizes) * (100 if answer.percent else 1)
    digit = 10.0 ** (math.floor(math.log10(size)) - 1)
    margin = f"--margin {digit * math.ceil(size / digit + 1e-9):.2g}{'points' if answer.percent else ''}"
    return f"about 30 pairs would decide {margin}" if few else f"these pairs decide {margin}"


def _command(answer: Answer, **options: Any) -> str:
    """The command that was given, with options added; or the call, in Python."""
    if not answer.command:
        call = ", ".join(f"{name}={value!r}" for name, value in options.items())
        return f"riesz_lab.compare({answer.function}, {call}, ...)"
    words = [answer.command]
    for name, value in options.items():
        words.append(f"--{name.replace('_', '-')}")
        words += [] if value is True else value if isinstance(value, list) else [str(value)]
    return " ".join(words)


def attach_line(config: Config) -> str:
    """The line of code that directs a user's optimizer as an arm does.

    Example:
        >>> attach_line(Config(metric="sobolev-tilde(lam=0.5)"))
        'riesz.attach(optimizer, model, metric=riesz.SobolevTilde(lam=0.5))'
    """
    usual = {"direction": "output", "layers": "conv", "control": "none"}
    given = {name: getattr(config, name) for name in usual if getattr(config, name) != usual[name]}
    options = "".join(f", {name}={value!r}" for name, value in given.items())
    return f"riesz.attach(optimizer, model, metric=riesz.{riesz.metric(config.metric)!r}{options})"


def _with(tuned: Tuned | None, label: str) -> str:
    if tuned is None:
        return ""
    return ", with " + ", ".join(f"{name}={format_value(value)}" for name, value in tuned.best[label].items())


def notes(answer: Answer) -> list[str]:
    """How the settings were chosen, what it cost, what was stored before."""
    lines = [_rates(answer)]
    if answer.verdicts is not None:
        arms = len(answer.verdicts.arms)
        lines.append(
            f"Seeds were added until a conclusion held, {answer.verdicts.budget} at most; intervals allow for a look "
            f"after every pair{_shared(arms)}."
        )
    if answer.stored:
        stored = count(len(answer.stored), "stored trial")
        lines.append(f"{stored} used again ({span(answer.stored)}); --fresh trains anew.")
    lines.append(f"All trials together: {clock(answer.seconds)}.")
    return lines


def _shared(arms: int) -> str:
    return "" if arms == 1 else " and for both arms" if arms == 2 else f" and for all {arms} arms"


def _rates(answer: Answer) -> str:
    if (tuned := answer.tuned) is not None:
        best = "; ".join(
            f"{label} " + ", ".join(f"{name}={format_value(value)}" for name, value in values.items())
            for label, values in tuned.best.items()
        )
        values = ", ".join(f"{name} {', '.join(map(format_value, each))}" for name, each in tuned.grid.items())
        gone = sum(score is None for by_point in tuned.by_seed.values() for each in by_point.values() for score in each)
        diverged = f", of which {gone} diverged" if gone else ""
        seeds, trials = count(tuned.seeds, "seed"), count(tuned.trials, "trial")
        return (
            f"Tuned on held-out scores, the same for every arm: {values}; {seeds} each. Best: {best}. Cost of tuning: "
            f"{trials}{diverged}, {clock(tuned.seconds)}. Intervals are about these settings; they do not include the "
            "chance by which others might have been chosen."
        )
    config = next(iter(answer.rows.values())).arm.config
    if (given := settings_of(config)) and "lr" in given and config.optimizer == OWN:
        return "Settings are the same in all arms; a metric changes the length of steps too: tune with --tune lr."
    if config.optimizer != OWN:
        return f"The learning rate is {config.lr:g} in all arms; a metric changes the length of steps too."
    return "Learning rates are your function's, the same in all arms; a metric changes the length of steps too."
