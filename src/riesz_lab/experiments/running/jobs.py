"""Train a batch of trials: read their directories, hand what is left to an executor, read them again.

Requirements it meets:
- killed at any moment and started again, it loses nothing and repeats nothing that was complete;
- a worker that is killed has its trial continued by another, up to `retries` times;
- a trial that fails is recorded with its reason, and does not keep the others from running;
- a trial that another process works on is waited for.
"""

import contextlib
import time
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from riesz_lab.config import Config
from riesz_lab.errors import LabError, StoppedError
from riesz_lab.experiments.running.executor import Ended, Executor
from riesz_lab.experiments.running.worker import Accelerator, TrialJob
from riesz_lab.experiments.trainable import Trainable
from riesz_lab.store import StoredTrial, read_trial
from riesz_lab.store.trial import Trial, lock
from riesz_lab.training.signals import Interrupts
from riesz_lab.utils.amounts import count

LOOK_EVERY = 0.5
BUSY_DELAY = 2.0
"""Seconds before a trial is tried again while another process works on it."""

ASIDE = "set-aside"
"""Folder below the runs for damaged trials; they lie too deep there for the store to read them."""


@dataclass
class Pending:
    """The trials of a batch, by id; each moves from `waiting` to `done` or `failed`."""

    waiting: dict[str, Config] = field(default_factory=dict)  # to be trained; new ones and interrupted ones
    interrupted: int = 0  # how many of the waiting ones have begun
    done: dict[str, StoredTrial] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)  # the reason of failed ones
    aside: dict[Path, str] = field(default_factory=dict)  # where damaged ones were moved to, and why
    trained: list[str] = field(default_factory=list)  # those that were completed since


def find_pending(
    configs: Iterable[Config], runs: Path, *, retry_failed: bool = False, set_aside: bool = True
) -> Pending:
    """Read every trial's directory.

    Args:
        configs: the trials.
        runs: folder of all trials.
        retry_failed: train failed trials again.
        set_aside: move damaged directories out of the way, so that their trials can be trained anew.
    """
    pending = Pending()
    for config in configs:
        trial = Trial(runs, config)
        if not trial.config_file.exists():
            pending.waiting[config.id] = config
            continue
        try:
            stored = read_trial(trial.path)
        except LabError as error:
            pending.aside[_set_aside(trial.path, runs) if set_aside else trial.path] = str(error)
            pending.waiting[config.id] = config
            continue
        if stored.result is not None:
            pending.done[config.id] = stored
        elif stored.failure is not None and not retry_failed:
            pending.failed[config.id] = stored.failure
        else:
            pending.waiting[config.id] = config
            pending.interrupted += 1
    return pending


def _set_aside(path: Path, runs: Path) -> Path:
    folder = Path(runs) / ASIDE / path.parent.name / path.name
    folder.mkdir(parents=True, exist_ok=True)
    target = next(folder / str(n) for n in range(10**6) if not (folder / str(n)).exists())
    with lock(path):
        path.rename(target)
    return target


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where trials are stored and how they are trained; not part of their identity."""

    trainable: Trainable
    runs: Path
    data_dir: Path
    accelerator: Accelerator = "auto"
    save_every: float = 60.0
    retries: int = 5  # how often a trial is continued after its process was killed
    stop_at_failure: bool = False  # start no more trials; those that run are waited for


class Watcher:
    """Follows a batch; this one shows nothing."""

    def began(self, config: Config) -> None: ...

    def ended(self, config: Config, trial: StoredTrial | None, seconds: float, remark: str) -> None: ...

    def tick(self, running: list[Config]) -> None: ...


def drive(pending: Pending, executor: Executor, settings: Settings, watcher: Watcher | None = None) -> None:
    """Train the waiting trials to their end. Raises StoppedError if asked to stop; the caller closes the executor."""
    _Driver(pending, executor, settings, watcher or Watcher()).run()


class _Driver:
    def __init__(self, pending: Pending, executor: Executor, settings: Settings, watcher: Watcher):
        self.pending, self.executor, self.settings, self.watcher = pending, executor, settings, watcher
        self.ready = deque(pending.waiting.values())
        self.later: list[tuple[float, Config]] = []
        """Trials with the earliest time at which to try them."""
        self.running: dict[str, tuple[Config, float]] = {}
        self.kills: Counter[str] = Counter()

    def run(self) -> None:
        with Interrupts() as stop:
            while self.ready or self.later or self.running:
                if stop.received is not None:
                    self._stop()
                self._start()
                for end in self.executor.ended(LOOK_EVERY):
                    self._settle(end, *self.running.pop(end.id))
                self.watcher.tick([config for config, _ in self.running.values()])

    def _start(self) -> None:
        now = time.monotonic()
        self.ready.extend(config for moment, config in self.later if moment <= now)
        self.later = [entry for entry in self.later if entry[0] > now]
        while self.ready and len(self.running) < self.executor.slots:
            config = self.ready.popleft()
            self.running[config.id] = (config, now)
            self.watcher.began(config)
            self.executor.start(_job(config, self.executor.threads, self.settings))

    def _stop(self) -> None:
        left = len(self.ready) + len(self.later) + len(self.running)
        raise StoppedError(
            f"stopped with {count(len(self.pending.done), 'trial')} complete and {left} to go; running ones are saved. "
            "Run the same command to continue"
        )

    def _settle(self, end: Ended, config: Config, began: float) -> None:
        """Decide what the end of a process means for its trial. The directory decides: the trial may be complete."""
        stored = _stored(self.settings.runs, config)
        if stored is not None and stored.result is not None:
            self.pending.done[config.id] = stored
            self.pending.trained.append(config.id)
            self.pending.waiting.pop(config.id, None)
            self.watcher.ended(config, stored, time.monotonic() - began, "")
            self.settings.trainable.look_at(stored)
        elif end.how == "busy":
            self.later.append((time.monotonic() + BUSY_DELAY, config))
        elif end.how == "failed":
            recorded = None if stored is None else stored.failure
            reason = recorded or end.message or "no reason was given"
            if recorded is None:
                # A full disk may be what failed.
                with contextlib.suppress(LabError, OSError):
                    Trial(self.settings.runs, config).fail(reason)
            self._give_up(config, reason, began)
        else:
            reason = end.message or "the worker was stopped"
            self.kills[config.id] += 1
            if self.kills[config.id] <= self.settings.retries:
                self.watcher.ended(config, None, time.monotonic() - began, f"{reason}; it will be continued")
                self.ready.append(config)
                return
            reason = f"{reason}, {self.kills[config.id]} times"
            Trial(self.settings.runs, config).fail(reason)
            self._give_up(config, reason, began)

    def _give_up(self, config: Config, reason: str, began: float) -> None:
        self.pending.failed[config.id] = reason
        self.pending.waiting.pop(config.id, None)
        if self.settings.stop_at_failure:
            self.ready.clear()
            self.later.clear()
        self.watcher.ended(config, None, time.monotonic() - began, reason)


def _stored(runs: Path, config: Config) -> StoredTrial | None:
    try:
        return read_trial(Trial(runs, config).path)
    except (LabError, OSError):
        return None


def _job(config: Config, threads: int, settings: Settings) -> TrialJob:
    return TrialJob(
        id=config.id,
        config=config.to_dict(),
        trainable=settings.trainable,
        runs=settings.runs.resolve(),
        data_dir=settings.data_dir.resolve(),
        accelerator=settings.accelerator,
        save_every=settings.save_every,
        threads=threads,
    )
