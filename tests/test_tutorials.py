"""Every tutorial runs, within two minutes, and is committed with its outputs."""

from __future__ import annotations

import nbformat
import pytest
from docs.run_tutorials import TUTORIALS, run

NOTEBOOKS = sorted(TUTORIALS.glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_tutorial_runs(path, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    done = run(path, tmp_path)
    for cell in done.cells:
        for output in cell.get("outputs", []):
            # A shell command that fails raises nothing; what it prints shows it.
            assert "Traceback" not in output.get("text", ""), output["text"]
            assert output["output_type"] != "error"


def test_there_are_four_and_each_has_outputs():
    assert len(NOTEBOOKS) == 4
    for path in NOTEBOOKS:
        cells = nbformat.read(path, as_version=4).cells
        assert any(cell.get("outputs") for cell in cells), path
        stored = [output.get("text", "") for cell in cells for output in cell.get("outputs", [])]
        # What riesz logs when its kernels cannot be loaded: these outputs come from a broken checkout.
        assert not [text for text in stored if "is missing, a slower one serves" in text], path
        assert path.stat().st_size < 300_000
