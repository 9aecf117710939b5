"""Which rows of the directed axis each rank holds. Plain arithmetic: nothing here knows of tensors or processes.

The axis is read as one long line of `groups * n` rows, the groups one after the other. A rank holds runs of it, in the
order in which they lie in its memory: one run under FSDP, several where shards are strided (`FSDP + TP`) or where a
shard spans groups of a convolution.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate

Cut = tuple[int, int]
"""How one mesh dim divides a tensor dim: (pieces, parts). Each of `pieces` equal pieces is dealt out to `parts` ranks;
one piece is a plain shard, several are a strided one."""


@dataclass(frozen=True, order=True)
class Run:
    """Consecutive rows of the long axis."""

    start: int
    length: int

    @property
    def stop(self) -> int:
        return self.start + self.length


@dataclass(frozen=True)
class Rows:
    """How the directed axis is dealt out.

    Attributes:
        n: the length of the axis, within one group.
        runs: by rank of the team, the runs it holds in its own order; none crosses from one group to the next.
    """

    n: int
    runs: tuple[tuple[Run, ...], ...]

    def __post_init__(self) -> None:
        held = sorted(run for runs in self.runs for run in runs)
        edges = list(accumulate((run.length for run in held), initial=0))
        if [run.start for run in held] != edges[:-1] or edges[-1] % self.n:
            raise ValueError(f"the ranks' rows {held} do not add up to whole columns of {self.n}")

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """How many rows each rank holds."""
        return tuple(sum(run.length for run in runs) for runs in self.runs)

    @cached_property
    def groups(self) -> int:
        return sum(self.counts) // self.n

    @cached_property
    def slots(self) -> int:
        """The most runs of a divided group that any rank holds."""
        return max(len(self.divided(rank)) for rank in range(len(self.runs)))

    @cached_property
    def shared(self) -> dict[int, int]:
        """The groups that are divided among ranks, numbered in their order."""
        divided = {self.group(run) for rank in range(len(self.runs)) for run in self.divided(rank)}
        return {group: number for number, group in enumerate(sorted(divided))}

    def group(self, run: Run) -> int:
        return run.start // self.n

    def divided(self, rank: int) -> list[Run]:
        """The rank's runs that are a part of a column only; the others need nobody else."""
        return [run for run in self.runs[rank] if run.length < self.n]

    def partners(self, run: Run) -> list[tuple[int, int, Run]]:
        """All runs of the same group, with their ranks and their places among the rank's divided runs."""
        return [
            (rank, slot, other)
            for rank in range(len(self.runs))
            for slot, other in enumerate(self.divided(rank))
            if self.group(other) == self.group(run)
        ]


@lru_cache(maxsize=4096)
def deal(length: int, cuts: tuple[Cut, ...], seats: tuple[tuple[int, ...], ...]) -> tuple[tuple[Run, ...], ...]:
    """The runs of an axis that each rank holds, given its seat: its coordinates on the mesh dims that cut the axis."""
    return tuple(tuple(_held(length, cuts, seat)) for seat in seats)


@lru_cache(maxsize=4096)
def rows(n: int, stretch: int, runs: tuple[tuple[Run, ...], ...]) -> Rows:
    """Rows from the runs of a tensor dim: each index of it stands for `stretch` rows, and columns have length n."""
    wide = (tuple(Run(run.start * stretch, run.length * stretch) for run in held) for held in runs)
    return Rows(n, tuple(tuple(_split(held, n)) for held in wide))


def _held(length: int, cuts: Sequence[Cut], seat: Sequence[int]) -> list[Run]:
    runs = [Run(0, length)] if length else []
    for (pieces, parts), place in zip(cuts, seat, strict=True):
        total = sum(run.length for run in runs)
        taken: list[Run] = []
        for piece in range(pieces):
            start, stop = _chunk(total, pieces, piece)
            first, last = _chunk(stop - start, parts, place)
            taken += _between(runs, start + first, start + last)
        runs = _joined(taken)
    return runs


def _chunk(length: int, parts: int, place: int) -> tuple[int, int]:
    """Where the chunk at `place` begins and ends, as torch.chunk cuts: the last ones may be short or empty."""
    size = -(-length // parts)
    return min(place * size, length), min((place + 1) * size, length)


def _between(runs: Iterable[Run], start: int, stop: int) -> list[Run]:
    """What lies from `start` to `stop`, counted in the rows held."""
    found, before = [], 0
    for run in runs:
        low, high = max(start - before, 0), min(stop - before, run.length)
        if low < high:
            found.append(Run(run.start + low, high - low))
        before += run.length
    return found


def _joined(runs: Iterable[Run]) -> list[Run]:
    out: list[Run] = []
    for run in runs:
        if out and out[-1].stop == run.start:
            start = out.pop().start
            run = Run(start, run.stop - start)
        out.append(run)
    return out


def _split(runs: Iterable[Run], n: int) -> Iterable[Run]:
    for run in runs:
        start = run.start
        while start < run.stop:
            stop = min(run.stop, (start // n + 1) * n)
            yield Run(start, stop - start)
            start = stop
