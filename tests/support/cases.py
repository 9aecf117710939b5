"""The one table of cases: operators, dtypes with their tolerances, ways a tensor can lie in memory."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import torch
from torch import Tensor

import riesz
from riesz.metrics.text import KINDS


def _variants(kind: type[riesz.Operator]) -> list[riesz.Operator]:
    """The default, every flag set, and what differs from the default in each shared way."""
    settings = {field.name: field.default for field in kind.settings()}
    changes: list[dict[str, object]] = [{}, *({name: True} for name, default in settings.items() if default is False)]
    if kind.strength_field is not None:
        changes += [{kind.strength_field: 1e-3}, {kind.strength_field: 50.0}]
    if "scale" in settings:
        changes += [{"scale": 0.5, "blend": 2.0}, {"blend": 0.0}]
    return list(dict.fromkeys(kind(**change) for change in changes))


BRANCHES = [
    riesz.ReweightedL2(lam=-0.5),
    riesz.ReweightedL2(lam=0.0),
    riesz.ReweightedL2.from_weight(0.3),
    riesz.Sobolev(lam=1e-4),
    riesz.SobolevTilde(lam=0.01, blend=0.0),
    riesz.SobolevTilde(lam=0.2, blend=0.0, riemann=True),
    riesz.LaplacianSmoothing(sigma=300.0, scale=0.5, blend=1.0),
]
"""Branches of a formula that the variants of its kind do not reach."""

OPERATORS = [*(case for kind in KINDS.values() for case in _variants(kind)), *BRANCHES]
"""Several cases of every registered kind: a new one runs through every generic test as soon as it is registered."""

METRICS = [operator for operator in OPERATORS if isinstance(operator, riesz.Metric)]
"""Those that have a symbol."""


def random_operator(rng: Random, kinds: Sequence[type[riesz.Operator]] = (*KINDS.values(),)) -> riesz.Operator:
    """An operator of any registered kind, with settings drawn at random."""
    kind = rng.choice(kinds)
    draws: dict[str, object] = {"scale": rng.uniform(0.1, 3), "blend": rng.choice([0.0, 0.0, 0.5, 1.0])}
    if kind.strength_field is not None:
        negative = kind is riesz.ReweightedL2  # the only strength that may be
        draws[kind.strength_field] = rng.uniform(-0.9, 20) if negative else 10 ** rng.uniform(-3, 3)
    draws |= {field.name: rng.random() < 0.5 for field in kind.settings() if field.default is False}
    return kind(**{name: value for name, value in draws.items() if name in {f.name for f in kind.settings()}})


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

REAL_DTYPES = [dtype for dtype in TOLERANCE if not dtype.is_complex]


def adversarial_columns(n: int) -> dict[str, Tensor]:
    """Columns of length n, exact in float32, on which a metric cancels: their high modes are damped n^2-fold."""
    index = torch.arange(n, dtype=torch.float64)
    noise = torch.randn(n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)

    def wave(k: int) -> Tensor:
        return (2 * torch.pi / n * (k * torch.arange(n) % n).double()).cos()

    columns = {
        "alternating": 1.0 - 2.0 * (index % 2),
        "highest frequency but one": wave(max(n // 2 - 1, 0)),
        "frequency n/3": wave(n // 3),
        "ramp": index / n,
        "steep ramp": index,
        "centred ramp": index - (n - 1) / 2,
        "noise": noise,
        "centred noise": noise - noise.mean(),
        "noise at 1e4": noise + 1e4,
        "noise at 1e6": noise + 1e6,
        "alternating at 1e4": 1.0 - 2.0 * (index % 2) + 1e4,
        "alternating at 1e6": 1.0 - 2.0 * (index % 2) + 1e6,
        "one spike": (index == n // 2).double(),
    }
    return {name: column.float() for name, column in columns.items()}


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
