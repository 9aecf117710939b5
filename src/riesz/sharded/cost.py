"""What each way sends, in bytes received per rank and step. It decides which way is taken, and the docs quote it.

W ranks, columns of length n, M of them; this counts what arrives, by the ring for the reduction.

| way                        | serves                          | bytes per column                                 |
| -------------------------- | ------------------------------- | ------------------------------------------------ |
| all-reduce                 | ReweightedL2                    | 16 (W - 1) / W                                   |
| all-gather                 | Sobolev, LaplacianSmoothing     | 16 (W - 1)                                       |
| all-gather                 | SobolevTilde                    | 16 (W - 1); 24 (W - 1) in float64 or for n > 256 |
| all-to-all, there and back | any metric                      | 2 (W - 1) / W * n / W * bytes per entry          |
"""

from __future__ import annotations

import torch

from riesz.sharded.low_rank import LowRank
from riesz.sharded.rows import Rows


def low_word(dtype: torch.dtype) -> torch.dtype:
    """The dtype of those sums that need no float64."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def gather_bytes(factors: LowRank, rows: Rows, columns: int, dtype: torch.dtype) -> int:
    """Bytes that arrive when every rank hears the sums of all others."""
    per_column = 8 * factors.exact + low_word(dtype).itemsize * (factors.terms - factors.exact)
    return (len(rows.runs) - 1) * rows.slots * columns * per_column


def transpose_bytes(rows: Rows, columns: int, dtype: torch.dtype) -> int:
    """Bytes that arrive when every rank gets whole columns and sends them back directed."""
    ranks = len(rows.runs)
    share = -(-columns // ranks)
    there = (sum(rows.counts) - min(rows.counts)) * share
    back = max(rows.counts) * (ranks - 1) * share
    return (there + back) * dtype.itemsize
