"""SIGTERM and Ctrl-C stop a trial after the current step, with its state saved."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interrupts:
    """Within this context a signal is recorded in `received` and does not end the process; a second Ctrl-C does.

    A second SIGTERM does not: job schedulers signal every process, and launchers forward theirs as well.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        # Python sets and runs handlers in the main thread only.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._previous[number] = signal.signal(number, self._record)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _record(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = number


@contextmanager
def signals_after() -> Iterator[None]:
    """A signal that arrives within this context takes effect at its end, so that what is written there is whole."""
    stop = Interrupts()
    try:
        with stop:
            yield
    finally:
        if stop.received is not None:
            signal.raise_signal(stop.received)
