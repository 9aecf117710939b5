"""The default executor: one process per trial on this machine, the cores divided among them.

On Linux the processes are forked from a server that has imported everything once, since the imports take longer than a
short trial. Where fork does not exist (Windows) or is not safe (macOS), each process imports for itself.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import forkserver
from multiprocessing.connection import wait
from typing import IO

from riesz_lab.experiments.running.executor import Ended, available_cores, check_share
from riesz_lab.experiments.running.worker import EXITS, TrialJob, run_process
from riesz_lab.utils.amounts import count

FORKS = sys.platform.startswith("linux")
CONTEXT = multiprocessing.get_context("forkserver") if FORKS else multiprocessing.get_context("spawn")

PATIENCE = 60.0
"""Seconds a trial has to save and stop before it is killed; it loses no more than the steps since its checkpoint."""


class LocalExecutor:
    def __init__(self, workers: int | None = None, threads: int | None = None, gpus: int = 0):
        cores = available_cores()
        self.slots = check_share("workers", workers, gpus or cores)
        self.threads = check_share("threads", threads, max(1, cores // self.slots))
        self.gpus = gpus
        each = f"{count(self.threads, 'thread')} each"
        self.description = f"this machine: {count(self.slots, 'worker')} with {each}, {count(cores, 'core')}"
        self._running: dict[int, _Worker] = {}
        self._not_started: list[Ended] = []

    def start(self, job: TrialJob) -> None:
        slot = next(slot for slot in range(self.slots) if slot not in self._running)
        try:
            self._running[slot] = _Worker(job, self._environment(slot))
        except (OSError, EOFError) as error:
            self._not_started.append(Ended(job.id, "killed", f"its process did not start: {error}"))

    def ended(self, timeout: float) -> list[Ended]:
        if self._not_started or not self._running:
            ended, self._not_started = self._not_started, []
            if not ended:
                time.sleep(timeout)
            return ended
        ready = wait([worker.process.sentinel for worker in self._running.values()], timeout)
        slots = [slot for slot, worker in self._running.items() if worker.process.sentinel in ready]
        return [self._running.pop(slot).wait() for slot in slots]

    def close(self) -> None:
        for worker in self._running.values():
            worker.process.terminate()
        for worker in self._running.values():
            worker.wait()
        self._running.clear()

    def _environment(self, slot: int) -> dict[str, str]:
        # Threads that wait without spinning: workers share the machine with each other.
        shares = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(self.threads))
        device = {"CUDA_VISIBLE_DEVICES": str(slot % self.gpus)} if self.gpus else {}
        return {**shares, **device, "OMP_WAIT_POLICY": "PASSIVE"}


class _Worker:
    """The process of a trial. Its output would run through the table: it goes to a file, for one that dies."""

    def __init__(self, job: TrialJob, environment: dict[str, str]):
        self.job = job.id
        descriptor, name = tempfile.mkstemp()
        self.output: IO[bytes] = os.fdopen(descriptor, "rb")
        self.process = CONTEXT.Process(target=run_process, args=(job, environment, name))
        try:
            with _set_environment(environment):
                if FORKS:
                    # Libraries read the environment when they are imported, which the server does.
                    trains = type(job.trainable).__module__
                    forkserver.set_forkserver_preload(["lightning_fabric", run_process.__module__, trains])
                    forkserver.ensure_running()
                self.process.start()
        except BaseException:
            self.output.close()
            os.unlink(name)
            raise

    def wait(self) -> Ended:
        """Wait for the end of the process, for a while; then kill it."""
        self.process.join(PATIENCE)
        if self.process.exitcode is None:
            if FORKS and self.process.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.process.pid, signal.SIGKILL)  # what it started, too
            self.process.kill()
            self.process.join()
        status = self.process.exitcode or 0
        self.process.close()
        how = EXITS.get(status, "killed")
        with self.output:
            tail = self.stderr_tail()
        if how == "killed":
            end = f"signal {-status}" if status < 0 else f"status {status}"
            return Ended(self.job, how, f"its process ended with {end}" + (f" ({tail})" if tail else ""))
        return Ended(self.job, how, tail if how == "failed" else "")

    def stderr_tail(self) -> str:
        self.output.seek(max(0, self.output.seek(0, os.SEEK_END) - 2000))
        lines = self.output.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


@contextlib.contextmanager
def _set_environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
