"""The executor for functions that another process cannot import: trials run here, one after another.

Errors are raised where they occur, so that a caller sees the traceback of its own function.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

import torch

from riesz_lab.config import Config
from riesz_lab.sweeps.running.executor import Ended
from riesz_lab.sweeps.running.local import check_share
from riesz_lab.sweeps.running.worker import TrialJob


class InProcessExecutor:
    slots = 1
    description = "this process, one trial at a time"

    def __init__(self, threads: int | None = None):
        self._before = torch.get_num_threads()
        self.threads = check_share("threads", threads, self._before)
        self._ended: list[Ended] = []

    def start(self, job: TrialJob) -> None:
        torch.set_num_threads(job.threads)
        with _signals_as_usual():
            job.train(Config.from_dict(job.config), job)
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
