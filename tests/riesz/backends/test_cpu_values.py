"""The compiled kernels: right at every shape, stride, axis and strength."""

from __future__ import annotations

import random

import pytest
import torch

import riesz
from cases import REAL_DTYPES, TOLERANCE, random_operator, relative_error
from kernel_oracle import by_fft
from riesz.backends import direct_, native
from riesz.layout.axis import Axis, ColumnView

pytestmark = pytest.mark.skipif(isinstance(native.load(), str), reason="the compiled library is not here")

FUZZ = 5000
KINDS = [riesz.Sobolev, riesz.SobolevTilde, riesz.LaplacianSmoothing]


def random_gradient(rng, generator):
    """Any shape, dtype, order of strides, gaps between entries, offset into the storage; an axis; groups."""
    dims = rng.randint(1, 4)
    shape = [rng.choice([1, 2, 3, 5, 7, 9, 16, 17, 33]) for _ in range(dims)]
    dim = rng.randrange(dims)
    shape[dim] = rng.choice([1, 2, 3, 4, 7, 16, 31, 32, 33, 64, 65, rng.randint(66, 200)])
    while torch.Size(shape).numel() > 8_000:
        widest = max((d for d in range(dims) if d != dim), key=lambda d: shape[d])
        shape[widest] = (shape[widest] + 1) // 2
    groups = rng.choice([1, 1, 2, 3])
    shape[0] *= groups
    order = rng.sample(range(dims), dims)
    step, offset = rng.choice([1, 1, 1, 2]), rng.choice([0, 0, 1, 3])
    dtype = rng.choice(REAL_DTYPES)
    values = torch.randn(shape, generator=generator, dtype=torch.float64) + rng.choice([0.0, 1.0])
    storage = torch.zeros(step * values.numel() + offset, dtype=dtype)
    stored = storage[offset::step][: values.numel()].view([shape[d] for d in order])
    gradient = stored.permute([order.index(d) for d in range(dims)])
    gradient.copy_(values)
    # Rasterized where a dense matrix of all entries is not too large; the long ones are tested by FFT below.
    return gradient, Axis(None) if values.numel() <= 800 and rng.random() < 0.2 else Axis(dim, groups)


@pytest.mark.parametrize("instructions", ["avx512", "avx2", "portable"])
def test_fuzz_of_shapes_strides_and_axes_finds_no_mismatch(instructions, record_property):
    library = native.load().library
    had = native.load().instructions
    if not library.riesz_use_instructions(instructions.encode()):
        pytest.skip(f"{instructions} is not on this machine")
    rng, generator = random.Random(instructions), torch.Generator().manual_seed(8)
    cases = 0
    try:
        while cases < (FUZZ if instructions == had else FUZZ // 5):
            metric = random_operator(rng)
            batch = [random_gradient(rng, generator) for _ in range(rng.randint(1, 6))]
            if metric.mixes_columns:
                batch = [(f, axis) for f, axis in batch if metric.skip_reason(tuple(f.shape), axis) is None]
            wanted = [f.double() for f, _ in batch]
            strides = [f.stride() for f, _ in batch]
            for w, (_, axis) in zip(wanted, batch, strict=True):
                # The fold of the copy differs from the fold of the original: the reference sees logical order only.
                direct_([ColumnView.open(w, axis)], metric, "reference")
            direct_([ColumnView.open(f, axis) for f, axis in batch], metric, "cpu")
            for w, s, (f, axis) in zip(wanted, strides, batch, strict=True):
                magnitude = w.abs().max().item()
                if f.dtype == torch.float16 and magnitude > 60_000:
                    continue  # overflows, as it must
                error = relative_error(f, w)
                assert error <= TOLERANCE[f.dtype], (metric, tuple(f.shape), s, axis, f.dtype, error)
                assert f.stride() == s
                cases += 1
    finally:
        library.riesz_use_instructions(had.encode())
    record_property("cases", cases)


@pytest.mark.parametrize("n", [2, 3, 64, 511, 5000, 65_536])
@pytest.mark.parametrize("strength", [1e-6, 1e-3, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("columns", [1, 9, 20])
def test_float32_recursions_hold_at_the_extremes(kind, strength, n, columns):
    f = torch.randn(n, columns, generator=torch.Generator().manual_seed(n)) + 0.5
    metric = kind(strength, blend=0.0)
    wanted = by_fft(metric, f)
    riesz.precondition_(f, metric, backend="cpu")
    assert relative_error(f, wanted) <= 5e-6


@pytest.mark.parametrize("strength", [1e9, 1e20, 1e30])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_strength_beyond_all_use_leaves_the_mean(kind, strength):
    f = torch.randn(50, 7, dtype=torch.float64)
    wanted = f.mean(0).expand_as(f).clone()
    riesz.precondition_(f, kind(strength, blend=0.0), backend="cpu")
    assert relative_error(f, wanted) <= 1e-6


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_large_common_part_costs_no_digits(kind, dtype):
    f = (torch.randn(256, 12, dtype=torch.float64) * 0.01 + 1000).to(dtype)
    metric = kind(1e-3, blend=0.0)
    wanted = riesz.precondition_(f.double(), metric, backend="reference")
    riesz.precondition_(f, metric, backend="cpu")
    assert relative_error(f, wanted) <= TOLERANCE[dtype]


@pytest.mark.parametrize("n", [511, 512, 513, 575, 576, 577, 16_383, 16_384, 16_385, 70_001, 131_072])
@pytest.mark.parametrize("dtype", REAL_DTYPES, ids=str)
def test_long_columns_are_joined_without_seams(n, dtype):
    for metric in (
        riesz.LaplacianSmoothing(3.0, blend=0.25),
        riesz.Sobolev(1e-5),
        riesz.SobolevTilde(0.01),
        riesz.ReweightedL2(2.0),
    ):
        f = torch.randn(n, generator=torch.Generator().manual_seed(n)).to(dtype)
        wanted = by_fft(metric, f)
        riesz.precondition_(f, metric, backend="cpu")
        assert relative_error(f, wanted) <= TOLERANCE[dtype], metric


def test_rasterized_is_logical_order_whatever_the_strides():
    f = torch.randn(24, 10, 3, 3)
    wanted = by_fft(riesz.LaplacianSmoothing(2.0), f.reshape(-1)).view(f.shape)
    f = f.to(memory_format=torch.channels_last)
    direct_([ColumnView.open(f, Axis(None))], riesz.LaplacianSmoothing(2.0), "cpu")
    assert relative_error(f, wanted) <= 5e-6
    assert f.is_contiguous(memory_format=torch.channels_last)


def test_channels_last_is_written_where_it_lies():
    f = torch.randn(16, 8, 3, 3).to(memory_format=torch.channels_last)
    address, wanted = f.data_ptr(), by_fft(riesz.Sobolev(0.1), f)
    riesz.precondition_(f, riesz.Sobolev(0.1), backend="cpu")
    assert f.data_ptr() == address
    assert f.is_contiguous(memory_format=torch.channels_last)
    assert relative_error(f, wanted) <= 5e-6


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", REAL_DTYPES, ids=str)
@pytest.mark.parametrize("kind", [riesz.ReweightedL2, *KINDS], ids=lambda kind: kind.__name__)
def test_one_non_finite_entry_spoils_its_column_and_no_other(kind, dtype, bad):
    for n, columns in ((20, 100), (20, 9), (700, 1), (70_000, 1)):
        f = torch.randn(n, columns).to(dtype)
        f[n // 2, columns // 2] = bad
        riesz.precondition_(f, kind(), backend="cpu")
        finite = f.isfinite()
        assert not finite[:, columns // 2].any()
        assert finite.sum() == n * (columns - 1)


def test_results_do_not_depend_on_the_number_of_threads():
    shapes = [(64, 64, 3, 3), (128, 700), (70_000,), (3, 5)]
    results = []
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            grads = [torch.randn(shape, generator=torch.Generator().manual_seed(1)) for shape in shapes]
            results.append(riesz.precondition_(grads, riesz.Sobolev(0.01), backend="cpu"))
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
