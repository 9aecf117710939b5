"""Figure 2: the kernels of all metrics at lam = 1."""

from __future__ import annotations

import torch

import riesz
from riesz_lab.report.evidence import Evidence
from riesz_lab.report.figure import Figure, Panel, Series

N = 64


def kernels(evidence: Evidence) -> Figure:
    """Needs no trial: it follows from the definitions."""
    del evidence
    distance = list(range(-N // 2, N // 2))
    metrics = {
        "SobolevTilde": (riesz.SobolevTilde(1.0, blend=0.0), 1),
        "Sobolev": (riesz.Sobolev(1.0), 4),
        "LaplacianSmoothing, sigma = 1": (riesz.LaplacianSmoothing(1.0), 3),
    }
    smooth = [
        Series(name=name, x=distance, y=_kernel(metric), color=color, dash=index % 4)
        for index, (name, (metric, color)) in enumerate(metrics.items())
    ]
    whole = [
        *smooth,
        Series(name="ReweightedL2", x=distance, y=_kernel(riesz.ReweightedL2(1.0)), color=2, dash=3),
    ]
    axes = {"x": "distance in output channels", "y": "n x kernel"}
    return Figure(
        name="kernels",
        title="Kernels of the metrics, lam = 1",
        caption=f"How each metric spreads an impulse over {N} output channels; SobolevTilde without the plain gradient"
        " that it adds by default. Left, the peaks of LaplacianSmoothing and ReweightedL2 are cut off. Right: close to"
        " 1. At lam = 1 SobolevTilde and Sobolev nearly coincide with a plain mean.",
        alt="SobolevTilde varies only between 0.96 and 1.08 over all distances; LaplacianSmoothing is a narrow peak;"
        " ReweightedL2 is an impulse on a constant 1.",
        panels=[
            Panel(title="All", series=whole, y_range=(-0.5, 4.5), **axes),
            Panel(title="Close up", series=smooth[:2], **axes),
        ],
    )


def _kernel(metric: riesz.Metric) -> list[float | None]:
    kernel = N * metric.kernel(N).roll(N // 2)
    assert isinstance(kernel, torch.Tensor)
    return [float(value) for value in kernel]
