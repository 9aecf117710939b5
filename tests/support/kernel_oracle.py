"""What the compiled kernels are held against."""

from __future__ import annotations

import torch

import riesz

TOLERANCE = {torch.float64: 1e-12, torch.float32: 5e-6, torch.bfloat16: 4e-3, torch.float16: 5e-4}
METRIC = riesz.SobolevTilde(0.1)


def relative_error(got, wanted):
    size = wanted.abs().max().item()
    return ((got.double() - wanted.double()).abs().max() / (size or 1.0)).item()


def by_fft(metric, f, dim=0):
    """The closed-form symbol applied in float64: an oracle where a dense matrix is out of reach."""
    n = f.shape[dim]
    symbol = metric.symbol(n).view([-1 if d == dim else 1 for d in range(f.dim())])
    return torch.fft.irfft(torch.fft.rfft(f.double(), dim=dim) * symbol, n=n, dim=dim)


def expected(f, metric, dim=0):
    return riesz.precondition_(f.detach().clone().double(), metric, dim, "reference")
