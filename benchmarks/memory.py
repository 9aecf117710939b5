"""Claim: every metric, in every direction, runs at about the speed of copying the gradients."""

from __future__ import annotations

import torch

import riesz
from benchmarks.harness import Measurement, save, series
from benchmarks.networks import NETWORKS, gradients

METRICS = {
    "SobolevTilde": riesz.SobolevTilde(),
    "ReweightedL2": riesz.ReweightedL2(),
    "Sobolev": riesz.Sobolev(0.1),
    "LaplacianSmoothing": riesz.LaplacianSmoothing(1.0),
}


def main() -> None:
    figures: list[Measurement] = []
    for network, shapes in NETWORKS.items():
        grads = gradients(shapes)
        original = [f.clone() for f in grads]
        flat = torch.cat([f.flatten() for f in grads])
        copies, flat_copy = [torch.empty_like(f) for f in grads], torch.empty_like(flat)
        lines = [f.view(-1) for f in grads]
        rivals = {
            "copy_ per tensor": lambda a=copies, b=grads: [x.copy_(y) for x, y in zip(a, b, strict=True)],
            "one flat copy": lambda a=flat_copy, b=flat: a.copy_(b),
        }
        for name, metric in METRICS.items():
            rivals[f"{name} output"] = lambda g=grads, m=metric: riesz.precondition_(g, m, backend="cpu")
            rivals[f"{name} input"] = lambda g=grads, m=metric: riesz.precondition_(g, m, dim=1, backend="cpu")
        rivals["LaplacianSmoothing rasterized"] = lambda g=lines: riesz.precondition_(
            g, METRICS["LaplacianSmoothing"], backend="cpu"
        )
        rivals["Centralization output"] = lambda g=grads: riesz.precondition_(g, riesz.Centralization(), backend="cpu")
        numel = flat.numel()
        rounds = 100 if numel < 2e6 else 15 if numel < 2e7 else 11
        figures += series(
            "memory", network, rivals, rounds=rounds, refresh=lambda a=grads, b=original: torch._foreach_copy_(a, b)
        )
    save("memory", figures)


if __name__ == "__main__":
    main()
