"""The Triton kernels in Triton's interpreter, against the executable specification; see triton_interpreter.py.

Interpreting is a thousand times slower than running, so there are fewer cases than for the other backends, chosen to
reach every branch.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from random import Random

import pytest
import torch

import riesz
from cases import LAYOUTS, OPERATORS, TOLERANCE, laid_out, random_operator, relative_error
from kernel_oracle import EXTENDED, by_fft, in_extended_precision
from riesz.backends import registry
from riesz.backends.triton import backend, launch, verify
from riesz.layout.axis import Axis, ColumnView
from triton_interpreter import direct_all_, expected

SHAPES = [
    ((5,), 0),
    ((7, 4, 3), 0),
    ((64, 8), 0),
    ((2, 65, 3), 1),
    ((4, 3, 20), 2),
    ((1, 9), 0),
    ((193, 4), 0),
    ((641, 3), 0),
]
"""Odd and even, along every place of the axis; one panel and several, vectors and not."""


KINDS = list(dict.fromkeys(type(operator) for operator in OPERATORS))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda dtype: str(dtype)[6:])
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
def test_every_operator_matches_the_reference_several_tensors_in_one_launch(kind, dtype, largest_errors):
    generator = torch.Generator().manual_seed(3)
    for number, metric in enumerate(operator for operator in OPERATORS if type(operator) is kind):
        batch = []
        for index, (shape, dim) in enumerate(SHAPES if number == 0 else SHAPES[number % 3 : 6 : 2]):
            values = torch.randn(shape, generator=generator, dtype=torch.float64) + index % 2
            values = torch.complex(values, values.flip(0)) if dtype.is_complex else values
            layout = LAYOUTS[(number + index) % len(LAYOUTS)]
            if not metric.mixes_columns or metric.skip_reason(shape, Axis(dim)) is None:
                batch.append((laid_out(values.to(dtype), layout), Axis(dim)))
        wanted = [expected(f, metric, axis) for f, axis in batch]
        strides = [f.stride() for f, _ in batch]
        direct_all_(batch, metric)
        for (f, axis), w, stride in zip(batch, wanted, strides, strict=True):
            error = relative_error(f, w)
            largest_errors["triton", kind.__name__, str(dtype)[6:]].append(error)
            assert f.stride() == stride
            assert error <= TOLERANCE[dtype], (metric, tuple(f.shape), axis)


def test_fuzz_of_shapes_strides_axes_and_groups(largest_errors):
    rng, generator = Random(7), torch.Generator().manual_seed(7)
    for _ in range(25):
        metric, dtype = random_operator(rng), rng.choice(list(TOLERANCE))
        batch = []
        for _ in range(rng.randint(1, 3)):
            dims = rng.randint(1, 4)
            groups, dim = rng.choice([1, 1, 2, 3]), rng.randrange(dims)
            shape = [rng.choice([1, 2, 3, 4, 5]) for _ in range(dims)]
            shape[dim] = rng.choice([1, 2, 7, 16, 31, 64, 129])
            shape[0] *= groups
            values = torch.randn(shape, generator=generator, dtype=torch.float64) + rng.choice([0, 1])
            axis = Axis(None) if rng.random() < 0.2 else Axis(dim, groups)
            if not metric.mixes_columns or metric.skip_reason(tuple(shape), axis) is None:
                batch.append((laid_out(values.to(dtype), rng.choice(LAYOUTS)), axis))
        wanted = [expected(f, metric, axis) for f, axis in batch]
        direct_all_(batch, metric)
        for (f, axis), w in zip(batch, wanted, strict=True):
            error = relative_error(f, w)
            largest_errors["triton", type(metric).__name__, str(dtype)[6:]].append(error)
            assert error <= TOLERANCE[dtype], (metric, tuple(f.shape), f.stride(), axis)


@pytest.mark.parametrize(
    "metric", [riesz.SobolevTilde(1e-3, blend=0.0), riesz.Sobolev(1.0), riesz.LaplacianSmoothing(1e4)]
)
@pytest.mark.parametrize("n", [1023, 5000])
def test_long_columns_hold_their_digits(metric, n):
    f = torch.randn(n, 4, generator=torch.Generator().manual_seed(n)) + 0.5
    wanted = by_fft(metric, f)
    direct_all_([(f, Axis(0))], metric)
    assert relative_error(f, wanted) <= TOLERANCE[torch.float32]


@pytest.mark.skipif(not EXTENDED, reason="this machine has no numbers beyond float64 to solve in")
@pytest.mark.parametrize("metric", [riesz.SobolevTilde(0.01, blend=0.0), riesz.Sobolev(0.01)], ids=str)
def test_the_common_part_of_a_long_float64_column_costs_the_rest_no_digits(metric):
    """The mean of a column, or of its first panel, is taken off before it is summed; here they differ."""
    f = torch.randn(700, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 1e6
    f[:128, 2:] -= 1.0
    wanted = in_extended_precision(metric, f)
    direct_all_([(f, Axis(0))], metric)
    deviation = (wanted - wanted.mean(0)).abs().max()
    assert ((f - wanted).abs().max() / deviation).item() <= 1.5e-9


@pytest.mark.skipif(not EXTENDED, reason="this machine has no numbers beyond float64 to solve in")
@pytest.mark.parametrize("metric", [riesz.SobolevTilde(1.0, blend=0.0), riesz.Sobolev(1.0)], ids=str)
def test_long_float64_columns_hold_their_digits(metric):
    f = torch.randn(5000, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    wanted = in_extended_precision(metric, f)
    direct_all_([(f, Axis(0))], metric)
    assert relative_error(f, wanted) <= TOLERANCE[torch.float64] / 2


@pytest.mark.parametrize("strength", [1e-6, 1e6, 1e9, 1e20])
@pytest.mark.parametrize("kind", [riesz.Sobolev, riesz.SobolevTilde, riesz.LaplacianSmoothing])
def test_extreme_strengths(kind, strength):
    metric = kind(strength, blend=0.0)
    for n in (2, 33, 200):
        f = torch.randn(n, 4, generator=torch.Generator().manual_seed(n)) + 0.5
        wanted = by_fft(metric, f)
        direct_all_([(f, Axis(0))], metric)
        assert relative_error(f, wanted) <= TOLERANCE[torch.float32]


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # the interpreter's NumPy
def test_one_entry_that_is_no_number_poisons_its_column_and_no_other():
    for metric in (riesz.ReweightedL2(), riesz.Sobolev(0.1), riesz.SobolevTilde(0.1)):
        f = torch.randn(40, 8)
        f[7, 2] = float("inf")
        direct_all_([(f, Axis(0))], metric)
        assert not f[:, 2].isfinite().any()
        assert f[:, :2].isfinite().all()
        assert f[:, 3:].isfinite().all()


@pytest.mark.parametrize("stem", launch.kernels())
def test_the_single_entry_point_gives_what_the_table_gives(stem):
    (kind,) = {type(o) for o in OPERATORS if o.native_kind in (0, 1, 2, 3, 5) and backend.STEMS[o.native_kind] == stem}
    has_scale = any(field.name == "scale" for field in kind.settings())
    metric, kernel = kind(scale=0.5) if has_scale else kind(), launch.kernels()[stem]
    f = torch.randn(200, 2, 6)
    many, single = f.clone(), f.clone()
    direct_all_([(many, Axis(0))], metric)
    geometry = launch.geometry_of(ColumnView.open(single, Axis(0)))
    tile = kernel.tile_of(geometry, single.dtype, is_aligned=True)
    launch.launch_single(kernel, single, geometry, tile, backend.by_value(backend.numbers_of(metric), single.device))
    assert torch.equal(many, single)
    assert not torch.equal(many, f)


def test_gradients_that_share_memory_are_directed_one_after_the_other(monkeypatch):
    """In one launch they would race; the interpreter, which runs program after program, does not show it."""
    singles, real = [], launch.launch_single
    monkeypatch.setattr(launch, "launch_single", lambda *arguments: singles.append(1) or real(*arguments))
    f, metric = torch.randn(12, 4), riesz.ReweightedL2()
    wanted = expected(expected(f, metric, Axis(0)), metric, Axis(0))
    direct_all_([(f, Axis(0)), (f.view(12, 2, 2), Axis(0))], metric)
    assert relative_error(f, wanted) <= TOLERANCE[torch.float32]
    assert len(singles) == 2


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
def test_what_lies_around_a_gradient_and_in_its_gaps_stays_as_it_is(kind, layout):
    metric = kind()
    around = torch.randn(6000, generator=torch.Generator().manual_seed(4))
    before = around.clone()
    strides = laid_out(torch.empty(9, 6, 4), layout).stride()
    f = around.as_strided((9, 6, 4), strides, 1000)
    wanted = expected(f, metric, Axis(0))
    direct_all_([(f, Axis(0))], metric)
    assert relative_error(f, wanted) <= TOLERANCE[torch.float32]
    f.copy_(before.as_strided((9, 6, 4), strides, 1000))
    assert torch.equal(around, before)


def test_columns_too_long_for_one_program_go_to_eager_which_is_logged_once(caplog):
    f = torch.randn(backend.LONGEST_COLUMN + 1)
    wanted, metric = f.mean() + f, riesz.ReweightedL2()
    with caplog.at_level(logging.WARNING, "riesz"):
        for _ in range(2):
            riesz.precondition_(g := f.clone(), metric, backend="triton")
            assert relative_error(g, wanted) <= TOLERANCE[torch.float32]
    assert [record.message.count("eager serves longer ones") for record in caplog.records] == [1]


@pytest.mark.parametrize("kind", [None, 99], ids=["no compiled kernel", "a kernel in csrc alone"])
def test_a_metric_without_a_kernel_goes_to_eager_which_is_logged_once(kind, caplog):
    class Other(riesz.ReweightedL2):
        native_kind = kind

    registry._announced.clear()
    parameters = [torch.nn.Parameter(torch.zeros(shape)) for shape in ((6, 4), (5, 3))]
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    riesz.attach(optimizer, metric=Other(lam=0.5), layers="all", backend="triton")
    with caplog.at_level(logging.WARNING, "riesz"):
        for _ in range(3):
            gradients = [torch.randn_like(parameter) for parameter in parameters]
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient.clone()
            optimizer.step()
            for parameter, f in zip(parameters, gradients, strict=True):
                wanted = expected(f, riesz.ReweightedL2(lam=0.5), Axis(0))
                assert relative_error(parameter.grad, wanted) <= TOLERANCE[torch.float32]
    (record,) = caplog.records
    assert record.message == "backend 'triton' has no kernel for the metric Other; eager serves in its place"

    # No compiler can trace a logger.
    registry._announced.clear()
    metric = Other(lam=0.5)
    step = torch.compile(lambda g: riesz.precondition_(g, metric, backend="triton"), backend="eager", fullgraph=True)
    assert step(torch.ones(6, 4)).unique().tolist() == [1.5]


@pytest.mark.usefixtures("verified")
def test_a_metric_with_the_kernel_of_another_may_have_settings_of_its_own():
    @dataclass(frozen=True)
    class Named(riesz.ReweightedL2):
        native_kind = riesz.ReweightedL2.native_kind
        label: str = "mine"

    f = torch.randn(6, 4)
    wanted = expected(f, riesz.ReweightedL2(lam=0.5), Axis(0))
    direct_all_([(f, Axis(0))], Named(lam=0.5))
    assert relative_error(f, wanted) <= TOLERANCE[torch.float32]
    assert verify.note() is None
