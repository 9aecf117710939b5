"""Claim: time grows linearly, with n at fixed M and with M at fixed n."""

from __future__ import annotations

import torch

import riesz
from benchmarks.harness import Figure, save, series

METRICS = {
    "SobolevTilde": riesz.SobolevTilde(),
    "ReweightedL2": riesz.ReweightedL2(),
    "Sobolev": riesz.Sobolev(0.1),
}
FIXED_M, FIXED_N = 18_432, 256
"""M is that of a conv weight with 2,048 input channels and 3 x 3 taps."""
LENGTHS = [16, 64, 256, 1024, 4096]
COLUMNS = [64, 256, 1024, 4096, 16_384, 65_536, 262_144]


def main() -> None:
    figures: list[Figure] = []
    for axis, shapes in (
        ("n", [(n, FIXED_M) for n in LENGTHS]),
        ("M", [(FIXED_N, m) for m in COLUMNS]),
    ):
        rivals = {}
        for shape in shapes:
            f = torch.randn(shape)
            copy = torch.empty_like(f)
            size = shape[0] if axis == "n" else shape[1]
            rivals[f"{size} copy_"] = lambda a=copy, b=f: a.copy_(b)
            for name, metric in METRICS.items():
                rivals[f"{size} {name}"] = lambda f=f, m=metric: riesz.precondition_(f, m, backend="cpu")
        fixed = f"M={FIXED_M}" if axis == "n" else f"n={FIXED_N}"
        figures += series("scaling", fixed, rivals, rounds=12, refresh=lambda: None)
    save("scaling", figures)


if __name__ == "__main__":
    main()
