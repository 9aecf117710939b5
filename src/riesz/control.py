"""Two scientific controls: is it the direction, or only the step length? Is it the order of the channels?

- "norm" gives each directed gradient the norm of the original, so that only its direction differs;
- "permuted" smooths along a fixed random order of the channels and puts them back. The order of channels in a network
  is arbitrary, so a method that lives on neighbourhood must lose its benefit here.

Both work on a copy in the precision of the computation, so that the gradient itself is rounded once.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import replace
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from riesz.layout.axis import ColumnView, compute_dtype

Control = Literal["norm", "permuted"] | None


def check_control(control: object) -> None:
    if control not in (None, "norm", "permuted"):
        raise ValueError(f"control {control!r} is not known; allowed: None, 'norm', 'permuted'")


def controlled(job: ColumnView, name: str, control: Control) -> ColumnView:
    """A job on a copy of the columns of parameter `name`, prepared as the control demands."""
    columns_ONI = job.read().to(compute_dtype(job.view.dtype), copy=True)
    if control == "permuted":
        columns_ONI = columns_ONI.index_select(1, permutation(name, job.length, job.view.device))
    return replace(job, view=columns_ONI, order=None)


def put_back(home: ColumnView, copy: ColumnView, name: str, control: Control) -> None:
    """Write the directed columns of a controlled job where they came from."""
    columns_ONI = copy.view
    if control == "permuted":
        order = permutation(name, home.length, home.view.device)
        columns_ONI = torch.empty_like(columns_ONI).index_copy_(1, order, columns_ONI)
    else:
        columns_ONI = columns_ONI * _norm_ratio(home.read().to(columns_ONI.dtype), columns_ONI)
    home.write(columns_ONI)


def _norm_ratio(f: Tensor, g: Tensor) -> Tensor:
    """|f| / |g| without overflow or underflow; 1 for a zero gradient, non-finite for a non-finite one."""
    top_f, top_g = (torch.where((top := x.abs().amax()) == 0, torch.ones_like(top), top) for x in (f, g))
    norm_f, norm_g = (f / top_f).norm(), (g / top_g).norm()
    return norm_ratio(norm_f, norm_g, top_f / top_g)


def norm_ratio(norm_f: Tensor, norm_g: Tensor, scale: Tensor | float = 1.0) -> Tensor:
    """The factor that gives g the norm of f, from norms that were divided by numbers whose ratio is `scale`."""
    return torch.where(norm_g == 0, torch.ones_like(norm_g), (norm_f / norm_g) * scale)


def permutation(name: str, n: int, device: torch.device) -> Tensor:
    """The same order at every step, on every rank and after a restart: it depends on name and length alone.

    What wrappers put in front of a name (DataParallel, torch.compile) does not count.
    """
    return _permutation(re.sub(r"\b(module|_orig_mod|_fsdp_wrapped_module)\.", "", name), n, device)


@lru_cache(maxsize=1024)
def _permutation(name: str, n: int, device: torch.device) -> Tensor:
    generator = torch.Generator("cpu").manual_seed(zlib.crc32(f"{name}/{n}".encode()))
    return torch.randperm(n, generator=generator, device="cpu").to(device)
