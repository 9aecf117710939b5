"""What runs jobs. An executor holds no truth: it starts workers and tells when one has ended; the rest is read from
the trials' directories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from riesz_lab.sweeps.running.worker import How, TrialJob


@dataclass(frozen=True)
class Ended:
    """A worker that is gone: which job it had, how it ended, and what it last said."""

    id: str
    how: How
    said: str = ""


class Executor(Protocol):
    """Starts jobs and tells when they have ended.

    Attributes:
        slots: how many jobs may run at once.
        threads: the share of each in the cores.
        told: what it is, in a line.
    """

    slots: int
    threads: int
    told: str

    def start(self, job: TrialJob) -> None:
        """Start a job; only called while fewer than `slots` are running."""

    def ended(self, timeout: float) -> list[Ended]:
        """Those that have ended, at once if there are any, else after at most `timeout` seconds."""

    def close(self) -> None:
        """Ask what is running to save and stop, and wait for it."""
