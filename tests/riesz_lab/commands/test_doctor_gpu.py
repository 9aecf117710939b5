"""Sections of `riesz doctor --gpu` run in processes of their own; the kernels' tests are in interpreted_doctor.py."""

from __future__ import annotations

import subprocess
import sys

import pytest

from riesz_lab.commands import doctor_gpu


def ended(monkeypatch, *, code: str, seconds: float = 60):
    real = subprocess.run
    monkeypatch.setattr(doctor_gpu, "SECONDS", seconds)
    monkeypatch.setattr(doctor_gpu.subprocess, "run", lambda command, **how: real([sys.executable, "-c", code], **how))
    return doctor_gpu.isolated("times", "cuda")


FIGURE = 'print(\'["time", "copy", "here", 1.5, "ms"]\', flush=True)'


def test_what_a_section_gave_before_it_crashed_is_kept(monkeypatch):
    kept, failed = ended(monkeypatch, code=f"import os; {FIGURE}; os.abort()")
    assert kept == doctor_gpu.Measurement("time", "copy", "here", 1.5, "ms")
    assert failed.is_wrong
    assert failed.where == "the process ended with status -6"


def test_a_section_that_hangs_is_ended(monkeypatch):
    kept, failed = ended(monkeypatch, code=f"import time; {FIGURE}; time.sleep(600)", seconds=2)
    assert not kept.is_wrong
    assert failed.where == "the process did not end within 2 s"


def test_what_a_process_said_last_is_part_of_the_line(monkeypatch):
    (failed,) = ended(monkeypatch, code="import sys; sys.exit('no driver')")
    assert failed.where == "the process ended with status 1: no driver"


@pytest.mark.slow
def test_two_ranks_direct_what_one_process_would():
    figures = list(doctor_gpu.sharded("cpu"))
    assert len(figures) == 2 * len(doctor_gpu.TIMED)
    assert not [figure for figure in figures if figure.is_wrong]
