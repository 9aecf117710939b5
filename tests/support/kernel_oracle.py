"""What the compiled kernels, and every backend on columns that cancel, are held against."""

from __future__ import annotations

import numpy
import torch
from torch import Tensor

import riesz

METRIC = riesz.SobolevTilde(0.1)

EXTENDED = numpy.finfo(numpy.longdouble).nmant >= 63
"""Whether this machine has numbers of 64 bits of mantissa or more to solve in."""


def by_fft(metric, f, dim=0):
    """The closed-form symbol applied in float64: an oracle where a dense matrix is out of reach."""
    n = f.shape[dim]
    symbol = metric.symbol(n).view([-1 if d == dim else 1 for d in range(f.dim())])
    return torch.fft.irfft(torch.fft.rfft(f.double(), dim=dim) * symbol, n=n, dim=dim)


def expected(f, metric, dim=0):
    return riesz.precondition_(f.detach().clone().double(), metric, dim, "reference")


def in_extended_precision(metric: riesz.Metric, f_NM: Tensor) -> Tensor:
    """A f along the first axis in the 80-bit numbers of x86, rounded to float64 at the end.

    Its own formulas, and the mean by itself: a strong metric divides the highest mode by 4 lam n^2, 1.7e13 at
    lam = 1e3 and n = 65,536, and what rounding adds to the mean or to the lowest modes is divided by far less.
    """
    n, long = f_NM.shape[0], numpy.longdouble
    pi = 4 * numpy.arctan(long(1))
    waves_F1 = 4 * numpy.sin(numpy.arange(1, n // 2 + 1, dtype=long) * (pi / n))[:, None] ** 2
    strength = long(metric.strength)
    symbol_F1 = {
        riesz.Identity: lambda: 1 + 0 * waves_F1,
        riesz.ReweightedL2: lambda: 1 + 0 * waves_F1,
        riesz.Sobolev: lambda: 1 / (1 + strength * long(n) ** 2 * waves_F1),
        riesz.SobolevTilde: lambda: 1 / (strength * long(n) ** 2 * waves_F1),
        riesz.LaplacianSmoothing: lambda: 1 / (1 + strength * waves_F1),
    }[type(metric)]()
    columns_NM = f_NM.double().numpy().astype(long)
    # Twice, because the mean of what is left after the first is what rounding left.
    mean_1M = columns_NM.mean(0, keepdims=True)
    mean_1M += (columns_NM - mean_1M).mean(0, keepdims=True)
    spectrum_FM = numpy.fft.rfft(columns_NM - mean_1M, axis=0)
    spectrum_FM[0] = 0
    spectrum_FM[1:] *= long(metric.scale) * symbol_F1 + long(metric.blend)
    rest_NM = numpy.fft.irfft(spectrum_FM, n=n, axis=0)
    mean_factor = long(metric.scale) * long(metric.mean_factor(n)) + long(metric.blend)
    return torch.from_numpy((rest_NM + mean_factor * mean_1M).astype(numpy.float64))
