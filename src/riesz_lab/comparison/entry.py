"""`riesz_lab.compare`: check everything, tune if asked to, run the trials, and answer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import riesz
from riesz_lab.comparison.answer import Answer
from riesz_lab.comparison.arms import at, base_config, check_settings, crossed, expand_metrics, make_arms
from riesz_lab.comparison.function import UserFunction, inspect_function
from riesz_lab.comparison.margin import Margin, read_margin
from riesz_lab.comparison.outliers import find_outliers, without
from riesz_lab.comparison.planning import PILOT, make_plan
from riesz_lab.comparison.record import write_record
from riesz_lab.comparison.rounds import Verdicts, baseline_scores, judge_table, run_fixed, run_until_sure
from riesz_lab.comparison.trials import Trials
from riesz_lab.comparison.tuning import start_grid
from riesz_lab.comparison.tuning import tune as run_tuning
from riesz_lab.errors import ConfigError
from riesz_lab.store import Store
from riesz_lab.sweeps import Sweep, results
from riesz_lab.utils import atomic

METRICS = ("reweighted-l2", "sobolev-tilde")


def compare(
    function: Callable[..., Any],
    *,
    metrics: Sequence[str | riesz.Metric] = METRICS,
    seeds: int = 5,
    controls: bool = False,
    score: str = "score",
    higher_is_better: bool = True,
    margin: float | str = 0.002,
    tune: Sequence[str] = (),
    tune_seeds: int = 2,
    until_sure: bool = False,
    budget: int = 50,
    plan: bool = False,
    fresh: bool = False,
    runs: Path | str = "runs",
    say: Callable[[str], None] | None = None,
    command: str = "",
    **settings: Any,
) -> Answer:
    """Train with and without each metric, several seeds each, and compare pair by pair.

    Trials are stored as any others: `riesz report` reads them, and complete ones are not trained again unless the
    function, or a file of yours that it imports, has changed.

    Args:
        function: `train(attach, seed) -> score`, or `build() -> model, (train, test), loss`. Both may take settings.
            `train` may also return a dict with the score under its name and `held_out`, and may be a generator that
            yields the scores of each epoch.
        metrics: what to compare with the plain optimizer; "sobolev-tilde(lam=0.1,1)" is two of them.
        seeds: trials per metric.
        controls: also run each metric with the gradient's norm kept, and along a random order of the channels.
        score: what `train` returns, by name; one that ends in "accuracy" is a fraction, printed in percent. A `build`
            is scored by the lab, and takes neither this nor the next.
        higher_is_better: whether more of it is better.
        margin: the largest difference that does not matter: a number, "0.3points", or "0.5sd" of the baseline.
        tune: settings whose best value is chosen for every arm, on held-out scores: `["lr"]`.
        tune_seeds: trials per arm and value.
        until_sure: add seeds until every arm has a conclusion; `seeds` does not count then.
        budget: the most seeds of `until_sure`.
        plan: run three seeds, and say how many would be needed.
        fresh: train stored trials anew.
        runs: the folder of all trials.
        say: called with a line per trial; prints at a prompt or in a notebook if it is not given.
        command: the command this was called by, for the advice at the end.
        **settings: settings of the function (`lr=0.1`); for `build` also epochs, batch_size, optimizer, lr, or any
            other setting of a config. A list is crossed: `lr=[0.01, 0.1]`.

    Returns:
        The answer: printed, it is in words; it is also the table of all arms.

    Example:
        >>> import riesz_lab, tempfile, torch
        >>> def train(attach, seed):
        ...     model = torch.nn.Conv2d(1, 8, 3)
        ...     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        ...     attach(optimizer, model)
        ...     model(torch.randn(4, 1, 8, 8)).square().mean().backward()
        ...     optimizer.step()
        ...     return -model.weight.square().mean()
        >>> answer = riesz_lab.compare(train, seeds=3, metrics=["sobolev-tilde"], runs=tempfile.mkdtemp())
        >>> list(answer.rows)
        ['plain', 'SobolevTilde']
    """
    user, size = inspect_function(function), read_margin(margin)
    _check(user, seeds, score, higher_is_better, until_sure, budget, plan, tune_seeds)
    names = expand_metrics(metrics)
    check_settings(user, [*settings, *tune])
    grid = start_grid(user, tune, settings)
    combinations = crossed({name: value for name, value in settings.items() if name not in grid})
    base = base_config(user, score, higher_is_better)
    arms = make_arms(user, base, names, combinations, controls)
    atomic.make_directory(Path(runs))
    trials = Trials(user, Path(runs), score, higher_is_better, fresh, say or _default_say())
    tuned = run_tuning(trials, arms, grid, tune_seeds) if tune else None
    if tuned is not None:
        arms = tuple(replace(arm, config=at(user, arm.config, tuned.best[arm.label])) for arm in arms)
    sweep = Sweep(
        name=base.recipe, about=f"{user.name}, with and without", reproduces="", arms=arms,
        trials=PILOT if plan else seeds,
    )  # fmt: skip
    verdicts: Verdicts | None = None
    if until_sure:
        sweep, verdicts = run_until_sure(trials, sweep, budget, size, trials.say)
    else:
        run_fixed(trials, sweep)
    answer = _answer(trials, sweep, size)
    judged = judge_table(answer, size)
    per_trial = sum(trials.seconds.values()) / max(1, len(trials.seconds))
    outliers = find_outliers(answer)
    answer = replace(
        answer,
        tuned=tuned,
        verdicts=verdicts,
        plan=make_plan(judged, per_trial) if plan else None,
        command=command,
        takes_rate=not tune and "lr" not in settings and user.takes("lr"),
        # A comparison of a fixed number of pairs has no place beside a sequential one.
        without_outliers=without(answer, outliers) if verdicts is None else {},
    )
    if not plan:
        write_record(answer, trials.runs)
    return answer


def _answer(trials: Trials, sweep: Sweep, margin: Margin) -> Answer:
    """The table of all trials so far, with the margin in the unit of the scores."""
    store = Store(trials.runs / sweep.name)
    first = results(sweep, store)
    table = results(replace(sweep, margin=margin.value(first.percent, baseline_scores(first))), store)
    return Answer(
        **vars(table),
        function=trials.function.name,
        stored=tuple(trials.stored.values()),
        seconds=sum(trials.seconds.values()),
    )


def _check(
    user: UserFunction,
    seeds: int,
    score: str,
    higher_is_better: bool,
    until_sure: bool,
    budget: int,
    plan: bool,
    tune_seeds: int,
) -> None:
    if seeds < 1:
        raise ConfigError(f"seeds: expected 1 or more (3 or more for a conclusion), got {seeds!r}")
    if tune_seeds < 1:
        raise ConfigError(f"tune_seeds: expected 1 or more, got {tune_seeds!r}")
    if until_sure and budget < PILOT:
        raise ConfigError(f"budget: expected {PILOT} or more pairs, got {budget!r}")
    if until_sure and plan:
        raise ConfigError("expected until_sure or plan, got both: a plan runs three seeds and stops")
    if not user.trains and (score != "score" or not higher_is_better):
        raise ConfigError(
            f"score and its direction are for train(attach, seed); {user.name!r} is trained by the lab's loop, "
            "which scores test accuracy, or else test loss"
        )


def _default_say() -> Callable[[str], None]:
    """Print where somebody is watching: at a prompt, or in a notebook."""
    watched = hasattr(sys, "ps1") or "ipykernel" in sys.modules
    return (lambda line: print(line, flush=True)) if watched else (lambda line: None)
