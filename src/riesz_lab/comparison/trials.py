"""Run the trials of a comparison as those of a sweep are run, or read what is stored of them."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path

from riesz_lab.comparison.arms import settings_of
from riesz_lab.comparison.attach import HELD_OUT
from riesz_lab.comparison.display import Display
from riesz_lab.comparison.fresh import move_aside, settle
from riesz_lab.comparison.function import UserFunction, inspect_function, with_settings
from riesz_lab.comparison.reference import reference_to
from riesz_lab.comparison.user_loop import run_user_loop
from riesz_lab.config import Config
from riesz_lab.errors import LabError, StoppedError
from riesz_lab.store import Result, Store, StoredTrial, read_trial
from riesz_lab.store.files import Row
from riesz_lab.store.trial import Trial
from riesz_lab.sweeps import Sweep
from riesz_lab.sweeps.running.driver import Watcher, drive
from riesz_lab.sweeps.running.executor import Executor
from riesz_lab.sweeps.running.executors import Kind, make_executor
from riesz_lab.sweeps.running.in_process import InProcessExecutor
from riesz_lab.sweeps.running.local import check_share
from riesz_lab.sweeps.running.pending import Pending, find_pending
from riesz_lab.sweeps.running.worker import RunSettings, Train, TrialJob
from riesz_lab.training import progress
from riesz_lab.training.trainer import train as train_trial
from riesz_lab.utils.amounts import count
from riesz_lab.utils.importing import load_object

RETRIES = 1
"""How often a trial is begun anew after its process was killed: a user's loop cannot be continued."""
STOPPED = "stopped. Complete trials are kept: run the same again to continue"


@dataclass(frozen=True)
class Execution:
    """Where trials run."""

    workers: int | None = 1  # trials at once; 1 is this process
    threads: int | None = None  # of each trial
    kind: Kind = "local"  # processes of this machine, or of a Ray cluster

    def __post_init__(self) -> None:
        check_share("workers", self.workers, 1)
        check_share("threads", self.threads, 1)

    @property
    def in_process(self) -> bool:
        return self.workers == 1 and self.kind == "local"

    @property
    def slots(self) -> int:
        """Trials at once, as far as it is known before they run."""
        return self.workers or os.cpu_count() or 1

    def executor(self) -> Executor:
        if self.in_process:
            return InProcessExecutor(self.threads)
        return make_executor(self.kind, self.workers, self.threads, retries=RETRIES)

    def trains(self, function: UserFunction) -> Train:
        """What trains a trial of a function there."""
        if self.in_process:
            return partial(train_user_trial, function)
        return partial(train_by_name, reference_to(function.call), os.getcwd())


def train_user_trial(function: UserFunction, config: Config, job: TrialJob) -> bool:
    """Train one trial of a user's function."""
    call = with_settings(function, settings_of(config))
    if not function.trains:
        return train_trial(config, data=call, runs=job.runs).trained
    score, better = (text.partition("=")[2] for text in config.model_options[:2])
    run_user_loop(Trial(job.runs, config), call, function.name, score, better == "higher", tuning=config.hold_out > 0)
    return True


def train_by_name(reference: str, folder: str, config: Config, job: TrialJob) -> bool:
    """The same in a process of its own, which imports the function and works in the caller's folder."""
    os.chdir(folder)
    function = inspect_function(load_object("function", reference))
    if function.identity != config.model:
        raise LabError(
            f"{reference} is not the function that the comparison began with: expected {config.model}, got "
            f"{function.identity}. Its file, or one that it imports, was changed meanwhile: run the same again"
        )
    return train_user_trial(function, config, job)


@dataclass
class Trials:
    """Runs trials, or reads stored ones, and keeps count of them."""

    function: UserFunction  # the user's
    runs: Path  # the folder of all trials
    execution: Execution  # where they run
    fresh: bool  # train anew what is stored
    display: Display  # shows a line per trial
    results: dict[str, Result] = field(default_factory=dict)  # how each ended, by id
    # What each took, by id; of a stored one as it was measured then.
    seconds: dict[str, float] = field(default_factory=dict)
    stored: dict[str, str] = field(default_factory=dict)  # the dates of stored trials, by id
    unmentioned: list[str] = field(default_factory=list)  # dates of stored trials that no line was printed about
    _first: dict[str, tuple[int, object]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._train = self.execution.trains(self.function)

    def mention_stored(self) -> None:
        """One line about the stored trials since the last such line."""
        if self.unmentioned:
            self.display.say(f"{count(len(self.unmentioned), 'stored trial')} read ({span(self.unmentioned)})")
            self.unmentioned.clear()

    def stored_seeds(self, sweep: Sweep) -> int:
        """How many seeds are complete in every arm, from the first one on; none if all are trained anew."""
        trials = () if self.fresh else Store(self.runs / sweep.name).trials
        complete = {trial.config.id for trial in trials if trial.result is not None}
        seeds = 0
        while all(replace(sweep, trials=seeds + 1).configs(arm)[-1].id in complete for arm in sweep.arms):
            seeds += 1
        return seeds

    def run(self, batch: Sequence[tuple[Config, str]], number: str) -> None:
        """Train what is not stored of a batch, as many at once as there are workers.

        Args:
            batch: trials, each with its title.
            number: put before a title; "{done}" and "{total}" in it count the trials of the batch.
        """
        configs = {config.id: config for config, _ in batch if config.id not in self.results}
        trials = [Trial(self.runs, config) for config in configs.values()]
        for trial in trials:
            settle(trial, self.runs)  # of a call with `fresh` that was killed
            if self.fresh:
                move_aside(trial, self.runs)
        try:
            self._run(configs, {config.id: title for config, title in batch}, number)
        finally:
            for trial in trials if self.fresh else ():
                settle(trial, self.runs)

    def _run(self, configs: dict[str, Config], titles: dict[str, str], number: str) -> None:
        pending = find_pending(list(configs.values()), self.runs, retry_failed=True)
        for path, reason in pending.aside.items():
            self.display.say(f"set aside: {path} ({reason}); its trial is trained anew")
        executor = self.execution.executor()
        watcher = _Watcher(self, pending, titles, number, executor.slots)
        for id_ in pending.done:
            watcher.take_stored(configs[id_])
        if pending.waiting:
            self.mention_stored()
        settings = RunSettings(runs=self.runs, data_dir=self.runs, train=self._train, stop_at_failure=True)
        try:
            drive(pending, executor, settings, retries=RETRIES, watcher=watcher)
        except StoppedError:
            raise StoppedError(STOPPED) from None
        if pending.failed:
            raise LabError(next(iter(pending.failed.values())))

    def check_seeds_differ(self, config: Config, result: Result) -> None:
        """Two seeds with the same weights and scores: the function sets a seed itself, and n trials are one."""
        if not self.function.trains or result.last is None:
            return
        file = Trial(self.runs, config).weights_file
        # Of a stored trial they may have been deleted, to save space: its scores remain.
        weights = hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else str(config.seed)
        seed, first = self._first.setdefault(config.group, (config.seed, (result.last, weights)))
        if seed != config.seed and first == (result.last, weights):
            where = f" ({self.function.seeding})" if self.function.seeding else ""
            raise LabError(
                f"seeds {seed} and {config.seed} of {self.function.name!r} give the same weights and scores: more "
                f"trials would say nothing. Random generators are seeded before each call; remove the seeding in the "
                f"function{where}, or use its argument `seed` there"
            )


class _Watcher(Watcher):
    """Takes in the trials of a batch as they end, with a line for each."""

    def __init__(self, trials: Trials, pending: Pending, titles: dict[str, str], number: str, slots: int):
        self.trials, self.pending, self.titles, self.number, self.slots = trials, pending, titles, number, slots
        self.total = len(pending.done) + len(pending.waiting)
        self.done = 0
        self.clocked: list[float] = []

    def take_stored(self, config: Config) -> None:
        trial = Trial(self.trials.runs, config)
        date = datetime.fromtimestamp(trial.result_file.stat().st_mtime).strftime("%Y-%m-%d")
        self.trials.stored[config.id] = date
        self.trials.unmentioned.append(date)
        stored = read_trial(trial.path)
        self._take(config, stored)
        assert stored.result is not None
        self.trials.check_seeds_differ(config, stored.result)

    def ended(self, config: Config, trial: StoredTrial | None, seconds: float, remark: str) -> None:
        if trial is None or trial.result is None:
            self.trials.display.say(f"{self.titles[config.id]}: {remark}")
            return
        self.clocked.append(seconds)
        left = len(self.pending.waiting) * sum(self.clocked) / len(self.clocked) / self.slots
        took = progress.clock(seconds)
        self._take(config, trial)
        self._say(config, trial.result, f"{took}, {progress.clock(left)} left" if self.pending.waiting else took)
        self.trials.check_seeds_differ(config, trial.result)

    def tick(self, running: list[Config]) -> None:
        self.trials.display.running([self.titles[config.id] for config in running])

    def _take(self, config: Config, trial: StoredTrial) -> None:
        assert trial.result is not None
        self.done += 1
        self.trials.results[config.id] = trial.result
        self.trials.seconds[config.id] = sum(map(seconds_of, trial.timing()))

    def _say(self, config: Config, result: Result, remark: str) -> None:
        row, score = result.last, result.score
        if row is not None and HELD_OUT in row:
            row = {f"held-out {score}" if name == HELD_OUT else name: value for name, value in row.items()}
            if config.hold_out:
                # The choice is made by this alone; the test score is not shown.
                score = f"held-out {score}"
                row = {score: row[score]}
        scores = "diverged" if row is None else progress.format_scores(row, score, result.percent)
        done = f"{self.done:>{len(str(self.total))}}"
        number = self.number.format(done=done, total=self.total)
        self.trials.display.say(f"{number} {self.titles[config.id]}: {scores}  ({remark})")


def span(dates: Sequence[str]) -> str:
    """One date, or the first and the last."""
    return min(dates) if min(dates) == max(dates) else f"{min(dates)} to {max(dates)}"


def seconds_of(row: Row) -> float:
    """Seconds that a row of timing covers: a whole trial of a user's loop, an epoch of the lab's."""
    steps = float(row.get("steps") or 0) * float(row.get("step_ms") or 0) / 1000
    return float(row.get("seconds") or steps + float(row.get("eval_seconds") or 0))
