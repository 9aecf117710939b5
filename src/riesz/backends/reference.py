"""The executable specification: the dense circulant of the closed-form symbol, in float64. Slow on purpose.

Another backend is right if it agrees with this one.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from riesz.backends.registry import Backend
from riesz.layout.axis import ColumnView
from riesz.metrics import Metric, Operator


def dense(metric: Metric, n: int) -> Tensor:
    """A as an n x n float64 matrix, summed from its eigenvalues mode by mode: no FFT, no recursion.

    A[i, j] = 1/n sum over k = 0..n-1 of symbol[min(k, n-k)] cos(2 pi k (i - j) / n)
    """
    half_F = metric.symbol(n)
    index_N = torch.arange(n)
    full_N = half_F[torch.minimum(index_N, n - index_N)]
    # The product k * lag is reduced modulo n before it becomes an angle: large angles lose digits.
    angles_NN = (index_N[:, None] * index_N % n).double() * (2 * torch.pi / n)
    kernel_N = angles_NN.cos() @ full_N / n
    return kernel_N[(index_N[:, None] - index_N) % n]


def _direct_(columns: Sequence[ColumnView], metric: Operator) -> None:
    for opened in columns:
        columns_ONI = opened.read().double()
        if isinstance(metric, Metric):
            matrix_NN = dense(metric, opened.length).to(columns_ONI.device)
            result = torch.einsum("nm,omi->oni", matrix_NN, columns_ONI)
        else:
            result = metric.direct(columns_ONI, opened.blocks)
        opened.write(result.to(opened.view.dtype))


REFERENCE = Backend(
    name="reference",
    summary="dense circulant in float64: the specification, slow",
    auto_order=None,
    missing_reason=lambda: None,
    refusal_reason=lambda gradient: None,
    direct_=_direct_,
)
