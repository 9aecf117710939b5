"""The comparison of a kernel with eager at its first use, in Triton's interpreter; see triton_interpreter.py."""

from __future__ import annotations

import importlib
import logging
import threading

import pytest
import torch
import triton
import triton.language as tl

import riesz
from cases import OPERATORS, TOLERANCE, relative_error
from riesz.backends.triton import backend, launch, means, verify
from riesz.backends.triton.launch import Tile, kernels
from riesz.layout.axis import Axis
from triton_interpreter import direct_all_, expected

SMOOTHING = (riesz.SobolevTilde, riesz.Sobolev, riesz.LaplacianSmoothing, riesz.ReweightedL2)


@pytest.mark.usefixtures("verified")
def test_a_broken_kernel_is_caught_at_first_use_and_eager_serves(monkeypatch, caplog):
    monkeypatch.setattr(means, "reweighted_l2", means.identity)  # forgets the mean
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


RIGHT = means.identity
"""The kernel that is broken; a test sets it."""


@triton.jit
def first_program_alone(
    address, block, geometry, numbers, scratch, DTYPE: tl.constexpr, ACC: tl.constexpr,
    S: tl.constexpr, C: tl.constexpr, L: tl.constexpr, LEVELS: tl.constexpr, VECTOR: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    if block == 0:
        RIGHT(address, block, geometry, numbers, scratch, DTYPE, ACC, S, C, L, LEVELS, VECTOR, WHOLE)


def kinds_by_stem():
    kinds = {backend.STEMS[o.native_kind]: type(o) for o in OPERATORS if o.native_kind in (0, 1, 2, 3, 5)}
    return [(stem, kinds[stem]) for stem in kernels()]


@pytest.mark.usefixtures("verified")
@pytest.mark.parametrize("shape", [(5, 4), (600, 3)], ids=["vectors", "strided panels"])
@pytest.mark.parametrize(("stem", "kind"), kinds_by_stem())
def test_a_kernel_that_is_right_in_its_first_program_alone_is_caught(stem, kind, shape, monkeypatch):
    module = importlib.import_module(kernels()[stem].module)
    monkeypatch.setitem(globals(), "RIGHT", getattr(module, stem))
    monkeypatch.setattr(module, stem, first_program_alone)
    direct_all_([(torch.randn(shape), Axis(0))], kind())
    assert "differs from eager" in verify.note()


@pytest.mark.usefixtures("verified")
@pytest.mark.parametrize(
    ("kind", "index", "ignored"),
    [(kind, index, ignored) for kind in SMOOTHING for index, ignored in enumerate((1.0, 1.0, 0.0))]
    + [(riesz.SobolevTilde, 3, 0.0), (riesz.Sobolev, 3, 0.0), (riesz.Identity, 1, 1.0), (riesz.Identity, 2, 0.0)],
)  # fmt: skip
def test_a_kernel_that_ignores_a_number_is_caught(kind, index, ignored, monkeypatch):
    real = launch.launch_many

    def ignore(table, addresses, numbers):
        real(table, addresses, numbers.index_fill(0, torch.tensor([index]), ignored))

    monkeypatch.setattr(launch, "launch_many", ignore)
    direct_all_([(torch.randn(10, 4), Axis(0))], kind())
    assert "differs from eager" in verify.note()


@pytest.mark.usefixtures("verified")
@pytest.mark.parametrize("n", [10, 600])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", SMOOTHING)
def test_a_kernel_of_half_types_that_only_scales_is_caught(kind, dtype, n, monkeypatch):
    """Half types are compared to two or three digits: what a kernel does to a sample must show in those."""
    kernel = backend.kernel_of(kind())
    monkeypatch.setattr(importlib.import_module(kernel.module), kernel.stem, means.identity)
    direct_all_([(torch.randn(n, 3, dtype=dtype), Axis(0))], kind())
    assert "differs from eager" in verify.note()


@pytest.mark.usefixtures("verified")
def test_threads_that_use_a_broken_kernel_first_announce_it_once(monkeypatch, caplog):
    compared, begun = [], threading.Event()

    def compare(*arguments):
        compared.append(arguments)
        begun.wait(60)
        return "the kernel is broken"

    def work():
        verify.is_trusted(kernel, "many", torch.float32, (tile,), torch.device("cpu"), None, None)

    kernel, tile = kernels()["reweighted_l2"], Tile(1, 512, 16, 0, 4, True)
    monkeypatch.setattr(verify, "_compare", compare)
    threads = [threading.Thread(target=work) for _ in range(3)]
    with caplog.at_level(logging.WARNING, "riesz"):
        for thread in threads:
            thread.start()
        begun.set()
        for thread in threads:
            thread.join()
    assert len(compared) == len(caplog.records) == 1


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

    kernel, tile = kernels()["reweighted_l2"], Tile(1, 512, 16, 0, 4, True)
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
@pytest.mark.parametrize("stem", kernels())
def test_every_kernel_passes_its_first_use_once(stem, monkeypatch):
    (kind,) = {type(o) for o in OPERATORS if o.native_kind in (0, 1, 2, 3, 5) and backend.STEMS[o.native_kind] == stem}
    samples = []
    real = verify._compare
    monkeypatch.setattr(verify, "_compare", lambda *arguments: samples.append(1) or real(*arguments))
    for _ in range(2):
        grads = [torch.randn(10, 8), torch.randn(300, 3), torch.randn(70, 4, dtype=torch.float16)]
        direct_all_([(g, Axis(0)) for g in grads], kind())
    assert verify.note() is None
    assert len(samples) == len(verify._verdicts) >= 2


@pytest.mark.usefixtures("verified")
def test_the_launch_of_several_tiles_is_compared_as_a_whole(monkeypatch):
    """What runs is compiled for all tiles of the launch; a comparison tile by tile would compile other kernels."""
    launched = []
    real = launch.launch_many
    monkeypatch.setattr(launch, "launch_many", lambda table, *rest: launched.append(table.tiles) or real(table, *rest))
    grads = [torch.randn(10, 8), torch.randn(40, 3), torch.randn(7, 3)]
    riesz.precondition_(grads, riesz.ReweightedL2(), backend="triton")
    assert len(launched) == 2
    assert launched[0] == launched[1]
    assert len(launched[0]) > 1
