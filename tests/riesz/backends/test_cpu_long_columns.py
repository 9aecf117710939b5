"""Rasterized gradients on the compiled kernels: columns cut into segments, joined over the whole column or, where the
recursions forget soon, piece by piece. The border between the two ways lies near sigma = 32."""

import math

import pytest
import torch

import riesz
from riesz.backends import native

pytestmark = pytest.mark.skipif(isinstance(native.load(), str), reason="the compiled library is not here")

TOLERANCES = {torch.float64: 2e-14, torch.float32: 1e-7, torch.float16: 6e-4, torch.bfloat16: 5e-3}


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("n", [513, 8192, 65_536, 65_537, 70_001, 81_919, 131_135])
def test_smoothing_along_a_long_column_is_that_of_its_symbol(n, dtype):
    f = (torch.randn(n, dtype=torch.float64, generator=torch.Generator().manual_seed(n)) + n % 2).to(dtype)
    spectrum_F = torch.fft.rfft(f.double())
    waves_F = 4 * torch.sin(math.pi * torch.arange(n // 2 + 1, dtype=torch.float64) / n).square()
    for sigma in (1e-6, 0.5, 1.0, 8.0, 31.0, 33.0, 100.0):
        metric = riesz.LaplacianSmoothing(sigma, scale=0.7, blend=0.1)
        wanted = torch.fft.irfft(spectrum_F * (0.7 / (1 + sigma * waves_F) + 0.1), n=n)
        found = riesz.precondition_(f.clone(), metric, backend="cpu").double()
        assert (found - wanted).abs().max() <= TOLERANCES[dtype] * wanted.abs().max(), sigma
