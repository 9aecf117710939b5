"""g solves mean(g) - lam n^2 D g = f, and scale g + blend f is written.

With fd = f - mean(f), j the row and k = 1 / (lam n^2):
  start value  g = mean_factor mean(f) + k / (2 n) sum j (j - n) fd
  start slope  s = -k / n sum j fd
  march        emit g;  s -= k fd[j];  g += s
So the march may begin at any row i: s_i = s - k sum_{j<i} fd, and g_i = g + i s - k sum_{j<i} (i - j) fd. Every piece
of a column does, from the sums over the pieces before it.
"""

import triton
import triton.language as tl

from riesz.backends.triton.columns import (
    centered_row,
    load_panel,
    open_columns,
    panel_sum,
    rows_per_piece,
    states_before,
    store_tile,
)


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
def direct(
    address, block, geometry, numbers, scratch, DTYPE: tl.constexpr, ACC: tl.constexpr,
    S: tl.constexpr, C: tl.constexpr, L: tl.constexpr, LEVELS: tl.constexpr, VECTOR: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
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
