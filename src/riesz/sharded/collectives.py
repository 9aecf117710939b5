"""The collectives of a rank group, each with one buffer of bytes.

Every buffer opens with a digest of the work that the rank takes part in: which gradients there are, their shapes, the
metric's numbers. Ranks that disagree (a parameter without a gradient on one of them, a schedule that differs) all raise
in the same call, instead of mixing each other's columns or waiting for ever. On an accelerator, where reading the
digests means waiting for the device, a rank reads them when its own has changed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from riesz.sharded.groups import RankGroup, rank_group
from riesz.sharded.layout import local_of

WORD = 8
"""Buffers are cut at multiples of this many bytes, so that any dtype can be read at a cut."""

Describe = Callable[[], str]
"""Describes the work of this rank, should ranks disagree."""

# One call under two names: torch 2.13 renamed it and warns of the old one.
_all_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


class DisagreementError(RuntimeError):
    """The ranks of one collective have different work."""


def digest(work: object) -> int:
    """A number of 20 bits that differs, very likely, where `work` does."""
    return zlib.crc32(repr(work).encode()) >> 12


def padded(size: int) -> int:
    return -(-size // WORD) * WORD


def all_gather(group: RankGroup, token: int, tensors: Sequence[Tensor], describe: Describe) -> list[Tensor]:
    """Each tensor of all ranks, stacked in front by rank. On every rank they have the same shapes and dtypes."""
    sent = _packed([_token(token), *tensors]).to(group.device)
    received = torch.empty(group.size * len(sent), dtype=torch.uint8, device=group.device)
    _all_gather(received, sent, group=group.process_group)
    table_WB = received.view(group.size, -1).to(tensors[0].device)
    if _must_compare(group, token):
        _agree(table_WB[:, :WORD], token, describe)
    out, start = [], WORD
    for tensor in tensors:
        size = tensor.numel() * tensor.itemsize
        part_WB = table_WB[:, start : start + size].contiguous()
        out.append(part_WB.view(tensor.dtype).view(group.size, *tensor.shape))
        start += padded(size)
    return out


def all_reduce(group: RankGroup, token: int, tensors: Sequence[Tensor], describe: Describe) -> list[Tensor]:
    """The float64 sums of tensors over all ranks."""
    # Equal numbers are equal to their mean: W sum(t^2) = sum(t)^2, exactly, for tokens of 20 bits on 4,096 ranks.
    header = torch.tensor([token, token**2, 1.0], dtype=torch.float64, device=tensors[0].device)
    flat = torch.cat([header, *(tensor.reshape(-1) for tensor in tensors)]).to(group.device)
    dist.all_reduce(flat, group=group.process_group)
    flat = flat.to(tensors[0].device)
    if _must_compare(group, token):
        total, squares, ranks = flat[:3].tolist()
        if ranks * squares != total**2:
            raise _disagreement(describe)
    sums = torch.split(flat[3:], [tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape) for part, tensor in zip(sums, tensors, strict=True)]


def all_to_all(
    group: RankGroup,
    token: int,
    sends: Sequence[Sequence[Tensor]],
    shapes: Sequence[Sequence[torch.Size]],
    describe: Describe,
) -> list[list[Tensor]]:
    """Tensors for every rank, exchanged for those of every rank.

    Args:
        group: the ranks that take part.
        token: the digest of this rank's work.
        sends: by rank, the tensors it gets.
        shapes: by rank, the shapes of those it sends; their dtypes are those of our own.
        describe: describes this rank's work where ranks disagree.

    Returns:
        By rank, the tensors it sent.
    """
    like = sends[0]
    packed = [_packed([_token(token), *tensors]) for tensors in sends]
    sizes = [[shape.numel() * tensor.itemsize for shape, tensor in zip(row, like, strict=True)] for row in shapes]
    lengths = [WORD + sum(map(padded, row)) for row in sizes]
    received = torch.empty(sum(lengths), dtype=torch.uint8, device=group.device)
    dist.all_to_all_single(
        received,
        torch.cat(packed).to(group.device),
        lengths,
        [len(buffer) for buffer in packed],
        group=group.process_group,
    )
    buffers = torch.split(received.to(like[0].device), lengths)
    if _must_compare(group, token):
        _agree(torch.stack([buffer[:WORD] for buffer in buffers]), token, describe)
    out = []
    for buffer, row, row_shapes in zip(buffers, sizes, shapes, strict=True):
        start, tensors = WORD, []
        for tensor, size, shape in zip(like, row, row_shapes, strict=True):
            tensors.append(buffer[start : start + size].view(tensor.dtype).view(shape))
            start += padded(size)
        out.append(tensors)
    return out


def _must_compare(group: RankGroup, token: int) -> bool:
    if group.device.type != "cpu" and token in group.agreed:
        return False
    if len(group.agreed) >= 1024:  # a schedule makes a new one at each step
        group.agreed.clear()
    group.agreed.add(token)
    return True


def _token(token: int) -> Tensor:
    return torch.tensor([token], dtype=torch.int64)


def _packed(tensors: Sequence[Tensor]) -> Tensor:
    """The bytes of tensors, one after the other, each filled up to a whole number of words."""
    parts, device = [], tensors[-1].device
    for tensor in tensors:
        parts.append(tensor.to(device).contiguous().view(-1).view(torch.uint8))
        if missing := padded(len(parts[-1])) - len(parts[-1]):
            parts.append(torch.zeros(missing, dtype=torch.uint8, device=device))
    return torch.cat(parts)


def _agree(tokens_WB: Tensor, token: int, describe: Describe) -> None:
    if (tokens_WB.contiguous().view(torch.int64) != token).any():
        raise _disagreement(describe)


def _disagreement(describe: Describe) -> DisagreementError:
    return DisagreementError(
        "expected the same work on all ranks, got different ones: some parameter has a gradient on one rank and none "
        f"on another, or the metric differs. On rank {dist.get_rank()}: {describe()}"
    )


def all_finite(gradients: Sequence[Any]) -> Tensor:
    """Whether gradients are finite, as a 0-d bool that is the same on every rank: all skip a step, or none.

    One all-reduce per mesh of the DTensors.
    """
    by_mesh: dict[Any, list[Tensor]] = {}
    for gradient in gradients:
        by_mesh.setdefault(gradient.device_mesh, []).append(torch.isfinite(local_of(gradient)).all())
    finite = []
    for mesh, flags in by_mesh.items():
        flag = torch.stack(flags).all()
        dims = tuple(dim for dim in range(mesh.ndim) if mesh.size(dim) > 1)
        if dims and mesh.get_coordinate() is not None:
            group = rank_group(mesh, dims)
            shared = flag.to(group.device, torch.int32)
            dist.all_reduce(shared, dist.ReduceOp.MIN, group=group.process_group)
            flag = shared.to(flag.device, torch.bool)
        finite.append(flag)
    return torch.stack([flag.to(finite[0].device) for flag in finite]).all()
