"""The process of one trial.

It redirects its output, ends with its driver, and reports through its exit status. A trial that is asked to stop, or
whose driver is gone, saves first.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from riesz_lab.config import Config
from riesz_lab.errors import BusyError, LabError, StoppedError
from riesz_lab.experiments.trainable import Trainable
from riesz_lab.store.trial import Trial
from riesz_lab.utils.malloc import keep_freed_memory

How = Literal["done", "busy", "stopped", "failed", "killed"]
"""done: complete; busy: another process has its lock; stopped: on request, and saved; failed: with a reason; killed:
without one."""

Accelerator = Literal["auto", "cpu", "cuda", "mps"]

STOPPED = 143
EXITS: dict[int, How] = {0: "done", 75: "busy", STOPPED: "stopped", 1: "failed"}


@dataclass(frozen=True, kw_only=True)
class TrialJob:
    """A trial to train, as values that travel between processes and machines."""

    id: str
    config: dict[str, Any]
    trainable: Trainable
    runs: Path  # folders, as the worker's machine sees them
    data_dir: Path
    accelerator: Accelerator = "auto"
    save_every: float = 60.0  # seconds between two checkpoints
    threads: int = 1  # the worker's share of the cores


def work(job: TrialJob) -> How:
    """Train the job's trial to its end, or continue it; record in its directory what happened."""
    torch.set_num_threads(job.threads)
    keep_freed_memory()
    trial = Trial(job.runs, Config.from_dict(job.config))
    try:
        trained = job.trainable.train(trial.config, job)
    except BusyError:
        return "busy"
    except StoppedError:
        trial.add_event("stopped")
        return "stopped"
    except Exception as error:
        reason = str(error) if isinstance(error, LabError) else f"{type(error).__name__}: {error}"
        print(reason, file=sys.stderr)
        # A full disk may be what failed; the reason is on stderr in any case.
        with contextlib.suppress(LabError, OSError):
            trial.fail(reason, traceback.format_exc())
            trial.add_event("failed")
        return "failed"
    if trained:
        trial.add_event("completed")
    trial.failure_file.unlink(missing_ok=True)
    return "done"


def run_process(job: TrialJob, environment: dict[str, str], log: str) -> None:
    """The target of a trial's process: write output to `log`, train, exit with a status of `EXITS`."""
    status = STOPPED
    try:
        _redirect_output(log)
        os.environ.update(environment)
        if hasattr(os, "setsid"):
            # Ctrl-C in a terminal reaches a whole session. Only the driver should receive it, and stop the trials once.
            os.setsid()
        threading.Thread(target=_stop_with_driver, daemon=True).start()
        status = _status(job)
    finally:
        # A second signal arrives as a KeyboardInterrupt, which must not pass for a failure.
        sys.stderr.flush()
        os._exit(status)


def _status(job: TrialJob) -> int:
    how: How = "failed"
    try:
        how = work(job)
    except Exception:
        # `work` records what the training raises; this is what surrounds it. The driver reads the last line.
        traceback.print_exc()
    return next(status for status, name in EXITS.items() if name == how)


def _redirect_output(log: str) -> None:
    file = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    # The driver has it open: it needs no name any more, and a killed driver leaves none behind.
    with contextlib.suppress(OSError):
        os.unlink(log)


def _stop_with_driver() -> None:
    driver = multiprocessing.parent_process()
    if driver is not None:
        wait([driver.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


assert set(EXITS.values()) | {"killed"} == set(get_args(How))
