"""The executor that was asked for."""

from typing import Literal

import torch

from riesz_lab.sweeps.running.executor import Executor
from riesz_lab.sweeps.running.local import LocalExecutor
from riesz_lab.sweeps.running.worker import Accelerator
from riesz_lab.training.hardware import Hardware

Kind = Literal["local", "ray"]


def make_executor(
    kind: Kind,
    workers: int | None,
    threads: int | None,
    *,
    accelerator: Accelerator = "auto",
    address: str | None = None,
    retries: int = 5,
) -> Executor:
    """Processes on this machine, or a Ray cluster.

    Args:
        kind: local or ray.
        workers: trials at once; one per core or GPU if None.
        threads: of each worker; its share of the cores if None.
        accelerator: where trials run.
        address: of the Ray cluster; one is started here if None.
        retries: how often Ray repeats a trial whose process was killed.
    """
    if kind == "ray":
        from riesz_lab.sweeps.running.ray_executor import RayExecutor

        return RayExecutor(workers, threads, address=address, retries=retries)
    on_gpu = Hardware(accelerator=accelerator).resolved() == "cuda"
    return LocalExecutor(workers, threads, torch.cuda.device_count() if on_gpu else 0)
