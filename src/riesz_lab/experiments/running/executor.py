"""Executors: they start a job for each trial and report which have ended.

An executor keeps no results: everything else is read from the trials' directories.

    InProcessExecutor   this process, one trial at a time, for functions that no other process can import
    LocalExecutor       a process per trial on this machine
    RayExecutor         the same on a Ray cluster
"""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch

from riesz_lab.config import Config
from riesz_lab.errors import ConfigError
from riesz_lab.experiments.running.worker import Accelerator, How, TrialJob
from riesz_lab.training.hardware import Hardware
from riesz_lab.utils import importing

Kind = Literal["local", "ray"]


@dataclass(frozen=True)
class Ended:
    """A job whose process is gone, how it ended, and the last line of its output."""

    id: str
    how: How
    message: str = ""


class Executor(Protocol):
    """Starts jobs and reports which have ended."""

    @property
    def slots(self) -> int:
        """How many jobs may run at once."""

    @property
    def threads(self) -> int:
        """Cores per job."""

    @property
    def description(self) -> str:
        """One line: where jobs run, and how many at once."""

    def start(self, job: TrialJob) -> None:
        """Start a job; only called while fewer than `slots` are running."""

    def ended(self, timeout: float) -> list[Ended]:
        """The jobs that have ended, at once if there are any, else after at most `timeout` seconds."""

    def close(self) -> None:
        """Ask running jobs to save and stop, and wait for them."""


class InProcessExecutor:
    """Errors are raised where they occur, so that a caller sees the traceback of its own function."""

    slots = 1
    description = "this process, one trial at a time"

    def __init__(self, threads: int | None = None):
        self._before = torch.get_num_threads()
        self.threads = check_share("threads", threads, self._before)
        self._ended: list[Ended] = []

    def start(self, job: TrialJob) -> None:
        torch.set_num_threads(job.threads)
        with _signals_as_usual(), importing.same_directory():
            job.trainable.train(Config.from_dict(job.config), job)
        self._ended.append(Ended(job.id, "done"))

    def ended(self, timeout: float) -> list[Ended]:
        ended, self._ended = self._ended, []
        return ended

    def close(self) -> None:
        torch.set_num_threads(self._before)


@contextlib.contextmanager
def _signals_as_usual() -> Iterator[None]:
    """The driver stops after a trial. A user's loop runs to its end, so a signal has to end it at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    usual: dict[signal.Signals, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def make_executor(
    kind: Kind,
    workers: int | None,
    threads: int | None,
    *,
    accelerator: Accelerator = "auto",
    address: str | None = None,
    retries: int = 5,
) -> Executor:
    """Processes on this machine, or a Ray cluster.

    Args:
        kind: local or ray.
        workers: trials at once; one per core or GPU if None.
        threads: of each worker; its share of the cores if None.
        accelerator: where trials run.
        address: of the Ray cluster; one is started here if None.
        retries: how often Ray repeats a trial whose process was killed.
    """
    if kind == "ray":
        from riesz_lab.experiments.running.ray_executor import RayExecutor

        return RayExecutor(workers, threads, address=address, retries=retries)
    from riesz_lab.experiments.running.local import LocalExecutor

    on_gpu = Hardware(accelerator=accelerator).resolved() == "cuda"
    return LocalExecutor(workers, threads, torch.cuda.device_count() if on_gpu else 0)


def check_share(name: str, value: int | None, default: int) -> int:
    if value is not None and value < 1:
        raise ConfigError(f"{name}: expected 1 or more, got {value}")
    return default if value is None else value


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
