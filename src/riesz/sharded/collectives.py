"""Groups of ranks and their collectives: laid out once, started without waiting, finished later.

Every collective carries the token of its `Work`. Tokens are compared at every step, before anything that arrived is
used: ranks that disagree (a parameter without a gradient on one of them, a schedule that differs) all raise in the same
call, instead of mixing each other's columns. The comparison reads the tokens back, so on an accelerator it waits for
the collective.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from riesz.control import norm_ratio
from riesz.control import products as products_of
from riesz.layout.axis import compute_dtype
from riesz.sharded.agreement import RankGroup, Work, agreement_header, disagreement, rank_group, totals_agree
from riesz.sharded.layout import LocalShard, local_of

WORD = 8
"""Buffers are cut at multiples of this many bytes, so that any dtype can be read at a cut."""

KEEP_BYTES = 64 << 20
"""Buffers up to this size are kept from step to step; larger ones are allocated for each."""

# One call under two names: torch 2.13 renamed it and warns of the old one.
_all_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor

Pack = Callable[[Tensor], object]
"""Writes what is sent, where it is told."""


# -- collectives -------------------------------------------------------------------------------------------------------


def padded(size: int) -> int:
    return -(-size // WORD) * WORD


class Buffer:
    """Memory of a fixed size on one device, kept from step to step unless it is large."""

    def __init__(self, size: int, device: torch.device):
        self.size = size
        self._device = device
        self._bytes: Tensor | None = None

    def get(self) -> Tensor:
        """The memory; zeros after it was allocated."""
        if self._bytes is None:
            self._bytes = torch.zeros(self.size, dtype=torch.uint8, device=self._device)
        return self._bytes

    def release(self) -> None:
        """Free the memory if it is too large to keep; who holds it may still read it."""
        if self.size > KEEP_BYTES:
            self.drop()

    def drop(self) -> None:
        """Free the memory, unless a collective that is under way holds it."""
        self._bytes = None


class AllGather:
    """Every rank gets `size` bytes of every rank, each behind a token of 8 bytes."""

    def __init__(self, group: RankGroup, work: Work, size: int, device: torch.device):
        self._group, self._work, self._device = group, work, device
        self.stride = WORD + size
        """Bytes from one rank's part of what is received to the next."""
        self._sent = Buffer(self.stride, device)
        self._received = Buffer(group.size * self.stride, group.device)
        self._pending: Any = None

    def start(self, pack: Pack) -> None:
        sent = self._sent.get()
        pack(sent[WORD:])
        sent.view(torch.int64)[0] = self._work.token
        on_group = sent.to(self._group.device)
        self._pending = _all_gather(self._received.get(), on_group, group=self._group.process_group, async_op=True)

    def finish(self) -> Tensor:
        """What every rank packed: of shape (ranks, bytes)."""
        self._group.wait(self._pending, self._work)
        received = self._received.get().to(self._device)
        if received.view(torch.int64)[:: self.stride // WORD].tolist() != [self._work.token] * self._group.size:
            raise disagreement(self._work.describe)
        self._sent.release()
        self._received.release()
        return received.view(-1, self.stride)[:, WORD:]

    def drop_buffers(self) -> None:
        self._sent.drop()
        self._received.drop()


class AllReduce:
    """Every rank gets the float64 sums of `count` numbers over all ranks, behind three numbers that compare tokens."""

    HEADER = 3

    def __init__(self, group: RankGroup, work: Work, count: int, device: torch.device):
        self._group, self._work, self._device = group, work, device
        self._buffer = Buffer(8 * (self.HEADER + count), device)
        self._pending: Any = None
        self._on_group: Tensor | None = None

    def start(self, pack: Pack) -> None:
        """Send what is packed into zeros: the sums of the last step lie where this step's numbers belong."""
        sent = self._buffer.get().view(torch.float64).zero_()
        pack(sent[self.HEADER :])
        header = agreement_header(self._work.token, self._group.size)
        sent[: self.HEADER] = torch.tensor(header, dtype=torch.float64)
        self._on_group = sent.to(self._group.device)
        self._pending = dist.all_reduce(self._on_group, group=self._group.process_group, async_op=True)

    def finish(self) -> Tensor:
        """The sums."""
        self._group.wait(self._pending, self._work)
        assert self._on_group is not None
        totals = self._on_group.to(self._device)
        if not totals_agree(totals[: self.HEADER].tolist(), self._group.size):
            raise disagreement(self._work.describe)
        self._on_group = None
        self._buffer.release()
        return totals[self.HEADER :]

    def drop_buffers(self) -> None:
        self._on_group = None
        self._buffer.drop()


class AllToAll:
    """Every rank exchanges parts with every rank; part sizes may differ by rank, and each opens with a token.

    Args:
        group: the ranks that take part.
        work: whose token is sent; complemented on the way back, since a rank that was interrupted may have started
            its next way there.
        sent, received: by rank, the bytes of payload.
        buffers: to send from and to receive in, of the sum of those sizes and their tokens.
        is_back: whether it returns what another one brought.
    """

    def __init__(
        self,
        group: RankGroup,
        work: Work,
        sent: Sequence[int],
        received: Sequence[int],
        buffers: tuple[Buffer, Buffer],
        is_back: bool = False,
    ):
        self._group, self._work, self._is_back = group, work, is_back
        self._sent, self._received = buffers
        self._sent_lengths = [WORD + size for size in sent]
        self._received_lengths = [WORD + size for size in received]
        # Where parts begin, in words.
        self._sent_tokens, self._received_tokens = (
            torch.tensor([0, *lengths[:-1]]).cumsum(0) // WORD
            for lengths in (self._sent_lengths, self._received_lengths)
        )
        self._pending: Any = None
        self._on_group: Tensor | None = None

    def start(self) -> None:
        """Send what is in the first buffer."""
        sent, received = self._sent.get(), self._received.get()
        sent.view(torch.int64)[self._sent_tokens] = self._token
        on_group = sent.to(self._group.device)
        self._on_group = received if on_group is sent else torch.empty_like(received, device=self._group.device)
        self._pending = dist.all_to_all_single(
            self._on_group,
            on_group,
            self._received_lengths,
            self._sent_lengths,
            group=self._group.process_group,
            async_op=True,
        )

    def finish(self) -> None:
        """Wait until what was received is in the second buffer."""
        self._group.wait(self._pending, self._work)
        received = self._received.get()
        if self._on_group is not received:
            assert self._on_group is not None
            received.copy_(self._on_group)
        self._on_group = None
        if (received.view(torch.int64)[self._received_tokens] != self._token).any():
            raise disagreement(self._work.describe)

    @property
    def _token(self) -> int:
        return ~self._work.token if self._is_back else self._work.token


# -- partial gradients -------------------------------------------------------------------------------------------------
# A is linear, so each share of a sum could be directed by itself. Reduced first, the result is rounded as one process
# rounds it, and what is not linear (the control "norm", diagnostics) sees the gradient and not its shares.


def reduce_partial_(shards: Sequence[LocalShard]) -> None:
    """Write the whole gradient in place of this rank's share: one all-reduce per rank group and dtype.

    A smaller one before them compares which gradients there are, which decides the sizes.
    """
    by_group: dict[RankGroup, list[LocalShard]] = {}
    for shard in shards:
        group = rank_group(shard.layout.mesh, tuple(dim for dim, _ in shard.layout.partial))
        by_group.setdefault(group, []).append(shard)
    for group, together in by_group.items():
        layout = [(shard.name, shard.local is not None, str(shard.dtype), shard.parts) for shard in together]
        _all_reduced(group, _work(layout, "Partial gradients", together), torch.zeros(0, device=group.device))
        by_dtype: dict[tuple[torch.dtype, torch.device], list[tuple[LocalShard, Tensor]]] = {}
        for shard in together:
            if shard.local is not None:
                by_dtype.setdefault((shard.local.dtype, shard.local.device), []).append((shard, shard.local))
        for (_, device), alike in by_dtype.items():
            flat = torch.cat([local.reshape(-1) for _, local in alike]).to(group.device)
            dist.all_reduce(flat, group=group.process_group)
            sums = torch.split(flat.to(device), [local.numel() for _, local in alike])
            for (shard, local), total in zip(alike, sums, strict=True):
                local.copy_((total / _partial_ranks(shard, "avg")).view(local.shape))


def share_partial_(shards: Sequence[LocalShard]) -> None:
    """Leave each rank its share of the directed gradient, so that the placement is true again."""
    for shard in shards:
        if shard.local is not None and (ranks := _partial_ranks(shard, "sum")) > 1:
            shard.local.div_(ranks)


def _partial_ranks(shard: LocalShard, reduce_op: str) -> int:
    return math.prod(shard.layout.mesh.size(dim) for dim, op in shard.layout.partial if op == reduce_op)


def _work(layout: object, title: str, shards: Sequence[LocalShard]) -> Work:
    work = Work(layout, title=title, absent=[shard.name for shard in shards if shard.local is None])
    work.update()
    return work


# -- norms and products ------------------------------------------------------------------------------------------------

SCALES = (2.0**-600, 1.0, 2.0**600)
LIMIT = 2.0**400
"""Float64 entries beyond this, or below its reciprocal, are scaled before they are squared."""


class WholeSums:
    """Sums over all shards of each gradient."""

    def __init__(self, shards: Sequence[LocalShard]):
        self._shards = shards
        self._groups: dict[RankGroup, list[int]] = {}
        for index, shard in enumerate(shards):
            if dims := shard.layout.cutting(tuple(range(len(shard.layout.shape)))):
                self._groups.setdefault(rank_group(shard.layout.mesh, dims), []).append(index)

    def products(self, originals: Sequence[Tensor | None]) -> list[Tensor]:
        """|f|^2, |g|^2 and <f, g> of every gradient."""
        return self._reduced(originals, products_of)

    def norm_ratios(self, originals: Sequence[Tensor | None]) -> list[Tensor]:
        """|f| / |g| of every gradient, without overflow or underflow: 1 for a zero gradient."""
        ratios = []
        for total in self._reduced(originals, lambda f, g: torch.cat([_squares(f), _squares(g)])):
            norm_f, norm_g = map(_norm, total.chunk(2))
            ratios.append(norm_ratio(norm_f[0], norm_g[0]) * (norm_f[1] / norm_g[1]))
        return ratios

    def _reduced(self, originals: Sequence[Tensor | None], sums_of: Callable[[Tensor, Tensor], Tensor]) -> list[Tensor]:
        """Sums of f and g, of nothing without a gradient, added over all ranks: one all-reduce per rank group."""
        sums = []
        for shard, f in zip(self._shards, originals, strict=True):
            nothing = torch.zeros(0, dtype=shard.dtype, device=shard.device)
            sums.append(sums_of(nothing, nothing) if f is None or shard.local is None else sums_of(f, shard.local))
        for group, indices in self._groups.items():
            shards, own = [self._shards[index] for index in indices], [sums[index] for index in indices]
            layout = [(shard.local is not None, len(one)) for shard, one in zip(shards, own, strict=True)]
            totals = _all_reduced(group, _work(layout, "sums over whole gradients", shards), torch.cat(own))
            for index, total in zip(indices, torch.split(totals, [len(one) for one in own]), strict=True):
                sums[index] = total
        return sums


def _all_reduced(group: RankGroup, work: Work, numbers: Tensor) -> Tensor:
    reduce = AllReduce(group, work, len(numbers), numbers.device)
    reduce.start(lambda sent: sent.copy_(numbers))
    return reduce.finish()


def _squares(local: Tensor) -> Tensor:
    """The sum of squares; of float64, in one of three places by the scale that its largest entry asks for."""
    wide = local.to(torch.complex128 if local.is_complex() else torch.float64).flatten()
    if compute_dtype(local.dtype) != torch.float64:
        return torch.vdot(wide, wide).real.unsqueeze(0)
    top = wide.abs().amax() if len(wide) else torch.zeros((), dtype=torch.float64, device=local.device)
    place = (top <= LIMIT).long() + ((top < 1 / LIMIT) & (top > 0)).long()
    scaled = wide * torch.tensor(SCALES, dtype=torch.float64, device=local.device)[place]
    sums = torch.zeros(len(SCALES), dtype=torch.float64, device=local.device)
    return sums.index_put_((place,), torch.vdot(scaled, scaled).real)


def _norm(squares: Tensor) -> tuple[Tensor, Tensor]:
    """A norm in units that the largest of its sums of squares decides, and the unit."""
    if len(squares) == 1:
        return squares[0].sqrt(), torch.ones_like(squares[0])
    scales = torch.tensor(SCALES, dtype=torch.float64, device=squares.device)
    place = (squares != 0).long().argmax()
    ratio = scales[place] / scales
    # Factor by factor: the square of the ratio may underflow where the product does not.
    in_units = torch.where(squares == 0, 0.0, squares * ratio * ratio)
    return in_units.sum().sqrt(), 1 / scales[place]


# -- finiteness --------------------------------------------------------------------------------------------------------


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
