"""The one table of cases: metrics, dtypes with their tolerances, ways a tensor can lie in memory."""

from __future__ import annotations

import torch
from torch import Tensor

import riesz

METRICS = [
    riesz.Identity(),
    riesz.Identity(scale=0.5, blend=2.0),
    riesz.ReweightedL2(),
    riesz.ReweightedL2(lam=-0.5),
    riesz.ReweightedL2(lam=0.0),
    riesz.ReweightedL2(lam=20.0, scale=0.25, blend=0.5),
    riesz.ReweightedL2.from_weight(0.3),
    riesz.Sobolev(),
    riesz.Sobolev(lam=1e-4),
    riesz.Sobolev(lam=50.0, scale=3.0, blend=0.1),
    riesz.SobolevTilde(),
    riesz.SobolevTilde(lam=0.01, blend=0.0),
    riesz.SobolevTilde(lam=0.3, scale=2.0, blend=0.5),
    riesz.SobolevTilde(lam=0.2, blend=0.0, riemann=True),
    riesz.LaplacianSmoothing(),
    riesz.LaplacianSmoothing(sigma=1e-3),
    riesz.LaplacianSmoothing(sigma=300.0, scale=0.5, blend=1.0),
]
"""At least one of every kind that has a symbol, and of every branch of its formula."""

LENGTHS = [1, 2, 3, 4, 5, 7, 16, 63, 64, 65, 192, 193, 256, 257, 641]
"""Even, odd and prime; on both sides of a block of running sums and of every change of strategy."""

TOLERANCE = {
    torch.float64: 1e-12,
    torch.complex128: 1e-12,
    torch.float32: 5e-6,
    torch.complex64: 5e-6,
    torch.bfloat16: 4e-3,  # one rounding to 8 bits
    torch.float16: 5e-4,  # one rounding to 11 bits
}
"""Largest error allowed, relative to the largest entry wanted."""

LAYOUTS = ["contiguous", "reversed", "last_first", "strided", "offset"]
"""Ways a tensor of given shape can lie in memory; "last_first" is channels_last for a 4-d weight."""


def laid_out(values: Tensor, layout: str) -> Tensor:
    """A tensor equal to `values` whose memory is laid out as named."""
    dims = values.dim()
    if layout == "reversed":
        order = list(reversed(range(dims)))
    elif layout == "last_first" and dims >= 3:
        order = [0, *range(2, dims), 1]
    elif layout == "strided":
        wide = torch.zeros(*values.shape[:-1], 2 * values.shape[-1], dtype=values.dtype)
        result = wide[..., ::2]
        result.copy_(values)
        return result
    elif layout == "offset":
        flat = torch.zeros(values.numel() + 3, dtype=values.dtype)
        result = flat[3:].view(values.shape)
        result.copy_(values)
        return result
    else:
        return values.clone(memory_format=torch.contiguous_format)
    stored = torch.empty([values.shape[d] for d in order], dtype=values.dtype)
    result = stored.permute([order.index(d) for d in range(dims)])
    result.copy_(values)
    return result


def relative_error(got: Tensor, wanted: Tensor) -> float:
    """The largest error relative to the largest entry wanted."""
    wide = torch.complex128 if wanted.is_complex() else torch.float64
    size = wanted.abs().max().item()
    return ((got.to(wide) - wanted.to(wide)).abs().max() / (size or 1.0)).item()


def by_hand(metric: riesz.Metric, f: Tensor, dim: int = 0) -> Tensor:
    """A f in float64 as a sum of rolled copies weighted by the kernel: no circulant, no recursion."""
    n = f.shape[dim]
    wide = f.to(torch.complex128 if f.is_complex() else torch.float64)
    kernel = metric.kernel(n)
    return torch.stack([kernel[j] * wide.roll(j, dim) for j in range(n)]).sum(0)
