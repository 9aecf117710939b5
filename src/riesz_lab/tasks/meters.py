"""Running means on the device: adding to them does not wait for it, reading them does."""

from collections.abc import Callable

import torch
from torch import Tensor


class Meters:
    """Named sums and counts."""

    def __init__(self, device: torch.device):
        self.device = device
        # float64 where the device has it: sums over thousands of batches must not lose the small ones.
        self.dtype = torch.float32 if device.type == "mps" else torch.float64
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, int] = {}

    def add(self, name: str, total: Tensor, count: int) -> None:
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

    def reset(self, *names: str) -> None:
        """Start anew, with zero items under `names`: processes without items must add up the same names."""
        self.sums.clear()
        self.counts.clear()
        for name in names:
            self.add(name, torch.zeros(()), 0)

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
        """Load a saved state. It is the sum over processes, so the first one takes it and the others start at zero."""
        self.reset()
        for name, saved in state.items():
            total = torch.as_tensor(saved["sum"]).to(self.device, self.dtype)
            self.add(name, total if first else torch.zeros_like(total), int(saved["count"]) if first else 0)
