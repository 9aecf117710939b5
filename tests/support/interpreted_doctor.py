"""`riesz doctor --gpu` on the Triton kernels in Triton's interpreter; see triton_interpreter.py."""

from __future__ import annotations

import csv

import pytest
import torch

from riesz import Centralization, ReweightedL2, SobolevTilde
from riesz.backends import registry
from riesz.backends.triton import means, verify
from riesz_lab.commands import doctor_gpu


@pytest.fixture
def examine(monkeypatch, tmp_path, capsys):
    """The examination of a few cases, with "auto" picking the Triton backend, as it does for a GPU."""
    from riesz.backends.triton.backend import TRITON

    backends = {name: backend for name, backend in registry._backends.items() if name != "cpu"} | {"triton": TRITON}
    monkeypatch.setattr(registry, "_backends", backends)
    monkeypatch.setattr(verify, "_verdicts", {})
    monkeypatch.setattr(doctor_gpu, "SHAPES", ((9, 4), (7, 4, 3)))
    monkeypatch.setattr(doctor_gpu, "KINDS", {k.kind_name(): k for k in (ReweightedL2, SobolevTilde, Centralization)})
    monkeypatch.setattr(doctor_gpu, "LAYOUTS", {k: doctor_gpu.LAYOUTS[k] for k in ("contiguous", "strided")})
    monkeypatch.setattr(doctor_gpu, "TOLERANCE", {torch.float32: 5e-6})
    monkeypatch.setattr(doctor_gpu, "Encoder", lambda *sizes: torch.nn.Conv2d(3, 8, 3))
    monkeypatch.setattr(doctor_gpu, "milliseconds", lambda work, device: work() or 1.0)
    sections = {"correctness": doctor_gpu.errors, "times": doctor_gpu.times}
    monkeypatch.setattr(doctor_gpu, "SECTIONS", sections)

    def run():
        status = doctor_gpu.examine_gpu(tmp_path, "cpu", lambda *of: list(doctor_gpu.guarded(*of)))
        (path,) = tmp_path.glob("gpu-*.csv")
        with path.open(newline="") as file:
            return status, capsys.readouterr().out, list(csv.DictReader(file))

    return run


@pytest.mark.parametrize("checked", ["0", "1"])
def test_right_kernels_are_called_right(examine, monkeypatch, checked):
    monkeypatch.setenv("RIESZ_VERIFY", checked)
    status, out, rows = examine()
    assert status == 0, out
    assert "WRONG" not in out
    assert "comparisons with the reference, 0 beyond their tolerance" in out
    assert {row["what"] for row in rows} == {"error/tolerance", "time"}


def test_a_broken_kernel_is_called_wrong_case_by_case(examine, monkeypatch):
    monkeypatch.setattr(means, "reweighted_l2", means.identity)  # forgets the mean
    status, out, rows = examine()
    assert status == 1
    wrong = [row for row in rows if row["what"] == "error/tolerance" and not float(row["value"]) <= 1]
    assert len(wrong) == out.count("  WRONG ") > 0
    assert {row["who"] for row in wrong} == {"reweighted-l2 float32"}
    assert "  WRONG reweighted-l2 float32 9x4 along 0 contiguous: " in out
    assert any(row["where"].startswith("2 in one call along 0") for row in wrong)


def test_a_broken_kernel_that_eager_stands_in_for_is_called_wrong_too(examine, monkeypatch):
    monkeypatch.setenv("RIESZ_VERIFY", "1")
    monkeypatch.setattr(means, "reweighted_l2", means.identity)
    status, out, rows = examine()
    assert status == 1
    assert "comparisons with the reference, 0 beyond their tolerance" in out
    assert "  WRONG triton: the triton kernel reweighted_l2 (float32) on cpu differs from eager by" in out
    (row,) = (row for row in rows if row["what"] == "refused at first use")
    assert row["who"] == "triton"


def test_a_result_that_is_no_number_is_called_wrong(examine, monkeypatch):
    real = doctor_gpu._error
    monkeypatch.setattr(doctor_gpu, "_error", lambda got, want: float("nan") if got.dim() == 3 else real(got, want))
    status, out, _ = examine()
    assert status == 1
    assert "  WRONG centralization float32 2 in one call along 0 contiguous: nan times the tolerance" in out


def test_a_section_that_raises_is_a_line_and_the_others_run(examine, monkeypatch):
    def broken(device):
        yield doctor_gpu.Measurement("time", "before", "it broke", 1.0, "ms")
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(doctor_gpu, "SECTIONS", {"correctness": broken, "times": doctor_gpu.times})
    status, out, rows = examine()
    assert status == 1
    assert "  WRONG correctness: RuntimeError: an illegal memory access was encountered" in out
    assert rows[0]["who"] == "before"
    assert any(row["who"] == "copy_ per tensor" for row in rows)
