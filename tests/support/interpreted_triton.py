"""The Triton kernels in Triton's interpreter, against the executable specification.

Run by `test_triton_interpreter.py` in a process of its own with TRITON_INTERPRET=1: Triton decides when it is imported
whether it compiles or interprets, and other tests import it too. Interpreting is a thousand times slower than running,
so there are fewer cases than for the other backends, chosen to reach every branch.
"""

from __future__ import annotations

import logging
from random import Random

import pytest
import torch
import triton.language as tl
import triton.runtime.interpreter as interpreter

import riesz
from cases import LAYOUTS, OPERATORS, TOLERANCE, laid_out, random_operator, relative_error
from kernel_oracle import by_fft
from riesz.backends.dispatch import direct_
from riesz.backends.triton import direct, fast_path, kernels, launch, verify
from riesz.backends.triton.tiles import Tile
from riesz.layout.axis import Axis, ColumnView

_patch_lang, _run_grid = interpreter._patch_lang, interpreter.GridExecutor.__call__
_convert_float = interpreter._convert_float
_patched: set[int] = set()


@pytest.fixture(autouse=True, scope="session")
def interpreter_rounds_to_bfloat16_as_hardware_does():
    """Triton 3.9's interpreter cuts the digits off, whatever rounding is asked for; every device rounds to nearest."""

    def convert_float(values, source, target, rounding):
        if (source, target) != (tl.float32, tl.bfloat16):
            return _convert_float(values, source, target, rounding)
        return torch.from_numpy(values.copy()).bfloat16().view(torch.int16).numpy().view("uint16").reshape(values.shape)

    interpreter._convert_float = convert_float
    yield
    interpreter._convert_float = _convert_float


@pytest.fixture(autouse=True, scope="session")
def interpreter_patches_once_per_launch():
    """The interpreter looks through all of triton.language at every call of a function; once per launch is enough."""

    def run_grid(self, *arguments, **keywords):
        _patched.clear()
        return _run_grid(self, *arguments, **keywords)

    def patch_lang(function):
        known = id(function.__globals__) in _patched
        _patched.add(id(function.__globals__))
        return None if known else _patch_lang(function)

    interpreter.GridExecutor.__call__, interpreter._patch_lang = run_grid, patch_lang
    yield
    interpreter.GridExecutor.__call__, interpreter._patch_lang = _run_grid, _patch_lang


@pytest.fixture(autouse=True)
def unverified(monkeypatch):
    """These tests compare more than the first-use check does; those of the check itself switch it on."""
    monkeypatch.setenv("RIESZ_VERIFY", "0")


def wide(tensor):
    return tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64, copy=True)


def expected(f, metric, axis):
    wanted = wide(f)
    direct_([ColumnView.open(wanted, axis)], metric, "reference")
    return wanted


def direct_all_(batch, metric):
    direct_([ColumnView.open(f, axis) for f, axis in batch], metric, "triton")


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


@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda dtype: str(dtype)[6:])
@pytest.mark.parametrize(
    "kind", list(dict.fromkeys(type(operator) for operator in OPERATORS)), ids=lambda k: k.__name__
)
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


@pytest.mark.parametrize("stem", kernels.KERNELS)
def test_the_single_entry_point_gives_what_the_table_gives(stem):
    (kind,) = {type(o) for o in OPERATORS if o.native_kind in (0, 1, 2, 3, 5) and direct.STEMS[o.native_kind] == stem}
    has_scale = any(field.name == "scale" for field in kind.settings())
    metric, kernel = kind(scale=0.5) if has_scale else kind(), kernels.KERNELS[stem]
    f = torch.randn(200, 2, 6)
    many, single = f.clone(), f.clone()
    direct_all_([(many, Axis(0))], metric)
    geometry = direct.geometry_of(ColumnView.open(single, Axis(0)))
    tile = kernel.tile_of(geometry, single.dtype, is_aligned=True)
    launch.launch_single(kernel, single, geometry, tile, direct.by_value(direct.numbers_of(metric), single.device))
    assert torch.equal(many, single)
    assert not torch.equal(many, f)


def test_gradients_that_share_memory_are_directed_one_after_the_other():
    f, metric = torch.randn(12, 4), riesz.ReweightedL2()
    wanted = expected(expected(f, metric, Axis(0)), metric, Axis(0))
    direct_all_([(f, Axis(0)), (f.view(12, 2, 2), Axis(0))], metric)
    assert relative_error(f, wanted) <= TOLERANCE[torch.float32]


def test_columns_too_long_for_one_program_go_to_eager_which_is_logged_once(caplog):
    f = torch.randn(direct.LONGEST_COLUMN + 1)
    wanted, metric = f.mean() + f, riesz.ReweightedL2()
    with caplog.at_level(logging.WARNING, "riesz"):
        for _ in range(2):
            riesz.precondition_(g := f.clone(), metric, backend="triton")
            assert relative_error(g, wanted) <= TOLERANCE[torch.float32]
    assert [record.message.count("eager serves longer ones") for record in caplog.records] == [1]


# -- the fast path -----------------------------------------------------------------------------------------------------


def test_a_list_like_the_last_one_is_launched_again_with_moved_gradients_and_new_numbers(monkeypatch):
    launches = []
    real = launch.launch_many
    monkeypatch.setattr(launch, "launch_many", lambda *arguments: launches.append(1) or real(*arguments))
    shapes = [(16, 3, 3, 3), (16, 16, 1, 1), (33, 5)]
    for lam in (1.0, 1.0, 0.2):
        metric = riesz.SobolevTilde(lam)
        grads = [torch.randn(shape) for shape in shapes]
        wanted = [expected(g, metric, Axis(0)) for g in grads]
        versions = [g._version for g in grads]
        riesz.precondition_(grads, metric, backend="triton")
        assert all(relative_error(g, w) <= TOLERANCE[torch.float32] for g, w in zip(grads, wanted, strict=True))
        assert all(g._version > version for g, version in zip(grads, versions, strict=True))
    assert len(launches) == 3


def test_two_dtypes_are_two_launches(monkeypatch):
    launches = []
    monkeypatch.setattr(launch, "launch_many", lambda table, *arguments: launches.append(table.dtype))
    grads = [torch.randn(8, 4), torch.randn(8, 4, dtype=torch.float64), torch.randn(9, 4)]
    for _ in range(2):
        riesz.precondition_(grads, riesz.ReweightedL2(), backend="triton")
    assert launches == [torch.float32, torch.float64] * 2


def test_a_gradient_that_loses_its_alignment_is_not_written_by_vectors():
    metric, f = riesz.ReweightedL2(), torch.randn(8, 4)
    opened = ColumnView.open(f, Axis(0))
    path = fast_path.TritonFastPath.of([f], [opened])
    assert path([f], metric)
    moved = laid_out(torch.randn(8, 4), "offset")
    before = moved.clone()
    assert moved.data_ptr() % 16 != 0
    assert not path([moved], metric)
    assert torch.equal(moved, before)


# -- first use ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def verified(monkeypatch):
    monkeypatch.setenv("RIESZ_VERIFY", "1")
    monkeypatch.setattr(verify, "_verdicts", {})


@pytest.mark.usefixtures("verified")
def test_a_broken_kernel_is_caught_at_first_use_and_eager_serves(monkeypatch, caplog):
    from riesz.backends.triton import identity, reweighted_l2

    monkeypatch.setattr(reweighted_l2, "direct", identity.direct)  # forgets the mean
    metric = riesz.ReweightedL2(lam=2.0)
    with caplog.at_level(logging.WARNING, "riesz"):
        for _ in range(3):
            f = torch.randn(12, 4)
            wanted = expected(f, metric, Axis(0))
            riesz.precondition_(f, metric, backend="triton")
            assert relative_error(f, wanted) <= TOLERANCE[torch.float32]
    (record,) = caplog.records
    assert "reweighted_l2 (float32" in record.message
    assert "eager serves in its place" in record.message
    (status,) = (status for status in riesz.backends() if status.name == "triton")
    assert "reweighted_l2 (float32" in status.reason
    assert "differs from eager by" in status.reason


@pytest.mark.usefixtures("verified")
@pytest.mark.parametrize("place", [None, -1, 0])
def test_a_kernel_that_writes_outside_its_gradient_is_caught(place):
    def check(memory, geometry):
        memory.mul_(2)

    def run(samples, geometries):
        (memory,), (geometry,) = samples, geometries
        check(memory, geometry)
        if place is not None:
            outside = memory.storage_offset() + (place if place < 0 else geometry.span)
            memory.as_strided((1,), (1,), outside).add_(1)

    kernel, tile = kernels.KERNELS["reweighted_l2"], Tile(1, 512, 16, 0, 4, True)
    trusted = verify.is_trusted(kernel, "many", torch.float32, (tile,), torch.device("cpu"), run, check)
    assert trusted == (place is None)


@pytest.mark.usefixtures("verified")
def test_a_kernel_that_does_not_compile_is_not_used(monkeypatch):
    def fail(*arguments):
        raise RuntimeError("no such instruction")

    monkeypatch.setattr(launch, "launch_many", fail)
    f, metric = torch.randn(6, 4), riesz.SobolevTilde(0.3)
    wanted = expected(f, metric, Axis(0))
    riesz.precondition_(f, metric, backend="triton")
    assert relative_error(f, wanted) <= TOLERANCE[torch.float32]
    assert "does not run: RuntimeError: no such instruction" in verify.note()


@pytest.mark.usefixtures("verified")
@pytest.mark.parametrize("stem", kernels.KERNELS)
def test_every_kernel_passes_its_first_use_once(stem, monkeypatch):
    (kind,) = {type(o) for o in OPERATORS if o.native_kind in (0, 1, 2, 3, 5) and direct.STEMS[o.native_kind] == stem}
    samples = []
    real = verify._compare
    monkeypatch.setattr(verify, "_compare", lambda *arguments: samples.append(1) or real(*arguments))
    for _ in range(2):
        grads = [torch.randn(10, 8), torch.randn(300, 3), torch.randn(70, 4, dtype=torch.float16)]
        direct_all_([(g, Axis(0)) for g in grads], kind())
    assert verify.note() is None
    assert len(samples) == len(verify._verdicts) >= 2
