"""What makes each metric what it is: its equation, its inner product, its symmetries, its limits."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch

import riesz
from cases import LENGTHS, METRICS, OPERATORS, relative_error
from riesz.backends.reference import dense

SHORT = [n for n in LENGTHS if n <= 65]
every_metric = pytest.mark.parametrize("metric", METRICS, ids=repr)


def random(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def second_difference(n):
    shift = torch.eye(n, dtype=torch.float64).roll(1, 0)
    return shift + shift.T - 2 * torch.eye(n, dtype=torch.float64)


def defining_matrix(metric, n):
    """The left side of the equation that G f solves, written down from its definition."""
    identity = torch.eye(n, dtype=torch.float64)
    mean = torch.full((n, n), 1 / n, dtype=torch.float64)
    match metric:
        case riesz.Identity():
            return identity
        case riesz.ReweightedL2():
            return torch.linalg.inv(identity + metric.lam * mean)
        case riesz.Sobolev():
            return identity - metric.lam * n**2 * second_difference(n)
        case riesz.SobolevTilde():
            return mean / metric.mean_factor(n) - metric.lam * n**2 * second_difference(n)
        case riesz.LaplacianSmoothing():
            return identity - metric.sigma * second_difference(n)
    raise AssertionError(f"write down the equation that {metric} solves")


@pytest.mark.parametrize("n", SHORT)
@every_metric
def test_reference_solves_the_defining_equation(metric, n):
    f = random(n, 3)
    matrix = defining_matrix(metric, n)
    wanted = metric.scale * torch.linalg.solve(matrix, f) + metric.blend * f
    tolerance = 1e-14 * max(1.0, torch.linalg.cond(matrix).item())
    assert relative_error(dense(metric, n) @ f, wanted) <= tolerance


@pytest.mark.parametrize("n", SHORT)
@every_metric
def test_gradient_represents_the_differential(metric, n):
    f, k = random(2, n, 3), random(2, n, 3, seed=1)
    size = f.norm() * k.norm()
    # A^-1 amplifies rounding by as much as A damps the mode it damps most.
    tolerance = 1e-15 * 100 * (metric.symbol(n).max() / metric.symbol(n).min()).item()
    assert abs(metric.inner(metric.gradient(f, dim=1), k, dim=1) - (f * k).sum()) <= tolerance * size
    assert abs(metric.inner(k, metric.gradient(f, dim=1), dim=1) - (f * k).sum()) <= tolerance * size


@pytest.mark.parametrize("n", [2, 3, 16, 33])
def test_inner_products_have_their_closed_forms(n):
    a, b = random(n, 4), random(n, 4, seed=1)
    da, db = a.roll(-1, 0) - a, b.roll(-1, 0) - b
    dot, ends = (a * b).sum(), (da * db).sum()
    means = n * (a.mean(0) * b.mean(0)).sum()
    wanted = {
        riesz.Identity(): dot,
        riesz.ReweightedL2(2.0): dot - 2 / 3 * means,
        riesz.Sobolev(0.2): dot + 0.2 * n**2 * ends,
        riesz.SobolevTilde(0.2, blend=0.0): means + 0.2 * n**2 * ends,
        riesz.LaplacianSmoothing(0.7): dot + 0.7 * ends,
    }
    for metric, value in wanted.items():
        assert math.isclose(metric.inner(a, b), value, rel_tol=1e-10), metric


@every_metric
def test_operator_is_symmetric_positive_and_linear(metric):
    f, k = random(33, 4), random(33, 4, seed=1)
    gf, gk = metric.gradient(f), metric.gradient(k)
    assert math.isclose((gf * k).sum(), (f * gk).sum(), rel_tol=1e-9, abs_tol=1e-9)
    assert (f * gf).sum() > 0
    assert (metric.symbol(33) > 0).all()
    assert relative_error(metric.gradient(2 * f - 3 * k), 2 * gf - 3 * gk) <= 1e-13


@every_metric
def test_rotating_the_channels_rotates_the_gradient(metric):
    f = random(33, 4)
    assert relative_error(metric.gradient(f.roll(5, 0)), metric.gradient(f).roll(5, 0)) <= 1e-13


@pytest.mark.parametrize("n", SHORT)
@every_metric
def test_mean_is_kept_but_for_scale_blend_and_the_metrics_own_factor(metric, n):
    f = 1 + random(n, 3)
    factor = metric.scale * metric.mean_factor(n) + metric.blend
    assert math.isclose(metric.symbol(n)[0], factor, rel_tol=1e-14)
    torch.testing.assert_close(metric.gradient(f).mean(0), factor * f.mean(0), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n", LENGTHS)
@every_metric
def test_kernel_is_the_first_column_and_sums_to_the_first_eigenvalue(metric, n):
    kernel = metric.kernel(n)
    assert kernel.dtype == torch.float64
    assert metric.symbol(n).shape == (n // 2 + 1,)
    assert math.isclose(kernel.sum(), metric.symbol(n)[0], rel_tol=1e-12)
    impulse = torch.zeros(n, dtype=torch.float64)
    impulse[0] = 1
    assert relative_error(metric.gradient(impulse), kernel) <= 1e-12


@pytest.mark.parametrize("lam", [0.1, 1.0, 10.0])
def test_h1_kernel_tends_to_the_corrected_continuum_kernel_not_the_printed_one(lam):
    n, root = 2000, lam**-0.5
    o = torch.arange(n, dtype=torch.float64) / n
    corrected = torch.cosh(root * (o - 0.5)) / (2 * lam**0.5 * math.sinh(root / 2))
    printed = torch.cosh(root * (o - 0.5)) / (2 * math.sinh(root))
    ours = n * riesz.Sobolev(lam).kernel(n)
    assert relative_error(ours, corrected) <= 1e-6
    assert math.isclose(corrected.mean(), 1, rel_tol=1e-6)
    assert relative_error(ours, printed) > 0.1


def test_printed_h1_kernel_does_not_integrate_to_one():
    o = torch.arange(10**5, dtype=torch.float64) / 10**5
    assert math.isclose((torch.cosh(o - 0.5) / (2 * math.sinh(1))).mean(), 0.443, abs_tol=5e-4)


@pytest.mark.parametrize("n", [3, 8, 33])
@pytest.mark.parametrize("lam", [0.05, 1.0, 7.0])
def test_papers_riemann_sum_is_the_exact_solve_but_for_the_mean(n, lam):
    """The printed formulas, discretised by left Riemann sums as printed (with f at the integration variable)."""
    f = random(n, 3)
    o = torch.arange(n, dtype=torch.float64)[:, None] / n
    fd = f - f.mean(0)
    start = ((1 + (o**2 - o + 1 / 6) / (2 * lam)) * f).mean(0)
    slope = -(o * fd).mean(0) / lam
    integral = torch.stack([((o[i] - o[:i]) * fd[:i]).sum(0) / n for i in range(n)])
    printed = start + o * slope - integral / lam
    exact = riesz.SobolevTilde(lam, blend=0.0)
    assert relative_error(riesz.SobolevTilde(lam, blend=0.0, riemann=True).gradient(f), printed) <= 1e-12
    torch.testing.assert_close(printed - printed.mean(0), exact.gradient(f) - f.mean(0), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(printed.mean(0), (1 + 1 / (12 * lam * n**2)) * f.mean(0))


def test_facts_on_lam_that_the_docs_tell():
    def curve(lam, n=1000):
        return n * riesz.SobolevTilde(lam, blend=0.0).kernel(n)

    assert (round(curve(1.0).min().item(), 3), round(curve(1.0).max().item(), 3)) == (0.958, 1.083)
    assert curve(1 / 23).min() > 0 > curve(1 / 25).min()
    first_mode = riesz.SobolevTilde(1e-3, blend=0.0).symbol(1000)[1]
    assert math.isclose(first_mode, 25.3, abs_tol=0.1)
    f = random(64, 9)
    near = relative_error(riesz.SobolevTilde(1.0).gradient(f), riesz.ReweightedL2(1.0).gradient(f))
    assert near < 0.01


def test_from_weight_is_the_printed_equation():
    f = random(7, 3)
    for w in (0.2, 1.0, 5.0):
        wanted = f.mean(0) + (f - f.mean(0)) / w
        assert relative_error(riesz.ReweightedL2.from_weight(w).gradient(f), wanted) <= 1e-14


def test_code_of_the_paper_is_reweighted_l2():
    grad = random(6, 2, 3, 3)
    wanted = grad + 3.0 * torch.mean(grad, 0, True).repeat(grad.size(0), 1, 1, 1)
    assert relative_error(riesz.ReweightedL2(3.0).gradient(grad), wanted) <= 1e-14


@every_metric
def test_complex_gradients_are_directed_in_both_parts(metric):
    f = torch.complex(random(9, 2), random(9, 2, seed=1))
    wanted = torch.complex(metric.gradient(f.real), metric.gradient(f.imag))
    assert relative_error(metric.gradient(f), wanted) <= 1e-14
    assert relative_error(metric.gradient(f.conj()), wanted.conj()) <= 1e-14
    written = riesz.precondition_(f.clone().conj(), metric)
    assert relative_error(written, wanted.conj()) <= 1e-14


@pytest.mark.parametrize("n", [4, 193, 256])
@every_metric
def test_complex_gradients_have_an_inner_product_at_every_length(metric, n):
    f, k = (torch.complex(random(3, n, 2, seed=s), random(3, n, 2, seed=s + 1)) for s in (0, 2))
    g = metric.gradient(f, dim=1)
    size = (f.norm() * k.norm()).item()
    tolerance = 1e-13 * (metric.symbol(n).max() / metric.symbol(n).min()).item()
    assert abs(metric.inner(g, k, dim=1) - torch.vdot(f.flatten(), k.flatten())) <= tolerance * size
    assert abs(metric.inner(f, f, dim=1).imag) <= tolerance * size


def test_centralization_takes_the_mean_off_each_output():
    f = random(4, 3, 2, 2)
    centred = riesz.Centralization()
    torch.testing.assert_close(centred.gradient(f), f - f.mean((1, 2, 3), keepdim=True))
    torch.testing.assert_close(centred.gradient(f, dim=1), f - f.mean((0, 2, 3), keepdim=True))
    last_first = f.to(memory_format=torch.channels_last)
    torch.testing.assert_close(riesz.precondition_(last_first, centred), f - f.mean((1, 2, 3), keepdim=True))
    batch = [random(4, 3), random(4, 3, seed=1)]
    wanted = [f - f.mean(1, keepdim=True) for f in batch]
    torch.testing.assert_close(riesz.precondition_(batch, centred), wanted)


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("backend", ["auto", "eager", "reference"])
def test_centralization_takes_the_complex_mean_off_complex_gradients(backend, dim):
    f = torch.complex(random(4, 3, 2, 2) + 1, random(4, 3, 2, 2, seed=1) - 5)
    wanted = f - f.mean([d for d in range(4) if d != dim], keepdim=True)
    torch.testing.assert_close(riesz.Centralization().gradient(f, dim), wanted)
    for given in (f, f.to(memory_format=torch.channels_last)):
        got = riesz.precondition_(given.clone(), riesz.Centralization(), dim, backend)
        torch.testing.assert_close(got, wanted)
        assert got.stride() == given.stride()
    got = riesz.precondition_(f.clone().conj(), riesz.Centralization(), dim, backend)
    torch.testing.assert_close(got, wanted.conj())


def test_an_attachment_centres_complex_gradients_per_group_output_and_part():
    conv = torch.nn.Conv2d(4, 6, 3, groups=2, bias=False, dtype=torch.complex64)
    optimizer = torch.optim.SGD(conv.parameters(), lr=0.0)
    riesz.attach(optimizer, conv, metric="centralization")
    conv.weight.grad = f = torch.complex(random(6, 2, 3, 3), random(6, 2, 3, 3, seed=1)).to(torch.complex64)
    wanted = f - f.mean((1, 2, 3), keepdim=True)
    optimizer.step()
    torch.testing.assert_close(conv.weight.grad, wanted)


@pytest.mark.parametrize("metric", OPERATORS, ids=repr)
def test_operators_are_values(metric):
    assert pickle.loads(pickle.dumps(metric)) == metric
    assert copy.deepcopy(metric) == metric
    assert hash(copy.copy(metric)) == hash(metric)
    assert eval(repr(metric), vars(riesz)) == metric
    assert riesz.metric(str(metric)) == metric
    with pytest.raises(AttributeError):
        metric.scale = 2.0


def test_a_subclass_inherits_neither_the_compiled_kernel_nor_the_low_rank_form():
    class Doubled(riesz.SobolevTilde):
        def smoothing_symbol(self, n, waves_F):
            return 2 * super().smoothing_symbol(n, waves_F)

        def smooth(self, columns_ONI):
            return 2 * super().smooth(columns_ONI)

    assert (Doubled.native_kind, Doubled.off_diagonal) == (None, None)
    f = random(9, 4)
    wanted = 2 * riesz.SobolevTilde(blend=0.0).gradient(f)
    assert relative_error(riesz.precondition_(f, Doubled(blend=0.0)), wanted) <= 1e-13


def test_a_subclass_with_a_symbol_of_its_own_keeps_its_digits_in_float32():
    class Steeper(riesz.LaplacianSmoothing):
        def smoothing_symbol(self, n, waves_F):
            return super().smoothing_symbol(n, waves_F) ** 8

    metric, n = Steeper(sigma=0.05), 64
    f = (-1.0) ** torch.arange(n, dtype=torch.float64)[:, None] + 1e-3 * random(n, 3)
    wanted = riesz.precondition_(f.clone(), metric, backend="reference")
    assert relative_error(riesz.precondition_(f.float(), metric).double(), wanted) <= 5e-7


def test_centralization_is_an_operator_and_no_metric():
    assert isinstance(riesz.Centralization(), riesz.Operator)
    assert not isinstance(riesz.Centralization(), riesz.Metric)


def test_metrics_hold_floats():
    for value in (riesz.Sobolev(2).lam, riesz.ReweightedL2(scale=3).scale, riesz.LaplacianSmoothing(1).sigma):
        assert type(value) is float


@pytest.mark.parametrize("n", [5, 193, 256])
def test_gradient_keeps_dtype_strides_and_input(n):
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64):
        f = random(n, 4, 3, 3).to(dtype).to(memory_format=torch.channels_last)
        before = f.clone()
        g = riesz.SobolevTilde().gradient(f)
        assert (g.dtype, g.stride(), g.shape) == (f.dtype, f.stride(), f.shape)
        assert torch.equal(f, before)
        assert g.data_ptr() != f.data_ptr()


def test_one_bad_entry_stays_visible_in_its_column():
    for metric in METRICS:
        for bad in (math.nan, math.inf):
            for n in (8, 300, 509):  # by matrix product, FFT and running sums
                f = torch.ones(n, 3)
                f[2, 1] = bad
                g = riesz.precondition_(f.clone(), metric)
                assert not torch.isfinite(g[2, 1]), metric
                assert torch.isfinite(g[:, 0]).all(), metric
