"""Tensors that are not what they seem: the compiled backend sees through them, or leaves them to others."""

from __future__ import annotations

import pytest
import torch

import riesz
from cases import relative_error
from kernel_oracle import METRIC, expected
from riesz.backends import native

pytestmark = pytest.mark.skipif(isinstance(native.load(), str), reason="the compiled library is not here")


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
        for metric in (METRIC, METRIC.as_tensors()):
            assert riesz.precondition_([f], metric)[0] is f
    with pytest.raises(TypeError, match="on the meta device"):
        riesz.precondition_(torch.empty(6, 5, device="meta"), METRIC, backend="cpu")


@pytest.mark.parametrize("default", ["cpu", "meta"])
def test_a_dispatch_mode_sees_one_operator(default):
    """Under any default device: the metric's numbers stay on the CPU, or another implementation would run."""
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
    with torch.device(default), Seen() as seen:
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
