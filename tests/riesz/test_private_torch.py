"""What riesz uses of torch that is not public may go away: importing still works, and each use has its fallback."""

from __future__ import annotations

import ast
import subprocess
import sys
import types
from operator import attrgetter
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.tensor import DTensor, Shard, init_device_mesh
from torch.distributed.tensor.placement_types import _StridedShard

import riesz
from riesz import private_torch
from riesz.backends import FastPathCache
from training import backward, network

SOURCES = sorted(Path(riesz.__file__).parents[1].glob("riesz*/**/*.py"))
ALLOWED = {Path(private_torch.__file__)}
OBJECTS = (torch, torch.Tensor, nn.Module(), torch.optim.SGD([torch.zeros(1)]), DTensor, _StridedShard, torch._C, dist)


def private_names(source: str) -> list[str]:
    """Imports of torch's private names, and attributes with a leading underscore that torch's objects have."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            found += [name for name in names if name.startswith("_")]
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            found += [node.attr] if not own and any(hasattr(thing, node.attr) for thing in OBJECTS) else []
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += [node.value] if node.value.startswith(("_optimizer_", "_torch", "_dynamo", "torch._")) else []
    return found


def test_no_other_module_names_private_parts_of_torch():
    assert private_names("import torch\nx._local_tensor\ntorch._foreach_copy_(a, b)\nself._version") == [
        "_local_tensor",
        "_foreach_copy_",
    ]
    assert len(SOURCES) > 200
    named = {str(file): private_names(file.read_text()) for file in SOURCES if file not in ALLOWED}
    assert {file: names for file, names in named.items() if names} == {}


GONE = """
import torch, torch.distributed as dist, torch.distributed.tensor.placement_types as placement_types
import torch._subclasses.fake_tensor as fake_tensor
import torch.distributed.optim.zero_redundancy_optimizer as zero
parts = [
    (torch, "_foreach_copy_"), (torch._C, "_len_torch_dispatch_stack"), (torch._C._dynamo.guards, "TensorGuards"),
    (fake_tensor, "FakeTensor"), (placement_types, "_StridedShard"), (dist.distributed_c10d, "_get_default_store"),
    (torch.optim.Optimizer, "profile_hook_step"), (zero.ZeroRedundancyOptimizer, "_init_local_optimizer"),
    (dist.tensor.DTensor, "_local_tensor"), (dist.tensor.DTensor, "_spec"),
]
kept = [(owner, name, vars(owner)[name]) for owner, name in parts]
for owner, name, part in kept:
    delattr(owner, name)
import riesz, riesz.sharded
f = torch.tensor([[1.0], [3.0]])
print(riesz.precondition_(f, riesz.ReweightedL2(lam=1.0)).flatten().tolist())
"""


def test_riesz_imports_and_directs_where_all_of_them_are_gone():
    done = subprocess.run([sys.executable, "-c", GONE], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[3.0, 5.0]", done.stderr


def gone(*args: object, **kwargs: object) -> object:
    raise TypeError("got an unexpected keyword argument")


@pytest.fixture(params=["gone", "another signature"])
def breaks(request, monkeypatch):
    """Takes a private part away, or gives it another signature."""

    def break_(owner: object, name: str) -> None:
        if request.param == "gone":
            monkeypatch.delattr(owner, name)
        else:
            monkeypatch.setattr(owner, name, gone)
        private_torch._step_code.cache_clear()

    monkeypatch.setattr("riesz.apply._fast_paths", {})
    yield break_
    monkeypatch.undo()
    private_torch._step_code.cache_clear()


def trained(steps: int = 3, **settings) -> list[torch.Tensor]:
    """Weights after some directed steps, the first by the slow path and the others by the fast one."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    riesz.attach(optimizer, model, metric="sobolev-tilde(lam=0.1)", **settings)
    for step in range(steps):
        optimizer.zero_grad()
        backward(model, step)
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("backend", ["auto", "eager"])
@pytest.mark.parametrize(
    "part",
    [
        (torch, "_foreach_copy_"),
        (torch._C, "_len_torch_dispatch_stack"),
        (torch._C._dynamo.guards, "TensorGuards"),
        (torch.optim.Optimizer, "profile_hook_step"),
    ],
    ids=lambda part: part[1],
)
def test_training_is_the_same_without_it(part, backend, breaks):
    wanted = trained(backend=backend)
    # Already patched into the class: a new optimizer only looks whether it is there.
    breaks(*part)
    for got, weight in zip(trained(backend=backend), wanted, strict=True):
        torch.testing.assert_close(got, weight, rtol=1e-5, atol=1e-6)


def test_without_knowing_dispatch_modes_gradients_take_the_operator_that_these_would_see(breaks):
    breaks(torch._C, "_len_torch_dispatch_stack")
    f, fast_path = torch.randn(8, 3), FastPathCache()
    riesz.precondition_([f], riesz.SobolevTilde())
    assert private_torch.dispatch_mode_is_on()
    assert not fast_path.ready


def test_without_fake_tensors_by_name_eager_takes_them(monkeypatch):
    # For riesz alone: torch itself asks for the name.
    renamed = {"torch._subclasses.fake_tensor": types.SimpleNamespace()}
    monkeypatch.setattr(private_torch, "sys", types.SimpleNamespace(modules=renamed))
    with FakeTensorMode():
        assert riesz.precondition_(torch.ones(8, 3), riesz.SobolevTilde()).shape == (8, 3)


def test_without_the_compilers_setting_a_step_is_taken_to_be_compiled_for_any_sizes(monkeypatch):
    import torch._dynamo

    assert not private_torch.compiles_for_any_sizes()
    with torch._dynamo.config.patch(assume_static_by_default=False):
        assert private_torch.compiles_for_any_sizes()
    monkeypatch.setattr(private_torch, "torch", types.SimpleNamespace())
    assert private_torch.compiles_for_any_sizes()


def test_without_write_counts_what_they_would_tell_is_refused(monkeypatch):
    monkeypatch.setattr(private_torch, "_version", attrgetter("_gone"))
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attachment = riesz.attach(optimizer, model, metric="sobolev-tilde(lam=0.1)")
    backward(model, 0)
    optimizer.step()
    with pytest.raises(RuntimeError, match="its gradient was changed after the step directed it"):
        attachment.diagnostics()
    attachment.recording = True
    optimizer.step()
    assert len(attachment.diagnostics()) == 2

    class Twice(torch.optim.SGD):
        def step(self, closure):
            closure()
            closure()

    optimizer = Twice(model.parameters(), lr=0.1)
    riesz.attach(optimizer, model, metric="sobolev-tilde(lam=0.1)")
    with pytest.raises(RuntimeError, match="does not tell whether it was written: call zero_grad"):
        optimizer.step(lambda: None)

    def closure():
        optimizer.zero_grad()
        return backward(model, 1)

    optimizer.step(closure)


@pytest.fixture
def mesh():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


@pytest.mark.parametrize("part", ["_local_tensor", "_spec"])
def test_dtensors_are_directed_by_public_means(part, mesh, monkeypatch):
    f = torch.randn(6, 2, 3, 3)
    wanted = riesz.precondition_(f.clone(), riesz.SobolevTilde())
    monkeypatch.setattr(private_torch, part, attrgetter("_gone"))
    weight = nn.Parameter(DTensor.from_local(torch.zeros_like(f), mesh, [Shard(0)]))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    riesz.attach(optimizer, metric=riesz.SobolevTilde())
    for _ in range(3):
        weight.grad = DTensor.from_local(f.clone(), mesh, [Shard(0)])
        optimizer.step()
        assert torch.equal(weight.grad.to_local(), wanted)


def test_without_strided_shards_by_name_their_layouts_are_refused(monkeypatch):
    strided = _StridedShard(0, split_factor=2)
    assert private_torch.strided_shard(strided) == (0, 2)
    assert private_torch.strided_shard(Shard(0)) is None
    with monkeypatch.context() as without:
        without.delattr("torch.distributed.tensor.placement_types._StridedShard")
        assert private_torch.strided_shard(strided) is None
    assert private_torch.strided_shard(types.SimpleNamespace()) is None


def test_without_the_store_ranks_do_not_compare_their_work(mesh, breaks):
    from riesz.sharded.agreement import DeadlockDetector

    breaks(dist.distributed_c10d, "_get_default_store")
    detector = DeadlockDetector("none", 2)
    detector.agree(1, str)  # with it, this would wait for the second rank
    detector.wait(dist.all_reduce(torch.zeros(1), async_op=True), str)


def test_without_names_of_wrappers_only_the_name_differs():
    assert private_torch.without_wrappers("_orig_mod.module.0._fsdp_wrapped_module.weight") == "0.weight"
    assert private_torch.without_wrappers("wrapped_in_another_way.0.weight") == "wrapped_in_another_way.0.weight"


class CallsItsBase(torch.optim.SGD):
    def step(self, closure=None):
        return super().step(closure)


def test_without_a_sight_of_steps_a_class_that_may_nest_them_is_refused(breaks):
    parameter = nn.Parameter(torch.zeros(4, 2, 3))
    optimizer = CallsItsBase([parameter], lr=0.1)
    riesz.attach(optimizer, metric=riesz.SobolevTilde()).detach()
    breaks(torch.optim.Optimizer, "profile_hook_step")
    with pytest.raises(RuntimeError, match="its step may call that of SGD, which would direct gradients twice"):
        riesz.attach(optimizer, metric=riesz.SobolevTilde())


def test_a_wrapper_of_steps_that_names_itself_in_another_way_is_not_trusted(monkeypatch):
    monkeypatch.setattr(torch.optim.Optimizer, "profile_hook_step", staticmethod(lambda step: lambda optimizer: None))
    private_torch._step_code.cache_clear()
    assert private_torch._step_code() is None
    private_torch._step_code.cache_clear()


def test_without_tables_of_hooks_attach_says_so():
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(4, 2, 3))], lr=0.1)
    for name in private_torch.HOOK_TABLES:
        delattr(optimizer, name)
    with pytest.raises(RuntimeError, match=r"SGD cannot be attached to: torch .* keeps step hooks in another place"):
        riesz.attach(optimizer, metric=riesz.SobolevTilde())


def test_without_the_compilers_name_for_what_it_wraps_attach_refuses():
    class Wrapped(torch.optim.SGD):
        pass

    optimizer = Wrapped([nn.Parameter(torch.zeros(4, 2, 3))], lr=0.1)
    hooked = Wrapped.step

    def renamed(self, closure=None):
        return hooked(self, closure)

    Wrapped.step = renamed
    with pytest.raises(TypeError, match="runs no step hooks of its own"):
        riesz.attach(optimizer, metric=riesz.SobolevTilde())
    renamed._torchdynamo_orig_callable = hooked
    riesz.attach(optimizer, metric=riesz.SobolevTilde())


def test_without_the_scalers_variables_an_overflow_still_skips_the_step(monkeypatch):
    def step(self, optimizer):  # as torch's, with another name for the flags
        optimizer.found_inf, optimizer.grad_scale = torch.zeros(()), torch.ones(())
        optimizer.step()

    model = nn.Conv2d(2, 4, 3).half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    riesz.attach(optimizer, model, metric=riesz.ReweightedL2())
    monkeypatch.setattr(torch.amp.GradScaler, "step", step)
    for p in model.parameters():
        p.grad = torch.full_like(p, 60_000.0)
    before = model.weight.detach().clone()
    torch.amp.GradScaler("cpu").step(optimizer)
    assert optimizer.found_inf.item() > 0
    assert torch.equal(model.weight, before)


class Sharing:
    """What matters of torch's ZeroRedundancyOptimizer."""

    param_groups = "those of all ranks"

    def _init_local_optimizer(self):
        return private_torch.groups_before_sharing()


def test_without_its_name_for_making_the_share_zero_redundancy_is_not_seen(monkeypatch):
    name = "torch.distributed.optim.zero_redundancy_optimizer"
    monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(ZeroRedundancyOptimizer=Sharing))
    assert Sharing()._init_local_optimizer() == Sharing.param_groups
    own = Sharing._init_local_optimizer
    monkeypatch.delattr(Sharing, "_init_local_optimizer")
    assert own(Sharing()) is None


def test_the_page_lists_every_part():
    page = (Path(__file__).parents[2] / "docs" / "versions.md").read_text()
    source = Path(private_torch.__file__).read_text()
    texts = {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)}
    used = {text for text in texts if isinstance(text, str) and text.startswith("_")} | set(private_names(source))
    used -= {"_C", "_dynamo", "torch._subclasses.fake_tensor", "__code__", *private_torch.HOOK_TABLES[1:]}
    assert len(used) >= 9
    assert [name for name in sorted(used) if f"{name}`" not in page] == []
