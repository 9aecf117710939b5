"""Running a sweep's trials: hand them to an executor, look into their directories when a worker has ended.

Requirements it meets:
- killed at any moment and started again, it loses nothing and repeats nothing that was complete;
- a worker that is killed has its trial continued by another, up to `retries` times;
- a trial that fails is recorded with its reason, and does not keep the others from running;
- a trial that another process works on is waited for.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from dataclasses import dataclass
from pathlib import Path

from riesz_lab.config import Config
from riesz_lab.errors import LabError, StoppedError
from riesz_lab.store import StoredTrial, read_trial
from riesz_lab.store.trial import Trial
from riesz_lab.sweeps.running.executor import Ended, Executor
from riesz_lab.sweeps.running.pending import Plan
from riesz_lab.sweeps.running.worker import TrialJob
from riesz_lab.training.signals import Interrupts

LOOK_EVERY = 0.5
BUSY_DELAY = 2.0
"""Seconds before a trial is tried again that another process works on."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where trials live and how they are trained; not part of their identity."""

    runs: Path
    data_dir: Path
    accelerator: str = "auto"
    save_every: float = 60.0


class Watcher:
    """Told what happens; this one says nothing."""

    def began(self, config: Config) -> None: ...

    def ended(self, config: Config, trial: StoredTrial | None, seconds: float, remark: str) -> None: ...

    def tick(self, running: list[Config]) -> None: ...


def drive(plan: Plan, executor: Executor, place: Place, *, retries: int = 5, watcher: Watcher | None = None) -> None:
    """Run the plan's trials to their end; `plan.done` and `plan.failed` grow as they come.

    Raises StoppedError if asked to stop; what was running is saved.
    """
    _Driver(plan, executor, place, retries, watcher or Watcher()).to_the_end()


class _Driver:
    def __init__(self, plan: Plan, executor: Executor, place: Place, retries: int, watcher: Watcher):
        self.plan, self.executor, self.place, self.retries, self.watcher = plan, executor, place, retries, watcher
        self.ready = deque(plan.waiting.values())
        self.later: list[tuple[float, Config]] = []
        """Those that are not to be tried before a moment."""
        self.running: dict[str, tuple[Config, float]] = {}
        self.kills: Counter[str] = Counter()

    def to_the_end(self) -> None:
        try:
            with Interrupts() as stop:
                while self.ready or self.later or self.running:
                    if stop.received is not None:
                        self._stop()
                    self._start()
                    for end in self.executor.ended(LOOK_EVERY):
                        self._settle(end, *self.running.pop(end.id))
                    self.watcher.tick([config for config, _ in self.running.values()])
        finally:
            self.executor.close()

    def _start(self) -> None:
        now = time.monotonic()
        self.ready.extend(config for moment, config in self.later if moment <= now)
        self.later = [entry for entry in self.later if entry[0] > now]
        while self.ready and len(self.running) < self.executor.slots:
            config = self.ready.popleft()
            self.running[config.id] = (config, now)
            self.watcher.began(config)
            self.executor.start(_job(config, self.executor, self.place))

    def _stop(self) -> None:
        left = len(self.ready) + len(self.later) + len(self.running)
        raise StoppedError(
            f"stopped with {len(self.plan.done)} trials complete and {left} to go; those that were running are saved. "
            "Run the same command to continue"
        )

    def _settle(self, end: Ended, config: Config, began: float) -> None:
        """What a worker's end means for its trial. The directory has the last word: it may be complete all the same."""
        stored = _stored(self.place.runs, config)
        if stored is not None and stored.result is not None:
            self._close(self.plan.done, stored.status, config, stored, began)
        elif end.how == "busy":
            self.later.append((time.monotonic() + BUSY_DELAY, config))
        elif end.how == "failed":
            recorded = None if stored is None else stored.failure
            said = recorded or end.said or "no reason was given"
            if recorded is None:
                # A full disk may be what failed.
                with contextlib.suppress(LabError, OSError):
                    Trial(self.place.runs, config).fail(said)
            self._close(self.plan.failed, said, config, stored, began)
        else:
            said = end.said or "the worker was stopped"
            self.kills[config.id] += 1
            if self.kills[config.id] <= self.retries:
                self.watcher.ended(config, None, time.monotonic() - began, f"{said}; it will be continued")
                self.ready.append(config)
                return
            said = f"{said}, {self.kills[config.id]} times"
            Trial(self.place.runs, config).fail(said)
            self._close(self.plan.failed, said, config, stored, began)

    def _close(self, into: dict[str, str], told: str, config: Config, stored: StoredTrial | None, began: float) -> None:
        into[config.id] = told
        self.plan.waiting.pop(config.id, None)
        self.watcher.ended(config, stored, time.monotonic() - began, told if into is self.plan.failed else "")


def _stored(runs: Path, config: Config) -> StoredTrial | None:
    try:
        return read_trial(Trial(runs, config).path)
    except (LabError, OSError):
        return None


def _job(config: Config, executor: Executor, place: Place) -> TrialJob:
    return TrialJob(
        id=config.id,
        config=config.to_dict(),
        runs=str(place.runs.resolve()),
        data_dir=str(place.data_dir.resolve()),
        accelerator=place.accelerator,
        threads=executor.threads,
        save_every=place.save_every,
    )
