"""Columns that a metric damps by n^2: every backend against a solve in extended precision."""

from __future__ import annotations

import pytest
import torch

import riesz
from cases import adversarial_columns
from kernel_oracle import EXTENDED, in_extended_precision
from riesz.backends import native

pytestmark = pytest.mark.skipif(not EXTENDED, reason="this machine has no numbers beyond float64 to solve in")

SHORT = [1, 2, 3, 7, 16, 63, 64, 65, 191, 192, 193, 256, 257, 511, 512]
LONG = [1021, 2048, 2049, 5000, 16_383, 16_384, 65_536]
STRENGTHS = [1e-6, 1e-3, 0.03, 0.12, 0.5, 1.0, 30.0, 1e3]
KINDS = [riesz.Sobolev, riesz.SobolevTilde, riesz.LaplacianSmoothing]
BACKENDS = ["eager", "cpu portable", "cpu avx2", "cpu avx512"]

TOLERANCE = 5e-6
"""Of max |wanted|, for strengths up to 1e3."""

BEYOND = {1e4: 5e-6, 1e5: 1e-5, 1e6: 1e-4}
"""The bound for stronger metrics: the mean is rounded in float64, and what it leaves grows with the strength."""


@pytest.fixture(params=BACKENDS)
def backend(request):
    """The name a user chooses, with the instruction set chosen for the compiled kernels."""
    name, _, instructions = request.param.partition(" ")
    if not instructions:
        yield name, request.param
        return
    if isinstance(native.load(), str):
        pytest.skip("the compiled library is not here")
    library, had = native.load().library, native.load().instructions
    if not library.riesz_use_instructions(instructions.encode()):
        pytest.skip(f"{instructions} is not on this machine")
    try:
        yield name, request.param
    finally:
        library.riesz_use_instructions(had.encode())


def errors(metric, n, backend):
    """The error of every column, computed beside the others and alone, which the kernels do differently."""
    f_NM = torch.stack([*adversarial_columns(n).values()], 1)
    wanted_NM = in_extended_precision(metric, f_NM)
    sizes_M = wanted_NM.abs().amax(0).clamp(min=torch.finfo(torch.float64).tiny)
    together_NM = riesz.precondition_(f_NM.clone(), metric, backend=backend)
    alone_NM = torch.stack([riesz.precondition_(f_N.clone(), metric, backend=backend) for f_N in f_NM.T], 1)
    return [
        error for got_NM in (together_NM, alone_NM) for error in ((got_NM - wanted_NM).abs().amax(0) / sizes_M).tolist()
    ]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(
    ("blend", "lengths", "strengths"),
    [(0.0, SHORT, STRENGTHS), (1.0, SHORT, STRENGTHS), (0.0, LONG, [1e-6, 1e-3, 1.0, 1e3])],
    ids=["short", "short and blended", "long"],
)
def test_high_modes_keep_their_digits(kind, blend, lengths, strengths, backend, cancelling_errors):
    name, label = backend
    bad = []
    for n in lengths:
        for strength in strengths:
            found = errors(kind(strength, blend=blend), n, name)
            cancelling_errors[label, kind.__name__, n] += found
            bad += [(n, strength, max(found))] if max(found) > TOLERANCE else []
    assert bad == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_bound_beyond_strength_1e3_holds(kind, backend):
    for strength, bound in BEYOND.items():
        for n in (64, 2048, 16_384, 65_536):
            assert max(errors(kind(strength, blend=0.0), n, backend[0])) <= bound, (strength, n)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_extended_solve_agrees_with_the_reference_where_that_is_exact(kind):
    f_NM = torch.randn(33, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for metric in (kind(0.01, blend=0.0), kind(2.0, scale=0.5, blend=0.25)):
        wanted_NM = riesz.precondition_(f_NM.clone(), metric, backend="reference")
        assert torch.allclose(in_extended_precision(metric, f_NM), wanted_NM, rtol=0, atol=1e-13)
