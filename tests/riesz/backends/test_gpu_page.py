"""What the docs show of GPUs: tables computed from stored results, and figures of the devices that were measured."""

from __future__ import annotations

import importlib.util

import pytest
from benchmarks import gpu_page, inductor

import riesz

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")

SAMPLE = """device,versions,what,who,where,value,unit
NVIDIA Sample 9000,"riesz 0.1, torch 2.13",error/tolerance,sobolev float32,1x9 contiguous,0.25,
NVIDIA Sample 9000,"riesz 0.1, torch 2.13",error/tolerance,sobolev float32,7x4x3 strided,nan,
NVIDIA Sample 9000,"riesz 0.1, torch 2.13",time,"sobolev-tilde, auto",ResNet-50,0.1875,ms
"""


def test_the_tables_of_the_page_are_those_of_the_stored_results():
    page = gpu_page.PAGE.read_text()
    for name, section in gpu_page.SECTIONS.items():
        assert gpu_page.filled(page, name, section()) == page, f"section {name}: run python -m benchmarks.gpu_page"


def test_a_section_that_the_page_does_not_have_is_refused():
    with pytest.raises(ValueError, match="expected one section 'weather' in the page, got 0"):
        gpu_page.filled("", "weather", "fine")


def test_without_a_file_nothing_is_measured(tmp_path):
    assert gpu_page.devices(tmp_path) == "Not yet measured."
    assert gpu_page.devices() in gpu_page.PAGE.with_name("benchmarks.md").read_text()


def test_a_file_is_shown_under_the_name_of_its_device(tmp_path):
    (tmp_path / "gpu-nvidia-sample-9000.csv").write_text(SAMPLE)
    text = gpu_page.devices(tmp_path)
    assert "### NVIDIA Sample 9000\n" in text
    assert "2 comparisons with the reference, 1 wrong." in text
    assert "| time | sobolev-tilde, auto | ResNet-50 | 0.188 ms |" in text


@needs_triton
@pytest.mark.filterwarnings("ignore")  # the compiler warns of its own doings
def test_inductor_fuses_what_eager_does_for_a_gpu():
    """Code for a CUDA device, generated without one."""
    shapes = [(16, 3, 3, 3), (16, 16, 3, 3), (16, 16, 3, 3)]
    kernels = inductor.count("small", shapes, "reweighted-l2")
    assert 1 <= kernels.generated + kernels.external < kernels.operators
    assert "cuda" in inductor.generated_code(shapes[:1], riesz.ReweightedL2())
