"""Running means that stay on the device: adding to them waits for nothing, reading them does."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class Meters:
    """Named sums and counts."""

    def __init__(self, device: torch.device):
        self.device = device
        # Float64, where the device has it: thousands of small batches must not round away.
        self.dtype = torch.float32 if device.type == "mps" else torch.float64
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, int] = {}

    def add(self, name: str, total: Tensor, count: int) -> None:
        """Add a sum over `count` items."""
        if name not in self.sums:
            self.sums[name] = torch.zeros((), dtype=self.dtype, device=self.device)
            self.counts[name] = 0
        self.sums[name].add_(total.detach())
        self.counts[name] += count

    def means(self, add_up: Callable[[Tensor], Tensor] = lambda local: local) -> dict[str, float]:
        """All means, in one transfer from the device; `add_up` sums a tensor over several processes."""
        if not self.sums:
            return {}
        counts = torch.tensor([float(count) for count in self.counts.values()], dtype=self.dtype)
        totals = add_up(torch.stack([torch.stack(list(self.sums.values())), counts.to(self.device)]))
        return dict(zip(self.sums, (totals[0] / totals[1]).tolist(), strict=True))

    def reset(self) -> None:
        self.sums.clear()
        self.counts.clear()

    def state(self, add_up: Callable[[Tensor], Tensor] = lambda local: local) -> dict[str, dict[str, Tensor | int]]:
        """The sums and counts of all processes together; each of them must call it."""
        return {
            name: {
                "sum": add_up(self.sums[name].clone()).cpu(),
                "count": int(add_up(torch.tensor(self.counts[name], device=self.device))),
            }
            for name in self.sums
        }

    def restore(self, state: dict[str, dict[str, Tensor | int]], first: bool = True) -> None:
        """Take up a saved state. It is that of all processes, so the first one has it and the others begin at zero."""
        self.reset()
        for name, saved in state.items():
            total = torch.as_tensor(saved["sum"]).to(self.device, self.dtype)
            self.add(name, total if first else torch.zeros_like(total), int(saved["count"]) if first else 0)
