"""Three scientific controls: is it only a longer gradient? Is it the order of the channels? Is it their mean?

- "norm" gives each directed gradient the norm of the original. Of a metric that amplifies, this takes out the longer
  gradient; all that the metric does not amplify is then shorter than without it;
- "permuted" smooths along a fixed random order of the channels and puts them back. A method can lose a benefit here
  only where the order has a meaning: in trained weights, or where layers share channels through skip connections. In
  other networks, trained from random weights, it names the channels anew and changes results by chance alone;
- "signs" flips a fixed random half of the channels, directs, and flips them back: the same operator around another
  direction than that of equal entries. It is the control of a mean, which does not depend on the order of the channels.

All work on a copy in the precision of the computation, so that the gradient itself is rounded once.
"""

import zlib
from dataclasses import replace
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from riesz.layout.axis import ColumnView, compute_dtype
from riesz.private_torch import without_wrappers

Control = Literal["norm", "permuted", "signs"] | None


def check_control(control: object) -> None:
    if control not in (None, "norm", "permuted", "signs"):
        raise ValueError(f"control: expected None, 'norm', 'permuted' or 'signs', got {control!r}")


def controlled(columns: ColumnView, name: str, control: Control) -> ColumnView:
    """A copy of the columns of parameter `name`, prepared as the control demands."""
    columns_ONI = columns.read().to(compute_dtype(columns.view.dtype), copy=True)
    if control == "permuted":
        columns_ONI = columns_ONI.index_select(1, permutation(name, columns.length, columns.view.device))
    elif control == "signs":
        columns_ONI *= signs(name, columns.length, columns.view.device).view(1, -1, 1)
    return replace(columns, view=columns_ONI, order=None)


def put_back(home: ColumnView, copy: ColumnView, name: str, control: Control) -> None:
    """Write the directed columns of a controlled copy where they came from."""
    columns_ONI = copy.view
    if control == "permuted":
        order = permutation(name, home.length, home.view.device)
        columns_ONI = torch.empty_like(columns_ONI).index_copy_(1, order, columns_ONI)
    elif control == "signs":
        columns_ONI = columns_ONI * signs(name, home.length, home.view.device).view(1, -1, 1)
    else:
        columns_ONI = columns_ONI * _scaled_norm_ratio(home.read().to(columns_ONI.dtype), columns_ONI)
    home.write(columns_ONI)


def _scaled_norm_ratio(f: Tensor, g: Tensor) -> Tensor:
    """|f| / |g| without overflow or underflow: both are divided by their largest entry first."""
    top_f, top_g = (torch.where((top := x.abs().amax()) == 0, torch.ones_like(top), top) for x in (f, g))
    return norm_ratio((f / top_f).norm(), (g / top_g).norm()) * (top_f / top_g)


def norm_ratio(norm_f: Tensor, norm_g: Tensor) -> Tensor:
    """|f| / |g|: 1 for a zero gradient, non-finite for a non-finite one."""
    return torch.where(norm_g == 0, torch.ones_like(norm_g), norm_f / norm_g)


def products(f: Tensor, g: Tensor) -> Tensor:
    """|f|^2, |g|^2 and <f, g> in float64, left on the device."""
    wide = torch.complex128 if g.is_complex() else torch.float64
    flat_f, flat_g = f.to(wide).flatten(), g.to(wide).flatten()
    return torch.stack([torch.vdot(a, b).real for a, b in ((flat_f, flat_f), (flat_g, flat_g), (flat_f, flat_g))])


def permutation(name: str, n: int, device: torch.device) -> Tensor:
    """The same order at every step, on every rank and after a restart: it depends on name and length alone.

    Prefixes that wrappers put in front of a name (DataParallel, torch.compile) do not count.
    """
    return _permutation(without_wrappers(name), n, device)


def signs(name: str, n: int, device: torch.device) -> Tensor:
    """1 and -1 as int8: a random half of the channels each, as fixed as the order."""
    return (1 - 2 * (permutation(name, n, device) % 2)).to(torch.int8)


@lru_cache(maxsize=1024)
def _permutation(name: str, n: int, device: torch.device) -> Tensor:
    generator = torch.Generator("cpu").manual_seed(zlib.crc32(f"{name}/{n}".encode()))
    return torch.randperm(n, generator=generator, device="cpu").to(device)
