"""The transform in place: what it touches, what it keeps, what it batches."""

from __future__ import annotations

import pytest
import torch

import riesz
from cases import by_hand, laid_out, relative_error
from riesz.backends import FastPathCache, dispatch, eager, registry
from riesz.hook import directed as directed_module


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def test_a_mixed_list_is_directed_in_one_call_in_place():
    grads = [
        random(8, 3, 3, 3),
        random(8, 3, 3, 3, seed=1).to(memory_format=torch.channels_last),
        random(8, 3, 3, 3, seed=2),
        random(5, 2, dtype=torch.float64),
        random(300, seed=3, dtype=torch.bfloat16),
        random(16, 4, dtype=torch.complex64),
        laid_out(random(6, 4), "strided"),
    ]
    metric = riesz.SobolevTilde(lam=0.1)
    wanted = [by_hand(metric, g) for g in grads]
    before = [(g.data_ptr(), g.stride(), g.dtype) for g in grads]
    assert riesz.precondition_(grads, metric) is grads
    assert [(g.data_ptr(), g.stride(), g.dtype) for g in grads] == before
    for got, want in zip(grads, wanted, strict=True):
        assert relative_error(got, want) <= (4e-3 if got.dtype == torch.bfloat16 else 2e-6)


def test_equal_shapes_are_computed_in_one_call(monkeypatch):
    calls = []
    direct = riesz.SobolevTilde.direct
    monkeypatch.setattr(
        riesz.SobolevTilde, "direct", lambda self, x, blocks=1: calls.append(blocks) or direct(self, x, blocks)
    )
    grads = [random(8, 4, seed=i) for i in range(5)] + [random(9, 4)]
    wanted = [by_hand(riesz.SobolevTilde(), g) for g in grads]
    riesz.precondition_(grads, riesz.SobolevTilde(), backend="eager")
    assert calls == [5, 1]
    assert max(relative_error(g, w) for g, w in zip(grads, wanted, strict=True)) <= 2e-6


def test_views_write_through_to_what_they_alias():
    bucket = torch.zeros(100)
    grad = bucket[10:70].view(12, 5)
    grad.copy_(random(12, 5))
    wanted = by_hand(riesz.Sobolev(), grad)
    riesz.precondition_(grad, riesz.Sobolev())
    assert relative_error(bucket[10:70].view(12, 5), wanted) <= 2e-6
    assert (bucket[:10] == 0).all()
    assert (bucket[70:] == 0).all()


def test_memory_between_the_entries_of_a_strided_gradient_is_left_alone():
    whole = random(20, 6)
    before = whole.clone()
    riesz.precondition_(whole[::2, ::3], riesz.SobolevTilde())
    untouched = torch.ones_like(whole, dtype=torch.bool)
    untouched[::2, ::3] = False
    assert torch.equal(whole[untouched], before[untouched])
    assert relative_error(whole[::2, ::3], by_hand(riesz.SobolevTilde(), before[::2, ::3])) <= 2e-6


def test_empty_gradients_and_lists_are_left_as_they_are():
    empty = torch.empty(0, 3)
    riesz.precondition_([empty, torch.empty(3, 0)], riesz.Sobolev())
    assert riesz.precondition_([], riesz.Sobolev()) == []
    assert riesz.Sobolev().gradient(empty).shape == (0, 3)


def test_nothing_is_touched_if_one_gradient_is_unfit():
    good, bad = random(4, 4), torch.ones(1, 4).expand(4, 4)
    before = good.clone()
    try:
        riesz.precondition_([good, bad], riesz.ReweightedL2())
    except ValueError:
        assert torch.equal(good, before)
    else:
        raise AssertionError("the expanded gradient was accepted")


def test_a_leaf_that_requires_grad_can_be_directed():
    leaf = random(4, 4).requires_grad_()
    wanted = by_hand(riesz.ReweightedL2(), leaf.detach())
    riesz.precondition_(leaf, riesz.ReweightedL2())
    assert leaf.is_leaf
    assert leaf.requires_grad
    assert relative_error(leaf.detach(), wanted) <= 2e-6


def test_float16_sums_do_not_overflow():
    f = torch.full((8192,), 30000.0, dtype=torch.float16)
    f[:4096] = 20000.0
    for metric in (riesz.SobolevTilde(blend=0.0), riesz.Sobolev(), riesz.ReweightedL2(lam=0.5)):
        wanted = torch.fft.irfft(torch.fft.rfft(f.double()) * metric.symbol(len(f)), n=len(f))
        assert relative_error(riesz.precondition_(f.clone(), metric), wanted) <= 5e-4


def test_large_batches_are_split_and_every_part_is_written(monkeypatch):
    monkeypatch.setattr(eager, "MAX_BATCH_NUMEL_ON_CPU", 100)
    grads = [random(8, 4, seed=i) for i in range(10)]
    wanted = [by_hand(riesz.Sobolev(), g) for g in grads]
    riesz.precondition_(grads, riesz.Sobolev(), backend="eager")
    assert max(relative_error(g, w) for g, w in zip(grads, wanted, strict=True)) <= 2e-6


def test_lazily_negated_gradients_are_directed():
    values = torch.complex(random(6, 3), random(6, 3, seed=1))
    f = values.conj().imag
    assert f.is_neg()
    wanted = by_hand(riesz.Sobolev(), f.clone())
    assert relative_error(riesz.precondition_(f, riesz.Sobolev()), wanted) <= 2e-6


def test_nothing_is_touched_if_the_metric_is_not_defined_for_one():
    good = random(4, 3)
    before = good.clone()
    with pytest.raises(ValueError, match="Centralization"):
        riesz.precondition_([good, random(5)], riesz.Centralization())
    assert torch.equal(good, before)


class ClearedByAnotherThread(dict):
    """Empty again after every access, as if another thread had cleared it in between."""

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        self.taken = dict(self)
        self.clear()

    def __contains__(self, key):
        found = super().__contains__(key)
        self.clear()
        return found


def test_another_thread_may_clear_what_is_remembered_at_any_time(monkeypatch):
    remembered = ClearedByAnotherThread()
    monkeypatch.setattr("riesz.apply._fast_paths", remembered)
    f = random(8, 3)
    wanted = by_hand(riesz.SobolevTilde(), f)
    for _ in range(2):
        assert relative_error(riesz.precondition_(f.clone(), riesz.SobolevTilde()), wanted) <= 2e-6
        dict.update(remembered, remembered.taken)


def test_a_fast_path_that_another_thread_forgets_is_used_to_its_end(monkeypatch):
    cache = FastPathCache()
    cache._fast_path = lambda gradients, metric: (1,)
    cache._backends = registry.registered()

    def registered():
        cache._fast_path = None  # as `learn` begins, in another thread
        return cache._backends

    monkeypatch.setattr(dispatch, "registered", registered)
    assert cache.direct_([], riesz.SobolevTilde()) == (1,)


def test_threads_that_ask_for_a_directed_class_get_the_same(monkeypatch):
    class Own(torch.optim.SGD):
        pass

    make, faster = directed_module._make_class, []

    def made_by_two(base):
        monkeypatch.setattr(directed_module, "_make_class", make)
        faster.append(riesz.directed(base))  # in another thread
        return make(base)

    monkeypatch.setattr(directed_module, "_make_class", made_by_two)
    assert [riesz.directed(Own)] == faster
