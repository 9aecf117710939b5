"""What an epoch did to the weights: the right numbers, at no price for the training."""

import json
from contextlib import nullcontext

import numpy as np
import torch
from torch import nn

from lab_helpers import small_config, small_data
from riesz_lab.training import trainer
from riesz_lab.training.update_recorder import BINS, UpdateRecorder, parts
from riesz_lab.utils.tensor_files import read_tensors


def recordered(change_O):
    """What is told of a change that is the same for every input and tap."""
    conv = nn.Conv2d(3, len(change_O), 3)
    recorder = UpdateRecorder({"model": conv}, {})
    recorder.begin()
    with torch.no_grad():
        conv.weight += change_O.float().view(-1, 1, 1, 1)
    return recorder.end()["weight"]


def test_spectrum_is_where_the_change_is():
    n = 32
    o = torch.arange(n)
    assert recordered(torch.ones(n))["spectrum"][0] > 0.999
    alternating = recordered((-1.0) ** o)["spectrum"]
    assert alternating[-1] > 0.999
    first = recordered(torch.cos(2 * torch.pi * o / n))["spectrum"]
    assert first[1] > 0.999


def test_shares_add_up_to_one_and_parts_hold_every_frequency():
    told = recordered(torch.randn(30))
    assert len(told["spectrum"]) == BINS + 1
    np.testing.assert_allclose(sum(told["spectrum"]), 1, atol=1e-3)
    for n in (2, 3, 7, 16, 17, 100):
        assert [k for part in parts(n) for k in part] == list(range(1, n // 2 + 1))


def test_transposed_and_grouped_layers_are_seen_along_their_output():
    model = nn.Sequential(
        nn.ConvTranspose2d(4, 6, 3), nn.Conv2d(8, 8, 3, groups=2), nn.Linear(3, 3), nn.Conv2d(8, 8, 1)
    )
    recorder = UpdateRecorder({"model": model}, {})
    assert {name: axis.dim for name, (_, axis) in recorder.weights.items()} == {
        "0.weight": 1,
        "1.weight": 0,
        "3.weight": 0,
    }
    recorder.begin()
    assert {name: row["n"] for name, row in recorder.end().items()} == {"0.weight": 6, "1.weight": 4, "3.weight": 8}


def test_training_does_not_notice(tmp_path, monkeypatch):
    config = small_config(metric="sobolev-tilde(lam=0.1)", epochs=2)
    seen = trainer.train(config, runs=tmp_path / "seen", data=small_data()).path
    monkeypatch.setattr(UpdateRecorder, "begin", lambda self: None)
    monkeypatch.setattr(UpdateRecorder, "step", lambda self, last: nullcontext())
    unseen = trainer.train(config, runs=tmp_path / "unseen", data=small_data()).path
    assert not (unseen / "updates.jsonl").exists()
    rows = [json.loads(line) for line in (seen / "updates.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [1, 2]
    assert all(0 < layer["cosine"] <= 1 for row in rows for layer in row["layers"].values())
    first, second = (read_tensors(path / "weights.safetensors") for path in (seen, unseen))
    assert all(torch.equal(first[name], second[name]) for name in first)
