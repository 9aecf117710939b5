"""Run a sweep's trials: hand them to an executor, read their directories when a worker has ended.

Requirements it meets:
- killed at any moment and started again, it loses nothing and repeats nothing that was complete;
- a worker that is killed has its trial continued by another, up to `retries` times;
- a trial that fails is recorded with its reason, and does not keep the others from running;
- a trial that another process works on is waited for.
"""

import contextlib
import time
from collections import Counter, deque
from pathlib import Path

from riesz_lab.config import Config
from riesz_lab.errors import LabError, StoppedError
from riesz_lab.store import StoredTrial, read_trial
from riesz_lab.store.trial import Trial
from riesz_lab.sweeps.running.executor import Ended, Executor
from riesz_lab.sweeps.running.pending import Pending
from riesz_lab.sweeps.running.worker import RunSettings, TrialJob
from riesz_lab.training.signals import Interrupts
from riesz_lab.utils.amounts import count

LOOK_EVERY = 0.5
BUSY_DELAY = 2.0
"""Seconds before a trial is tried again while another process works on it."""


class Watcher:
    """Follows a sweep; this one shows nothing."""

    def began(self, config: Config) -> None: ...

    def ended(self, config: Config, trial: StoredTrial | None, seconds: float, remark: str) -> None: ...

    def tick(self, running: list[Config]) -> None: ...


def drive(
    pending: Pending, executor: Executor, settings: RunSettings, *, retries: int = 5, watcher: Watcher | None = None
) -> None:
    """Run the pending trials to their end; each moves from `pending.waiting` to `done` or `failed`.

    Raises StoppedError if asked to stop; running trials are saved.
    """
    _Driver(pending, executor, settings, retries, watcher or Watcher()).run()


class _Driver:
    def __init__(self, pending: Pending, executor: Executor, settings: RunSettings, retries: int, watcher: Watcher):
        self.pending, self.executor, self.settings = pending, executor, settings
        self.retries, self.watcher = retries, watcher
        self.ready = deque(pending.waiting.values())
        self.later: list[tuple[float, Config]] = []
        """Trials with the earliest time at which to try them."""
        self.running: dict[str, tuple[Config, float]] = {}
        self.kills: Counter[str] = Counter()

    def run(self) -> None:
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
            self._close(self.pending.done, stored.status, config, stored, began)
        elif end.how == "busy":
            self.later.append((time.monotonic() + BUSY_DELAY, config))
        elif end.how == "failed":
            recorded = None if stored is None else stored.failure
            reason = recorded or end.message or "no reason was given"
            if recorded is None:
                # A full disk may be what failed.
                with contextlib.suppress(LabError, OSError):
                    Trial(self.settings.runs, config).fail(reason)
            self._close(self.pending.failed, reason, config, stored, began)
        else:
            reason = end.message or "the worker was stopped"
            self.kills[config.id] += 1
            if self.kills[config.id] <= self.retries:
                self.watcher.ended(config, None, time.monotonic() - began, f"{reason}; it will be continued")
                self.ready.append(config)
                return
            reason = f"{reason}, {self.kills[config.id]} times"
            Trial(self.settings.runs, config).fail(reason)
            self._close(self.pending.failed, reason, config, stored, began)

    def _close(
        self, into: dict[str, str], status: str, config: Config, stored: StoredTrial | None, began: float
    ) -> None:
        into[config.id] = status
        self.pending.waiting.pop(config.id, None)
        if into is self.pending.failed and self.settings.stop_at_failure:
            self.ready.clear()
            self.later.clear()
        self.watcher.ended(config, stored, time.monotonic() - began, status if into is self.pending.failed else "")


def _stored(runs: Path, config: Config) -> StoredTrial | None:
    try:
        return read_trial(Trial(runs, config).path)
    except (LabError, OSError):
        return None


def _job(config: Config, threads: int, settings: RunSettings) -> TrialJob:
    folders = {"runs": settings.runs.resolve(), "data_dir": settings.data_dir.resolve()}
    return TrialJob(**(vars(settings) | folders), id=config.id, config=config.to_dict(), threads=threads)
