"""The compiled backend: right at every shape, stride, axis and strength; honest about what it cannot see through."""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

import riesz
from riesz.axis import Axis, Job
from riesz.backends import alike, native, registry
from riesz.backends import cpu as backend
from riesz.precondition import direct_

pytestmark = pytest.mark.skipif(isinstance(native.load(), str), reason="the compiled library is not here")

TOLERANCE = {torch.float64: 1e-12, torch.float32: 5e-6, torch.bfloat16: 4e-3, torch.float16: 5e-4}
FUZZ = 5000
KINDS = [riesz.Sobolev, riesz.SobolevTilde, riesz.LaplacianSmoothing]


def relative_error(got, wanted):
    size = wanted.abs().max().item()
    return ((got.double() - wanted.double()).abs().max() / (size or 1.0)).item()


def by_fft(metric, f, dim=0):
    """The closed-form symbol applied in float64: an oracle where a dense matrix is out of reach."""
    n = f.shape[dim]
    symbol = metric.symbol(n).view([-1 if d == dim else 1 for d in range(f.dim())])
    return torch.fft.irfft(torch.fft.rfft(f.double(), dim=dim) * symbol, n=n, dim=dim)


def random_metric(rng):
    shared = {"scale": rng.choice([1.0, 0.3]), "blend": rng.choice([0.0, 0.0, 0.5, 1.0])}
    strength = 10 ** rng.uniform(-3, 3)
    return rng.choice(
        [
            riesz.Identity(**shared),
            riesz.ReweightedL2(rng.uniform(-0.5, 20), **shared),
            riesz.Sobolev(strength, **shared),
            riesz.SobolevTilde(strength, riemann=rng.random() < 0.5, **shared),
            riesz.LaplacianSmoothing(strength, **shared),
            riesz.Centralization(),
        ]
    )


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
    dtype = rng.choice(list(TOLERANCE))
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
            metric = random_metric(rng)
            batch = [random_gradient(rng, generator) for _ in range(rng.randint(1, 6))]
            if isinstance(metric, riesz.Centralization):
                batch = [(f, axis) for f, axis in batch if metric.unfit(tuple(f.shape), axis) is None]
            wanted = [f.double() for f, _ in batch]
            strides = [f.stride() for f, _ in batch]
            for w, (_, axis) in zip(wanted, batch, strict=True):
                # The fold of the copy differs from the fold of the original: the reference sees logical order only.
                direct_([Job.open(w, axis)], metric, "reference")
            direct_([Job.open(f, axis) for f, axis in batch], metric, "cpu")
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
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
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
    direct_([Job.open(f, Axis(None))], riesz.LaplacianSmoothing(2.0), "cpu")
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
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("kind", [riesz.ReweightedL2, *KINDS], ids=lambda kind: kind.__name__)
def test_one_non_finite_entry_poisons_its_column_and_no_other(kind, dtype, bad):
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


# -- tensors that are not what they seem -----------------------------------------------------------------------------


def expected(f, metric, dim=0):
    return riesz.precondition_(f.detach().clone().double(), metric, dim, "reference")


METRIC = riesz.SobolevTilde(0.1)


def test_a_lazy_negative_is_directed():
    for f in (torch._neg_view(torch.randn(6, 5)), torch._neg_view(torch.randn(5, 6)).t()[::2]):
        wanted = expected(f, METRIC)
        for _ in range(2):
            g = torch._neg_view(-f)
            riesz.precondition_([g], METRIC, backend="cpu")
            assert g.is_neg()
            assert relative_error(g, wanted) <= 5e-6


def test_a_conjugated_gradient_is_directed():
    f = torch.randn(6, 5, dtype=torch.complex64).conj()
    wanted = riesz.precondition_(f.to(torch.complex128), METRIC, backend="reference")
    riesz.precondition_(f, METRIC, backend="cpu")
    assert (f - wanted).abs().max() <= 5e-6 * wanted.abs().max()


def test_writing_counts_as_writing_for_autograd():
    for repeat in range(2):  # the second time by a plan
        x = torch.randn(4, 3, requires_grad=True)
        y = x.exp()
        version = y._version
        riesz.precondition_([y.detach()], METRIC, backend="cpu")
        assert y._version > version, repeat
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_gradients_that_require_grad_are_written_under_no_grad():
    f = torch.randn(6, 5, requires_grad=True)
    wanted = expected(f, METRIC)
    riesz.precondition_(f, METRIC, backend="cpu")
    assert f.grad_fn is None
    assert relative_error(f.detach(), wanted) <= 5e-6


def test_inference_tensors_are_written_in_inference_mode():
    with torch.inference_mode():
        f = torch.randn(6, 5)
        wanted = expected(f, METRIC)
        for _ in range(2):
            g = f.clone()
            riesz.precondition_(g, METRIC, backend="cpu")
            assert relative_error(g, wanted) <= 5e-6
    with pytest.raises(ValueError, match="inference tensor"):
        riesz.precondition_(f, METRIC, backend="cpu")


def test_subclasses_are_left_to_others():
    class Logged(torch.Tensor):
        pass

    f = torch.randn(6, 5).as_subclass(Logged)
    wanted = expected(f.as_subclass(torch.Tensor), METRIC)
    with pytest.raises(ValueError, match="Logged"):
        riesz.precondition_(f, METRIC, backend="cpu")
    riesz.precondition_(f, METRIC)
    assert relative_error(f.as_subclass(torch.Tensor), wanted) <= 5e-6


def test_fake_tensors_pass_and_meta_tensors_are_refused():
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode()
    f = mode.from_tensor(torch.empty(6, 5))
    with mode:
        for metric in (METRIC, METRIC.live()):
            assert riesz.precondition_([f], metric)[0] is f
    with pytest.raises(TypeError, match="on the meta device"):
        riesz.precondition_(torch.empty(6, 5, device="meta"), METRIC, backend="cpu")


def test_a_dispatch_mode_sees_one_operator():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seen(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.names = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.names.append(str(func))
            return func(*args, **(kwargs or {}))

    f = torch.randn(6, 5)
    wanted = expected(f, METRIC)
    riesz.precondition_([f.clone()], METRIC)
    with Seen() as seen:
        riesz.precondition_([f], METRIC)
    assert "riesz.direct_.default" in seen.names
    assert relative_error(f, wanted) <= 5e-6


def test_refuses_what_functorch_has_wrapped():
    with pytest.raises(ValueError, match="functorch"):
        torch.func.vmap(lambda x: riesz.precondition_(x, METRIC, backend="cpu"))(torch.randn(4, 6, 5))


def test_unaligned_memory_is_served():
    memory = bytearray(4 * 300 + 1)
    f = torch.frombuffer(memory, dtype=torch.float32, offset=1).view(60, 5)
    f.copy_(torch.randn(60, 5))
    wanted = expected(f, METRIC)
    assert f.data_ptr() % 4 != 0
    riesz.precondition_(f, METRIC, backend="cpu")
    assert relative_error(f, wanted) <= 5e-6


def test_nothing_is_done_to_nothing():
    for shape in ((0,), (3, 0), (0, 3)):
        f = torch.empty(shape)
        assert riesz.precondition_([f, torch.empty(shape)], METRIC, backend="cpu")[0] is f


def test_gradients_that_share_memory_are_directed_one_after_the_other():
    f = torch.randn(40, 8)
    wanted = expected(expected(f, METRIC), METRIC)
    for _ in range(2):
        twice = f.clone()
        riesz.precondition_([twice, twice.view(40, 2, 4)], METRIC, backend="cpu")
        assert relative_error(twice, wanted) <= 5e-6


def test_a_metric_of_the_users_own_is_computed_by_eager():
    class Half(riesz.Identity):
        def direct(self, columns_ONI, blocks=1):
            return columns_ONI / 2

    assert torch.equal(riesz.precondition_(torch.ones(3, 2), Half()), torch.full((3, 2), 0.5))


# -- plans ---------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["guards", "spelled out"])
def way_to_compare(request, monkeypatch):
    if request.param == "spelled out":
        monkeypatch.setattr(alike, "_by_guards", lambda gradients: None)
    monkeypatch.setattr("riesz.precondition._planned", {})


CHANGES = {
    "another memory": lambda f: f.clone(),
    "another dtype": lambda f: f.double(),
    "another shape": lambda f: f[:10].clone(),
    "channels last": lambda f: f.to(memory_format=torch.channels_last),
    "strided": lambda f: torch.stack([f, f], -1)[..., 0],
    "transposed": lambda f: f.clone().transpose(0, 1),
    "a parameter": lambda f: torch.nn.Parameter(f.clone()),
    "negative": lambda f: torch._neg_view(-f),
}


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_is_stale_when_a_gradient_is_replaced(change, way_to_compare):
    f, other = torch.randn(12, 12, 3, 3), torch.randn(7, 4)
    riesz.precondition_([f.clone(), other.clone()], METRIC)
    for _ in range(2):
        changed = CHANGES[change](f)
        wanted = expected(changed, METRIC)
        riesz.precondition_([changed, second := other.clone()], METRIC)
        assert relative_error(changed.detach(), wanted) <= 5e-6
        assert relative_error(second, expected(other, METRIC)) <= 5e-6


def test_a_plan_is_used_and_forgotten_when_a_better_backend_appears(monkeypatch, way_to_compare):
    calls = []
    real = backend._call
    monkeypatch.setattr(backend, "_call", lambda *arguments: calls.append(1) or real(*arguments))
    monkeypatch.setattr(backend, "_direct_", None)
    planned = registry.Planned()
    f = torch.randn(9, 4)
    assert not planned.direct_([f], METRIC)
    planned.learn("auto", [f], [Job.open(f, Axis(0))])
    assert planned.direct_([f], METRIC)
    assert len(calls) == 1
    better = registry.Backend("better", "", 1, lambda: None, lambda g: None, lambda jobs, metric: None)
    monkeypatch.setitem(registry._backends, "better", better)
    assert not planned.direct_([f], METRIC)


def attached(metric=METRIC, **options):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ConvTranspose2d(8, 8, 3), torch.nn.Conv2d(8, 8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    return model, optimizer, riesz.attach(optimizer, model, metric=metric, **options)


def steps_right(model, optimizer, metric):
    weights = [(module.weight, int(isinstance(module, torch.nn.ConvTranspose2d))) for module in model]
    wanted = [None if w.grad is None else expected(w.grad, metric, dim) for w, dim in weights]
    optimizer.step()
    for (w, _), f in zip(weights, wanted, strict=True):
        assert (w.grad is None) == (f is None)
        assert f is None or relative_error(w.grad, f) <= 5e-6


def test_the_hook_follows_gradients_that_come_and_go():
    model, optimizer, attachment = attached()
    for missing in (None, None, 1, 2, None, 0, None):
        for module in model:
            module.weight.grad = torch.randn_like(module.weight)
        if missing is not None:
            model[missing].weight.grad = None
        steps_right(model, optimizer, METRIC)
    attachment.metric = riesz.SobolevTilde(0.5)
    for module in model:
        module.weight.grad = torch.randn_like(module.weight)
    steps_right(model, optimizer, riesz.SobolevTilde(0.5))


def test_the_hook_follows_parameters_that_are_swapped():
    model, optimizer, _ = attached()
    for _ in range(3):
        for module in model:
            module.weight.grad = torch.randn_like(module.weight)
        steps_right(model, optimizer, METRIC)
    # Same shapes, other layers: the axes change places.
    model[1], model[2] = torch.nn.Conv2d(8, 8, 3), torch.nn.ConvTranspose2d(8, 8, 3)
    optimizer.param_groups[0]["params"] = list(model.parameters())
    for _ in range(2):
        for module in model:
            module.weight.grad = torch.randn_like(module.weight)
        steps_right(model, optimizer, METRIC)


# -- threads, processes, compilers ---------------------------------------------------------------------------------


def test_threads_do_not_disturb_each_other():
    f = [torch.randn(64, 32, 3, 3), torch.randn(70_000), torch.randn(5, 300)]
    wanted = [expected(x, METRIC) if x.dim() > 1 else by_fft(METRIC, x) for x in f]
    wrong = []

    def work():
        for _ in range(20):
            grads = [x.clone() for x in f]
            riesz.precondition_(grads, METRIC, backend="cpu")
            wrong.extend(i for i in range(3) if not relative_error(grads[i], wanted[i]) <= 5e-6)

    workers = [threading.Thread(target=work) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_computes_and_does_not_hang():
    script = """
import os, torch, riesz
grads = [torch.randn(64, 64, 3, 3), torch.randn(200_000)]
metric = riesz.Sobolev(0.1)
before = [g.clone().share_memory_() for g in grads]
riesz.precondition_(grads, metric, backend="cpu")
child = os.fork()
if child == 0:
    riesz.precondition_(before, metric, backend="cpu")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
# Compared by the parent: torch's own operators hang in the child.
assert all(torch.equal(a, b) for a, b in zip(grads, before))
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`")
def test_a_compiled_step_calls_the_operator_and_a_new_strength_recompiles_nothing():
    compiles = []

    def count(graph, inputs):
        compiles.append([str(node.target) for node in graph.graph.nodes])
        return graph.forward

    metric = METRIC.live()
    torch._dynamo.reset()
    step = torch.compile(lambda grads: riesz.precondition_(grads, metric), backend=count, fullgraph=True)
    for lam in (0.1, 0.5, 2.0):
        metric.lam.fill_(lam)
        f = [torch.randn(8, 3, 3), torch.randn(5, 4)]
        wanted = [expected(x, riesz.SobolevTilde(lam)) for x in f]
        step(f)
        assert all(relative_error(x, w) <= 5e-6 for x, w in zip(f, wanted, strict=True))
    assert len(compiles) == 1
    assert any("riesz" in target and "direct_" in target for target in compiles[0])


def test_the_operator_passes_torchs_own_checks():
    views = [torch.randn(4, 6), torch.randn(3, 5).t()]
    arguments = (views, [1, 4, 6, 1, 1, 5, 3, 1], 3, False, torch.tensor([0.1, 1.0, 1.0], dtype=torch.float64))
    torch.library.opcheck(torch.ops.riesz.direct_.default, arguments)


# -- installs ------------------------------------------------------------------------------------------------------


def test_without_the_library_eager_serves_and_says_so_once(tmp_path):
    source = Path(riesz.__file__).parent
    shutil.copytree(source, tmp_path / "riesz", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    script = """
import torch, riesz
status = {s.name: s for s in riesz.backends()}
assert not status["cpu"].available and "compiler" in status["cpu"].reason and status["eager"].picked
for _ in range(3):
    riesz.precondition_([torch.randn(4, 3), torch.randn(4, 3)], riesz.Sobolev())
try:
    riesz.precondition_(torch.randn(4, 3), riesz.Sobolev(), backend="cpu")
except RuntimeError as error:
    assert "cannot be had" in str(error)
else:
    raise SystemExit("an explicit choice that cannot be had must raise")
"""
    run = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr.count("a slower one serves") == 1


def test_a_library_of_another_version_is_refused(monkeypatch):
    monkeypatch.setattr(native, "INTERFACE", native.INTERFACE + 1)
    assert "another version" in native.load.__wrapped__()


def test_a_torch_without_the_parallel_loop_is_explained(monkeypatch):
    monkeypatch.setattr(native, "_torch_parallel_for", lambda: None)
    assert "torch_parallel_for" in native.load.__wrapped__()


def test_the_structs_have_the_size_c_expects():
    assert (ctypes.sizeof(native.CJob), ctypes.sizeof(native.CMetric)) == (40, 40)
