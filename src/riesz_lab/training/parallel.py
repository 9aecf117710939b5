"""Several processes: how models are dealt out to them, put together for a checkpoint, and what is said when one fails.

A checkpoint holds whole tensors in the form of a single process, so a trial may be continued on any number of them.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from riesz.layout.axis import is_dtensor
from riesz_lab.errors import LabError


def under_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def processes_here(devices: int) -> int:
    """How many processes this machine runs: as many as torchrun started, or as were asked for."""
    return int(os.environ["LOCAL_WORLD_SIZE"]) if under_torchrun() else devices


def machines() -> int:
    return int(os.environ["WORLD_SIZE"]) // int(os.environ["LOCAL_WORLD_SIZE"]) if under_torchrun() else 1


def strategy(name: str, processes: int, timeout: float) -> Any:
    """Fabric's strategy of this name."""
    limit = timedelta(seconds=timeout)
    if name == "fsdp2":
        from lightning_fabric.strategies import ModelParallelStrategy

        return ModelParallelStrategy(
            _fully_shard, data_parallel_size=processes * machines(), tensor_parallel_size=1, timeout=limit
        )
    if name == "ddp" or processes * machines() > 1:
        from lightning_fabric.strategies import DDPStrategy

        return DDPStrategy(timeout=limit)
    return "auto"


def _fully_shard(model: nn.Module, mesh: Any) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    # It deals out rows of contiguous weights only; the images may stay channels_last.
    model = model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    return fully_shard(model, mesh=mesh["data_parallel"])


# -- parameters that were replaced -----------------------------------------------------------------------------------


def named(models: Mapping[str, nn.Module]) -> dict[int, tuple[str, str]]:
    """Which model and name every parameter has, by its id."""
    return {id(p): (model, name) for model, module in models.items() for name, p in module.named_parameters()}


def reseat(
    optimizers: Iterable[torch.optim.Optimizer], before: Mapping[int, tuple[str, str]], models: Mapping[str, nn.Module]
) -> None:
    """Give optimizers the parameters that sharding put in the place of those they were made with."""
    now = {(model, name): p for model, module in models.items() for name, p in module.named_parameters()}
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["params"] = [now[before[id(p)]] if id(p) in before else p for p in group["params"]]


# -- whole tensors and shards ----------------------------------------------------------------------------------------


def is_sharded(models: Mapping[str, nn.Module]) -> bool:
    return any(is_dtensor(p) for module in models.values() for p in module.parameters())


def whole(value: Any, keep: bool = True) -> Any:
    """A copy of nested dicts and lists with every DTensor as the whole tensor, in main memory.

    Every process must call it. Those that do not `keep` have None instead; and the device holds one whole tensor at a
    time, since a model that is sharded may not fit there.
    """
    if isinstance(value, dict):
        return {key: whole(item, keep) for key, item in value.items()}
    if isinstance(value, list):
        return [whole(item, keep) for item in value]
    if not is_dtensor(value):
        return value
    full = value.full_tensor()
    return full.cpu() if keep else None


def alike(value: Tensor, model: Any) -> Tensor:
    """A whole tensor, dealt out as `model` is. Every process has all of it: nothing is sent."""
    if not is_dtensor(model):
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value.to(model.device), model.device_mesh, model.placements, src_data_rank=None)


def optimizer_state(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> dict[str, Any]:
    """The saved state of an optimizer, dealt out as its parameters are."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    indices = [index for group in saved["param_groups"] for index in group["params"]]
    state = {}
    for index, parameter in zip(indices, parameters, strict=True):
        if index in saved["state"]:
            state[index] = {
                key: alike(value, parameter) if isinstance(value, Tensor) and value.shape == parameter.shape else value
                for key, value in saved["state"][index].items()
            }
    return {**saved, "state": state}


@contextmanager
def gathered(models: Mapping[str, nn.Module]) -> Iterator[None]:
    """Within this context, every process has the whole models, with the buffers of the first: each may run alone."""
    if not is_sharded(models):
        yield
        return
    from torch.distributed.fsdp import FSDPModule

    sharded = [m for model in models.values() for m in model.modules() if isinstance(m, FSDPModule)]
    for module in sharded:
        module.unshard()  # and so it stays: what is sharded as a whole is not dealt out again after each forward pass
    for model in models.values():
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)
    try:
        yield
    finally:
        for module in sharded:
            module.reshard()


# -- when one fails --------------------------------------------------------------------------------------------------


@contextmanager
def losing_contact() -> Iterator[None]:
    """Turn what a collective raises when another process is gone into an error in words."""
    try:
        yield
    except RuntimeError as error:
        if not _is_about_others(error):
            raise
        # Without the source line it begins with, up to where it starts to explain itself.
        said = re.sub(r"^\[\S+\]\s*", "", str(error).strip()).splitlines()[:1] or [type(error).__name__]
        raise LabError(
            f"another process of this job failed or is gone, and this one ({_me()}) cannot go on without it "
            f"({said[0].split('. ')[0][:160]}). What was saved is whole: run the same command to continue"
        ) from None


def _is_about_others(error: RuntimeError) -> bool:
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return False
    told = str(error).lower()
    return isinstance(error, dist.DistError) or any(word in told for word in ("gloo", "nccl", "connection closed"))


def is_news(message: str) -> bool:
    """Whether no other process of this job has said this yet. Where that cannot be known, it is news."""
    store = _job_store()
    if store is None:
        return True
    # Who says it differs, what is said does not.
    key = hashlib.sha256(message.replace(_me(), "").encode()).hexdigest()
    try:
        return bool(store.add(f"riesz-said/{key}", 1) == 1)
    except RuntimeError:
        return True


def _me() -> str:
    return f"rank {os.environ.get('RANK', os.environ.get('LOCAL_RANK', '0'))}"


def _job_store() -> Any:
    """The store that torchrun keeps: it outlives every process of the job."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    try:
        return dist.TCPStore(host, port, is_master=False, timeout=timedelta(seconds=5))
    except (RuntimeError, dist.DistError):
        return None
