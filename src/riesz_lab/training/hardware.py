"""Where a trial runs. Not part of its config: it is the same trial on any machine."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from typing import Any, Literal

import torch

from riesz_lab.config import Config
from riesz_lab.errors import ConfigError
from riesz_lab.store import environment
from riesz_lab.training import parallel


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """Device and number of processes."""

    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """auto takes a GPU if there is one."""
    devices: int = 1
    """How many devices; each takes its share of every batch. Under torchrun, as many as it starts processes."""
    strategy: Literal["auto", "ddp", "fsdp2"] = "auto"
    """ddp gives every process the whole model, fsdp2 deals it out to them; auto is ddp for several processes."""
    timeout: float = 600.0
    """Seconds after which a process gives up waiting for the others."""
    workers: int | None = None
    """Processes per device that decode images too many to keep in memory; one per core, at most 8, if not given."""

    @property
    def decoders(self) -> int:
        """How many workers that is."""
        return min(8, os.cpu_count() or 1) if self.workers is None else self.workers

    def resolved(self) -> str:
        """What "auto" stands for on this machine."""
        if self.accelerator != "auto":
            return self.accelerator
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"

    def check(self, config: Config) -> None:
        """Raise if the trial cannot run here."""
        kind = self.resolved()
        if self.devices < 1:
            raise ConfigError(f"devices={self.devices} cannot be; allowed: 1 or more")
        if self.workers is not None and self.workers < 0:
            raise ConfigError(f"workers={self.workers} cannot be; allowed: 0 or more")
        if kind == "cuda" and self.devices > torch.cuda.device_count():
            raise ConfigError(f"devices={self.devices} with cuda: this machine has {torch.cuda.device_count()}")
        if kind == "mps" and not torch.backends.mps.is_available():
            raise ConfigError("accelerator='mps' is not available on this machine; allowed: cpu")
        if not 0 < self.timeout < float("inf"):
            raise ConfigError(f"timeout={self.timeout} cannot be; allowed: above 0")
        if parallel.under_torchrun() and self.devices not in (1, parallel.processes_here(self.devices)):
            raise ConfigError(
                f"devices={self.devices} where torchrun started {parallel.processes_here(1)} processes; leave it out"
            )
        if (world := parallel.processes_here(self.devices) * parallel.machines()) > config.batch_size:
            raise ConfigError(f"devices={world} cannot share a batch of {config.batch_size} images")
        if config.precision == "16-mixed" and kind == "cpu":
            raise ConfigError("precision='16-mixed' needs a GPU; allowed on a CPU: '32', 'bf16-mixed'")
        if config.precision == "bf16-mixed" and kind == "cpu" and (why := environment.bf16_trouble()):
            raise ConfigError(f"precision='bf16-mixed' does not work on this CPU: {why}")

    def fabric(self, config: Config) -> Any:
        """Lightning Fabric for this hardware."""
        with warnings.catch_warnings():
            # Advice on the GPU that was not chosen, deprecations inside Lightning: nothing a user can act on.
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
    """Whether this process may touch the trial's files; the launcher numbers the others."""
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))) == 0
