"""Work that torch.compile does not trace.

A compiled step breaks its graph here and continues after it. Nothing of riesz is traced, so no number of a metric, no
step count and no schedule can cause a recompilation. Imported at the first step, not with riesz, because
`torch.compiler.disable` loads the compiler, which any optimizer has done by then.
"""

from collections.abc import Callable
from typing import TypeVar

import torch

from riesz.metrics import circulant
from riesz.private_torch import compiles_for_any_sizes

Result = TypeVar("Result")


@torch.compiler.disable  # type: ignore[untyped-decorator]
def run(work: Callable[[], Result]) -> Result:
    return work()


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def matmul_precision(device: str) -> str:
    """The setting that a graph is traced under, which it keeps, as it does for every matrix product in it."""
    return circulant.matmul_precision(device)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def sizes_are_variables() -> bool:
    """Whether the graph that is being traced serves any sizes: `torch.compile(..., dynamic=True)`."""
    return compiles_for_any_sizes()
