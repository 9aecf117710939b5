"""Installs without the compiled library, or with another one, are explained."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import riesz
from riesz.backends import native

pytestmark = pytest.mark.skipif(isinstance(native.load(), str), reason="the compiled library is not here")


def test_without_the_library_eager_serves_and_says_so_once(tmp_path):
    source = Path(riesz.__file__).parent
    shutil.copytree(source, tmp_path / "riesz", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    script = """
import torch, riesz
status = {s.name: s for s in riesz.backends()}
assert not status["cpu"].available and "compiler" in status["cpu"].reason and status["eager"].picked
for _ in range(3):
    riesz.precondition_([torch.randn(4, 3), torch.randn(4, 3)], riesz.Sobolev())
try:
    riesz.precondition_(torch.randn(4, 3), riesz.Sobolev(), backend="cpu")
except RuntimeError as error:
    assert "is not available" in str(error)
else:
    raise SystemExit("an explicit choice that is not available must raise")
"""
    run = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr.count("a slower one serves") == 1


def test_a_library_of_another_version_is_refused(monkeypatch):
    monkeypatch.setattr(native, "INTERFACE", native.INTERFACE + 1)
    assert f"expected interface {native.INTERFACE}, got" in native.load.__wrapped__()


def test_a_torch_without_the_parallel_loop_is_explained(monkeypatch):
    monkeypatch.setattr(native, "_torch_parallel_for", lambda: None)
    assert "torch_parallel_for" in native.load.__wrapped__()


def test_the_structs_have_the_size_c_expects():
    assert (ctypes.sizeof(native.CJob), ctypes.sizeof(native.CMetric)) == (40, 40)
