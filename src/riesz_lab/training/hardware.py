"""Where a trial runs. Not part of its config: a trial is the same on any machine.

Torch is imported on first use, so that the command line prints its help at once.
"""

import os
import warnings
from dataclasses import dataclass
from typing import Any, Literal

from riesz_lab.config import Config
from riesz_lab.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """Device and number of processes."""

    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """auto takes a GPU if there is one."""
    devices: int = 1
    """Number of devices; each takes its share of every batch. Under torchrun, the processes it starts."""
    strategy: Literal["auto", "ddp", "fsdp2"] = "auto"
    """ddp: every process holds the whole model; fsdp2: sharded over processes; auto: ddp if there are several."""
    timeout: float = 600.0
    """Seconds that a process waits for the others before it gives up."""
    workers: int | None = None
    """Processes per device that decode images not kept in memory; default: one per core, at most 8."""

    @property
    def decoders(self) -> int:
        return min(8, os.cpu_count() or 1) if self.workers is None else self.workers

    def resolved(self) -> str:
        """What "auto" stands for on this machine."""
        import torch

        if self.accelerator != "auto":
            return self.accelerator
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"

    def check(self, config: Config) -> None:
        import torch

        from riesz_lab.store import environment
        from riesz_lab.training import parallel

        kind = self.resolved()
        if self.devices < 1:
            raise ConfigError(f"devices: expected 1 or more, got {self.devices}")
        if self.workers is not None and self.workers < 0:
            raise ConfigError(f"workers: expected 0 or more, got {self.workers}")
        if kind == "cuda" and self.devices > torch.cuda.device_count():
            raise ConfigError(f"devices: expected at most {torch.cuda.device_count()} with cuda, got {self.devices}")
        if kind == "mps" and not torch.backends.mps.is_available():
            raise ConfigError("accelerator: expected cpu on this machine, got 'mps'")
        if not 0 < self.timeout < float("inf"):
            raise ConfigError(f"timeout: expected a number above 0, got {self.timeout}")
        if parallel.under_torchrun() and self.devices not in (1, parallel.processes_here(self.devices)):
            raise ConfigError(
                f"devices: expected 1 or the {parallel.processes_here(1)} processes per machine that torchrun started, "
                f"got {self.devices}"
            )
        if (world := parallel.processes_here(self.devices) * parallel.machines()) > config.batch_size:
            raise ConfigError(f"devices: expected at most batch_size={config.batch_size}, got {world}")
        if config.precision == "16-mixed" and kind == "cpu":
            raise ConfigError("precision: expected '32' or 'bf16-mixed' on a CPU, got '16-mixed'")
        if config.precision == "bf16-mixed" and kind == "cpu" and (why := environment.bf16_trouble()):
            raise ConfigError(f"precision='bf16-mixed' does not work on this CPU: {why}")

    def fabric(self, config: Config) -> Any:
        from riesz_lab.training import parallel

        with warnings.catch_warnings():
            # Advice on GPUs that were not chosen, deprecations inside Lightning: no user can act on them.
            warnings.simplefilter("ignore")
            from lightning_fabric import Fabric

            return Fabric(
                accelerator=self.resolved(),
                devices=(processes := parallel.processes_here(self.devices)),
                num_nodes=parallel.machines(),
                strategy=parallel.strategy(self.strategy, processes, self.timeout),
                precision="32-true" if config.precision == "32" else config.precision,
            )


def is_main_process() -> bool:
    """Whether this process writes the trial's files; launchers number the others."""
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))) == 0
