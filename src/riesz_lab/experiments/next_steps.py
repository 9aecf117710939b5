"""What to do after an answer: the line that attaches what is better, or the command for what is undecided."""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING, Any

import riesz
from riesz_lab.config import Config
from riesz_lab.experiments.arm import format_values
from riesz_lab.experiments.planning import FEW_PAIRS, as_look, duration, pairs_to_conclude
from riesz_lab.statistics import Comparison
from riesz_lab.statistics.sequential import Sequential, half_width
from riesz_lab.statistics.verdict import LEAST_PAIRS, Verdict
from riesz_lab.utils.amounts import count

if TYPE_CHECKING:
    from riesz_lab.experiments.answer import Answer


def next_steps(answer: Answer) -> list[str]:
    """A line of code that attaches what won, or the command for what is open."""
    gains = _gains(answer)
    steps = []
    if answer.plan is not None:
        pairs = [arm.until_sure for arm in answer.plan.arms.values() if arm is not None]
        most = max((each for each in pairs if each is not None), default=None)
        return [] if most is None else ["Next: " + _command(answer, until_sure=True, budget=most)]
    if gains:
        best = max(gains, key=lambda label: gains[label])
        settings = answer.arms[best].chosen
        steps.append(
            f"Next: {attach_line(answer.arms[best].arm.config)}{', with ' if settings else ''}{format_values(settings)}"
        )
    failed = [label for label, each in _undecided(answer).items() if any(each.diverged)]
    if answer.takes_rate:
        most = answer.experiment.stopping.most
        looks = {} if most is None else {"until_sure": True, "budget": most}
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
    elif not steps and any(each.degenerate for each in _undecided(answer).values()):
        steps.append(
            "Next: find out why differences are equal: the change does nothing, or the score is coarse; a finer one, "
            "such as a loss, would tell."
        )
    return steps or ["Next: nothing to change; keep the plain optimizer."]


def _gains(answer: Answer) -> dict[str, float]:
    """The arms that are better by as much as matters; channels in a random order are a control, not advice."""
    return {
        label: abs(arm.judged.difference)
        for label, arm in answer.compared.items()
        if arm.verdict == Verdict.BETTER
        and arm.judged is not None
        and not (isinstance(arm.judged, Comparison) and arm.judged.equivalent)
        and arm.arm.config.control != "permuted"
    }


def _open(answer: Answer) -> dict[str, int | None]:
    """The arms without a conclusion, and how many more pairs would bring one; None if no reasonable number would."""
    return {
        label: None if (pairs := pairs_to_conclude(each)) is None else pairs - each.n
        for label, each in _undecided(answer).items()
        if not any(each.diverged) and not each.degenerate  # more pairs do not undo that
    }


def _more_pairs(answer: Answer, more: dict[str, int]) -> str:
    """The command that adds pairs to those that were run, with what they cost."""
    run = {label: len(answer.arms[label].trials) for label in more}
    budget = max(run[label] + pairs for label, pairs in more.items())
    arms = set(more)
    while baselines := {baseline for label in arms if (baseline := answer.arms[label].arm.baseline)} - arms:
        arms |= baselines
    trained = [answer.arms[label].trials.values() for label in arms]
    pair = sum(fmean(trial.seconds for trial in trials) for trials in trained if trials)
    added = max(more.values())
    cost = f"{count(added, 'more pair')}, {duration(added * pair / 3600)} of training"
    return f"{cost}: {_command(answer, until_sure=True, budget=budget)}"


def _undecided(answer: Answer) -> dict[str, Sequential]:
    """The undecided arms, as looks after every pair would judge them."""
    return {label: as_look(answer, label) for label, each in answer.verdicts.items() if each == Verdict.UNDECIDED}


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
    looks = _undecided(answer)
    sizes, few = [max((each.margin for each in looks.values()), default=0.0)], False
    for each in looks.values():
        if each.n < LEAST_PAIRS or not each.spread > 0:
            continue
        if each.n >= FEW_PAIRS:
            sizes.append(max(map(abs, each.interval or (0.0,))))
        else:
            few, power = True, 0.84 * each.spread / 30**0.5  # 80%
            sizes.append(abs(each.difference) + float(half_width(each.spread, 30, each.alpha)) + power)
    size = max(sizes) * (100 if answer.score.percent else 1)
    digit = 10.0 ** (math.floor(math.log10(size)) - 1)
    margin = f"--margin {digit * math.ceil(size / digit + 1e-9):.2g}{answer.score.unit}"
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
