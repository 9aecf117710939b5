"""The default executor: workers on this machine, the cores divided among them."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading

from riesz_lab.errors import ConfigError
from riesz_lab.sweeps.running.executor import Ended
from riesz_lab.sweeps.running.worker import EXITS, FORKS, How, TrialJob

PATIENCE = 60.0
"""Seconds a trial has to save and stop before it is killed; it loses no more than the steps since its checkpoint."""


class Local:
    def __init__(self, workers: int | None = None, threads: int | None = None, gpus: int = 0):
        cores = available_cores()
        self.slots = workers if workers is not None else gpus or cores
        if self.slots < 1:
            raise ConfigError(f"workers={workers} cannot be; allowed: 1 or more")
        self.threads = threads if threads is not None else max(1, cores // self.slots)
        if self.threads < 1:
            raise ConfigError(f"threads={threads} cannot be; allowed: 1 or more")
        self.gpus = gpus
        self.told = f"this machine: {self.slots} worker(s) with {self.threads} thread(s) each, {cores} cores"
        self._workers: dict[int, _Worker] = {}
        self._answers: _Answers = queue.Queue()

    def start(self, job: TrialJob) -> None:
        slot = next(n for n in range(self.slots) if n not in self._workers or self._workers[n].job is None)
        if slot not in self._workers:
            self._workers[slot] = _Worker(slot, self._environment(slot), self._answers)
        self._workers[slot].give(job)

    def ended(self, timeout: float) -> list[Ended]:
        try:
            worker, status = self._answers.get(timeout=timeout)
        except queue.Empty:
            return []
        job, worker.job = worker.job, None
        # It is dead, or about to end as it does after each trial. Its slot may have a new worker by then.
        if (status is None or not FORKS) and self._workers.get(worker.slot) is worker:
            del self._workers[worker.slot]
        if job is None:
            if status is None:
                worker.bury()
            return []
        how: How = "killed" if status is None else EXITS.get(status, "killed")
        if how == "failed":
            return [Ended(job, how, worker.last_words())]
        said = worker.bury() if status is None else f"its process ended with {_told(status)}"
        return [Ended(job, how, said if how == "killed" else "")]

    def close(self) -> None:
        for worker in self._workers.values():
            worker.stop()
        for worker in self._workers.values():
            worker.bury()
        self._workers.clear()

    def _environment(self, slot: int) -> dict[str, str]:
        # Threads that wait without spinning: workers share the machine with each other.
        shares = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(self.threads))
        environment = {**os.environ, **shares, "OMP_WAIT_POLICY": "PASSIVE"}
        if self.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = str(slot % self.gpus)
        return environment


class _Worker:
    """A worker's process, the job it has, and a thread that listens to it."""

    def __init__(self, slot: int, environment: dict[str, str], answers: _Answers):
        self.slot = slot
        self.job: str | None = None
        # What libraries have to say would run through the table. It is kept for a worker that dies without a word.
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it is buried
        self.process = subprocess.Popen(
            [sys.executable, "-m", "riesz_lab.sweeps.running.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=environment,
            text=True,
            # Ctrl-C in a terminal reaches the whole group: the driver alone shall hear it, and stop the trials once.
            start_new_session=True,
        )
        threading.Thread(target=self._listen, args=(answers,), daemon=True).start()

    def give(self, job: TrialJob) -> None:
        self.job = job.id
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it is dead already, and its thread says so
            self.process.stdin.write(job.to_json() + "\n")
            self.process.stdin.flush()

    def stop(self) -> None:
        """Ask its trial to save and stop, and let it end."""
        self.process.terminate()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()  # type: ignore[union-attr]

    def bury(self) -> str:
        """Wait for its end; what became of it, in words."""
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            if FORKS:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.process.pid, signal.SIGKILL)  # its trial too
            self.process.kill()
            self.process.wait()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()  # type: ignore[union-attr]
        with self.errors:
            said = self.last_words()
        return f"its worker ended with {_told(self.process.returncode)}" + (f" ({said})" if said else "")

    def last_words(self) -> str:
        """The last line on its stderr. While it lives, only between two trials: it writes where we stop reading."""
        self.errors.seek(max(0, self.errors.seek(0, os.SEEK_END) - 2000))
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def _listen(self, answers: _Answers) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                answers.put((self, int(line)))
        answers.put((self, None))


_Answers = queue.Queue[tuple[_Worker, int | None]]
"""A worker and the status of its trial; None if the worker itself is gone."""


def _told(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"status {status}"


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
