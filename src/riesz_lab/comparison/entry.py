"""`riesz_lab.compare`: tune if asked to, run the trials, and answer."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import riesz
from riesz_lab.comparison.answer import Answer
from riesz_lab.comparison.arms import at
from riesz_lab.comparison.display import make_display
from riesz_lab.comparison.margin import Margin
from riesz_lab.comparison.outliers import find_outliers, without
from riesz_lab.comparison.planning import make_plan
from riesz_lab.comparison.question import ask
from riesz_lab.comparison.record import write_record
from riesz_lab.comparison.rounds import baseline_scores, judge_table, run_fixed, run_until_sure
from riesz_lab.comparison.trials import Execution, Trials
from riesz_lab.comparison.tuning import tune as run_tuning
from riesz_lab.store import Store
from riesz_lab.sweeps import Sweep, results
from riesz_lab.sweeps.running.executors import Kind
from riesz_lab.utils import atomic

METRICS = ("reweighted-l2", "sobolev-tilde")
TUNE_SEEDS = 3
"""Where scores are smooth in the rate, a bad choice is half as likely as with two; docs/report.md has the table."""


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
    tune_seeds: int = TUNE_SEEDS,
    until_sure: bool = False,
    budget: int = 50,
    plan: bool = False,
    fresh: bool = False,
    workers: int | None = 1,
    threads: int | None = None,
    executor: Kind = "local",
    runs: Path | str = "runs",
    say: Callable[[str], None] | None = None,
    live: bool = False,
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
        plan: run three seeds, or take all that are stored, and say how many would be needed.
        fresh: train stored trials anew.
        workers: trials at once; 1 is in this process, None one per core. More need a function that other processes can
            import: one at the top level of a file.
        threads: of each trial; its share of the cores if None.
        executor: "local", or "ray" for a Ray cluster.
        runs: the folder of all trials.
        say: called with a line per trial; prints at a prompt or in a notebook if it is not given.
        live: in a terminal, print the lines above a table of every arm's interval, and do not call `say`.
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
    question = ask(
        function, metrics=metrics, seeds=seeds, controls=controls, score=score, higher_is_better=higher_is_better,
        margin=margin, tune=tune, tune_seeds=tune_seeds, until_sure=until_sure, budget=budget, plan=plan,
        settings=settings,
    )  # fmt: skip
    user, size, sweep = question.function, question.margin, question.sweep
    execution = Execution(workers, threads, executor)
    execution.trains(user)  # a function that workers cannot import is refused before a folder is made
    atomic.make_directory(Path(runs))
    display = make_display(live, say or _default_say())
    trials = Trials(user, Path(runs), execution, fresh, display)
    tuned, verdicts = None, None
    try:
        if tune:
            tuned = run_tuning(trials, sweep.arms, question.grid, tune_seeds)
            arms = (replace(arm, config=at(user, arm.config, tuned.best[arm.label])) for arm in sweep.arms)
            sweep = replace(sweep, arms=tuple(arms))
        if plan:
            sweep = replace(sweep, trials=max(sweep.trials, trials.stored_seeds(sweep)))
        if until_sure:
            sweep, verdicts = run_until_sure(trials, sweep, budget, size)
        else:
            run_fixed(trials, sweep)
        trials.mention_stored()
    finally:
        display.close()
    answer = _answer(trials, sweep, size)
    judged = judge_table(answer, size)
    per_trial = sum(trials.seconds.values()) / max(1, len(trials.seconds))
    other = without(answer, find_outliers(answer), None if verdicts is None else verdicts.pairs)
    looks = {} if verdicts is None else judge_table(other, Margin(answer.sweep.margin), len(verdicts.arms))
    answer = replace(
        answer,
        tuned=tuned,
        verdicts=verdicts,
        plan=make_plan(judged, per_trial, execution.slots) if plan else None,
        command=command,
        takes_rate=not tune and "lr" not in settings and user.takes("lr"),
        # A comparison of a fixed number of pairs has no place beside a sequential one.
        without_outliers={**other.comparisons} if verdicts is None else {**looks},
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


def _default_say() -> Callable[[str], None]:
    """Print where somebody is watching: at a prompt, or in a notebook."""
    ipython = sys.modules.get("IPython")  # that it is imported says nothing: a library may have done so
    watched = hasattr(sys, "ps1") or (ipython is not None and ipython.get_ipython() is not None)
    return (lambda line: print(line, flush=True)) if watched else (lambda line: None)
