"""Every backend against the executable specification, over random shapes, axes, dtypes and strides."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import riesz
from cases import LAYOUTS, METRICS, TOLERANCE, by_hand, laid_out, random_operator, relative_error
from riesz.backends import register
from riesz.backends.reference import dense
from riesz.backends.registry import Backend, _announced, _backends
from riesz.layout.axis import Axis

BACKENDS = [status.name for status in riesz.backends() if status.available and status.name != "reference"]

CONDITION_UP_TO = 64
"""|A||f| over |A f|, for 64-bit gradients: beyond it the reference, itself in float64, no longer holds 1e-12."""

operators = st.randoms(use_true_random=False).map(random_operator)


@st.composite
def gradients(draw, dtype):
    """A gradient, an axis and a layout: short axes mostly, sometimes one long enough for every strategy."""
    dims = draw(st.integers(1, 4))
    axis = draw(st.integers(0, dims - 1))
    length = draw(st.one_of(st.integers(1, 40), st.integers(1, 40), st.integers(41, 700)))
    others = draw(st.lists(st.integers(1, 7), min_size=dims - 1, max_size=dims - 1))
    shape = [*others[:axis], length, *others[axis:]]
    assume(math.prod(shape) <= 20_000)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    values = torch.randn(shape, generator=generator, dtype=torch.complex128 if dtype.is_complex else torch.float64)
    kind = draw(st.sampled_from(["noise", "shifted", "centred"]))
    values = values + 1.0 if kind == "shifted" else values
    if kind == "centred" and length > 1:
        values = values - values.mean(axis, keepdim=True)
    return values.to(dtype), axis, draw(st.sampled_from(LAYOUTS))


def subnormal_rounding(wanted, dtype):
    """One rounding of float16 below its normal range: half of its smallest step, however small the result is."""
    largest = float(wanted.abs().max())
    if dtype != torch.float16 or not 0 < largest < torch.finfo(torch.float16).smallest_normal:
        return 0.0
    return 2.0**-25 / largest


@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda dtype: str(dtype)[6:])
@pytest.mark.parametrize("backend", BACKENDS)
def test_matches_the_reference(backend, dtype, largest_errors):
    @settings(max_examples=400)
    @given(metric=operators, gradient=gradients(dtype), from_end=st.booleans())
    def check(metric, gradient, from_end):
        f, axis, layout = gradient
        wanted = f.to(torch.complex128 if dtype.is_complex else torch.float64, copy=True)
        assume(not metric.mixes_columns or metric.skip_reason(tuple(f.shape), Axis(axis)) is None)
        if isinstance(metric, riesz.Metric):
            magnitude = torch.tensordot(dense(metric, f.shape[axis]).abs(), wanted.abs(), dims=([1], [axis]))
        else:
            magnitude = 2 * wanted.abs()
        riesz.precondition_(wanted, metric, dim=axis, backend="reference")
        if dtype in (torch.float64, torch.complex128):
            assume(magnitude.max() <= CONDITION_UP_TO * wanted.abs().max())
        got = laid_out(f, layout)
        strides = got.stride()
        riesz.precondition_(got, metric, dim=axis - f.dim() if from_end else axis, backend=backend)
        error = relative_error(got, wanted)
        largest_errors[backend, type(metric).__name__, str(dtype)[6:]].append(error)
        assert got.stride() == strides
        assert error <= TOLERANCE[dtype] + subnormal_rounding(wanted, dtype)

    check()


@pytest.mark.parametrize("n", [1, 2, 3, 8, 33])
@pytest.mark.parametrize("metric", METRICS, ids=repr)
def test_reference_is_the_circulant_of_the_kernel(metric, n):
    f = torch.randn(2, n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
    wanted = by_hand(metric, f, dim=1)
    riesz.precondition_(f, metric, dim=1, backend="reference")
    assert relative_error(f, wanted) <= 1e-13


def test_auto_takes_the_first_in_rank_that_does_not_refuse():
    asked = []

    def direct_(jobs, metric):
        asked.append(len(jobs))

    picky = Backend("picky", "", 0, lambda: None, lambda g: "too long" if g.shape[0] > 2 else None, direct_)
    register(picky)
    try:
        assert riesz.backends()[0].name == "picky"
        assert riesz.backends()[0].picked
        grads = [torch.ones(2), torch.ones(3)]
        riesz.precondition_(grads, riesz.ReweightedL2())
        assert asked == [1]
        assert grads[0].tolist() == [1, 1]
        assert grads[1].tolist() == [2, 2, 2]
        with pytest.raises(ValueError, match=r"'picky' cannot serve .* too long"):
            riesz.precondition_(torch.ones(3), riesz.ReweightedL2(), backend="picky")
    finally:
        del _backends["picky"]


def test_a_backend_that_is_missing_raises_when_asked_for_and_is_passed_over_by_auto(caplog):
    register(Backend("absent", "", 0, lambda: "no such device", lambda g: None, lambda jobs, metric: None))
    try:
        with pytest.raises(RuntimeError, match="'absent' is not available: no such device"):
            riesz.precondition_(torch.ones(3), riesz.ReweightedL2(), backend="absent")
        status = {s.name: s for s in riesz.backends()}["absent"]
        assert (status.available, status.picked, status.reason) == (False, False, "no such device")
        for _ in range(2):
            assert riesz.precondition_(torch.ones(2), riesz.ReweightedL2()).tolist() == [2, 2]
        assert caplog.messages == ["backend 'absent' is missing, a slower one serves: no such device"]
        _announced.clear()
        # No compiler can trace a logger.
        step = torch.compile(lambda g: riesz.precondition_(g, riesz.ReweightedL2()), backend="eager", fullgraph=True)
        assert step(torch.ones(2)).tolist() == [2, 2]
    finally:
        del _backends["absent"]
        _announced.clear()


def test_a_backend_that_refuses_is_not_asked_whether_it_is_here():
    """Triton's would look for a library on every machine, and torch.compile cannot trace that."""

    def missing():
        raise AssertionError("asked")

    register(Backend("elsewhere", "", 0, missing, lambda g: "it is on a CPU", lambda jobs, metric: None))
    try:
        assert riesz.precondition_(torch.ones(2), riesz.ReweightedL2()).tolist() == [2, 2]
    finally:
        del _backends["elsewhere"]
