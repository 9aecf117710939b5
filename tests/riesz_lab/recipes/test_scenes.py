"""Every paper-scale recipe on scenes, unmodified but for its number of steps, on trees in the public layouts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from riesz_lab.recipes import scenes
from scene_trees import write_cityscapes, write_voc

SUPPORT = Path(__file__).parents[2] / "support"


@pytest.fixture(scope="module")
def full_size_data(tmp_path_factory):
    """Few scenes, as large as the real ones."""
    folder = tmp_path_factory.mktemp("data")
    write_voc(folder / "voc2012", train=2, val=2, size=(375, 500))
    write_cityscapes(folder / "cityscapes", train=2, val=2, size=(1024, 2048))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["identity", "sobolev-tilde", "reweighted-l2"])
@pytest.mark.parametrize("name", scenes.PAPER)
def test_paper_scale_recipe_trains_scores_and_stores(name, metric, tmp_path, full_size_data, capsys):
    done = subprocess.run(
        [sys.executable, SUPPORT / "one_scene_recipe.py", name, metric, tmp_path, full_size_data],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "2")},
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    with capsys.disabled():
        print(
            f"\n{name} {metric}: {told['parameters']:,} parameters, {told['peak_memory_mb']} MB, first step "
            f"{told['step_ms']:.0f} ms of the processor, of it the metric {told['attached_ms']:.1f} ms; "
            f"{told['score']} {told['last']:.3f}"
        )
    assert (told["status"], told["steps"]) == ("finished", 1)
    assert told["last"] >= 0
    assert len(told["pictures"]) == (1 if name == "voc-unet50" else 2)
    assert len(told["directed"]) == (0 if metric == "identity" else 1 if name == "voc-unet50" else 2)
