"""Two scientific controls: is it the direction, or only the step length? Is it the order of the channels?

- "norm" gives each directed gradient the norm of the original, so that only its direction differs;
- "permuted" smooths along a fixed random order of the channels and puts them back. The order of channels in a network
  is arbitrary, so a method that lives on neighbourhood must lose its benefit here.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from riesz.axis import Job

CONTROLS = (None, "norm", "permuted")


def check_control(control: object) -> None:
    if control not in CONTROLS:
        raise ValueError(f"control {control!r} is not known; allowed: {', '.join(map(repr, CONTROLS))}")


def keep_norms(gradients: Sequence[Tensor], direct: Callable[[], None]) -> None:
    """Run `direct`, then rescale each gradient to the norm it had."""
    before = _norms(gradients)
    direct()
    after = _norms(gradients)
    for gradient, was, now in zip(gradients, before, after, strict=True):
        # A zero gradient stays zero; a non-finite one stays non-finite, for a gradient scaler to see.
        gradient.mul_(torch.where(now == 0, torch.ones_like(now), was / now).to(gradient.dtype))


def _norms(gradients: Sequence[Tensor]) -> list[Tensor]:
    # In float32 or wider: the norm of a float16 gradient may exceed what float16 holds.
    return [torch.linalg.vector_norm(g, dtype=torch.promote_types(g.dtype, torch.float32)) for g in gradients]


def permuted(job: Job, name: str) -> Job:
    """A job on a shuffled copy of the columns of parameter `name`."""
    order = permutation(name, job.length, job.view.device)
    return replace(job, view=job.read().index_select(1, order), order=None)


def put_back(home: Job, shuffled: Job, name: str) -> None:
    """Write the directed columns of a shuffled job where they came from."""
    order = permutation(name, home.length, home.view.device)
    home.write(torch.empty_like(shuffled.view).index_copy_(1, order, shuffled.view))


@lru_cache(maxsize=1024)
def permutation(name: str, n: int, device: torch.device) -> Tensor:
    """The same order at every step, on every rank and after a restart: it depends on name and length alone."""
    generator = torch.Generator("cpu").manual_seed(zlib.crc32(f"{name}/{n}".encode()))
    return torch.randperm(n, generator=generator, device="cpu").to(device)
