"""Circulant operators on columns, out of place, in plain torch: by matrix product, by FFT, by running sums.

Shape suffixes: O outer batch, N the directed axis, I inner batch, F frequencies 0..n//2, K blocks of B.

`strategy` says which one serves:
- matrix product for short axes: n operations an element, but the fastest kernel there is, and the matrix is kept;
- FFT for longer ones with small factors, and wherever matrix products are rounded (TF32, bfloat16);
- running sums for the rest: linear in n, for any n (an FFT of prime length is 100 times slower).

The strength of a metric (`sigma`, `lam`) may be a float or a 0-d tensor on the CPU: nothing here waits for a device.
"""

import contextlib
from collections.abc import Callable, Hashable
from functools import wraps

import torch
from torch import Tensor

from riesz.private_torch import dispatch_mode_is_on

MATMUL_UP_TO = 192
"""Longest axis served by a matrix product; measured on CPUs, as is the next one."""

FFT_UP_TO = 2048
"""Longest axis served by an FFT, if its length has small factors only."""

BLOCK = 64
"""Rows summed by one triangular product. Long enough to amortise the carries, short enough to cost little."""


MAX_TABLES = 256
"""How many symbols and matrices of short axes are kept; starting over costs little."""

_tables: dict[Hashable, Tensor] = {}

_ZERO = torch.zeros((), dtype=torch.float64, device="cpu")
"""log 1: the decay of a plain cumulative sum."""


def strategy(columns_ONI: Tensor) -> str:
    """The fastest exact algorithm for columns of this length and dtype: "matmul", "fft" or "sums"."""
    n = columns_ONI.shape[1]
    if _matmul_is_rounded(columns_ONI):
        return "fft"
    if n <= MATMUL_UP_TO:
        return "matmul"
    return "fft" if n <= FFT_UP_TO and _has_small_factors(n) else "sums"


def _has_small_factors(n: int) -> bool:
    for prime in (2, 3, 5, 7):
        while n % prime == 0:
            n //= prime
    return n == 1


def _matmul_is_rounded(like: Tensor) -> bool:
    """Whether torch is set to round float32 matrix products to TF32 or bfloat16."""
    if like.dtype != torch.float32:
        return False
    precision = matmul_precision
    if torch.compiler.is_compiling():
        from riesz.untraced import matmul_precision as precision
    return precision(like.device.type) not in ("none", "ieee")


def matmul_precision(device: str) -> str:
    """How torch is set to compute float32 matrix products: "none" and "ieee" mean in float32."""
    # Not torch.get_float32_matmul_precision: it raises once the newer per-backend settings were used.
    settings = torch.backends.mkldnn if device == "cpu" else torch.backends.cuda
    precision: str | None = getattr(getattr(settings, "matmul", None), "fp32_precision", None)
    if precision is None:  # before torch 2.9 there is one setting for all backends
        return "ieee" if torch.get_float32_matmul_precision() == "highest" else "rounded"
    return precision


def full_precision(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Shields the products below from an autocast region around the optimizer step."""
    if torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return contextlib.nullcontext()


def is_traced() -> bool:
    """Whether a compiler or a dispatch mode, such as that of fake tensors, sees what is computed."""
    return torch.compiler.is_compiling() or dispatch_mode_is_on()


def kept(key: Hashable, build: Callable[[], Tensor]) -> Tensor:
    """What `build` makes, made once for a key."""
    # Another thread may clear the tables at any time.
    if (table := _tables.get(key)) is None:
        if len(_tables) >= MAX_TABLES:
            _tables.clear()
        with torch.inference_mode(False):  # it must serve autograd later
            table = _tables[key] = build()
    return table


def _cached_table(build: Callable[[int, torch.device], Tensor]) -> Callable[[int, torch.device], Tensor]:
    """Keep the tables built, but never one that was built for a tracer or a fake tensor mode."""

    @wraps(build)
    def table(n: int, device: torch.device) -> Tensor:
        if is_traced():
            return build(n, device)
        return kept((build, n, device), lambda: build(n, device))

    return table


@_cached_table
def waves(n: int, device: torch.device) -> Tensor:
    """4 sin^2(pi k/n) for k = 0..n//2: eigenvalues of minus the periodic second difference. Float64 where there is one.

    Every symbol is made from this table, built once per length and device for all values of the metric's numbers.
    """
    dtype = torch.float32 if device.type == "mps" else torch.float64
    angle_F = torch.arange(n // 2 + 1, dtype=torch.float64, device="cpu") * (torch.pi / n)
    waves_F: Tensor = 4 * torch.sin(angle_F) ** 2
    return waves_F.to(device, dtype)


def kernel(symbol_F: Tensor, n: int) -> Tensor:
    """First column of the circulant with this symbol."""
    kernel_N: Tensor = torch.fft.irfft(symbol_F, n=n)
    return kernel_N


def matrix(symbol_F: Tensor, n: int) -> Tensor:
    """The symmetric circulant matrix with this symbol."""
    kernel_N = kernel(symbol_F, n)
    # Row i is the kernel shifted by i: row n - i of the Hankel matrix of two periods.
    return torch.cat([kernel_N, kernel_N]).unfold(0, n, 1)[1:].flip(0)


def mean(columns_ONI: Tensor) -> Tensor:
    """The mean of each column, summed in float64 where there is one.

    Gradients along an output axis often have a mean of almost zero (before a softmax, for one). A metric that keeps the
    mean and damps the rest a thousandfold would turn the rounding of a float32 sum into its result.
    """
    dtype = columns_ONI.dtype if columns_ONI.device.type == "mps" else torch.float64
    return columns_ONI.mean(1, keepdim=True, dtype=dtype).to(columns_ONI.dtype)


def apart_from_mean(columns_ONI: Tensor, symbol_F: Tensor, multiply: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """A circulant applied to the mean, exactly, and by `multiply` to what is left."""
    mean_O1I = mean(columns_ONI)
    rest_F = torch.cat([torch.zeros_like(symbol_F[:1]), symbol_F[1:]])
    return multiply(columns_ONI - mean_O1I, rest_F).add_(mean_O1I * symbol_F[0])


def by_fft(columns_ONI: Tensor, symbol_F: Tensor) -> Tensor:
    """The circulant times every column, by its eigenvalues."""
    spectrum_OFI = torch.fft.rfft(columns_ONI, dim=1) * symbol_F.to(columns_ONI.dtype)[:, None]
    result_ONI: Tensor = torch.fft.irfft(spectrum_OFI, n=columns_ONI.shape[1], dim=1)
    return result_ONI


def poisson(centred_ONI: Tensor) -> Tensor:
    """The g of mean zero with `-n^2 D g = fd`, for columns fd of mean zero: two running sums, each freed of its mean.

    The mean of the first is the paper's starting slope and that of the second its starting value, found by summation
    by parts. Taken straight from fd, as printed, both are small differences of large sums: in float32 at n = 5,000 that
    loses another digit.
    """
    n = centred_ONI.shape[1]
    slopes_ONI = _centred_(running_sum(centred_ONI, _ZERO).div_(-n))
    # The sum up to the row before: g[o] = g[o-1] + slope[o-1]/n.
    return _centred_(running_sum(slopes_ONI, _ZERO).sub_(slopes_ONI).div_(n))


def screened_poisson(columns_ONI: Tensor, sigma: float | Tensor) -> Tensor:
    """The g with `g - sigma D g = f`, by a forward and a backward first-order recursion.

    The periodic kernel is `(z^j + z^(n-j)) / ((1 - z^n) sqrt(1 + 4 sigma))`, `log z = -2 asinh(1/(2 sqrt(sigma)))`. It
    acts on `f - mean(f)`: for large sigma the two directions cancel badly on the mean, which passes unchanged anyway.
    """
    strength = torch.as_tensor(sigma, dtype=torch.float64, device="cpu")
    log_z = -2 * torch.asinh(0.5 / strength.sqrt())
    mean_O1I = mean(columns_ONI)
    centred_ONI = columns_ONI - mean_O1I
    if 100 * float(strength) > columns_ONI.shape[1] ** 2 and columns_ONI.device.type != "mps":
        # So strong that the recursions run round the axis many times: each direction is large, their sum is small.
        centred_ONI = centred_ONI.double()
    # The result has no mean either; what rounding leaves of one is taken off.
    both_ONI = _centred_(_decaying_sums(centred_ONI, log_z)).div_((1 + 4 * strength).sqrt())
    return both_ONI.to(columns_ONI.dtype).add_(mean_O1I)


def running_sum(columns_ONI: Tensor, log_z: Tensor) -> Tensor:
    """y[i] = x[i] + z y[i-1], y[-1] = 0, along the middle axis; z = 1 is the cumulative sum.

    Blocks of rows are summed by one triangular product, the ends of the blocks by the same function again.
    """
    n = columns_ONI.shape[1]
    lag_BB = _lags(min(n, BLOCK), columns_ONI.device)
    triangle_BB = torch.exp(lag_BB.clamp(min=0) * log_z).tril().to(columns_ONI.dtype)
    if n <= BLOCK:
        return left_multiply(triangle_BB, columns_ONI)
    blocks_OKBI = _in_blocks(columns_ONI)
    local_OKBI = left_multiply(triangle_BB, blocks_OKBI)
    carry_OKI = _delayed(running_sum(local_OKBI[:, :, -1], log_z * BLOCK))
    reach_B1 = _powers(lag_BB[:, :1] + 1, log_z, columns_ONI.dtype)
    return local_OKBI.addcmul_(reach_B1, carry_OKI.unsqueeze(2)).flatten(1, 2)[:, :n]


def _decaying_sums(columns_ONI: Tensor, log_z: Tensor) -> Tensor:
    """sum over all j of z^|i-j| x[j], x continued periodically: both recursions at once, a block of rows at a time."""
    n, dtype = columns_ONI.shape[1], columns_ONI.dtype
    lag_BB = _lags(BLOCK, columns_ONI.device)
    index_B1 = lag_BB[:, :1]
    local_OKBI = left_multiply(torch.exp(lag_BB.abs() * log_z).to(dtype), _in_blocks(columns_ONI))
    blocks = local_OKBI.shape[1]
    in_last = n - (blocks - 1) * BLOCK
    whole_turn = -torch.expm1(n * log_z)  # 1 - z^n
    start_K1 = torch.arange(blocks, dtype=lag_BB.dtype, device=lag_BB.device)[:, None] * BLOCK

    # Forward: what arrives at the first row of each block from all rows before it, one row short; then from the turns
    # before, which is the sum at the last row, repeated with period n.
    before_OKI = _delayed(running_sum(local_OKBI[:, :, -1], log_z * BLOCK))
    at_end_O1I = local_OKBI[:, -1:, in_last - 1] + before_OKI[:, -1:] * _powers(in_last, log_z, dtype)
    before_OKI = before_OKI + _powers(start_K1, log_z, dtype) * (at_end_O1I / whole_turn)

    # Backward: the same from the rows after. The last block may be short of rows, so it takes what comes from the next
    # turn at its own last row, not at the padded one.
    after_OKI = _delayed(running_sum(local_OKBI[:, :, 0].flip(1), log_z * BLOCK)).flip(1)
    at_start_O1I = local_OKBI[:, :1, 0] + after_OKI[:, :1] * _powers(BLOCK, log_z, dtype)
    next_turn_O1I = at_start_O1I / whole_turn
    to_end_K1 = (n - start_K1 - BLOCK).clamp(min=0)
    arriving_K1 = _powers(to_end_K1, log_z, dtype) * (start_K1 + BLOCK < n)
    after_OKI = after_OKI + arriving_K1 * next_turn_O1I

    both_OKBI = local_OKBI.addcmul_(_powers(index_B1 + 1, log_z, dtype), before_OKI.unsqueeze(2))
    both_OKBI = both_OKBI.addcmul_(_powers(BLOCK - index_B1, log_z, dtype), after_OKI.unsqueeze(2))
    both_OKBI[:, -1] += _powers((in_last - index_B1).clamp(min=0), log_z, dtype) * next_turn_O1I
    return both_OKBI.flatten(1, 2)[:, :n]


def _centred_(columns_ONI: Tensor) -> Tensor:
    return columns_ONI.sub_(mean(columns_ONI))


def left_multiply(matrix_BB: Tensor, columns: Tensor) -> Tensor:
    """The matrix times every column; columns lie along the last axis but one."""
    if columns.shape[-1] == 1:
        # An inner batch of one: a batch of matrix-vector products, which is one matrix product of the rows.
        return (columns.squeeze(-1) @ matrix_BB.mT).unsqueeze(-1)
    return torch.matmul(matrix_BB, columns)


def _in_blocks(columns_ONI: Tensor) -> Tensor:
    short = -columns_ONI.shape[1] % BLOCK
    padded = torch.nn.functional.pad(columns_ONI, (0, 0, 0, short)) if short else columns_ONI
    outer, rows, inner = padded.shape
    return padded.reshape(outer, rows // BLOCK, BLOCK, inner)


def _delayed(sums_OKI: Tensor) -> Tensor:
    """Each block gets the sum at the end of the one before, the first gets nothing."""
    return torch.nn.functional.pad(sums_OKI, (0, 0, 1, 0))[:, :-1]


@_cached_table
def _lags(size: int, device: torch.device) -> Tensor:
    """i - j, in the dtype that exponents are computed in."""
    index = torch.arange(size, dtype=torch.float32 if device.type == "mps" else torch.float64, device="cpu")
    return (index[:, None] - index).to(device)


def _powers(exponent: Tensor | float, log_z: Tensor, dtype: torch.dtype) -> Tensor:
    """z^exponent in float64, then rounded once."""
    return torch.exp(exponent * log_z).to(dtype)
