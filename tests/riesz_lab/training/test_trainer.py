"""Training: what is learned, what is stored, and that the settings do what they say."""

import dataclasses
import json
import re
import resource

import pytest
import safetensors.torch
import torch

import riesz
from lab_helpers import Path, images, outcome_bytes, small_config, small_data
from riesz_lab.config import Config
from riesz_lab.data.images.types import Data
from riesz_lab.errors import BusyError, ConfigError, LabError
from riesz_lab.store import Store
from riesz_lab.store.trial import Trial
from riesz_lab.tasks import Classification, Context, optimizers
from riesz_lab.training import progress
from riesz_lab.training.hardware import Hardware
from riesz_lab.training.progress import format_scores
from riesz_lab.training.trainer import train

CPU = Hardware(accelerator="cpu")


def run(tmp_path, config, **options):
    return train(config, runs=tmp_path, data=options.pop("data", small_data()), hardware=CPU, **options)


def rows(outcome):
    return [json.loads(line) for line in (outcome.path / "history.jsonl").read_text().splitlines()]


def test_trial_directory_holds_what_it_should(tmp_path):
    config = small_config()
    outcome = run(tmp_path, config)
    assert Config.from_dict(json.loads((outcome.path / "config.json").read_text())) == config
    (session,) = json.loads((outcome.path / "environment.json").read_text())
    assert session["packages"]["torch"] == torch.__version__
    assert session["cores"]
    assert session["cpu"]
    assert [row["epoch"] for row in rows(outcome)] == [1, 2, 3]
    assert set(rows(outcome)[0]) >= {"train_loss", "train_accuracy", "test_loss", "test_accuracy", "lr", "step"}
    assert outcome.result.status == "finished"
    assert outcome.result.last == rows(outcome)[-1]
    assert outcome.result.best == max(rows(outcome), key=lambda row: row["test_accuracy"])
    assert outcome.path.name.endswith(config.id)
    weights = safetensors.torch.load_file(outcome.path / "weights.safetensors")
    assert "0.weight" in weights
    assert "1.running_mean" in weights
    assert not (outcome.path / "checkpoints").exists()


def test_the_same_config_gives_the_same_bits(tmp_path):
    first, second = (run(tmp_path / name, small_config()) for name in "ab")
    assert outcome_bytes(first.path) == outcome_bytes(second.path)


def test_a_complete_trial_is_not_trained_again(tmp_path):
    first = run(tmp_path, small_config())
    again = run(tmp_path, small_config())
    assert first.trained
    assert not again.trained
    assert again.result == first.result


def test_it_learns_real_digits(tmp_path):
    config = Config(recipe="test", epochs=3, train_limit=1000, test_limit=200, batch_size=50, eval_every=3)
    outcome = train(config, runs=tmp_path, hardware=CPU)
    assert outcome.result.last["test_accuracy"] > 0.75


def test_the_metric_changes_the_weights_and_nothing_else_does(tmp_path):
    ends = {}
    for metric in ("identity", "reweighted-l2", "sobolev-tilde"):
        outcome = run(tmp_path, small_config(metric=metric))
        ends[metric] = (outcome.path / "weights.safetensors").read_bytes()
    assert len(set(ends.values())) == 3
    none = run(tmp_path, small_config(metric="reweighted-l2(lam=0)"))
    lam0 = safetensors.torch.load((none.path / "weights.safetensors").read_bytes())
    plain = safetensors.torch.load(ends["identity"])
    assert all(torch.allclose(lam0[key].float(), plain[key].float(), atol=1e-5) for key in plain)


def test_smooth_epochs_zero_is_the_plain_optimizer(tmp_path):
    plain = run(tmp_path, small_config(metric="identity"))
    never = run(tmp_path, small_config(metric="sobolev-tilde", smooth_epochs=0))
    some = run(tmp_path, small_config(metric="sobolev-tilde", smooth_epochs=1))
    assert (plain.path / "weights.safetensors").read_bytes() == (never.path / "weights.safetensors").read_bytes()
    assert (plain.path / "weights.safetensors").read_bytes() != (some.path / "weights.safetensors").read_bytes()


def test_accumulation_gives_the_gradient_of_the_whole_batch(tmp_path):
    settings = {"model": "cnn", "max_steps": 2, "batch_size": 30, "augment": "none"}
    whole = run(tmp_path, small_config(**settings))
    parts = run(tmp_path, small_config(**settings, accumulate=4))
    a, b = (safetensors.torch.load_file(o.path / "weights.safetensors") for o in (whole, parts))
    assert all(torch.allclose(a[key], b[key], atol=1e-5) for key in a)


def test_seeds_of_initialisation_and_order_are_separate(tmp_path):
    one_step = {"max_steps": 1, "lr": 0.0, "weight_decay": 0.0, "model": "cnn", "augment": "none"}
    base, order, init = (
        run(tmp_path, small_config(**one_step, **seeds)) for seeds in ({}, {"data_seed": 9}, {"init_seed": 9})
    )
    a, b, c = (safetensors.torch.load_file(o.path / "weights.safetensors")["conv1.weight"] for o in (base, order, init))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    assert rows(base)[0]["train_loss"] != rows(order)[0]["train_loss"]


def test_evaluation_comes_as_often_as_asked_and_after_the_last(tmp_path):
    outcome = run(tmp_path, small_config(epochs=5, eval_every=2))
    assert [row["epoch"] for row in rows(outcome) if "test_accuracy" in row] == [2, 4, 5]


def test_max_steps_ends_within_an_epoch(tmp_path):
    outcome = run(tmp_path, small_config(max_steps=10))
    assert outcome.result.step == 10
    assert outcome.result.last["epoch"] == 2


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        ("adam", ()),
        ("adamw", ("eps=1e-6", "betas=(0.8,0.9)")),
        ("torch.optim:RMSprop", ("alpha=0.9",)),
    ],
)
def test_optimizers_by_name_and_by_import_path(tmp_path, optimizer, options):
    config = small_config(optimizer=optimizer, optimizer_options=options, lr=1e-3, max_steps=3)
    assert run(tmp_path, config).result.status == "finished"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"optimizer": "sgdd"}, "did you mean 'sgd'"),
        ({"optimizer": "torch.optim:Nothing"}, "has no 'Nothing'"),
        ({"optimizer_options": ("eps",)}, "expected name=value"),
        ({"optimizer_options": ("eps=1e-6",)}, "cannot be built with"),
        ({"model": "resnet57"}, "did you mean 'resnet56'"),
        ({"task": "clasification"}, "did you mean 'classification'"),
        ({"backend": "cuda-magic"}, "expected one of"),
    ],
)
def test_wrong_settings_are_found_before_training(tmp_path, settings, told):
    with pytest.raises(LabError) as error:
        run(tmp_path, small_config(**settings))
    assert told in str(error.value)
    assert not list(tmp_path.glob("*/*/history.jsonl"))


def test_step_schedule_is_the_papers():
    config = Config(schedule="step", drop_every=40, drop_factor=0.1)
    rates = [optimizers.rate_factor(config, epoch * 5, 5, 500) for epoch in (0, 39, 40, 80)]
    assert rates == pytest.approx([1, 1, 0.1, 0.01])


def test_the_first_drop_of_the_rate_may_come_later_than_the_next():
    config = Config(schedule="step", drop_after=8, drop_every=4)
    rates = [optimizers.rate_factor(config, epoch * 5, 5, 80) for epoch in (0, 7, 8, 11, 12, 15)]
    assert rates == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])


def test_cosine_falls_to_zero_and_warmup_rises_from_it():
    config = Config(schedule="cosine", warmup_epochs=2.0)
    rates = [optimizers.rate_factor(config, step, 10, 100) for step in range(100)]
    assert rates[0] == pytest.approx(0.05)
    assert max(rates) == rates[19]
    assert rates[99] < 0.001
    assert rates[20:] == sorted(rates[20:], reverse=True)


def test_divergence_is_an_outcome_not_an_error(tmp_path):
    outcome = run(tmp_path, small_config(lr=1e18, metric="identity", model="cnn", clip_norm=None))
    assert outcome.result.status == "diverged"
    assert outcome.result.last is None
    assert rows(outcome)[-1]["train_loss"] is None
    (stored,) = Store(tmp_path).trials
    assert stored.status == "diverged"
    assert stored.score("last") is None


def test_a_second_process_on_the_same_trial_is_refused(tmp_path):
    config = small_config()
    with Trial(tmp_path, config).open(), pytest.raises(BusyError, match="is being trained by process"):
        run(tmp_path, config)
    assert run(tmp_path, config).trained


def test_a_full_disk_loses_nothing_saved_before(tmp_path):
    config = small_config(model="cnn")
    wanted = outcome_bytes(run(tmp_path / "whole", config).path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # the weights need more
    try:
        with pytest.raises(LabError, match=r"cannot write .* run the same command to continue"):
            run(tmp_path / "full", config, save_every=0.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list((tmp_path / "full").rglob("*.tmp"))
    assert outcome_bytes(run(tmp_path / "full", config).path) == wanted


def test_an_unwritable_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LabError, match="cannot write"):
        run(tmp_path / "file", small_config())


def test_users_own_dataset_trains_and_repeats(tmp_path):
    class Own(torch.utils.data.Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, index):
            return torch.full((1, 28, 28), index / 40) + 0.1 * torch.rand(1, 28, 28), index % 2

    data = Data(train=Own(), test=Own(), classes=2, channels=1)
    config = small_config(augment="none", dataset="own")
    ends = [outcome_bytes(run(tmp_path / name, config, data=data).path) for name in "ab"]
    assert ends[0] == ends[1]


def test_sixteen_bit_floats_on_a_cpu_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="expected '32' or 'bf16-mixed' on a CPU"):
        run(tmp_path, small_config(precision="16-mixed"))


def test_channels_last_changes_the_layout_and_not_the_maths(tmp_path):
    ends = []
    for layout in (True, False):
        outcome = run(tmp_path, small_config(channels_last=layout, max_steps=2, augment="none", model="cnn"))
        ends.append(safetensors.torch.load_file(outcome.path / "weights.safetensors"))
    assert all(torch.allclose(ends[0][key], ends[1][key], atol=1e-5) for key in ends[0])


def test_progress_in_plain_lines_tells_loss_speed_and_time_left(tmp_path, capsys):
    run(tmp_path, small_config(epochs=2), show=progress.Plain("title"))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all(word in lines[0] for word in ("title", "train loss", "test accuracy", "images/s", "left"))


def test_the_task_says_whether_its_score_is_printed_in_percent(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Classification, "percent", False)
    result = run(tmp_path, small_config(epochs=1), show=progress.Plain("title")).result
    assert re.search(r"test accuracy 0\.\d{4} ", capsys.readouterr().out)
    assert re.search(r"test accuracy 0\.\d{4}$", format_scores(result.last, result.score, result.percent))


def test_live_progress_ends_clean(tmp_path):
    run(tmp_path, small_config(epochs=2), show=progress.make("live", "title"))


def test_tensorboard_missing_is_told(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(LabError, match=r"pip install 'riesz\[tensorboard\]'"):
        run(tmp_path, small_config(), tensorboard=True)


def test_attachment_reaches_the_optimizer_that_steps(tmp_path, monkeypatch):
    seen = []
    original = riesz.Attachment._direct

    def counting(self):
        seen.append(self)
        original(self)

    monkeypatch.setattr(riesz.Attachment, "_direct", counting)
    outcome = run(tmp_path, small_config())
    assert len(seen) == outcome.result.step


def test_store_reads_groups_and_sets_the_broken_aside(tmp_path):
    for seed in (0, 1):
        run(tmp_path, small_config(seed=seed, epochs=1))
    other = run(tmp_path, small_config(metric="identity", epochs=1))
    (Path(other.path) / "result.json").write_text('{"status": "fin')
    broken = tmp_path / "test" / "nonsense"
    broken.mkdir()
    (broken / "config.json").write_text("[" * 100_000)
    store = Store(tmp_path)
    assert [len(group) for group in store.groups().values()] == [2]
    assert set(store.broken) == {other.path, broken}
    assert store.trials[0].history()[0]["epoch"] == 1
    assert store.trials[0].timing()[0]["peak_memory_mb"] > 0


def test_config_of_a_trial_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        small_config().lr = 3.0


def test_a_process_without_test_images_agrees_with_the_others(tmp_path):
    """More processes than test images: the last has none, and adds zeros under the same names."""
    data = dataclasses.replace(small_data(), test=images(2, seed=1))
    sent = []
    for rank in (0, 2):
        context = Context(torch.device("cpu"), rank, 3, lambda own: sent.append(own.clone()) or own)
        *_, scores = Classification(small_config(), tmp_path, data, context).evaluate()
        assert list(scores) == ["test_loss", "test_accuracy"]
    first, last = sent
    assert first.shape == last.shape
    assert first[1].tolist() == [1, 1]
    assert (last == 0).all()
