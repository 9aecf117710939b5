"""Launches of the Triton kernels in Triton's interpreter: repeated ones, captured ones, the comparison at first use.

See triton_interpreter.py.
"""

from __future__ import annotations

import logging
import mmap
import sys

import pytest
import torch

import riesz
from cases import OPERATORS, TOLERANCE, laid_out, relative_error
from riesz.backends.triton import direct, fast_path, kernels, launch, table, verify
from riesz.backends.triton.tiles import Tile
from riesz.layout.axis import Axis, ColumnView
from triton_interpreter import direct_all_, expected

MAP_NORESERVE = 0x4000
"""Linux: addresses without memory behind them; Python has no name for it before 3.13."""

# -- the fast path -----------------------------------------------------------------------------------------------------


def test_a_list_like_the_last_one_is_launched_again_with_moved_gradients_and_new_numbers(monkeypatch):
    launches = []
    real = launch.launch_many
    monkeypatch.setattr(launch, "launch_many", lambda *arguments: launches.append(arguments[0]) or real(*arguments))
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
    assert all(table is launches[0] for table in launches)  # built once, kept on the device


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


def test_threads_that_share_a_fast_path_launch_with_numbers_of_their_own(monkeypatch):
    """The other thread directs between the upload and the launch of this one."""
    f = torch.randn(8, 4)
    path = fast_path.TritonFastPath.of([f], [ColumnView.open(f, Axis(0))])
    real, between = fast_path._Launch.prepare, [riesz.ReweightedL2(lam=5.0)]

    def interrupted(*arguments):
        start = real(*arguments)
        if between:
            assert path([torch.randn(8, 4)], between.pop())
        return start

    assert path([f.clone()], riesz.ReweightedL2(lam=1.0))
    monkeypatch.setattr(fast_path._Launch, "prepare", interrupted)
    wanted = expected(f, metric := riesz.ReweightedL2(lam=2.0), Axis(0))
    assert path([f], metric)
    assert relative_error(f, wanted) <= TOLERANCE[torch.float32]


def test_every_stream_has_tables_of_its_own(monkeypatch):
    tables, stream = [], [1]
    monkeypatch.setattr(fast_path, "stream_of", lambda device: stream[0])
    monkeypatch.setattr(direct, "stream_of", lambda device: stream[0])
    monkeypatch.setattr(launch, "launch_many", lambda table, *arguments: tables.append(id(table.geometry)))
    f, metric = torch.randn(8, 4), riesz.ReweightedL2()
    path = fast_path.TritonFastPath.of([f], [ColumnView.open(f, Axis(0))])
    for stream[0] in (1, 2, 1, 2):
        assert path([f], metric)
        direct_all_([(f, Axis(0))], metric)
    first, second = tables[:2], tables[2:4]
    assert tables == 2 * (first + second)
    assert not set(first) & set(second)


# -- captured graphs ---------------------------------------------------------------------------------------------------


@pytest.fixture
def graph(monkeypatch):
    """A stand-in for a capture: it records launches by pointer, and fails if anything is copied from the host."""
    recorded = []

    def capture(step):
        real = launch.launch_single

        def refuse(*arguments):
            raise AssertionError("expected no copy from the host during a capture")

        def record(*arguments):
            recorded.append(lambda: real(*arguments))
            real(*arguments)

        with monkeypatch.context() as patch:
            for module in (direct, fast_path):
                patch.setattr(module, "is_capturing", lambda device: True)
                patch.setattr(module, "upload", refuse)
            patch.setattr(table, "upload", refuse)
            patch.setattr(launch, "launch_many", refuse)
            patch.setattr(launch, "launch_single", record)
            step()
        return recorded

    return capture


def test_a_replay_directs_the_memory_of_the_capture_with_its_numbers_and_copies_nothing(graph):
    metric, grads = riesz.SobolevTilde(0.3), [torch.randn(16, 3, 3), torch.randn(8, 4)]
    riesz.precondition_([g.clone() for g in grads], metric, backend="triton")  # the fast path is there
    recorded = graph(lambda: riesz.precondition_(grads, metric, backend="triton"))
    assert len(recorded) == len(grads)
    for g in grads:
        g.normal_()
    wanted = [expected(g, metric, Axis(0)) for g in grads]
    moved = [torch.randn_like(g) for g in grads]
    before = [g.clone() for g in moved]
    riesz.precondition_([torch.randn_like(g) for g in grads], riesz.SobolevTilde(9.0), backend="triton")
    for launch_again in recorded:
        launch_again()
    assert all(relative_error(g, w) <= TOLERANCE[torch.float32] for g, w in zip(grads, wanted, strict=True))
    assert all(map(torch.equal, moved, before))


@pytest.mark.usefixtures("verified")
@pytest.mark.parametrize("prepared", [True, False])
def test_a_capture_holds_kernels_that_were_compared_before_it_and_eager_elsewhere(graph, monkeypatch, prepared):
    """Steps on a stream that is not the default one, as torch asks for before a capture, compare them."""
    monkeypatch.setattr(direct, "precedes_capture", lambda device: prepared)
    metric, f = riesz.ReweightedL2(), torch.randn(12, 4)
    riesz.precondition_(f.clone(), metric, backend="triton")
    wanted = expected(f, metric, Axis(0))
    recorded = graph(lambda: riesz.precondition_(f, metric, backend="triton"))
    assert len(recorded) == prepared
    assert relative_error(f, wanted) <= TOLERANCE[torch.float32]
    assert verify.note() is None


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


# -- unusual gradients -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", [riesz.SobolevTilde(0.1), riesz.Sobolev(0.1), riesz.Centralization()], ids=str)
def test_gradients_without_entries_are_left_alone_and_others_directed(metric):
    empty, f = torch.empty(4, 0), torch.randn(4, 3)
    wanted = expected(f, metric, Axis(0))
    riesz.precondition_([empty, f, torch.empty(0, 3)], metric, backend="triton")
    assert relative_error(f, wanted) <= TOLERANCE[torch.float32]


def test_a_gradient_that_overlaps_itself_is_refused():
    with pytest.raises(ValueError, match="expected entries with memory of their own"):
        riesz.precondition_(torch.randn(1, 4).expand(6, 4), riesz.ReweightedL2(), backend="triton")


@pytest.fixture(scope="module")
def sparse_memory():
    """9 GB of addresses, of which only pages that are touched exist."""
    with mmap.mmap(-1, 9 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE) as memory:
        yield torch.frombuffer(memory, dtype=torch.float32)


@pytest.mark.skipif(sys.platform != "linux", reason="reserves addresses without memory")
@pytest.mark.parametrize("far", ["rows", "columns"])
@pytest.mark.parametrize("stem", kernels.KERNELS)
def test_offsets_beyond_31_bits_reach_their_entries(stem, far, sparse_memory):
    (kind,) = {type(o) for o in OPERATORS if o.native_kind in (0, 1, 2, 3, 5) and direct.STEMS[o.native_kind] == stem}
    strides = (1 << 30, 7) if far == "rows" else (7, 1 << 30)
    shape = (3, 2) if far == "rows" else (2, 3)
    f = sparse_memory.as_strided(shape, strides).normal_()
    assert (shape[0] - 1) * strides[0] + (shape[1] - 1) * strides[1] > 1 << 31
    wanted = expected(f, metric := kind(), Axis(0))
    direct_all_([(f, Axis(0))], metric)
    assert relative_error(f, wanted) <= TOLERANCE[torch.float32]
