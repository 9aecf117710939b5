"""The Triton kernels in Triton's interpreter, in a process of its own; the tests are those of interpreted_*.py."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[2] / "support"

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")


def test_the_kernels_match_the_reference_in_the_interpreter(capsys):
    paths = os.pathsep.join(filter(None, (str(SUPPORT), os.environ.get("PYTHONPATH"))))  # where the plugin is
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": paths}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--no-header",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-p",
        "triton_interpreter",
        *map(str, sorted(SUPPORT.glob("interpreted_*.py"))),
    ]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    with capsys.disabled():
        print(result.stdout[result.stdout.find("= largest error") :] if result.returncode == 0 else result.stdout)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
    assert int(re.search(r"(\d+) passed", result.stdout)[1]) >= 186
    assert "skipped" not in result.stdout


def test_import_riesz_imports_no_triton():
    code = "import sys, riesz; riesz.backends(); assert 'triton' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
