"""The Triton kernels compiled for GPUs that are not here: they compile, nothing spills, rows move as vectors."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")

sys.path.insert(0, str(Path(__file__).parents[3]))

from benchmarks.gpu_compile import TARGETS, Variant, compile_variant, variants  # noqa: E402

from riesz.backends.triton.verify import sample_geometry  # noqa: E402

VECTOR_BYTES = {"laplacian_smoothing": {2: 4, 4: 8}}
"""Where a panel of a long column does not take 16 bytes a thread, which would spill: by size of an entry."""


def check(variant: Variant, target: str) -> None:
    compiled = compile_variant(variant, target)
    assert compiled.spills == 0, compiled
    assert compiled.registers <= (255 if TARGETS[target][0] == "cuda" else 512)
    tile, size = variant.tile, variant.dtype.itemsize
    if tile.vector * size == 16:
        # Every row of every pass over the gradient is one access; what is left are tables, numbers and ends.
        assert compiled.wide >= 2 * tile.rows, compiled
        assert compiled.accesses - compiled.wide <= 24, compiled
    elif tile.vector > 1:
        assert tile.vector * size == VECTOR_BYTES[variant.kernel.stem][size]
    else:
        assert compiled.wide == 0 or variant.kernel.stem == "laplacian_smoothing"


ALL = list(variants())
USUAL = [v for v in variants((torch.float32,)) if v.tile.vector > 1 and v.tile.pieces in (4, 16)]
"""Output channels of ordinary networks: float32, 64 to 2,048 of them, contiguous."""


def test_the_formulas_give_every_kind_of_tile():
    kinds = {(v.kernel.stem, v.dtype, v.tile.one, v.tile.vector > 1) for v in ALL}
    assert len(kinds) == 4 * (4 * 4 + 2)
    assert len(ALL) > len(kinds)


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
@pytest.mark.parametrize(
    "stem", ["identity", "reweighted_l2", "sobolev_tilde", "laplacian_smoothing", "centralization"]
)
def test_the_usual_variants_compile_without_spilling(stem, target):
    usual = [v for v in USUAL if v.kernel.stem == stem][-1:] or [v for v in ALL if v.kernel.stem == stem][:1]
    for variant in usual:
        check(variant, target)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("variant", ALL, ids=str)
def test_every_variant_compiles_without_spilling(variant, target):
    check(variant, target)


@pytest.mark.parametrize("variant", ALL, ids=str)
def test_the_sample_of_the_first_use_has_the_tile_of_the_variant(variant):
    kernel, tile, dtype = variant.kernel, variant.tile, variant.dtype
    assert kernel.tile_of(sample_geometry(kernel, tile, dtype), dtype, is_aligned=True) == tile
