"""Flags that several processes share, at steps on which they agree.

A signal reaches one of them, or all at different steps, and their clocks differ; yet they must stop or save at the same
step, since both are collective. Communicating at every step would cost more than a small step does. So at each
exchange the first process sets, by its own clock, the step of the next one: about a second later.
"""

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

SECONDS = 1.0
MOST_STEPS = 100


class SharedFlags:
    """Flags shared by `world` processes, at steps that all of them know."""

    def __init__(self, rank: int, world: int, add_up: Callable[[Tensor], Tensor], device: torch.device):
        self.rank, self.world, self.add_up, self.device = rank, world, add_up, device
        self.next = 0
        self._last = (time.monotonic(), 0)

    def any(self, step: int, flags: Sequence[bool]) -> list[bool]:
        """Which flags are set in any process; none between two exchanges. A single process needs no exchange."""
        if self.world == 1:
            return list(flags)
        if step < self.next:
            return [False] * len(flags)
        pace = self._pace(step) if self.rank == 0 else 0
        *raised, steps = self.add_up(torch.tensor([*map(float, flags), float(pace)], device=self.device)).tolist()
        self.next = step + int(steps)
        self._last = (time.monotonic(), step)
        return [count > 0 for count in raised]

    def _pace(self, step: int) -> int:
        since, at = self._last
        per_step = (time.monotonic() - since) / max(1, step - at)
        return max(1, min(MOST_STEPS, int(SECONDS / max(per_step, 1e-6))))
