"""Importing riesz costs nothing beyond importing torch."""

from __future__ import annotations

import subprocess
import sys


def test_import_adds_only_the_standard_library_to_torchs_own_import():
    script = (
        "import sys, torch; before = set(sys.modules); import riesz;"
        "print([m for m in set(sys.modules) - before"
        " if m.split('.')[0] not in sys.stdlib_module_names and m.split('.')[0] != 'riesz'])"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"
