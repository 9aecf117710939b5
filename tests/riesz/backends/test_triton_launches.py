"""Launches as a GPU gets them: Triton's own binding of arguments, its cache and its compiler, up to a pretended driver.

The interpreter takes another way: what it accepts as an argument, the compiler may not.
"""

from __future__ import annotations

import gc
import importlib.util
from types import SimpleNamespace

import pytest
import torch

from riesz import ReweightedL2
from riesz.backends.triton import backend
from riesz.backends.triton.launch import Geometry, Table, kernels

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")

CPU, KERNEL = torch.device("cpu"), kernels()["reweighted_l2"]
NUMBERS = torch.tensor(backend.numbers_of(ReweightedL2()), dtype=torch.float64)


class Driver:
    """Loads and launches nothing; records both."""

    def __init__(self, target):
        self.loaded, self.launched = [], []
        self.get_current_device = lambda: 0
        self.get_current_stream = lambda device: 0
        self.get_current_target = lambda: target
        self.utils = SimpleNamespace(
            get_device_properties=lambda device: {"max_shared_mem": 65536},
            load_binary=lambda name, *rest: self.loaded.append(name) or (1, 1, 0, 0, 1024),
            unload_module=lambda module: None,
        )

    def launcher_cls(self, source, metadata):
        limit = getattr(metadata, "maxnreg", None)  # known to NVIDIA's compiler alone
        return lambda *grid_and_rest: self.launched.append((grid_and_rest[:3], metadata.num_warps, limit))


@pytest.fixture(params=[("cuda", 90, 32), ("hip", "gfx942", 64)], ids=["sm_90", "gfx942"])
def driver(request, monkeypatch):
    import triton
    from triton.backends.compiler import GPUTarget

    from riesz.backends.triton import launch, panels

    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    pretended = Driver(GPUTarget(*request.param))
    monkeypatch.setattr(triton.runtime.driver, "_active", pretended)
    launch._options.cache_clear()
    yield pretended
    # Kernels unload themselves through the driver that is active.
    panels.many.device_caches.clear()
    panels.single.device_caches.clear()
    gc.collect()
    launch._options.cache_clear()


def test_a_launch_of_other_sizes_addresses_and_numbers_compiles_nothing(driver):
    from riesz.backends.triton.launch import launch_many

    for inner in (16, 24, 4096):
        geometries = [Geometry(8, 1, inner, 0, inner, 1), Geometry(7, 1, 16, 0, 16, 1)]
        table = Table.of(KERNEL, torch.float32, [(geometry, True) for geometry in geometries], CPU)
        launch_many(table, torch.tensor([inner, 16]), NUMBERS * inner)
        assert driver.launched[-1][0] == (table.programs, 1, 1)
    assert len(driver.loaded) == 1


def test_a_limit_on_registers_reaches_the_compiler_that_knows_it(driver):
    from riesz.backends.triton.launch import launch_many

    limits = [None, 255 if driver.get_current_target().backend == "cuda" else None]
    for dtype in (torch.float32, torch.float16):
        table = Table.of(kernels()["sobolev_tilde"], dtype, [(Geometry(4, 1, 16, 0, 16, 1), True)], CPU)
        launch_many(table, torch.tensor([16]), NUMBERS)
    assert [limit for _, _, limit in driver.launched] == limits


@pytest.mark.parametrize("offset", [0, 1], ids=["aligned", "not aligned"])
def test_a_captured_launch_of_other_sizes_compiles_nothing(driver, offset):
    """Sizes of 1 and multiples of 16 are what Triton compiles for by default, and numbers beyond 31 bits."""
    from riesz.backends.triton.launch import launch_single

    geometries = [
        Geometry(8, 1, 16, 0, 16, 1),
        Geometry(1, 1, 24, 0, 24, 1),
        Geometry(5, 1, 1 << 33, 0, 1 << 34, 1, 3),
    ]
    gradient = torch.empty(8)[offset:]
    for geometry in geometries:
        tile = KERNEL.tile_of(geometry, torch.float32, offset == 0)
        launch_single(KERNEL, gradient, geometry, tile, NUMBERS)
        assert driver.launched[-1][0] == (KERNEL.programs(geometry, tile), 1, 1)
    assert len(driver.loaded) == 1
    assert driver.launched[-1][1] == 128 // driver.get_current_target().warp_size
