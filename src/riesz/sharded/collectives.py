"""The collectives of a rank group: each has buffers that are laid out once, starts without waiting and finishes later.

Every buffer opens with a digest of the work that the rank takes part in: which gradients there are, their shapes, the
metric's numbers. The ranks compare digests at every step, before anything that arrived is used. Ranks that disagree (a
parameter without a gradient on one of them, a schedule that differs) all raise in the same call, instead of mixing each
other's columns or waiting for ever. On an accelerator the comparison waits for the collective.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from riesz.control import norm_ratio
from riesz.control import products as products_of
from riesz.layout.axis import compute_dtype
from riesz.sharded.groups import Describe, RankGroup, digest, disagreement, rank_group
from riesz.sharded.layout import LocalPart, local_of

WORD = 8
"""Buffers are cut at multiples of this many bytes, so that any dtype can be read at a cut."""

KEEP_BYTES = 64 << 20
"""Buffers up to this size are kept from step to step; larger ones are allocated for each."""

# One call under two names: torch 2.13 renamed it and warns of the old one.
_all_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


class Exchange(Protocol):
    """Collectives and the computation around them: laid out once, used at every step."""

    def start(self) -> None:
        """Pack what other ranks need, and begin to send it."""

    def finish(self) -> None:
        """Wait for what other ranks send, and direct in place. Raises on all ranks if their work differs."""

    def drop_buffers(self) -> None:
        """Free what is kept from step to step."""


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
        """Free the memory if it is too large to keep."""
        if self.size > KEEP_BYTES:
            self.drop()

    def drop(self) -> None:
        """Free the memory, unless a collective that is under way holds it."""
        self._bytes = None


class AllGather:
    """Every rank gets `size` bytes of every rank."""

    def __init__(self, group: RankGroup, size: int, device: torch.device):
        self._group = group
        self._device = device
        self._sent = Buffer(WORD + size, device)
        self._received = Buffer(group.size * (WORD + size), group.device)
        self._pending: Any = None
        self.stride = WORD + size
        """Bytes from one rank's part of what is received to the next; each opens with the digest."""

    def send_buffer(self) -> Tensor:
        return self._sent.get()

    def start(self, token: int) -> None:
        sent = self._sent.get()
        sent.view(torch.int64)[0] = token
        on_group = sent.to(self._group.device)
        self._pending = _all_gather(self._received.get(), on_group, group=self._group.process_group, async_op=True)

    def finish(self, token: int, describe: Describe) -> Tensor:
        """All that was sent, rank by rank."""
        self._group.wait(self._pending, describe)
        received = self._received.get().to(self._device)
        tokens = received.view(torch.int64)[:: self.stride // WORD]
        if tokens.tolist() != [token] * self._group.size:
            raise disagreement(describe)
        return received

    def release(self) -> None:
        self._sent.release()
        self._received.release()

    def drop(self) -> None:
        self._sent.drop()
        self._received.drop()


class AllReduce:
    """Every rank gets the float64 sums of `count` numbers over all ranks."""

    HEADER = 3
    """Numbers in front of the sums, by which ranks agree."""

    def __init__(self, group: RankGroup, count: int, device: torch.device):
        self._group = group
        self._device = device
        self._buffer = Buffer(8 * (self.HEADER + count), device)
        self._pending: Any = None
        self._on_group: Tensor = torch.empty(0)

    def send_buffer(self) -> Tensor:
        """The bytes of header and numbers. The sums replace the numbers, so all of them are written at each step."""
        return self._buffer.get()

    def start(self, token: int) -> None:
        flat = self._buffer.get().view(torch.float64)
        flat[: self.HEADER] = torch.tensor(agreement_header(token, self._group.size), dtype=torch.float64)
        self._on_group = flat.to(self._group.device)
        self._pending = dist.all_reduce(self._on_group, group=self._group.process_group, async_op=True)

    def finish(self, token: int, describe: Describe) -> Tensor:
        """The bytes of header and sums."""
        self._group.wait(self._pending, describe)
        totals = self._on_group.to(self._device)
        if not totals_agree(totals[: self.HEADER].tolist(), self._group.size):
            raise disagreement(describe)
        return totals.view(torch.uint8)

    def release(self) -> None:
        self._on_group = torch.empty(0)
        self._buffer.release()

    def drop(self) -> None:
        self._on_group = torch.empty(0)
        self._buffer.drop()


def agreement_header(token: int, ranks: int) -> tuple[int, int, int]:
    """Three integers whose sums over all ranks tell whether all tokens are equal.

    They are two digits d0, d1 of the token, the second with a count of one below it, and d0^2 + d1^2. By Cauchy and
    Schwarz `W sum(d^2) >= sum(d)^2`, with equality only where all d are equal. Digits have so few bits that every sum
    is an integer below 2^53, which float64 holds exactly in any order of adding.
    """
    bits, count_bits = _digit_bits(ranks)
    low, high = token & (2**bits - 1), (token >> bits) & (2**bits - 1)
    return low, (high << count_bits) + 1, low**2 + high**2


def totals_agree(totals: Sequence[float], ranks: int) -> bool:
    """Whether sums of `agreement_header` come from equal tokens; in integers, where nothing is rounded."""
    low, packed, squares = (int(total) for total in totals)
    _, count_bits = _digit_bits(ranks)
    high, count = packed >> count_bits, packed & (2**count_bits - 1)
    return bool(count * squares == low**2 + high**2)


def _digit_bits(ranks: int) -> tuple[int, int]:
    """Bits of a digit and of a count of ranks: sums of squares, and of digits above counts, stay below 2^53."""
    count_bits = ranks.bit_length()
    return max(1, min((52 - count_bits) // 2, 53 - 2 * count_bits)), count_bits


class AllToAll:
    """Every rank exchanges parts with every rank; part sizes may differ by rank.

    Args:
        group: the ranks that take part.
        sent, received: by rank, the bytes of payload; each part opens with the digest.
        send_buffer, receive_buffer: of the sum of those sizes and their headers.
    """

    def __init__(self, group: RankGroup, sent: Sequence[int], received: Sequence[int], buffers: tuple[Buffer, Buffer]):
        self._group = group
        self._sent, self._received = buffers
        self._sent_lengths = [WORD + size for size in sent]
        self._received_lengths = [WORD + size for size in received]
        self._sent_headers, self._received_headers = map(_headers, (self._sent_lengths, self._received_lengths))
        self._pending: Any = None
        self._on_group: Tensor = torch.empty(0)

    def start(self, token: int) -> None:
        sent = self._sent.get()
        sent.view(torch.int64)[self._sent_headers] = token
        self._on_group = torch.empty(self._received.size, dtype=torch.uint8, device=self._group.device)
        if self._group.device == sent.device:
            self._on_group = self._received.get()
        self._pending = dist.all_to_all_single(
            self._on_group,
            sent.to(self._group.device),
            self._received_lengths,
            self._sent_lengths,
            group=self._group.process_group,
            async_op=True,
        )

    def finish(self, token: int, describe: Describe) -> None:
        """Wait until what was received is in the receive buffer."""
        self._group.wait(self._pending, describe)
        received = self._received.get()
        if self._on_group is not received:
            received.copy_(self._on_group)
        self._on_group = torch.empty(0)
        if (received.view(torch.int64)[self._received_headers] != token).any():
            raise disagreement(describe)


def _headers(lengths: Sequence[int]) -> Tensor:
    """Where the parts of a buffer begin, in words."""
    starts = torch.tensor([0, *lengths[:-1]]).cumsum(0)
    return starts // WORD


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


# -- sums over whole gradients -----------------------------------------------------------------------------------------

SCALES = (2.0**-600, 1.0, 2.0**600)
LIMIT = 2.0**400
"""Float64 entries beyond this, or below its reciprocal, are scaled before they are squared."""


class WholeSums:
    """Sums over all shards of each gradient: norms and products."""

    def __init__(self, parts: Sequence[LocalPart]):
        self._parts = parts
        self._groups: dict[RankGroup, list[int]] = {}
        for index, part in enumerate(parts):
            if dims := part.layout.cutting(tuple(range(len(part.layout.shape)))):
                self._groups.setdefault(rank_group(part.layout.mesh, dims), []).append(index)

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
        for part, f in zip(self._parts, originals, strict=True):
            nothing = torch.zeros(0, dtype=part.dtype, device=part.device)
            sums.append(sums_of(nothing, nothing) if f is None or part.local is None else sums_of(f, part.local))
        for group, indices in self._groups.items():
            parts, own = [self._parts[index] for index in indices], [sums[index] for index in indices]
            token = digest([(part.local is not None, len(one)) for part, one in zip(parts, own, strict=True)])
            absent = ", ".join(part.name for part in parts if part.local is None)
            reduce = AllReduce(group, sum(map(len, own)), own[0].device)
            reduce.send_buffer().view(torch.float64)[AllReduce.HEADER :] = torch.cat(own)
            reduce.start(token)
            description = f"sums over whole gradients; without a gradient: {absent or 'none'}"
            totals = reduce.finish(token, description.__str__).view(torch.float64)[AllReduce.HEADER :]
            for index, total in zip(indices, torch.split(totals, [len(one) for one in own]), strict=True):
                sums[index] = total
        return sums


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
