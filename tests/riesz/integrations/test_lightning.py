"""A real Lightning Trainer: weights equal to a hand-written loop, in each precision, accumulating and clipping."""

from __future__ import annotations

import csv

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import riesz
from riesz.integrations.lightning import ChannelDirected
from training import batch, network

METRIC = riesz.SobolevTilde(0.1)
pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice on loggers and workers


def dataset():
    images, labels = zip(*(batch(step, size=4) for step in range(6)), strict=True)
    return TensorDataset(torch.cat(images), torch.cat(labels))


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = network()

    def training_step(self, data, index):
        images, labels = data
        return nn.functional.cross_entropy(self.net(images), labels)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def fit(module, callback, tmp_path, **settings):
    trainer = lightning.Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        callbacks=[callback],
        **settings,
    )
    trainer.fit(module, DataLoader(dataset(), batch_size=4))


def by_lightning(tmp_path, metric=METRIC, **settings):
    module = Module()
    callback = ChannelDirected(metric)
    fit(module, callback, tmp_path, max_epochs=2, **settings)
    assert [r.name for r in callback.attachments[0].report() if r.applied] == ["net.0.weight", "net.3.weight"]
    return module.net


def by_hand(metric=METRIC, bf16=False, accumulate=1, clip=None, dtype=torch.float32):
    model = network().to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        for index, (images, labels) in enumerate(DataLoader(dataset(), batch_size=4)):
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                loss = nn.functional.cross_entropy(model(images.to(dtype)), labels)
            (loss / accumulate).backward()
            if (index + 1) % accumulate == 0:
                if clip is not None:
                    nn.utils.clip_grad_norm_(model.parameters(), clip)
                riesz.precondition_([p.grad for p in model.parameters() if p.dim() == 4], metric)
                optimizer.step()
                optimizer.zero_grad()
    return model


CASES = {
    "fp32": ({"precision": "32-true"}, {}),
    "bf16": ({"precision": "bf16-mixed"}, {"bf16": True}),
    "fp64": ({"precision": "64-true"}, {"dtype": torch.float64}),
    "accumulating": ({"accumulate_grad_batches": 3}, {"accumulate": 3}),
    "clipping": ({"gradient_clip_val": 0.05}, {"clip": 0.05}),
    "bf16, accumulating and clipping": (
        {"precision": "bf16-mixed", "accumulate_grad_batches": 2, "gradient_clip_val": 0.05},
        {"bf16": True, "accumulate": 2, "clip": 0.05},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_trainer_equals_a_hand_written_loop(name, tmp_path, trainer_differences):
    settings, loop = CASES[name]
    theirs, ours = by_lightning(tmp_path, **settings), by_hand(**loop)
    difference = max((a - b).abs().max().item() for a, b in zip(theirs.parameters(), ours.parameters(), strict=True))
    trainer_differences[f"lightning, {name}"] = difference
    assert difference <= 1e-7
    plain = by_hand(metric=riesz.Identity(), **loop)
    assert max((a - b).abs().max().item() for a, b in zip(plain.parameters(), ours.parameters(), strict=True)) > 1e-3


class TwoOptimizers(Module):
    """By hand, as GANs do: one optimizer for the convolutions, one that has nothing to direct."""

    automatic_optimization = False

    def training_step(self, data, index):
        for optimizer in self.optimizers():
            optimizer.zero_grad()
        self.manual_backward(super().training_step(data, index))
        for optimizer in self.optimizers():
            optimizer.step()

    def configure_optimizers(self):
        convs = [p for p in self.parameters() if p.dim() == 4]
        others = [p for p in self.parameters() if p.dim() != 4]
        return [torch.optim.SGD(group, lr=0.1, momentum=0.9) for group in (convs, others)]


def test_manual_optimization_with_two_optimizers_equals_a_hand_written_loop(tmp_path):
    module = TwoOptimizers()
    callback = ChannelDirected(METRIC)
    fit(module, callback, tmp_path, max_epochs=2)
    assert len(callback.attachments) == 1
    assert all(map(torch.equal, module.net.parameters(), by_hand().parameters()))


def test_the_callback_detaches_when_fitting_ends(tmp_path):
    module = Module()
    callback = ChannelDirected(METRIC)
    fit(module, callback, tmp_path, max_steps=1)
    optimizer = callback.attachments[0].optimizer
    module.net[0].weight.grad = torch.ones_like(module.net[0].weight)
    optimizer.step()
    assert (module.net[0].weight.grad == 1).all()


@pytest.mark.parametrize("saved_by", ["a callback", "save_checkpoint after fitting"])
def test_a_schedule_continues_from_lightnings_checkpoint(saved_by, tmp_path):
    def trained(checkpoint=None, epochs=2):
        module, callback = Module(), ChannelDirected(METRIC, schedule=riesz.schedule.warmup(9))
        trainer = lightning.Trainer(
            accelerator="cpu",
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            max_epochs=epochs,
            callbacks=[callback, ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1)],
        )
        trainer.fit(module, DataLoader(dataset(), batch_size=4), ckpt_path=checkpoint)
        return module, trainer

    whole, _ = trained()
    path = tmp_path / "epoch=0.ckpt"
    if saved_by != "a callback":
        path = tmp_path / "after.ckpt"
        trained(epochs=1)[1].save_checkpoint(path)
    saved = torch.load(path, weights_only=False)["optimizer_states"][0]["param_groups"][0]
    assert (saved["riesz_step"], riesz.metric(saved["riesz_scheduled"]).scale) == (6, 5 / 9)
    resumed, _ = trained(path)
    assert all(map(torch.equal, whole.parameters(), resumed.parameters()))
    assert not all(map(torch.equal, whole.net.parameters(), by_hand().parameters()))


def test_a_checkpoint_may_have_no_optimizer_states(tmp_path):
    """Strategies that gather them on one rank have empty ones elsewhere; other callbacks drop them."""
    callback = ChannelDirected(METRIC, schedule=riesz.schedule.warmup(9))
    fit(module := Module(), callback, tmp_path, max_epochs=1)
    for checkpoint in ({}, {"optimizer_states": []}, {"optimizer_states": [{}]}):
        callback.on_save_checkpoint(module.trainer, module, checkpoint)


def test_layers_are_logged_to_the_trainers_csv(tmp_path):
    module, callback = Module(), ChannelDirected(riesz.ReweightedL2(), log_every=4)
    trainer = lightning.Trainer(
        accelerator="cpu",
        logger=CSVLogger(tmp_path, name="", version="", flush_logs_every_n_steps=1),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accumulate_grad_batches=2,
        max_epochs=3,
        callbacks=[callback],
    )
    trainer.fit(module, DataLoader(dataset(), batch_size=4))
    with (tmp_path / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["riesz/ratio/net.0.weight"]]
    assert [int(row["step"]) for row in rows] == [0, 4, 8]  # 9 steps of 18 batches
    for row in rows:
        assert 1 <= float(row["riesz/ratio/net.3.weight"]) <= 2
        assert 0 < float(row["riesz/cosine/net.3.weight"]) <= 1 + 1e-6


def test_without_a_logger_nothing_is_recorded(tmp_path):
    callback = ChannelDirected(METRIC, log_every=1)
    fit(Module(), callback, tmp_path, max_steps=2)
    assert callback.attachments[0].recording is False
