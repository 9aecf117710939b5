"""The Triton kernels compiled for GPUs that are not here: they compile, nothing spills, rows move as vectors."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from benchmarks.gpu import traffic
from benchmarks.gpu_compile import TARGETS, Variant, build, compile_variant, launches, load, variants

from riesz.backends.triton.launch import Geometry, kernels
from riesz.backends.triton.verify import sample_geometry

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")

NARROW = {("laplacian_smoothing", True): {2: 8}, ("laplacian_smoothing", False): {2: 4, 4: 8}}
"""Bytes a thread takes at once where 16 would spill, by kernel, whether a column is held whole, size of an entry."""

SCALARS = 48
"""Scalar registers of gfx942 that may be kept in lanes of vector registers; they cost no memory."""


def check(variant: Variant, target: str) -> None:
    compiled = compile_variant(variant, target)
    assert compiled.spills == 0, compiled
    assert compiled.scalars <= (SCALARS if target == "gfx942" else 0), compiled
    assert compiled.registers <= (255 if TARGETS[target][0] == "cuda" else 512), compiled
    assert compiled.owned, compiled
    size, rows = variant.dtype.itemsize, sum(tile.rows for tile in variant.tiles if tile.vector > 1)
    vectors = {tile.vector * size for tile in variant.tiles}
    if vectors == {16}:
        # Every row of every pass over the gradient is one access; what is left are tables, numbers and ends.
        assert compiled.wide >= 2 * rows, compiled
        assert compiled.accesses - compiled.wide <= 12 + 12 * len(variant.tiles), compiled
    elif vectors == {size}:
        assert compiled.wide == 0 or variant.kernel.stem == "laplacian_smoothing"
    for tile in variant.tiles:
        narrow = NARROW.get((variant.kernel.stem, tile.whole), {}).get(size, 16)
        assert tile.vector in (1, narrow // size)


ALL = list(variants())
SINGLES = [replace(variant, entry="single") for variant in ALL]
USUAL = {v.kernel.stem: v for v in variants((torch.float32,)) if v.tiles[0].vector > 1}
"""The variant of each kernel for the longest columns of float32, contiguous."""


def test_the_formulas_give_every_kind_of_tile():
    kinds = {(v.kernel.stem, v.dtype, v.tiles[0].whole, v.tiles[0].vector > 1) for v in ALL}
    assert len(kinds) == 4 * (4 * 4 + 2)
    assert len(ALL) > len(kinds)


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
@pytest.mark.parametrize("stem", kernels())
def test_the_usual_variants_compile_without_spilling(stem, target):
    check(USUAL[stem], target)


@pytest.mark.parametrize("stem", kernels())
def test_the_kernel_of_a_captured_graph_moves_rows_as_vectors_and_does_not_spill(stem):
    check(replace(USUAL[stem], entry="single"), "sm_90")


WHOLE = {v.kernel.stem: v for v in variants((torch.float32,)) if v.tiles[0].whole and v.tiles[0].vector > 1}
"""The variant of each kernel for the longest columns of float32 that one panel holds, contiguous."""


@pytest.mark.parametrize("entry", ["many", "single"])
def test_no_thread_holds_the_tree_that_joins_the_pieces_of_a_column(entry):
    """It has most registers to lose here: 16 pieces, rows held from the first pass to the last."""
    check(replace(WHOLE["laplacian_smoothing"], entry=entry), "sm_90")


PANELS = [v for v in variants((torch.float32, torch.float64)) if v.tiles[0].vector > 1 and not v.tiles[0].whole]


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
@pytest.mark.parametrize("variant", [v for v in PANELS if v.kernel.uses_scratch], ids=str)
def test_a_barrier_for_all_memory_stands_between_writing_and_reading_the_ends(variant, target):
    """Other threads read an end than wrote it. What else synchronises threads on AMD is for shared memory alone."""
    compiled, columns = build(variant, target), variant.tiles[0].columns
    lines = compiled.asm["ttgir"].splitlines()
    ends = rf" : tensor<{columns}x!tt\.ptr<f64>"
    writes, reads, barriers = (
        [number for number, line in enumerate(lines) if re.search(pattern, line)]
        for pattern in (rf"tt\.store .*{ends}", rf"tt\.load .*{ends}", r"ttg\.barrier all")
    )
    assert writes
    assert reads
    assert any(max(writes) < barrier < min(reads) for barrier in barriers)
    if target == "gfx942":
        fences = re.findall(r"fence syncscope\(\"workgroup\"\) (\w+), (.*)", compiled.asm["llir"])
        assert {order for order, where in fences if "!mmra" not in where} == {"release", "acquire"}


@pytest.mark.parametrize("variant", PANELS, ids=str)
def test_a_kernel_reads_its_gradient_as_often_as_the_model_says(variant):
    """Loops over panels in the compiled kernel: all but the last read, the last reads and writes."""
    (tile,), n = variant.tiles, 1 << 14
    geometry = Geometry(n, 1, 1 << 14, 0, 1 << 14, 1)
    loops = len(re.findall(r"scf\.for ", build(variant, "sm_90").asm["ttgir"]))
    t = traffic(variant.kernel, variant.dtype, geometry, tile)
    assert loops == int(t.first + t.again)
    assert t.total <= 4.1


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("variant", [*ALL, *launches(), *SINGLES], ids=str)
def test_every_variant_compiles_without_spilling(variant, target):
    check(variant, target)


@pytest.mark.parametrize("variant", ALL, ids=str)
def test_the_sample_of_the_first_use_has_the_tile_of_the_variant(variant):
    kernel, (tile,), dtype = variant.kernel, variant.tiles, variant.dtype
    assert kernel.tile_of(sample_geometry(kernel, tile, dtype), dtype, is_aligned=True) == tile


def test_the_stored_table_has_every_variant_and_no_spill():
    rows = load()
    stored = {(row.target, row.kernel, row.dtype, row.name) for row in rows}
    names = [(v.kernel.stem, str(v.dtype)[6:], v.name) for v in (*ALL, *launches())]
    assert stored == {(target, *name) for target in TARGETS for name in names}
    assert not [row for row in rows if row.spills or not row.owned]


def test_the_stored_table_is_of_the_pinned_triton():
    pinned = re.findall(r"^triton==(\S+)", (Path(__file__).parents[3] / "constraints.txt").read_text(), re.M)
    assert pinned == list({row.triton for row in load()})
