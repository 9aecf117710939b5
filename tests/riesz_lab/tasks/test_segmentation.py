"""Segmentation: scores by hand, void, pictures, and the same bits however a trial came to its end."""

import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from lab_helpers import outcome_bytes, riesz
from riesz_lab.config import Config
from riesz_lab.data.scenes import catalog as scene_catalog
from riesz_lab.data.scenes.batches import SceneBatch
from riesz_lab.data.scenes.labels import VOID
from riesz_lab.errors import StoppedError
from riesz_lab.recipes import recipe
from riesz_lab.store import Store
from riesz_lab.tasks import Context, Segmentation
from riesz_lab.training.hardware import Hardware
from riesz_lab.training.loop import Loop
from riesz_lab.training.trainer import train
from scene_trees import write_camvid, write_pairs, write_voc

CONTEXT = Context(torch.device("cpu"))


def small(**changes):
    settings = {
        "recipe": "test",
        "task": "segmentation",
        "dataset": "camvid",
        "augment": "scale-crop-flip-colour",
        "height": 32,
        "width": 48,
        "model": "unet",
        "model_options": ("depth=14", "width=4"),
        "epochs": 2,
        "batch_size": 2,
        "lr": 0.02,
        "metric": "sobolev-tilde",
        "eval_batch_size": 3,
    }
    return Config(**{**settings, **changes})


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_camvid(folder / "camvid")
    write_voc(folder / "voc2012")
    write_pairs(folder / "mine")
    return folder


def run(config, runs, data_dir, **options):
    return train(config, runs=runs, data_dir=data_dir, hardware=Hardware(accelerator="cpu", workers=1), **options)


class Fixed(torch.nn.Module):
    """Answers with class 0 for the left half and class 1 for the right, whatever it sees."""

    def forward(self, images):
        logits = torch.zeros(len(images), 11, *images.shape[-2:])
        half = images.shape[-1] // 2
        logits[:, 0, :, :half] = 5
        logits[:, 1, :, half:] = 5
        return logits


def test_scores_are_those_counted_by_hand(data_dir):
    task = Segmentation(small(), data_dir, None, CONTEXT)
    task.models["model"] = Fixed()
    *_, scores = task.evaluate()
    truth = np.concatenate([batch.labels_NHW.numpy() for _, batch in task.test_batches()])
    answer = np.zeros_like(truth)
    answer[..., 24:] = 1
    counted = truth != VOID
    assert not counted.all()
    ious = []
    for label in range(11):
        both = (counted & (truth == label) & (answer == label)).sum()
        either = (counted & ((truth == label) | (answer == label))).sum()
        ious += [both / either] if either else []
    assert scores["test_miou"] == pytest.approx(np.mean(ious), rel=1e-5)
    assert scores["test_accuracy"] == pytest.approx((truth == answer)[counted].mean(), rel=1e-9)
    right, wrong = (-torch.log_softmax(torch.tensor([5.0] + [0.0] * 10), 0)[[0, 1]]).tolist()
    assert scores["test_loss"] == pytest.approx(np.where(truth == answer, right, wrong)[counted].mean(), rel=1e-5)


def test_void_pixels_do_not_matter(data_dir):
    task = Segmentation(small(), data_dir, None, CONTEXT)
    (batch,) = next(task.batches(0, 0))
    task.models["model"].eval()
    ((_, loss),) = task.losses(batch)
    logits_change = batch.labels_NHW == VOID
    assert logits_change.any()
    model = task.models["model"]

    def changed(images):
        logits = model(images)
        return torch.where(logits_change[:, None], torch.randn_like(logits) * 100, logits)

    task.models["model"] = changed
    ((_, other),) = task.losses(batch)
    assert torch.equal(loss, other)


def test_batch_of_nothing_but_void_is_no_divergence(data_dir):
    task = Segmentation(small(), data_dir, None, CONTEXT)
    nothing = SceneBatch(
        torch.zeros(2, 32, 32, 3, dtype=torch.uint8), torch.full((2, 32, 32), VOID, dtype=torch.uint8), None, 0
    )
    ((_, loss),) = task.losses(nothing)
    assert loss == 0
    loss.backward()


def test_trains_on_every_layout_and_stores_pictures(tmp_path, data_dir):
    for name, classes in (("camvid", 11), ("voc2012", 21), ("mine", 3)):
        fit = "crop" if name == "voc2012" else "resize"
        outcome = run(small(dataset=name, fit=fit, epochs=1, eval_batch_size=2), tmp_path, data_dir)
        row = outcome.result.last
        assert outcome.result.status == "finished"
        assert (outcome.result.score, outcome.result.higher_is_better) == ("test_miou", True)
        assert {"train_loss", "test_loss", "test_miou", "train_accuracy", "test_accuracy"} <= set(row)
        assert row["loss_gap"] == pytest.approx(row["test_loss"] - row["train_loss"])
        assert row["accuracy_gap"] == pytest.approx(row["train_accuracy"] - row["test_accuracy"])
        (picture,) = (outcome.path / "pictures").iterdir()
        assert picture.name == "predictions-epoch-0001.png"
        with Image.open(io.BytesIO(picture.read_bytes())) as grid:
            colours = {colour for _, colour in grid.convert("RGB").getcolors(10**6)}
        labels = scene_catalog.load(name, data_dir, "train").labels
        assert labels.classes == classes
        assert len(colours & set(labels.colours)) > 1


def test_learns(tmp_path, data_dir):
    config = small(augment="none", epochs=12, lr=0.1, eval_every=12, metric="identity")
    first, *_, last = Store(run(config, tmp_path, data_dir).path).trials[0].history()
    assert last["train_loss"] < 0.8 * first["train_loss"]


@pytest.mark.parametrize("fit", ["resize", "crop"])
def test_stopped_in_mid_epoch_it_continues_to_the_same_bits(tmp_path, data_dir, monkeypatch, fit):
    """Decoded in a worker process (crop) and kept in memory (resize)."""
    config = small(fit=fit, eval_batch_size=1)
    whole = run(config, tmp_path / "whole", data_dir)
    step = Loop.step

    def stop_at_five(self, parts):
        step(self, parts)
        if self.session.state.step == 4:
            self.stop.received = 15

    monkeypatch.setattr(Loop, "step", stop_at_five)
    with pytest.raises(StoppedError, match="stopped at step 5 of 6"):
        run(config, tmp_path / "stopped", data_dir)
    monkeypatch.setattr(Loop, "step", step)
    again = run(config, tmp_path / "stopped", data_dir)
    assert outcome_bytes(again.path) == outcome_bytes(whole.path)
    pictures = [sorted(f.read_bytes() for f in (o.path / "pictures").iterdir()) for o in (again, whole)]
    assert pictures[0] == pictures[1]


def test_parts_of_a_batch_weigh_by_their_pixels(data_dir):
    task = Segmentation(small(batch_size=4, accumulate=2), data_dir, None, CONTEXT)
    parts = next(task.batches(0, 0))
    assert len(parts) == 2
    shares = [task.share(part, parts) for part in parts]
    assert sum(shares) == pytest.approx(1)
    assert shares[0] == parts[0].pixels / (parts[0].pixels + parts[1].pixels)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_mean_over_processes_is_that_over_pixels(data_dir, accumulate):
    """Two processes with different numbers of pixels that count, their gradients averaged, do what one does."""
    counts = []

    def gradient(rank, world, add_up):
        context = Context(torch.device("cpu"), rank, world, add_up)
        task = Segmentation(small(batch_size=4, accumulate=accumulate), data_dir, None, context)
        model = task.models["model"].eval()  # batch norm looks at a process's own images
        parts = next(task.batches(0, 0))
        for part in parts:
            ((_, loss),) = task.losses(part)
            (loss * task.share(part, parts)).backward()
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    for rank in (0, 1):
        gradient(rank, 2, lambda own: counts.append(own.clone()) or own)
    assert len(counts) == 2
    assert counts[0] != counts[1]
    averaged = sum(gradient(rank, 2, lambda own: sum(counts)) for rank in (0, 1)) / 2
    wanted = gradient(0, 1, None)
    assert (averaged - wanted).abs().max() <= 1e-5 * wanted.abs().max()


@pytest.mark.filterwarnings("ignore:The ``compute`` method")  # said by the first process only, which has scenes
def test_a_process_without_test_scenes_agrees_with_the_others(data_dir):
    """More processes than test scenes: the last has none, and takes part in the same sums."""
    sent = []
    for rank in (0, 6):
        context = Context(torch.device("cpu"), rank, 7, lambda own: sent.append(own.clone()) or own)
        task = Segmentation(small(), data_dir, None, context)
        assert len(task.test) < 7
        *_, scores = task.evaluate()
        assert {"test_miou", "test_loss", "test_accuracy"} <= set(scores)
    first, last = sent[: len(sent) // 2], sent[len(sent) // 2 :]
    assert [own.shape for own in first] == [own.shape for own in last]
    assert all((own == 0).all() for own in last)


def test_pretrained_weights_reach_the_encoder(tmp_path, data_dir):
    donor = Segmentation(small(seed=5), data_dir, None, CONTEXT).models["model"]
    (data_dir / "weights").mkdir(exist_ok=True)
    torch.save(donor.encoder.state_dict(), data_dir / "weights" / "resnet14.pth")
    model = Segmentation(small(pretrained="resnet14.pth"), data_dir, None, CONTEXT).models["model"]
    assert torch.equal(model.encoder.conv1.weight, donor.encoder.conv1.weight)
    assert not torch.equal(model.head.weight, donor.head.weight)


def test_recipes_are_the_papers():
    config = recipe("voc-unet50")
    assert (config.lr, config.batch_size, config.epochs, config.optimizer) == (7e-3, 2, 60, "sgd")
    assert config.model_options == ("depth=50", "width=64")
    # New settings leave the ids of what was stored before as they were.
    assert replace(config, height=480).id == config.id


@pytest.mark.slow
def test_two_processes_score_every_scene_once(tmp_path, data_dir):
    """With a rate of zero and in evaluation mode, two processes must find what one does."""
    scores = []
    for devices in (1, 2):
        riesz(
            *("train", "camvid-unet-mini", "--model-options", "depth=14", "width=4", "--lr", "0", "--max-steps", "1"),
            *("--height", "32", "--width", "48", "--eval-batch-size", "1", "--batch-size", "2"),
            *("--runs", tmp_path / str(devices), "--data-dir", data_dir, "--accelerator", "cpu"),
            *("--devices", devices, "--strategy", "auto" if devices == 1 else "ddp"),
            check=0,
        )
        (trial,) = Store(tmp_path / str(devices)).trials
        scores.append(trial.result.last)
    # Batch norm saw a batch of two in one process, and two of one in the others: its statistics differ a little.
    assert scores[0]["test_loss"] == pytest.approx(scores[1]["test_loss"], rel=0.05)
    assert scores[0]["test_miou"] == pytest.approx(scores[1]["test_miou"], abs=0.05)
