"""The snippet of docs/lab.md for a user's own data runs as written, also on small images."""

import re
from pathlib import Path

import torch

ROOT = Path(__file__).parents[3]


def test_own_data_snippet_runs_on_small_images(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "lab.md").read_text(), re.DOTALL)
    (block,) = (block for block in blocks if "my_dataset" in block)
    items = [(image, label % 10) for label, image in enumerate(torch.randn(20, 3, 8, 8))]
    exec(compile(block, "docs/lab.md", "exec"), {"my_dataset": items, "my_test_dataset": items[:5]})
    assert "test_accuracy" in capsys.readouterr().out
