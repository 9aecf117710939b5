"""The collectives: what travels between the ranks of a team, as one buffer of bytes each.

Every buffer opens with a digest of what the rank believes it takes part in: which gradients there are, their shapes,
the metric's numbers. Ranks that disagree (a parameter without a gradient on one of them, a schedule that differs) all
find out in the same call and raise, instead of mixing each other's columns or waiting for ever. On an accelerator,
where looking at the digests means waiting for the device, a rank looks when its own has changed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from riesz.sharded.groups import Team

WORD = 8
"""Buffers are cut at multiples of this many bytes, so that any dtype can be read at a cut."""

Told = Callable[[], str]
"""What this rank has to say for itself, should ranks disagree."""

# One call under two names: torch 2.13 renamed it and warns of the old one.
_all_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


class DisagreementError(RuntimeError):
    """Ranks came to one collective with different work."""


def digest(told: object) -> int:
    """A number of 20 bits that differs, very likely, where `told` does."""
    return zlib.crc32(repr(told).encode()) >> 12


def padded(size: int) -> int:
    return -(-size // WORD) * WORD


def all_gather(team: Team, token: int, tensors: Sequence[Tensor], told: Told) -> list[Tensor]:
    """Each tensor of all ranks, stacked in front by rank. On every rank they have the same shapes and dtypes."""
    mine = _packed([_token(token), *tensors]).to(team.device)
    theirs = torch.empty(team.size * len(mine), dtype=torch.uint8, device=team.device)
    _all_gather(theirs, mine, group=team.group)
    table_WB = theirs.view(team.size, -1).to(tensors[0].device)
    if _looks(team, token):
        _agree(table_WB[:, :WORD], token, told)
    out, start = [], WORD
    for tensor in tensors:
        size = tensor.numel() * tensor.itemsize
        part_WB = table_WB[:, start : start + size].contiguous()
        out.append(part_WB.view(tensor.dtype).view(team.size, *tensor.shape))
        start += padded(size)
    return out


def all_reduce(team: Team, token: int, tensors: Sequence[Tensor], told: Told) -> list[Tensor]:
    """The float64 sums of tensors over all ranks."""
    # Equal numbers are equal to their mean: W sum(t^2) = sum(t)^2, exactly, for tokens of 20 bits on 4,096 ranks.
    header = torch.tensor([token, token**2, 1.0], dtype=torch.float64, device=tensors[0].device)
    flat = torch.cat([header, *(tensor.reshape(-1) for tensor in tensors)]).to(team.device)
    dist.all_reduce(flat, group=team.group)
    flat = flat.to(tensors[0].device)
    if _looks(team, token):
        total, squares, ranks = flat[:3].tolist()
        if ranks * squares != total**2:
            raise _disagreement(told)
    sums = torch.split(flat[3:], [tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape) for part, tensor in zip(sums, tensors, strict=True)]


def all_to_all(
    team: Team, token: int, sends: Sequence[Sequence[Tensor]], shapes: Sequence[Sequence[torch.Size]], told: Told
) -> list[list[Tensor]]:
    """Tensors for every rank, exchanged for those of every rank.

    Args:
        team: who takes part.
        token: the digest of this rank's work.
        sends: by rank, the tensors it gets.
        shapes: by rank, the shapes of those it sends; their dtypes are those of what we send.
        told: what to say where ranks disagree.

    Returns:
        By rank, the tensors it sent.
    """
    like = sends[0]
    packed = [_packed([_token(token), *tensors]) for tensors in sends]
    sizes = [[shape.numel() * tensor.itemsize for shape, tensor in zip(row, like, strict=True)] for row in shapes]
    lengths = [WORD + sum(map(padded, row)) for row in sizes]
    theirs = torch.empty(sum(lengths), dtype=torch.uint8, device=team.device)
    dist.all_to_all_single(
        theirs, torch.cat(packed).to(team.device), lengths, [len(buffer) for buffer in packed], group=team.group
    )
    buffers = torch.split(theirs.to(like[0].device), lengths)
    if _looks(team, token):
        _agree(torch.stack([buffer[:WORD] for buffer in buffers]), token, told)
    out = []
    for buffer, row, row_shapes in zip(buffers, sizes, shapes, strict=True):
        start, found = WORD, []
        for tensor, size, shape in zip(like, row, row_shapes, strict=True):
            found.append(buffer[start : start + size].view(tensor.dtype).view(shape))
            start += padded(size)
        out.append(found)
    return out


def _looks(team: Team, token: int) -> bool:
    if team.device.type != "cpu" and token in team.agreed:
        return False
    if len(team.agreed) >= 1024:  # a schedule makes a new one at each step
        team.agreed.clear()
    team.agreed.add(token)
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


def _agree(tokens_WB: Tensor, token: int, told: Told) -> None:
    if (tokens_WB.contiguous().view(torch.int64) != token).any():
        raise _disagreement(told)


def _disagreement(told: Told) -> DisagreementError:
    return DisagreementError(
        "the ranks came to this step with different work: some parameter has a gradient on one rank and none on "
        f"another, or the metric differs. On rank {dist.get_rank()}: {told()}"
    )
