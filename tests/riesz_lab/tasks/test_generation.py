"""Generation: signs of the losses, who learns when, FID, collapse, and trials that end with the same bits."""

import json
import math
from pathlib import Path

import pytest
import torch

from lab_helpers import outcome_bytes
from riesz_lab import cli
from riesz_lab.config import Config
from riesz_lab.data.scenes.labels import VOID
from riesz_lab.errors import ConfigError, LabError, StoppedError
from riesz_lab.recipes import recipe
from riesz_lab.store import Store
from riesz_lab.tasks import Context, Generation, adversarial, fid, gan_collapse
from riesz_lab.training.hardware import Hardware
from riesz_lab.training.loop import Loop
from riesz_lab.training.trainer import train
from riesz_lab.utils.tensor_files import read_tensors
from scene_trees import write_camvid, write_cityscapes

CONTEXT = Context(torch.device("cpu"))


def small(**changes):
    settings = {
        "recipe": "test",
        "task": "generation",
        "dataset": "camvid",
        "augment": "flip",
        "height": 32,
        "width": 64,
        "model": "spade",
        "model_options": ("width=2", "hidden=4"),
        "discriminator_options": ("scales=2", "width=4", "layers=2"),
        "epochs": 2,
        "batch_size": 2,
        "optimizer": "adam",
        "optimizer_options": ("betas=(0.0, 0.9)",),
        "lr": 1e-3,
        "discriminator_lr": 4e-3,
        "schedule": "constant",
        "metric": "sobolev-tilde",
        "eval_first": True,
        "eval_batch_size": 2,
    }
    return Config(**{**settings, **changes})


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_camvid(folder / "camvid")
    write_cityscapes(folder / "cityscapes")
    return folder


def run(config, runs, data_dir, **options):
    return train(config, runs=runs, data_dir=data_dir, hardware=Hardware(accelerator="cpu"), **options)


# -- losses --------------------------------------------------------------------------------------------------------


def verdicts(value):
    """One scale of one layer of features and the verdict."""
    return [[torch.zeros(1, 2), torch.full((1, 1), float(value))]]


def test_discriminator_wants_real_above_one_and_generated_below_minus_one():
    hinge = adversarial.discriminator_hinge
    assert hinge(fake=verdicts(-2), real=verdicts(2)) == 0
    assert hinge(fake=verdicts(-1), real=verdicts(1)) == 0
    assert hinge(fake=verdicts(0), real=verdicts(0)) == 2
    assert hinge(fake=verdicts(3), real=verdicts(5)) == 4
    assert hinge(fake=verdicts(-5), real=verdicts(-3)) == 4


def test_generator_wants_its_images_judged_real():
    assert adversarial.generator_hinge(verdicts(3)) == -3
    assert adversarial.generator_hinge(verdicts(-3)) == 3


def test_feature_matching_leaves_out_the_verdict_and_fixes_the_real_side():
    fake = [[torch.ones(2, 2, requires_grad=True), torch.full((2, 1), 9.0)]]
    real = [[torch.zeros(2, 2, requires_grad=True), torch.zeros(2, 1)]]
    loss = adversarial.feature_distance(fake, real)
    assert loss == 1
    loss.backward()
    assert fake[0][0].grad is not None
    assert real[0][0].grad is None


def test_without_a_look_at_the_untrained_generator_twice_the_best_decides():
    assert "after 5" in gan_collapse.collapsed(rows((0, 0), (9, 1), (5, 1), (11, 1), (12, 1))[1:], "fid_proxy")


def test_each_network_learns_from_its_own_loss_alone(data_dir):
    task = Generation(small(), data_dir, None, CONTEXT)
    (part,) = next(task.batches(0, 0))
    losses = task.losses(part)
    grads = {}
    for expected in ("generator", "discriminator"):
        name, loss = next(losses)
        assert name == expected
        loss.backward()
        grads[name] = {n: [p.grad is not None for p in model.parameters()] for n, model in task.models.items()}
        for optimizer in task.optimizers.values():
            optimizer.zero_grad()
    assert all(grads["generator"]["generator"])
    assert not any(grads["generator"]["discriminator"])
    assert all(grads["discriminator"]["discriminator"])
    assert not any(grads["discriminator"]["generator"])
    assert all(p.requires_grad for p in task.models["discriminator"].parameters())


def test_a_batch_in_parts_trains_as_the_undivided_one(tmp_path, data_dir, monkeypatch):
    # Batch norm takes its statistics from each part, whatever the order of the steps.
    monkeypatch.setattr(torch.nn, "BatchNorm2d", lambda channels, affine: torch.nn.Identity())
    plain = {"optimizer": "sgd", "optimizer_options": (), "augment": "none", "epochs": 3, "eval_first": False}
    weights = []
    for accumulate in (1, 2):
        outcome = run(small(**plain, accumulate=accumulate), tmp_path, data_dir)
        weights.append(read_tensors(outcome.path / "weights.safetensors"))
    for name, tensor in weights[0].items():
        torch.testing.assert_close(
            weights[1][name], tensor, rtol=1e-4, atol=1e-6, msg=lambda text, n=name: f"{n}: {text}"
        )


def test_each_optimizer_has_its_own_rate_and_attachment(data_dir):
    task = Generation(small(), data_dir, None, CONTEXT)
    assert set(task.attachments) == {"generator", "discriminator"}
    rates = {name: optimizer.param_groups[0]["lr"] for name, optimizer in task.optimizers.items()}
    assert rates == {"generator": 1e-3, "discriminator": 4e-3}
    for name, attachment in task.attachments.items():
        directed = {record.name for record in attachment.report() if record.applied}
        assert directed <= {parameter for parameter, _ in task.models[name].named_parameters()}
        assert any(record.endswith("parametrizations.weight.original") for record in directed)
    assert Generation(small(metric="identity"), data_dir, None, CONTEXT).attachments == {}


def test_label_maps_have_a_channel_for_void_and_for_edges(data_dir):
    task = Generation(small(), data_dir, None, CONTEXT)
    (part,) = next(task.batches(0, 0))
    maps, real = task._inputs(part)
    assert maps.shape[1] == 12
    assert (maps.sum(1) == 1).all()
    assert torch.equal(maps[:, 11] == 1, part.labels_NHW == VOID)
    assert real.min() >= -1
    assert real.max() <= 1
    city = Generation(small(dataset="cityscapes", label_set="all"), data_dir, None, CONTEXT)
    (part,) = next(city.batches(0, 0))
    maps, _ = city._inputs(part)
    # SPADE's 35 labels and the edges between objects.
    assert maps.shape[1] == 36
    assert torch.equal(maps[:, 35] == 1, part.edges_NHW)
    assert part.edges_NHW.any()


# -- FID -----------------------------------------------------------------------------------------------------------


def proxy():
    return fid.build("proxy", "", Path(), torch.device("cpu"))


def test_proxy_is_the_same_network_every_time_and_leaves_chance_alone():
    before = torch.get_rng_state()
    a, b = fid_features(), fid_features()
    assert torch.equal(a, b)
    assert torch.equal(torch.get_rng_state(), before)


def fid_features():
    images = torch.arange(2 * 3 * 16 * 16, dtype=torch.float32).reshape(2, 3, 16, 16) % 256
    return proxy().torchmetrics.inception(images.to(torch.uint8))


def test_fid_is_zero_for_the_same_images_and_grows_with_the_difference():
    generator = torch.Generator().manual_seed(0)
    real = torch.rand(40, 3, 32, 32, generator=generator) * 2 - 1

    def distance(fake):
        score = proxy()
        score.add(real, real=True)
        score.add(fake, real=False)
        return score.distance(), score.diversity()

    same, diversity = distance(real)
    assert abs(same) < 1e-3
    assert diversity == pytest.approx(1)
    near, far = distance(real * 0.9)[0], distance(real * 0.5)[0]
    assert same < near < far
    alike = real[:1].expand_as(real)
    assert distance(alike)[1] < 1e-6


def test_images_that_are_no_numbers_have_no_score():
    score = proxy()
    score.add(torch.zeros(3, 3, 16, 16), real=True)
    score.add(torch.full((3, 3, 16, 16), float("nan")), real=False)
    assert math.isnan(score.distance())
    assert math.isnan(score.diversity())


def test_fid_is_the_frechet_distance_of_gaussians():
    """Against the formula with SciPy's matrix root."""
    import scipy.linalg

    generator = torch.Generator().manual_seed(1)
    real, fake = torch.rand(2, 100, 3, 16, 16, generator=generator).mul(2).sub(1).unbind()
    fake = fake * torch.rand(100, 1, 1, 1, generator=generator)
    score = proxy()
    score.add(real, real=True)
    score.add(fake, real=False)
    a, b = (score.torchmetrics.inception(fid.as_bytes(images)).double().numpy() for images in (real, fake))
    import numpy as np

    cov_a, cov_b = np.cov(a, rowvar=False), np.cov(b, rowvar=False)
    root = scipy.linalg.sqrtm(cov_a @ cov_b).real
    expected = ((a.mean(0) - b.mean(0)) ** 2).sum() + np.trace(cov_a + cov_b - 2 * root)
    assert score.distance() == pytest.approx(expected, rel=1e-3)


def test_fid_counts_one_generated_image_per_test_scene(data_dir):
    task = Generation(small(), data_dir, None, CONTEXT)
    for _ in range(2):
        list(task.evaluate())
        counts = task.fid.torchmetrics.real_features_num_samples, task.fid.torchmetrics.fake_features_num_samples
        assert counts == (4, 4)


def test_inception_without_its_packages_or_weights_is_refused(tmp_path, monkeypatch):
    present = []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if name in present else None)
    with pytest.raises(LabError, match=r"needs torch_fidelity and torchvision.*riesz\[fid\]"):
        fid.check("inception", "x.pth", tmp_path)
    present += ["torch_fidelity", "torchvision"]
    with pytest.raises(ConfigError, match="needs fid_weights"):
        fid.check("inception", "", tmp_path)
    with pytest.raises(LabError, match=r"fid_weights: expected a file x\.pth"):
        fid.check("inception", "x.pth", tmp_path)


# -- collapse ------------------------------------------------------------------------------------------------------


def rows(*values):
    return [{"step": i, "fid_proxy": f, "diversity": d} for i, (f, d) in enumerate(values)]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([(90, 0), (9, 1), (5, 1), (4, 1)], None),
        ([(90, 0), (9, 1), (5, 1), (30, 1)], None),
        ([(90, 0), (9, 1), (30, 1), (5, 1)], None),
        ([(90, 0), (9, 1), (5, 1), (25, 1), (30, 1)], "was 30, after 5 at its best"),
        # Twice the best, and still far better than untrained.
        ([(90, 0), (9, 1), (5, 1), (11, 1), (12, 1)], None),
        ([(90, 0), (9, 1), (5, 1), (None, None), (None, None)], "no number"),
        ([(90, 0), (9, 1), (5, 1), (6, 0.09), (7, 0.01)], "all alike"),
        ([(90, 0), (9, 1), (5, 1), (6, 0.09), (7, 0.2)], None),
        ([(90, 0), (9, 1), (5, 1), (30, 1), (7, 0.01)], "all alike"),
        ([(90, 0), (80, 0)], None),
        ([], None),
    ],
)
def test_rule_of_collapse(values, told):
    found = gan_collapse.collapsed(rows(*values), "fid_proxy")
    assert found is None if told is None else told in found


def test_all_scores_no_number_is_a_collapse_too():
    assert "no number" in gan_collapse.collapsed(rows((9, 1), (None, None), (None, None)), "fid_proxy")


def test_collapsed_trial_is_recorded_as_such(tmp_path, data_dir, monkeypatch, capsys):
    monkeypatch.setattr(gan_collapse, "LEAST_DIVERSITY", 100.0)
    outcome = run(small(), tmp_path, data_dir)
    assert outcome.result.status == "collapsed"
    assert "all alike" in outcome.result.collapse
    # As for a divergent trial: no last score that a mean could take up by mistake.
    assert outcome.result.last is None
    store = Store(tmp_path)
    assert not store.broken
    (stored,) = store.trials
    assert (stored.status, stored.score("last"), stored.result.higher_is_better) == ("collapsed", None, False)
    assert (
        cli.main(["train", str(outcome.path / "config.json"), "--runs", str(tmp_path), "--data-dir", str(data_dir)])
        == 0
    )
    assert "collapsed: at its end the generated images were all alike" in capsys.readouterr().out


# -- trials --------------------------------------------------------------------------------------------------------


def test_trains_scores_and_stores_samples_before_and_after(tmp_path, data_dir):
    outcome = run(small(), tmp_path, data_dir)
    history = [json.loads(line) for line in (outcome.path / "history.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in history] == [0, 1, 2]
    assert all(row["fid_proxy"] > 0 for row in history)
    assert {"hinge_loss", "feature_loss", "discriminator_loss"} <= set(history[1])
    names = sorted(path.name for path in (outcome.path / "pictures").iterdir())
    assert names == [f"samples-epoch-{epoch:04d}.png" for epoch in range(3)]
    assert (outcome.result.score, outcome.result.higher_is_better) == ("fid_proxy", False)
    trained = [row["fid_proxy"] for row in history[1:]]
    assert outcome.result.best["fid_proxy"] == min(trained)
    # Spectral norm's estimates and batch norm's statistics belong to the weights.
    weights = read_tensors(outcome.path / "weights.safetensors")
    assert any(name.startswith("generator.") and name.endswith("weight.0._u") for name in weights)
    assert any(name.startswith("discriminator.") and name.endswith("weight.0._v") for name in weights)
    assert any(name.endswith("norm_0.norm.running_var") for name in weights)


@pytest.mark.parametrize("metric", ["identity", "reweighted-l2"])
def test_stopped_in_mid_epoch_it_continues_to_the_same_bits(tmp_path, data_dir, monkeypatch, metric):
    config = small(metric=metric)
    whole = run(config, tmp_path / "whole", data_dir)
    step = Loop.step

    def stop(self, parts):
        step(self, parts)
        if self.session.state.step in (0, 3):
            self.stop.received = 15

    monkeypatch.setattr(Loop, "step", stop)
    for at in (1, 4):
        with pytest.raises(StoppedError, match=f"stopped at step {at} of 6"):
            run(config, tmp_path / "stopped", data_dir)
    monkeypatch.setattr(Loop, "step", step)
    again = run(config, tmp_path / "stopped", data_dir)
    assert outcome_bytes(again.path) == outcome_bytes(whole.path)
    pictures = [sorted(f.read_bytes() for f in (o.path / "pictures").iterdir()) for o in (again, whole)]
    assert pictures[0] == pictures[1]


def test_seeds_of_the_two_networks_differ_and_metrics_share_them(data_dir):
    a, b = (Generation(small(metric=metric), data_dir, None, CONTEXT) for metric in ("identity", "reweighted-l2"))
    for name in a.models:
        for one, other in zip(a.models[name].parameters(), b.models[name].parameters(), strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"height": 48}, "height: expected a multiple of 32, got 48"),
        ({"fit": "crop"}, "fit: expected 'resize' for generation"),
        ({"perceptual": 10.0}, "needs perceptual_weights"),
        ({"perceptual": 10.0, "perceptual_weights": "vgg19.pth"}, "weights/vgg19.pth"),
        ({"discriminator_options": ("scale=2",)}, "discriminator_options"),
        ({"model_options": ("width=0",)}, "width: expected an int of 1 or more, got 0"),
        ({"model": "unet"}, "model: expected one of spade, or your own"),
    ],
)
def test_bad_setting_is_named(tmp_path, data_dir, changes, told):
    with pytest.raises(LabError) as error:
        run(small(**changes), tmp_path, data_dir)
    assert told in str(error.value)
    assert not list(tmp_path.iterdir())


def test_several_devices_are_refused(data_dir):
    with pytest.raises(LabError, match="generation runs on one device"):
        Generation(small(), data_dir, None, Context(torch.device("cpu"), 0, 2))


def test_recipes_are_the_papers_and_the_authors():
    sgd, adam = recipe("cityscapes-spade"), recipe("cityscapes-spade-adam")
    assert (sgd.optimizer, sgd.momentum, sgd.weight_decay) == ("sgd", 0.9, 5e-4)
    assert (sgd.lr, sgd.discriminator_lr, sgd.batch_size, sgd.epochs) == (1e-4, 4e-4, 2, 100)
    assert (sgd.height, sgd.width, sgd.label_set) == (256, 512, "all")
    assert (adam.optimizer, adam.optimizer_options) == ("adam", ("betas=(0.0, 0.9)",))
