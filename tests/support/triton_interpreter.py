"""Triton's interpreter, made right and fast enough to test with: a plugin of pytest, and what its tests share.

Triton decides when it is imported whether it compiles or interprets, and other tests import it too, so
`test_triton_interpreter.py` runs the tests of `interpreted_*.py` in a process of its own with TRITON_INTERPRET=1.
"""

from __future__ import annotations

import pytest
import torch
import triton.language as tl
import triton.runtime.interpreter as interpreter

from riesz.backends.dispatch import direct_
from riesz.backends.triton import verify
from riesz.layout.axis import ColumnView

_patch_lang, _run_grid = interpreter._patch_lang, interpreter.GridExecutor.__call__
_convert_float = interpreter._convert_float
_patched: set[int] = set()


@pytest.fixture(autouse=True, scope="session")
def interpreter_rounds_to_bfloat16_as_hardware_does():
    """Triton's interpreter cuts the digits off, whatever rounding is asked for; every device rounds to nearest."""

    def convert_float(values, source, target, rounding):
        if (source, target) != (tl.float32, tl.bfloat16):
            return _convert_float(values, source, target, rounding)
        return torch.from_numpy(values.copy()).bfloat16().view(torch.int16).numpy().view("uint16").reshape(values.shape)

    interpreter._convert_float = convert_float
    yield
    interpreter._convert_float = _convert_float


@pytest.fixture(autouse=True, scope="session")
def interpreter_patches_once_per_launch():
    """The interpreter looks through all of triton.language at every call of a function; once per launch is enough."""

    def run_grid(self, *arguments, **keywords):
        _patched.clear()
        return _run_grid(self, *arguments, **keywords)

    def patch_lang(function):
        known = id(function.__globals__) in _patched
        _patched.add(id(function.__globals__))
        return None if known else _patch_lang(function)

    interpreter.GridExecutor.__call__, interpreter._patch_lang = run_grid, patch_lang
    yield
    interpreter.GridExecutor.__call__, interpreter._patch_lang = _run_grid, _patch_lang


@pytest.fixture(autouse=True)
def unverified(monkeypatch):
    """These tests compare more than the first-use check does; those of the check itself switch it on."""
    monkeypatch.setenv("RIESZ_VERIFY", "0")


@pytest.fixture
def verified(monkeypatch):
    monkeypatch.setenv("RIESZ_VERIFY", "1")
    monkeypatch.setattr(verify, "_verdicts", {})


def wide(tensor):
    return tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64, copy=True)


def expected(f, metric, axis):
    wanted = wide(f)
    direct_([ColumnView.open(wanted, axis)], metric, "reference")
    return wanted


def direct_all_(batch, metric):
    direct_([ColumnView.open(f, axis) for f, axis in batch], metric, "triton")
