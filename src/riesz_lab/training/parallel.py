"""Several processes: sharding a model, gathering it for a checkpoint, and errors when a peer fails.

A checkpoint holds full tensors, as a single process has them, so a trial can continue on any number of processes.
"""

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

Models = Mapping[str, nn.Module]


def under_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def processes_here(devices: int) -> int:
    """Processes on this machine: as many as torchrun started, else `devices`."""
    return int(os.environ["LOCAL_WORLD_SIZE"]) if under_torchrun() else devices


def machines() -> int:
    return int(os.environ["WORLD_SIZE"]) // int(os.environ["LOCAL_WORLD_SIZE"]) if under_torchrun() else 1


def strategy(name: str, processes: int, timeout: float) -> Any:
    world, limit = processes * machines(), timedelta(seconds=timeout)
    if name == "fsdp2":
        from lightning_fabric.strategies.model_parallel import ModelParallelStrategy

        return ModelParallelStrategy(_fully_shard, data_parallel_size=world, tensor_parallel_size=1, timeout=limit)
    if name == "ddp" or world > 1:
        from lightning_fabric.strategies.ddp import DDPStrategy

        return DDPStrategy(timeout=limit)
    return "auto"


def _fully_shard(model: nn.Module, mesh: Any) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    # It shards rows of contiguous weights only; the images may stay channels_last.
    model = model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    fully_shard(model, mesh=mesh["data_parallel"])
    return model


# -- parameters ------------------------------------------------------------------------------------------------------


def parameter_names(models: Models) -> dict[int, tuple[str, str]]:
    """Model and name of every parameter, by its id."""
    return {id(p): (model, name) for model, module in models.items() for name, p in module.named_parameters()}


def rebind_parameters(
    optimizers: Iterable[torch.optim.Optimizer], names: Mapping[int, tuple[str, str]], models: Models
) -> None:
    """Replace the parameters an optimizer was built with, by their `names`, with those that sharding put there."""
    current = {(model, name): p for model, module in models.items() for name, p in module.named_parameters()}
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["params"] = [current[names[id(p)]] if id(p) in names else p for p in group["params"]]


def is_sharded(models: Models) -> bool:
    return any(is_dtensor(p) for module in models.values() for p in module.parameters())


def full_tensors(value: Any, keep: bool = True) -> Any:
    """A copy of nested dicts and lists with every DTensor as its full tensor, on the CPU.

    Every process must call this; those that do not `keep` get None instead. The device holds one full tensor at a time,
    since a sharded model may not fit there.
    """
    if isinstance(value, dict):
        return {key: full_tensors(item, keep) for key, item in value.items()}
    if isinstance(value, list):
        return [full_tensors(item, keep) for item in value]
    if not is_dtensor(value):
        return value
    full = value.full_tensor()
    return full.cpu() if keep else None


def gather_objects(value: Any, world: int) -> list[Any]:
    """The value of every process, by rank. Every process must call this."""
    if world == 1:
        return [value]
    values: list[Any] = [None] * world
    dist.all_gather_object(values, value)
    return values


def shard_like(value: Tensor, like: Any) -> Tensor:
    """A full tensor, sharded as `like` is. Every process has all of it, so nothing is sent."""
    if not is_dtensor(like):
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def shard_optimizer_state(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> dict[str, Any]:
    """The saved state of an optimizer, sharded as its parameters are."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    indices = [index for group in saved["param_groups"] for index in group["params"]]
    state = {}
    for index, parameter in zip(indices, parameters, strict=True):
        if index in saved["state"]:
            state[index] = {
                key: shard_like(value, parameter)
                if isinstance(value, Tensor) and value.shape == parameter.shape
                else value
                for key, value in saved["state"][index].items()
            }
    return {**saved, "state": state}


@contextmanager
def gathered(models: Models) -> Iterator[None]:
    """Within this context every process holds the full models, with the buffers of the first: each may run alone."""
    if not is_sharded(models):
        yield
        return
    from torch.distributed.fsdp import FSDPModule

    sharded = [m for model in models.values() for m in model.modules() if isinstance(m, FSDPModule)]
    for module in sharded:
        module.unshard()  # stays so: a module sharded as a whole is not resharded after each forward pass
    for model in models.values():
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)
    try:
        yield
    finally:
        for module in sharded:
            module.reshard()


# -- errors ----------------------------------------------------------------------------------------------------------


@contextmanager
def translate_peer_errors() -> Iterator[None]:
    """Turn what a collective raises when a peer is gone into a `LabError`."""
    try:
        yield
    except RuntimeError as error:
        if not _is_about_a_peer(error):
            raise
        rank = os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))
        # The first sentence, without the source location it begins with.
        reason = re.sub(r"^\[\S+\]\s*", "", str(error).strip()).partition("\n")[0] or type(error).__name__
        raise LabError(
            f"another process of this job failed or is gone, and this one (rank {rank}) cannot go on without it "
            f"({reason.split('. ')[0][:160]}). What was saved is whole: run the same command to continue"
        ) from None


def _is_about_a_peer(error: RuntimeError) -> bool:
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return False
    message = str(error).lower()
    return isinstance(error, dist.DistError) or any(word in message for word in ("gloo", "nccl", "connection closed"))
