"""The default executor: a process per trial on this machine, the cores divided among them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import IO

from riesz_lab.errors import ConfigError
from riesz_lab.sweeps.executor import Ended
from riesz_lab.sweeps.worker import EXITS, How, Job

PATIENCE = 60.0
"""Seconds a worker has to save and stop before it is killed; it loses no more than the steps since its checkpoint."""


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    slot: int


class Local:
    def __init__(self, workers: int | None = None, threads: int | None = None, gpus: int = 0):
        cores = available_cores()
        self.slots = workers if workers is not None else max(1, gpus) if gpus else cores
        if self.slots < 1:
            raise ConfigError(f"workers={workers} cannot be; allowed: 1 or more")
        self.threads = threads if threads is not None else max(1, cores // self.slots)
        if self.threads < 1:
            raise ConfigError(f"threads={threads} cannot be; allowed: 1 or more")
        self.gpus = gpus
        self.told = f"{self.slots} workers with {self.threads} thread(s) each on {cores} cores"
        self._running: dict[str, _Worker] = {}

    def start(self, job: Job) -> None:
        slot = min(set(range(self.slots)) - {worker.slot for worker in self._running.values()})
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - read and closed when the worker has ended
        process = subprocess.Popen(
            [sys.executable, "-m", "riesz_lab.sweeps.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=self._environment(job, slot),
            # Ctrl-C in a terminal reaches the whole group: the driver alone shall hear it, and stop the workers once.
            start_new_session=True,
        )
        assert process.stdin is not None
        try:
            process.stdin.write(job.to_json().encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # killed already; `ended` will tell
        self._running[job.id] = _Worker(process, errors, slot)

    def ended(self, timeout: float) -> list[Ended]:
        deadline = time.monotonic() + timeout
        while True:
            gone = [(key, one) for key, one in self._running.items() if one.process.poll() is not None]
            if gone or time.monotonic() >= deadline:
                return [self._buried(key, one) for key, one in gone]
            time.sleep(0.02)

    def close(self) -> None:
        for worker in self._running.values():
            worker.process.terminate()
        deadline = time.monotonic() + PATIENCE
        for key, worker in list(self._running.items()):
            try:
                worker.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
            self._buried(key, worker)

    def _buried(self, key: str, worker: _Worker) -> Ended:
        del self._running[key]
        assert worker.process.stdin is not None
        worker.process.stdin.close()
        with worker.errors as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4000))
            lines = file.read().decode(errors="replace").strip().splitlines()
        status = worker.process.returncode
        how: How = EXITS.get(status, "killed")
        if how == "killed":
            told = f"signal {-status}" if status < 0 else f"exit status {status}"
            return Ended(key, how, f"the process ended with {told}" + (f": {lines[-1]}" if lines else ""))
        return Ended(key, how, lines[-1] if lines else "")

    def _environment(self, job: Job, slot: int) -> dict[str, str]:
        # Threads that wait without spinning: workers share the machine with each other.
        shares = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(job.threads))
        environment = {**os.environ, **shares, "OMP_WAIT_POLICY": "PASSIVE"}
        if self.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = str(slot % self.gpus)
        return environment


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
