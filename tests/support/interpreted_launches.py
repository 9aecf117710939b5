"""Launches of the Triton kernels in Triton's interpreter: repeated ones, captured ones, unusual gradients.

See triton_interpreter.py.
"""

from __future__ import annotations

import mmap
import sys
import threading
from types import SimpleNamespace

import pytest
import torch

import riesz
from cases import OPERATORS, TOLERANCE, laid_out, relative_error
from riesz.backends.triton import backend, launch, verify
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
    path = backend.TritonFastPath.of([f], [opened])
    assert path([f], metric)
    moved = laid_out(torch.randn(8, 4), "offset")
    before = moved.clone()
    assert moved.data_ptr() % 16 != 0
    assert not path([moved], metric)
    assert torch.equal(moved, before)


def test_threads_that_share_a_fast_path_launch_with_numbers_of_their_own(monkeypatch):
    """The other thread directs between the upload and the launch of this one."""
    f = torch.randn(8, 4)
    path = backend.TritonFastPath.of([f], [ColumnView.open(f, Axis(0))])
    real, between = backend._Launch.prepare, [riesz.ReweightedL2(lam=5.0)]

    def interrupted(*arguments):
        start = real(*arguments)
        if between:
            assert path([torch.randn(8, 4)], between.pop())
        return start

    assert path([f.clone()], riesz.ReweightedL2(lam=1.0))
    monkeypatch.setattr(backend._Launch, "prepare", interrupted)
    wanted = expected(f, metric := riesz.ReweightedL2(lam=2.0), Axis(0))
    assert path([f], metric)
    assert relative_error(f, wanted) <= TOLERANCE[torch.float32]


def test_two_threads_that_direct_at_once_launch_with_addresses_and_numbers_of_their_own(monkeypatch):
    """Neither thread launches before both have uploaded."""
    gradients = [torch.randn(8, 4) for _ in range(3)]
    path = backend.TritonFastPath.of(gradients[:1], [ColumnView.open(gradients[0], Axis(0))])
    metrics = [riesz.ReweightedL2(lam=float(2 + index)) for index in range(3)]
    assert path(gradients[2:], metrics[2])  # what was uploaded last is neither thread's
    both, mine, launched, real = threading.Barrier(2, timeout=60), threading.local(), {}, backend._Launch.prepare

    def late(*arguments):
        start = real(*arguments)
        both.wait()
        return start

    def record(table, addresses, numbers):
        both.wait()
        launched[mine.index] = addresses.tolist(), numbers.tolist()

    def work(index):
        mine.index = index
        assert path([gradients[index]], metrics[index])

    monkeypatch.setattr(backend._Launch, "prepare", late)
    monkeypatch.setattr(launch, "launch_many", record)
    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert launched == {index: ([gradients[index].data_ptr()], [2.0 + index, 1.0, 0.0, 0.0]) for index in range(2)}


def test_numbers_read_by_another_thread_meanwhile_stay_with_their_metric(monkeypatch):
    """The other thread directs while this one reads the numbers of its metric, and once more afterwards."""
    f = torch.randn(8, 4)
    path = backend.TritonFastPath.of([f], [ColumnView.open(f, Axis(0))])
    mine, other = riesz.ReweightedL2(lam=2.0), riesz.ReweightedL2(lam=5.0)
    launched, real = [], backend.numbers_of

    def interrupted(metric):
        if metric is mine:
            thread = threading.Thread(target=path, args=([f], other))
            thread.start()
            thread.join()
        return real(metric)

    monkeypatch.setattr(launch, "launch_many", lambda table, addresses, numbers: launched.append(numbers.tolist()[0]))
    monkeypatch.setattr(backend, "numbers_of", interrupted)
    assert path([f], mine)
    assert path([f], other)
    assert launched == [5.0, 2.0, 5.0]


def test_a_compiled_step_uploads_its_table_once(monkeypatch):
    """What the operator runs on a GPU: addresses and numbers each time, the table the first time."""
    uploads, real = [], launch.upload

    def counted(name):
        return lambda *arguments: uploads.append(name) or real(*arguments)

    monkeypatch.setattr(launch, "upload", counted("table"))
    monkeypatch.setattr(backend, "upload", counted("step"))
    launch.kept_table.cache_clear()
    for strength in (1.0, 1.0, 0.2):
        grads = [torch.randn(16, 3, 3), torch.randn(9, 5)]  # moved
        wanted = [expected(g, riesz.SobolevTilde(strength), Axis(0)) for g in grads]
        numbers = torch.tensor([strength, 1.0, 1.0], dtype=torch.float64)
        backend.implementation(grads, [1, 16, 9, 1, 1, 9, 5, 1], 3, False, numbers)
        assert all(relative_error(g, w) <= TOLERANCE[torch.float32] for g, w in zip(grads, wanted, strict=True))
    assert uploads == ["table", "table"] + 3 * ["step", "step"]


def test_uploads_stay_on_the_host_under_another_default_device():
    """A tensor made on the device by torch.set_default_device would be copied there with a wait."""
    f = torch.randn(8, 4)
    wanted = expected(f, metric := riesz.ReweightedL2(), Axis(0))
    launch.kept_table.cache_clear()
    for _ in range(2):
        got = f.clone()
        with torch.device("meta"):
            riesz.precondition_(got, metric, backend="triton")
        assert relative_error(got, wanted) <= TOLERANCE[torch.float32]


def test_every_stream_has_tables_of_its_own(monkeypatch):
    tables, stream = [], [1]
    monkeypatch.setattr(backend, "stream_of", lambda device: stream[0])
    monkeypatch.setattr(backend, "stream_of", lambda device: stream[0])
    monkeypatch.setattr(launch, "launch_many", lambda table, *arguments: tables.append(id(table.geometry)))
    f, metric = torch.randn(8, 4), riesz.ReweightedL2()
    path = backend.TritonFastPath.of([f], [ColumnView.open(f, Axis(0))])
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
            patch.setattr(backend, "is_capturing", lambda device: True)
            patch.setattr(backend, "upload", refuse)
            patch.setattr(launch, "upload", refuse)
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
    monkeypatch.setattr(backend, "precedes_capture", lambda device: prepared)
    metric, f = riesz.ReweightedL2(), torch.randn(12, 4)
    riesz.precondition_(f.clone(), metric, backend="triton")
    wanted = expected(f, metric, Axis(0))
    recorded = graph(lambda: riesz.precondition_(f, metric, backend="triton"))
    assert len(recorded) == prepared
    assert relative_error(f, wanted) <= TOLERANCE[torch.float32]
    assert verify.note() is None


# -- several streams and devices, pretended ----------------------------------------------------------------------------


@pytest.fixture
def gpus(monkeypatch):
    """Two devices with two streams each; the default one is stream 7."""
    current = SimpleNamespace(device=0, stream={0: 7, 1: 8}, capturing={1})

    class Device:
        def __init__(self, device):
            self.index = device.index

        def __enter__(self):
            self.before, current.device = current.device, self.index

        def __exit__(self, *_):
            current.device = self.before

    def stream(number):
        return SimpleNamespace(cuda_stream=number)

    monkeypatch.setattr(torch.cuda, "device", Device)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: current.device in current.capturing)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream(current.stream[device.index]))
    monkeypatch.setattr(torch.cuda, "default_stream", lambda device: stream(7))
    return current


CUDA = [torch.device("cuda", index) for index in range(2)]


def test_whether_a_capture_runs_is_asked_of_the_gradients_device(gpus):
    assert backend.is_capturing(CUDA[1])
    assert not backend.is_capturing(CUDA[0])
    assert not backend.is_capturing(torch.device("cpu"))


def test_steps_on_a_stream_that_is_not_the_default_one_may_precede_a_capture(gpus):
    assert [backend.precedes_capture(device) for device in (*CUDA, torch.device("cpu"))] == [False, True, False]


def test_a_launch_goes_to_the_device_and_the_stream_of_its_gradients(gpus):
    assert [launch.stream_of(device) for device in CUDA] == [7, 8]
    for device in CUDA:
        with launch._on(device):
            assert gpus.device == device.index


def test_an_upload_starts_from_pinned_memory_and_is_not_waited_for(monkeypatch):
    made, sent = [], []

    def tensor(values, **how):
        made.append(how)
        return SimpleNamespace(to=lambda device, **how: sent.append((device, how)))

    monkeypatch.setattr(torch, "tensor", tensor)
    launch.upload([1, 2], torch.int64, CUDA[0])
    assert made == [{"dtype": torch.int64, "device": "cpu", "pin_memory": True}]
    assert sent == [(CUDA[0], {"non_blocking": True})]


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
@pytest.mark.parametrize("stem", launch.kernels())
def test_offsets_beyond_31_bits_reach_their_entries(stem, far, sparse_memory):
    (kind,) = {type(o) for o in OPERATORS if o.native_kind in (0, 1, 2, 3, 5) and backend.STEMS[o.native_kind] == stem}
    strides = (1 << 30, 7) if far == "rows" else (7, 1 << 30)
    shape = (3, 2) if far == "rows" else (2, 3)
    f = sparse_memory.as_strided(shape, strides).normal_()
    assert (shape[0] - 1) * strides[0] + (shape[1] - 1) * strides[1] > 1 << 31
    wanted = expected(f, metric := kind(), Axis(0))
    direct_all_([(f, Axis(0))], metric)
    assert relative_error(f, wanted) <= TOLERANCE[torch.float32]
