"""Every example runs, as a user would run it, only shorter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
CASES = {
    "plain_loop.py": (["--seeds", "3", "--epochs", "1"], "paired by seed"),
    "report.py": ([], "directed"),
    "gan.py": (["--steps", "20"], "#"),
    "lightning_trainer.py": ([], "1 of 4 directed"),
    "compare_plain_loop.py": ([], "SobolevTilde against plain"),
    "compare_lightning.py": ([], "SobolevTilde against plain"),
    "hugging_face_trainer.py": ([], "1 of 4 directed"),
}


def test_every_example_is_here():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_example_runs(name, tmp_path):
    arguments, words = CASES[name]
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    # One thread: small networks gain nothing from a second one, and wait for it where others want that core.
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=one_thread)
    assert done.returncode == 0, done.stderr
    assert words in done.stdout
