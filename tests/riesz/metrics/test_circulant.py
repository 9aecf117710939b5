"""Matrix product, FFT and running sums agree with the specification at every length, not only where they serve."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import riesz
from cases import LENGTHS, METRICS, TOLERANCE, relative_error
from riesz.backends.reference import dense
from riesz.metrics import circulant

STRATEGIES = ["matmul", "fft", "sums"]


@pytest.fixture
def forced(monkeypatch):
    return lambda how: monkeypatch.setattr(circulant, "strategy", lambda columns: how)


@pytest.mark.parametrize("inner", [1, 6])
@pytest.mark.parametrize("how", STRATEGIES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("metric", METRICS, ids=repr)
def test_every_strategy_is_exact_at_every_length(metric, dtype, how, inner, forced):
    forced(how)
    generator = torch.Generator().manual_seed(0)
    for n in LENGTHS:
        f = 1 + torch.randn(3, n, inner, dtype=torch.float64, generator=generator)
        wanted = torch.einsum("nm,omi->oni", dense(metric, n), f)
        assert relative_error(metric.gradient(f.to(dtype), dim=1), wanted) <= TOLERANCE[dtype], n


@pytest.mark.parametrize(
    "metric",
    [
        *(riesz.Sobolev(lam=lam) for lam in (1e-6, 1e-3, 1.0, 1e3, 1e6)),
        *(riesz.LaplacianSmoothing(sigma=sigma) for sigma in (1e-6, 1.0, 1e6)),
        *(riesz.SobolevTilde(lam=lam, blend=0.0) for lam in (1e-6, 1.0, 1e6)),
    ],
    ids=repr,
)
@pytest.mark.parametrize("n", [4096, 5003, 65536])
def test_running_sums_hold_in_float32_at_the_extremes(metric, n):
    f = torch.randn(1, n, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
    wanted = circulant.by_fft(f, metric.symbol(n))
    assert circulant.strategy(f) == "sums"
    assert relative_error(metric.gradient(f.float(), dim=1), wanted) <= TOLERANCE[torch.float32]
    assert relative_error(metric.gradient(f, dim=1), wanted) <= TOLERANCE[torch.float64]


@pytest.mark.parametrize("how", STRATEGIES)
@pytest.mark.parametrize("metric", [riesz.Sobolev(0.1), riesz.SobolevTilde(0.1), riesz.LaplacianSmoothing()], ids=repr)
def test_autograd_passes_through_every_strategy(metric, how, forced):
    forced(how)
    f = torch.randn(2, 70, 2, dtype=torch.float64, requires_grad=True, generator=torch.Generator().manual_seed(1))
    assert torch.autograd.gradcheck(lambda x: metric.gradient(x, dim=1), f)


def test_strategy_follows_length_and_factors():
    def at(n):
        return circulant.strategy(torch.empty(1, n, 1))

    assert [at(1), at(192), at(512), at(2048)] == ["matmul", "matmul", "fft", "fft"]
    assert [at(509), at(2049), at(10**6)] == ["sums", "sums", "sums"]


ROUNDED = {"tf32": "high", "bf16": "medium"}
"""What rounds float32 matrix products: settings per backend, and the one for all of torch before 2.9."""


def _strategy_of_floats() -> list[str]:
    return [circulant.strategy(torch.empty(1, 64, 1, dtype=dtype)) for dtype in (torch.float32, torch.float64)]


@pytest.mark.skipif(not hasattr(torch.backends.mkldnn, "matmul"), reason="torch before 2.9 has no setting per backend")
@pytest.mark.parametrize("setting", ROUNDED)
def test_rounded_matrix_products_are_not_used(setting):
    was = torch.backends.mkldnn.matmul.fp32_precision
    torch.backends.mkldnn.matmul.fp32_precision = setting
    try:
        assert _strategy_of_floats() == ["fft", "matmul"]
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = was


@pytest.mark.parametrize("setting", ["highest", *ROUNDED.values()])
def test_rounded_matrix_products_are_not_used_before_torch_2_9(setting, monkeypatch):
    monkeypatch.setattr(torch.backends, "mkldnn", object())
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: setting)
    assert _strategy_of_floats() == ["matmul" if setting == "highest" else "fft", "matmul"]


@pytest.mark.parametrize("n", [64, 4096])
def test_autocast_around_the_step_changes_nothing(n):
    f = torch.randn(n, 3, generator=torch.Generator().manual_seed(0))
    for metric in (riesz.SobolevTilde(), riesz.Sobolev()):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inside = metric.gradient(f)
            written = riesz.precondition_(f.clone(), metric)
        assert torch.equal(inside, metric.gradient(f))
        assert torch.equal(written, riesz.precondition_(f.clone(), metric))


def test_one_table_serves_every_lam():
    tables = {
        id(circulant.waves(50, torch.device("cpu")))
        for lam in (0.1, 0.2, 0.3)
        if riesz.Sobolev(lam).symbol(50) is not None
    }
    assert len(tables) == 1


def test_tables_made_for_fake_tensors_or_inference_do_not_outlive_them():
    with FakeTensorMode():
        riesz.Sobolev().symbol(47)
    with torch.inference_mode():
        riesz.Sobolev().gradient(torch.randn(47))
    f = torch.randn(47, requires_grad=True)
    riesz.Sobolev().gradient(f).sum().backward()
    assert f.grad is not None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_metric_without_running_sums_is_exact_where_the_others_use_them(dtype):
    class Plain(riesz.Sobolev):
        smooth = riesz.Metric.smooth

    n = 2053  # prime
    columns_ONI = torch.randn(1, n, 3, dtype=dtype)
    assert circulant.strategy(columns_ONI) == "sums"
    metric = Plain(0.2, blend=0.5)
    wanted = dense(riesz.Sobolev(0.2, blend=0.5), n) @ columns_ONI.double()
    assert relative_error(metric.direct(columns_ONI), wanted) <= TOLERANCE[dtype]


def test_a_matrix_is_made_once_and_again_when_a_number_changes(monkeypatch):
    made = []
    real = circulant.matrix
    monkeypatch.setattr(circulant, "matrix", lambda symbol_F, n: made.append(n) or real(symbol_F, n))
    monkeypatch.setattr(circulant, "_tables", {})
    metric = riesz.SobolevTilde(0.7).as_tensors()
    f = torch.randn(9, 2, dtype=torch.float64)
    for lam, count in ((0.7, 1), (0.7, 1), (0.2, 2), (0.7, 2)):
        metric.lam.fill_(lam)
        assert relative_error(metric.gradient(f), dense(riesz.SobolevTilde(lam), 9) @ f) <= 1e-12
        assert len(made) == count


def test_short_axes_keep_a_mean_that_is_far_from_the_other_modes():
    for metric in (riesz.SobolevTilde(1e3, blend=0.0), riesz.SobolevTilde(1e-6, blend=0.0)):
        for n in (2, 3):
            for f in (torch.full((n,), 1e3), torch.tensor([1.0, -1.0, 0.0][:n])):
                wanted = dense(metric, n) @ f.double()
                assert relative_error(metric.direct(f.view(1, n, 1)).flatten(), wanted) <= 5e-6
