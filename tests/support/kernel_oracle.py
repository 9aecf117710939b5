"""What the compiled kernels are held against."""

from __future__ import annotations

import torch

import riesz

METRIC = riesz.SobolevTilde(0.1)


def by_fft(metric, f, dim=0):
    """The closed-form symbol applied in float64: an oracle where a dense matrix is out of reach."""
    n = f.shape[dim]
    symbol = metric.symbol(n).view([-1 if d == dim else 1 for d in range(f.dim())])
    return torch.fft.irfft(torch.fft.rfft(f.double(), dim=dim) * symbol, n=n, dim=dim)


def expected(f, metric, dim=0):
    return riesz.precondition_(f.detach().clone().double(), metric, dim, "reference")
