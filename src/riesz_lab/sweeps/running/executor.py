"""The interface of executors. An executor keeps no results: it starts processes and reports which have ended; the rest
is read from the trials' directories."""

from dataclasses import dataclass
from typing import Protocol

from riesz_lab.sweeps.running.worker import How, TrialJob


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
