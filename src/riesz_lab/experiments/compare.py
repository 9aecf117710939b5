"""`riesz_lab.compare`: ask, run, answer."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import riesz
from riesz_lab.errors import LabError, StoppedError
from riesz_lab.experiments.answer import Answer, answer_of
from riesz_lab.experiments.driver import Execution, run
from riesz_lab.experiments.function import FunctionTrainable
from riesz_lab.experiments.margin import Margin
from riesz_lab.experiments.question import ask
from riesz_lab.experiments.running.display import make_display
from riesz_lab.experiments.running.executor import Kind, available_cores, check_share

METRICS = ("reweighted-l2", "sobolev-tilde")
TUNE_SEEDS = 3
"""Where scores are smooth in the rate, a bad choice is half as likely as with two; docs/report.md has the table."""
RETRIES = 1
"""How often a trial is begun anew after its process was killed: a user's loop cannot be continued."""
STOPPED = "stopped. Complete trials are kept: run the same again to continue"


def compare(
    function: Callable[..., Any],
    *,
    metrics: str | riesz.Metric | Sequence[str | riesz.Metric] = METRICS,
    seeds: int = 5,
    controls: bool = False,
    score: str = "score",
    higher_is_better: bool = True,
    margin: float | str | Margin = 0.002,
    tune: str | Sequence[str] = (),
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
        tune: settings whose best value is chosen for every arm, on held-out scores: `"lr"`, or a list.
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
        >>> list(answer.arms)
        ['plain', 'SobolevTilde']
    """
    user, experiment = ask(
        function, metrics=metrics, seeds=seeds, controls=controls, score=score, higher_is_better=higher_is_better,
        margin=margin, tune=tune, tune_seeds=tune_seeds, until_sure=until_sure, budget=budget, plan=plan,
        settings=settings,
    )  # fmt: skip
    execution = where(workers, threads, executor, Path(runs), fresh)
    display = make_display("auto" if live else "plain", execution.runs, say or _default_say())
    try:
        done = run(experiment, FunctionTrainable(user), execution, display)
    except StoppedError:
        raise StoppedError(STOPPED) from None
    finally:
        display.close()
    if done.failed:
        raise LabError(next(reason for _, _, reason in done.failed.values()))
    if done.result.tuned is not None and done.result.tuned.why_not:
        raise LabError(done.result.tuned.why_not)
    return answer_of(
        done.result,
        function=user.name,
        command=command,
        stored=tuple(trial.date for trial in done.result.trials if trial.config.id not in done.trained),
        takes_rate=not tune and "lr" not in settings and user.takes("lr"),
        workers=workers or available_cores(),
    )


def where(workers: int | None, threads: int | None, executor: Kind, runs: Path, fresh: bool = False) -> Execution:
    """One worker is this process: only others have to import the function."""
    check_share("workers", workers, 1)
    return Execution(
        runs=runs,
        in_process=workers == 1 and executor == "local",
        workers=workers,
        threads=threads,
        executor=executor,
        retries=RETRIES,
        stop_at_failure=True,
        fresh=fresh,
    )


def _default_say() -> Callable[[str], None]:
    """Print where somebody is watching: at a prompt, or in a notebook."""
    ipython = sys.modules.get("IPython")  # that it is imported says nothing: a library may have done so
    watched = hasattr(sys, "ps1") or (ipython is not None and ipython.get_ipython() is not None)
    return (lambda line: print(line, flush=True)) if watched else (lambda line: None)
