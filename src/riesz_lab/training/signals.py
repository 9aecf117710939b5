"""SIGTERM and Ctrl-C ask a trial to stop; it does so after the step it is at, with its state saved."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Interrupts:
    """While the context is open, a signal is remembered instead of ending the process; a second Ctrl-C ends it.

    A second SIGTERM does not: job schedulers signal every process, and launchers then pass theirs on once more.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        # Handlers can be set from the main thread only; in another one, nobody sends us signals either.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._previous[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = number
