"""What trains the trials of a sweep.

`python -m riesz_lab.sweeps.running.worker` reads jobs, a line of JSON each, and answers each with a line, the exit
status of its trial.

Every trial has a process of its own, forked from the worker, which has imported everything once: the imports take
longer than a short trial. Where there is no fork (Windows), or it is not safe (macOS), a worker trains one trial and
ends. A trial ends with its worker and a worker with its driver, however those end; a trial saves first.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any, Literal, get_args

How = Literal["done", "busy", "stopped", "failed", "killed"]
"""done: complete; busy: another process is at it; stopped: asked to, and saved; failed: with a reason, killed: without.
"""

FORKS = sys.platform.startswith("linux")

STOPPED = 143
EXITS: dict[int, How] = {0: "done", 75: "busy", STOPPED: "stopped", 1: "failed"}


@dataclass(frozen=True, kw_only=True)
class TrialJob:
    """A trial to be trained, as plain values that travel between processes and machines.

    Attributes:
        id: of the trial.
        config: its settings.
        runs, data_dir: folders, as the worker's machine sees them.
        accelerator: cpu, cuda, mps or auto.
        threads: the worker's share of the cores.
        save_every: seconds between two checkpoints.
    """

    id: str
    config: dict[str, Any]
    runs: str
    data_dir: str
    accelerator: str = "auto"
    threads: int = 1
    save_every: float = 60.0

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def work(job: TrialJob) -> How:
    """Train the job's trial to its end, or continue it; record in its directory what happened."""
    import torch

    from riesz_lab.config import Config
    from riesz_lab.errors import BusyError, LabError, StoppedError
    from riesz_lab.store.trial import Trial
    from riesz_lab.training.hardware import Hardware
    from riesz_lab.training.trainer import train
    from riesz_lab.utils.malloc import keep_freed_memory

    torch.set_num_threads(job.threads)
    keep_freed_memory()
    trial = Trial(job.runs, Config.from_dict(job.config))
    try:
        outcome = train(
            trial.config,
            runs=job.runs,
            data_dir=job.data_dir,
            hardware=Hardware(accelerator=job.accelerator),  # type: ignore[arg-type]
            save_every=job.save_every,
        )
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
    if outcome.trained:
        trial.add_event("completed")
    trial.failure_file.unlink(missing_ok=True)
    return "done"


def main() -> None:
    # What a model or dataset prints must not pass for an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if not FORKS:
        print(_status(TrialJob(**json.loads(sys.stdin.readline()))), file=answers, flush=True)
        return
    driver = os.getppid()
    _import_all()
    for line in sys.stdin:
        trial = _forked(TrialJob(**json.loads(line)))
        # Asked to stop, it asks its trial, and hears the end of it.
        signal.signal(signal.SIGTERM, lambda *_, trial=trial: os.kill(trial, signal.SIGTERM))
        status = _waited(trial, driver)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        print(status, file=answers, flush=True)


def _forked(job: TrialJob) -> int:
    worker = os.getpid()
    trial = os.fork()
    if trial == 0:
        status = STOPPED
        try:
            status = _status(job, worker)
        finally:
            # Whatever happens (a second signal is a KeyboardInterrupt): the worker's loop is not the trial's.
            os._exit(status)
    return trial


def _status(job: TrialJob, worker: int | None = None) -> int:
    """The exit status of a trial that ends with its worker, if it has one."""
    how: How = "failed"
    try:
        if worker is not None:
            threading.Thread(target=_end_with, args=(worker,), daemon=True).start()
        how = work(job)
    except Exception:
        # `work` records what the training raises; this is what surrounds it. The driver reads the last line.
        traceback.print_exc()
    return next(status for status, name in EXITS.items() if name == how)


def _waited(trial: int, driver: int) -> int:
    """How the trial's process ended: its exit status, or minus the signal. If the driver is gone, end too."""
    while True:
        pid, status = os.waitpid(trial, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if os.getppid() != driver:
            os._exit(1)
        time.sleep(0.02)


def _end_with(worker: int) -> None:
    while os.getppid() == worker:
        time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGTERM)


def _import_all() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("lightning_fabric", "riesz_lab.training.trainer", "riesz_lab.utils.malloc"):
            import_module(name)


assert set(EXITS.values()) | {"killed"} == set(get_args(How))

if __name__ == "__main__":
    main()
