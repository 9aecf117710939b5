"""Claim: time grows linearly, with n at fixed M and with M at fixed n.

Growth is measured on pairs (n, 4n) at an M so large that both are beyond the last cache; where n fits and 4n does not,
time grows faster than the work, for a copy as well. M is odd in units of 1 KiB: rows that lie a multiple of 4 KiB apart
push each other out of the caches.
"""

from __future__ import annotations

import torch

import riesz
from benchmarks.harness import Measurement, save, series

METRICS = {
    "SobolevTilde": riesz.SobolevTilde(),
    "ReweightedL2": riesz.ReweightedL2(),
    "Sobolev": riesz.Sobolev(0.1),
}
FIXED_M, FIXED_N = 18_432, 256
"""M is that of a conv weight with 2,048 input channels and 3 x 3 taps."""
LENGTHS = [16, 64, 256, 1024, 4096]
COLUMNS = [64, 256, 1024, 4096, 16_384, 65_536, 262_144]
GROWTH = [256, 1024]
"""The n whose time is held against that of 4n."""
BEYOND = 1 << 29
"""Bytes at n: about twice the largest last-level caches of today."""


def columns_beyond_cache(n: int) -> int:
    return BEYOND // 4 // n + 256


def measured(fixed: str, shapes: dict[int, tuple[int, int]], rounds: int = 12) -> list[Measurement]:
    """All metrics and a copy on shapes that differ in one size."""
    rivals = {}
    for size, shape in shapes.items():
        f = torch.randn(shape)
        copy = torch.empty_like(f)
        rivals[f"{size} copy_"] = lambda a=copy, b=f: a.copy_(b)
        for name, metric in METRICS.items():
            rivals[f"{size} {name}"] = lambda f=f, m=metric: riesz.precondition_(f, m, backend="cpu")
    return series("scaling", fixed, rivals, rounds=rounds, refresh=lambda: None)


def main() -> None:
    figures = measured(f"M={FIXED_M}", {n: (n, FIXED_M) for n in LENGTHS})
    figures += measured(f"n={FIXED_N}", {m: (FIXED_N, m) for m in COLUMNS})
    for n in GROWTH:
        columns = columns_beyond_cache(n)
        figures += measured(f"M={columns}", {n: (n, columns), 4 * n: (4 * n, columns)}, rounds=5)
    save("scaling", figures)


if __name__ == "__main__":
    main()
