"""Every paper-scale recipe, unmodified but for its number of steps."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab_helpers import write_cifar_bin, write_idx
from riesz_lab.recipes import paper

SUPPORT = Path(__file__).parents[2] / "support"


@pytest.fixture(scope="module")
def full_size_data(tmp_path_factory):
    """Random images in the public formats, as many as the real ones."""
    folder = tmp_path_factory.mktemp("data")
    write_cifar_bin(folder / "cifar10", 10_000)
    for name in ("mnist", "fashion-mnist"):
        write_idx(folder / name, 60_000, 10_000, zipped=False)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", paper.RECIPES)
def test_paper_scale_recipe_trains_evaluates_resumes_and_stores(name, tmp_path, full_size_data, capsys):
    done = subprocess.run(
        [sys.executable, SUPPORT / "one_recipe.py", name, tmp_path, full_size_data],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "2")},
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    with capsys.disabled():
        print(
            f"\n{name}: {told['parameters']:,} parameters, {told['step_ms']:.0f} ms a step, "
            f"{told['peak_memory_mb']} MB, evaluated in {told['eval_seconds']:.0f} s"
        )
    assert told["stopped"]
    assert told["saved"] == ["step-000000001"]
    assert (told["status"], told["steps"]) == ("finished", 3)
