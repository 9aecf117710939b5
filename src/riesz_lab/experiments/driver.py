"""Run an experiment: store what is asked, train what is missing, ask again, until nothing is missing.

Tuning and stopping rules are pure functions of what is stored (`result.judge`), so that a run that was killed continues
where it was, and a run of what is complete trains nothing.
"""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from riesz_lab.config import Config
from riesz_lab.data.images.builtin import data_folder
from riesz_lab.errors import BusyError, LabError
from riesz_lab.experiments.experiment import Experiment
from riesz_lab.experiments.result import Result, judge
from riesz_lab.experiments.running.display import Display
from riesz_lab.experiments.running.executor import Executor, InProcessExecutor, Kind, check_share, make_executor
from riesz_lab.experiments.running.jobs import ASIDE, Pending, Settings, drive, find_pending
from riesz_lab.experiments.running.worker import Accelerator
from riesz_lab.experiments.trainable import Trainable
from riesz_lab.store import Store, StoredTrial
from riesz_lab.store.result import Which
from riesz_lab.store.trial import Trial, lock
from riesz_lab.training.hardware import Hardware
from riesz_lab.utils import atomic


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Where and how trials run; not part of what is asked."""

    runs: Path = Path("runs")  # folder of all trials
    data_dir: Path | None = None  # of the datasets; RIESZ_DATA, or the user's cache, if None
    in_process: bool = False  # trials run in this process, one after another
    workers: int | None = None  # trials at once; one per core or GPU if None
    threads: int | None = None  # of each trial; its share of the cores if None
    executor: Kind = "local"
    accelerator: Accelerator = "auto"
    address: str | None = None  # of a Ray cluster
    save_every: float = 60.0  # seconds between two checkpoints
    retries: int = 5  # how often a trial is continued after its process was killed
    retry_failed: bool = True
    stop_at_failure: bool = False  # start no more trials after one that failed
    fresh: bool = False  # train stored trials anew

    def __post_init__(self) -> None:
        check_share("workers", self.workers, 1)
        check_share("threads", self.threads, 1)
        # A user's code may change the working directory.
        object.__setattr__(self, "runs", Path(self.runs).absolute())

    def make_executor(self) -> Executor:
        if self.in_process:
            return InProcessExecutor(self.threads)
        return make_executor(
            self.executor, self.workers, self.threads,
            accelerator=self.accelerator, address=self.address, retries=self.retries,
        )  # fmt: skip


@dataclass
class Run:
    """What a run has done."""

    result: Result
    trained: set[str] = field(default_factory=set)  # ids of the trials that were trained now
    failed: dict[str, tuple[Config, str, str]] = field(default_factory=dict)  # by id: config, title and reason


def run(
    experiment: Experiment, trainable: Trainable, execution: Execution, display: Display, which: Which = "last"
) -> Run:
    """Train what is missing, and judge; failed trials are in the record, and do not keep the others from running.

    Raises:
        StoppedError: if asked to stop; running trials are saved.
    """
    folder, hardware = data_folder(execution.data_dir), Hardware(accelerator=execution.accelerator)
    complete = _stored_before(experiment, execution)
    done = Run(judge(experiment, complete, which))
    trainable.check([config for config, _ in done.result.missing], folder, hardware)
    settings = Settings(
        trainable=trainable if execution.in_process else trainable.for_workers(),
        runs=execution.runs, data_dir=folder, accelerator=execution.accelerator, save_every=execution.save_every,
        retries=execution.retries, stop_at_failure=execution.stop_at_failure,
    )  # fmt: skip
    unwritten = _store(experiment, execution.runs)
    with ExitStack() as stack:
        executor: Executor | None = None
        while left := {config.id: config for config, _ in done.result.missing if config.id not in done.failed}:
            with _trained_anew(list(left.values()), execution) as pending:
                first = pending.waiting and executor is None
                if first:
                    if unwritten is not None:
                        raise unwritten
                    executor = execution.make_executor()
                    stack.callback(executor.close)
                display.begin(done.result, pending, executor.slots if executor else 1)
                if first and executor is not None and not execution.in_process:
                    display.say(f"On {executor.description}.")
                for trial in pending.done.values():
                    settings.trainable.look_at(trial)
                if executor is not None and pending.waiting:
                    drive(pending, executor, settings, display)
            titles = {config.id: title for config, title in done.result.missing}
            done.trained.update(pending.trained)
            done.failed |= {id_: (left[id_], titles[id_], reason) for id_, reason in pending.failed.items()}
            complete |= pending.done
            done.result = judge(experiment, complete, which)
            display.look(done.result, pending)
            if done.failed and execution.stop_at_failure:
                break
    return done


def _store(experiment: Experiment, runs: Path) -> LabError | None:
    """Store what is asked. In a store that cannot be written, complete trials still answer: the error is returned."""
    try:
        atomic.make_directory(runs)
        experiment.write(runs)
    except LabError as error:
        return error
    return None


def _stored_before(experiment: Experiment, execution: Execution) -> dict[str, StoredTrial]:
    """What counts of the trials that nobody asks for: all pairs of a pilot; the grid of arms that are not run."""
    whole_grid = experiment.tuning is not None and experiment.selected
    if execution.fresh or not (experiment.stopping.plans or whole_grid):
        return {}
    return stored_trials(experiment, execution.runs)


def stored_trials(experiment: Experiment, runs: Path) -> dict[str, StoredTrial]:
    """The complete trials of the experiment's recipes, by id."""
    recipes = sorted({arm.config.recipe for arm in experiment.arms})
    trials = Store(*(runs / recipe for recipe in recipes)).trials
    return {trial.config.id: trial for trial in trials if trial.result is not None}


@contextmanager
def _trained_anew(configs: list[Config], execution: Execution) -> Iterator[Pending]:
    """What is left of these trials. With `fresh`, former ones stay out of the way until new ones are complete."""
    trials = [Trial(execution.runs, config) for config in configs]
    for trial in trials:
        settle(trial, execution.runs)  # of a run with `fresh` that was killed
        if execution.fresh:
            move_aside(trial, execution.runs)
    try:
        yield find_pending(configs, execution.runs, retry_failed=execution.retry_failed)
    finally:
        for trial in trials if execution.fresh else ():
            settle(trial, execution.runs)


def move_aside(trial: Trial, runs: Path) -> None:
    """Make way for a new trial in place of a complete one: RUNS/set-aside/<recipe>/<trial>/before."""
    if trial.result_file.exists():
        before = _before(trial, runs)
        before.parent.mkdir(parents=True, exist_ok=True)
        with lock(trial.path):
            trial.path.rename(before)


def settle(trial: Trial, runs: Path) -> None:
    """Remove the former trial if the new one is complete, else put it back; not while another process trains it."""
    before = _before(trial, runs)
    if not before.exists():
        return
    trial.path.mkdir(exist_ok=True)
    with suppress(BusyError), lock(trial.path):
        if trial.result_file.exists():
            shutil.rmtree(before)
        else:
            shutil.rmtree(trial.path)
            before.rename(trial.path)


def _before(trial: Trial, runs: Path) -> Path:
    return runs / ASIDE / trial.path.parent.name / trial.path.name / "before"
