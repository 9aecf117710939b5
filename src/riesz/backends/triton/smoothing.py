"""Kernels of the metrics that smooth: SobolevTilde, and LaplacianSmoothing with Sobolev. Each with its record."""

import triton
import triton.language as tl

from riesz.backends.triton.launch import Kernel, Registers
from riesz.backends.triton.panels import (
    centered_row,
    column_sum,
    load_panel,
    one_minus_exp,
    open_columns,
    panel_sum,
    power,
    row_numbers,
    rows_per_piece,
    states_before,
    store_tile,
)

# -- SobolevTilde -----------------------------------------------------------------------------------------------------


@triton.jit
def moments(
    f, base_C, first, n, ACC: tl.constexpr, WIDE: tl.constexpr, S: tl.constexpr, C: tl.constexpr, L: tl.constexpr
):
    """sum x, sum l x, sum l^2 x of every piece, x = f - base and l the row within the piece."""
    s0_SC, s1_SC, s2_SC = tl.zeros((S, C), ACC), tl.zeros((S, C), ACC), tl.zeros((S, C), ACC)
    for l in tl.static_range(L):
        x_SC = centered_row(f, base_C, l, first, n, ACC, WIDE, S, L)
        s0_SC += x_SC
        s1_SC += l * x_SC
        s2_SC += (l * l) * x_SC
    return s0_SC, s1_SC, s2_SC


@triton.jit
def of_column(s0_SC, s1_SC, s2_SC, first, n, ACC: tl.constexpr, S: tl.constexpr, L: tl.constexpr):
    """sum x, sum j x, sum j (j - n) x of every column of a panel, j the row within the column."""
    start_S1 = (first + tl.arange(0, S) * L).to(ACC)[:, None]
    j_SC = start_S1 * s0_SC + s1_SC
    jj_SC = start_S1 * (start_S1 - n) * s0_SC + (2 * start_S1 - n) * s1_SC + s2_SC
    return tl.sum(s0_SC, axis=0), tl.sum(j_SC, axis=0), tl.sum(jj_SC, axis=0)


@triton.jit
def march(
    columns, f, s0_SC, s1_SC, over_C, first, n, mean_C, slope_C, value_C, k, scale, blend,
    ACC: tl.constexpr, S: tl.constexpr, C: tl.constexpr, L: tl.constexpr, LEVELS: tl.constexpr,
):  # fmt: skip
    """Write a panel from its start slope and value and the sums of its pieces; returns those of the next panel.

    `over` is the mean minus the base of the sums.
    """
    rows_S1 = rows_per_piece(first, n, S, L).to(ACC)[:, None]
    a_SC = s0_SC - rows_S1 * over_C[None, :]
    d_SC = L * a_SC - (s1_SC - (rows_S1 * (rows_S1 - 1) / 2) * over_C[None, :])
    start_S1 = (tl.arange(0, S) * L).to(ACC)[:, None]
    # sum_{t<s} D_t + (start_s - start_t - L) A_t, with what depends on s taken out of the sum.
    q_SC = d_SC - (start_S1 + L) * a_SC
    ones_S, nothing_C = tl.full((S,), 1.0, ACC), tl.zeros((C,), ACC)
    a_before_SC, a_C = states_before(a_SC, ones_S, nothing_C, S, C, LEVELS, False, True)
    q_before_SC, q_C = states_before(q_SC, ones_S, nothing_C, S, C, LEVELS, False, True)
    s_SC = slope_C[None, :] - k * a_before_SC
    g_SC = value_C[None, :] + start_S1 * slope_C[None, :] - k * (q_before_SC + start_S1 * a_before_SC)
    for l in tl.static_range(L):
        f_SC = f[l].to(ACC)
        store_tile(columns, scale * g_SC + blend * f_SC, first, l, S, L)
        s_SC -= k * (f_SC - mean_C[None, :])
        g_SC += s_SC
    return slope_C - k * a_C, value_C + S * L * slope_C - k * (q_C + S * L * a_C)


@triton.jit
def sobolev_tilde(
    address, block, geometry, numbers, scratch, DTYPE: tl.constexpr, ACC: tl.constexpr,
    S: tl.constexpr, C: tl.constexpr, L: tl.constexpr, LEVELS: tl.constexpr, VECTOR: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """g solves mean(g) - lam n^2 D g = f, and scale g + blend f is written.

    With fd = f - mean(f), j the row and k = 1 / (lam n^2):
      start value  g = mean_factor mean(f) + k / (2 n) sum j (j - n) fd
      start slope  s = -k / n sum j fd
      march        emit g;  s -= k fd[j];  g += s
    So the march may begin at any row i: s_i = s - k sum_{j<i} fd, and g_i = g + i s - k sum_{j<i} (i - j) fd. Every
    piece of a column does, from the sums over the pieces before it.
    """
    columns, n = open_columns(address, block, geometry, DTYPE, C, VECTOR), geometry[0]
    lam, riemann = tl.load(numbers), tl.load(numbers + 3)
    scale, blend = tl.load(numbers + 1).to(ACC), tl.load(numbers + 2).to(ACC)
    length = n.to(tl.float64)
    step = 1 / (lam * length * length)
    k = step.to(ACC)
    WIDE: tl.constexpr = tl.float64 == DTYPE
    base_C = tl.zeros((C,), ACC)
    if WHOLE:
        f = load_panel(columns, 0, S, L)
        if WIDE:
            base_C = panel_sum(f, ACC, S, C, L) / n
        s0_SC, s1_SC, s2_SC = moments(f, base_C, 0, n, ACC, WIDE, S, C, L)
        sum_C, j_C, jj_C = of_column(s0_SC, s1_SC, s2_SC, 0, n, ACC, S, L)
    else:
        if WIDE:
            base_C = panel_sum(load_panel(columns, 0, S, L), ACC, S, C, L) / (S * L)
        sum_C, j_C, jj_C = tl.zeros((C,), ACC), tl.zeros((C,), ACC), tl.zeros((C,), ACC)
        for first in range(0, n, S * L):
            f = load_panel(columns, first, S, L)
            s0_SC, s1_SC, s2_SC = moments(f, base_C, first, n, ACC, WIDE, S, C, L)
            p0_C, p1_C, p2_C = of_column(s0_SC, s1_SC, s2_SC, first, n, ACC, S, L)
            sum_C, j_C, jj_C = sum_C + p0_C, j_C + p1_C, jj_C + p2_C
    over_C = sum_C / n
    mean_C = base_C + over_C
    j_C -= over_C * (length * (length - 1) / 2).to(ACC)
    jj_C += over_C * (length * (length * length - 1) / 6).to(ACC)
    slope_C = -(step / length).to(ACC) * j_C
    value_C = (1 + riemann * step / 12).to(ACC) * mean_C + (step / (2 * length)).to(ACC) * jj_C
    if WHOLE:
        march(columns, f, s0_SC, s1_SC, over_C, 0, n, mean_C, slope_C, value_C, k, scale, blend, ACC, S, C, L, LEVELS)
    else:
        for first in range(0, n, S * L):
            f = load_panel(columns, first, S, L)
            s0_SC, s1_SC, _ = moments(f, base_C, first, n, ACC, WIDE, S, C, L)
            slope_C, value_C = march(
                columns, f, s0_SC, s1_SC, over_C, first, n, mean_C, slope_C, value_C, k, scale, blend,
                ACC, S, C, L, LEVELS,
            )  # fmt: skip


SOBOLEV_TILDE = Kernel(
    "sobolev_tilde", __name__, {2: Registers(4, 4, most=255), 4: Registers(14, 8), 8: Registers(14, 8)}
)

# -- LaplacianSmoothing and Sobolev -----------------------------------------------------------------------------------

# Above this lam the eigenvalues 1/(1 + lam n^2 w) and 1/(lam n^2 w) are the same to 3e-10 of themselves, so the result
# for lam is that for the limit, divided; z would soon round to 1. (Triton's interpreter cannot divide it by a tensor.)
STRONGEST = tl.constexpr(1e8)


@triton.jit
def ends(
    f, base_C, first, n, z, ACC: tl.constexpr, WIDE: tl.constexpr, S: tl.constexpr, C: tl.constexpr, L: tl.constexpr
):
    """E of f - base from rest, for every piece; rows past the end leave it as it is."""
    e_SC = tl.zeros((S, C), ACC)
    for l in tl.static_range(L):
        x_SC = centered_row(f, base_C, l, first, n, ACC, WIDE, S, L)
        e_SC = tl.where((row_numbers(first, l, S, L) < n)[:, None], x_SC + z * e_SC, e_SC)
    return e_SC


@triton.jit
def ratios(rows_S, z, S: tl.constexpr, L: tl.constexpr):
    """z^rows, and E of as many ones, for every piece: by the recursion itself, as exponentials cost registers."""
    ratio_S, ones_S = tl.full((S,), 1.0, tl.float64), tl.zeros((S,), tl.float64)
    for l in tl.static_range(L):
        ratio_S = tl.where(rows_S > l, z * ratio_S, ratio_S)
        ones_S = tl.where(rows_S > l, 1 + z * ones_S, ones_S)
    return ratio_S, ones_S


@triton.jit
def sums(
    f, base_C, first, n, z, ACC: tl.constexpr, WIDE: tl.constexpr, S: tl.constexpr, C: tl.constexpr, L: tl.constexpr
):
    """sum x and sum z^l x[l] of every piece, x = f - base."""
    sum_SC, w_SC = tl.zeros((S, C), ACC), tl.zeros((S, C), ACC)
    for back in tl.static_range(L):
        x_SC = centered_row(f, base_C, L - 1 - back, first, n, ACC, WIDE, S, L)
        sum_SC += x_SC
        w_SC = x_SC + z * w_SC
    return sum_SC, w_SC


@triton.jit
def forward(f, mean_C, first, n, z, y_SC, ACC: tl.constexpr, S: tl.constexpr, C: tl.constexpr, L: tl.constexpr):
    """y of every row, zero past the end, and sum z^l y[l] of every piece."""
    tiles = ()
    for l in tl.static_range(L):
        y_SC = tl.where((row_numbers(first, l, S, L) < n)[:, None], f[l].to(ACC) - mean_C[None, :] + z * y_SC, 0.0)
        tiles = tiles + (y_SC,)
    w_SC = tl.zeros((S, C), ACC)
    for back in tl.static_range(L):
        w_SC = tiles[L - 1 - back] + z * w_SC
    return tiles, w_SC


@triton.jit
def backward(
    columns, f, y, first, n, h_SC, mean_C, z, gain, scale, blend,
    ACC: tl.constexpr, S: tl.constexpr, C: tl.constexpr, L: tl.constexpr,
):  # fmt: skip
    """Write a panel from h after every piece."""
    for back in tl.static_range(L):
        row_S = row_numbers(first, L - 1 - back, S, L)
        h_SC = tl.where((row_S < n)[:, None], y[L - 1 - back] + z * h_SC, h_SC)
        value_SC = scale * mean_C[None, :] + gain * h_SC + blend * f[L - 1 - back].to(ACC)
        store_tile(columns, value_SC, first, L - 1 - back, S, L)


@triton.jit
def laplacian_smoothing(
    address, block, geometry, numbers, scratch, DTYPE: tl.constexpr, ACC: tl.constexpr,
    S: tl.constexpr, C: tl.constexpr, L: tl.constexpr, LEVELS: tl.constexpr, VECTOR: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """g solves g - sigma D g = f, and scale g + blend f is written. Sobolev is the same with sigma = lam n^2.

    The operator factors into two first-order recursions, 1 - sigma D = (1 - z S)(1 - z S^-1) / (1 - z)^2, S the shift:
      forward   y[j] = (f[j] - mean(f)) + z y[j-1]
      backward  h[j] = y[j] + z h[j+1],   g = mean(f) + (1 - z)^2 h
    Both are periodic. From rest, a turn of the first ends at E = sum z^(n-1-j) f[j]; whole turns repeat with z^n, so it
    starts from E / (1 - z^n); the same holds for h and the sum of z^j y[j]. The mean is kept out of the recursions: for
    large sigma they would amplify it until no digit of the rest is left.

    A column longer than a panel takes two passes: forward for the sums, storing E at the start of every panel in
    `scratch`, then backward panel by panel to write the result.
    """
    columns, n = open_columns(address, block, geometry, DTYPE, C, VECTOR), geometry[0]
    strength, per_n = tl.load(numbers), tl.load(numbers + 3)
    scale, blend = tl.load(numbers + 1), tl.load(numbers + 2)
    length = n.to(tl.float64)
    lam = tl.where(per_n == 1.0, strength, strength / (length * length))
    sigma = tl.minimum(lam, STRONGEST) * (length * length)
    z = 2 * sigma / (1 + 2 * sigma + tl.sqrt(1 + 4 * sigma))
    # Everything else is derived from z as rounded: recursions and starting values belong to one operator.
    log_z = tl.log(z)
    lost = 1 - z
    turn = 1 / one_minus_exp(length * log_z)
    gain = scale * lost * lost * tl.minimum(1.0, (1 / lam) * STRONGEST)
    WIDE: tl.constexpr = tl.float64 == DTYPE
    nothing_C = tl.zeros((C,), ACC)
    base_C = nothing_C
    if WHOLE:
        f = load_panel(columns, 0, S, L)
        over_C = panel_sum(f, ACC, S, C, L) / n
        if WIDE:
            base_C = over_C
            over_C = tl.sum(sums(f, base_C, 0, n, z, ACC, WIDE, S, C, L)[0], axis=0) / n
        mean_C = base_C + over_C
        ratio_S, ones_S = ratios(rows_per_piece(0, n, S, L), z, S, L)
        e_SC = ends(f, base_C, 0, n, z, ACC, WIDE, S, C, L) - ones_S[:, None] * over_C[None, :]
        # From rest first; what the start adds decays with the rows before a piece, or after it.
        y_SC, ending_C = states_before(e_SC, ratio_S, nothing_C, S, C, LEVELS, False, True)
        y_SC += power(tl.arange(0, S) * L, log_z)[:, None] * (ending_C * turn)[None, :]
        y, w_SC = forward(f, mean_C, 0, n, z, y_SC, ACC, S, C, L)
        h_SC, beginning_C = states_before(w_SC, ratio_S, nothing_C, S, C, LEVELS, True, True)
        rows_after_S = tl.maximum(n - (tl.arange(0, S) + 1) * L, 0)
        h_SC += power(rows_after_S, log_z)[:, None] * (beginning_C * turn)[None, :]
        backward(columns, f, y, 0, n, h_SC, mean_C, z, gain, scale, blend, ACC, S, C, L)
    else:
        if WIDE:
            base_C = column_sum(columns, ACC, S, C, L) / n
        sum_C, ending_C, beginning_C = nothing_C, nothing_C, nothing_C
        weight_S1 = power(tl.arange(0, S) * L, log_z)[:, None]
        valid_C, width = columns[4], geometry[1] * geometry[2]
        end_C = scratch + block * C + tl.arange(0, C)
        for first in range(0, n, S * L):
            tl.store(end_C + (first // (S * L)) * width, ending_C, mask=valid_C)
            f = load_panel(columns, first, S, L)
            ratio_S, _ = ratios(rows_per_piece(first, n, S, L), z, S, L)
            e_SC = ends(f, base_C, first, n, z, ACC, WIDE, S, C, L)
            _, ending_C = states_before(e_SC, ratio_S, ending_C, S, C, LEVELS, False, False)
            sum_SC, w_SC = sums(f, base_C, first, n, z, ACC, WIDE, S, C, L)
            sum_C += tl.sum(sum_SC, axis=0)
            beginning_C += power(first, log_z) * tl.sum(weight_S1 * w_SC, axis=0)
        # The share of the mean that is left in x = f - base is taken off the sums. From rest, the sum of z^j y over a
        # turn is (W - z^(n+1) E) / (1 - z^2); a start y adds y z (1 - z^2n) / (1 - z^2) to it.
        z_n = tl.exp(length * log_z)
        lost2 = lost * (1 + z)
        over_C = sum_C / n
        ones = 1 / (turn * lost)
        ending_C -= over_C * ones
        beginning_C -= over_C * ones
        start_C = ending_C * turn
        h_C = ((beginning_C - z * z_n * ending_C) / lost2 + start_C * (z * (1 + z_n) / (turn * lost2))) * turn
        mean_C = base_C + over_C
        panels = (n + S * L - 1) // (S * L)
        tl.debug_barrier()  # an end may be read by another thread than the one that wrote it
        for back in range(panels):
            first = (panels - 1 - back) * (S * L)
            f = load_panel(columns, first, S, L)
            ratio_S, ones_S = ratios(rows_per_piece(first, n, S, L), z, S, L)
            begun = power(first, log_z)
            before_C = tl.load(end_C + (first // (S * L)) * width, mask=valid_C, other=0.0)
            before_C += begun * start_C - ((1 - begun) / lost) * over_C
            e_SC = ends(f, base_C, first, n, z, ACC, WIDE, S, C, L)
            e_SC -= ones_S[:, None] * over_C[None, :]
            y_SC, _ = states_before(e_SC, ratio_S, before_C, S, C, LEVELS, False, False)
            y, w_SC = forward(f, mean_C, first, n, z, y_SC, ACC, S, C, L)
            h_SC, h_C = states_before(w_SC, ratio_S, h_C, S, C, LEVELS, True, False)
            backward(columns, f, y, first, n, h_SC, mean_C, z, gain, scale, blend, ACC, S, C, L)


LAPLACIAN_SMOOTHING = Kernel(
    "laplacian_smoothing",
    __name__,
    {2: Registers(8, 3, whole_bytes=8, panel_bytes=4), 4: Registers(8, 3, panel_bytes=8), 8: Registers(8, 3)},
    uses_scratch=True,
)
