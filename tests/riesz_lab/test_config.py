"""Configs: frozen, complete, hashed; recipes: the paper's table."""

import dataclasses
import json

import pytest
import torch

import riesz
from riesz_lab import models
from riesz_lab.config import Config
from riesz_lab.data.images.builtin import DATASETS
from riesz_lab.data.scenes.catalog import READERS
from riesz_lab.errors import ConfigError
from riesz_lab.experiments import EXPERIMENTS
from riesz_lab.recipes import RECIPES, costs, recipe
from riesz_lab.tasks import generation


def test_config_survives_json():
    config = recipe("cifar10-resnet56-ls-b8")
    assert Config.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_id_is_a_hash_of_every_setting():
    base = Config()
    changed = {
        dataclasses.replace(base, **change).id
        for change in ({"seed": 1}, {"lr": 0.1}, {"metric": "sobolev"}, {"max_steps": 3}, {"recipe": "other"})
    }
    assert len(changed | {base.id}) == 6


def test_metrics_that_are_not_parsed_are_as_they_write_themselves():
    made = [make() for make in RECIPES.values()]
    made += [arm.config for sweep in EXPERIMENTS.values() for arm in sweep.arms]
    for config in made:
        assert config.metric == str(riesz.metric(config.metric))


@pytest.mark.parametrize("text", ["sobolev-tilde", "sobolev-tilde(lam=1)", "sobolev-tilde( lam = 1.0 )"])
def test_a_metric_is_taken_as_stored_only_under_its_own_id(text):
    written = Config(metric="sobolev-tilde")
    assert Config.from_dict({"metric": text}) == written
    assert Config.from_dict({"metric": text}, written.id) == written
    with pytest.raises(ConfigError, match="expected one of"):
        Config.from_dict({"metric": "sobolef"}, written.id)


def test_id_does_not_depend_on_the_way_a_value_is_written():
    assert Config(lr=1).id == Config(lr=1.0).id
    assert Config(metric="sobolev-tilde").id == Config(metric="sobolev-tilde(lam=1)").id


# Stored trials are found by a hash of what differs from these: add settings, never change a default.
DEFAULTS = {
    "task": "classification",
    "seed": 0,
    "init_seed": None,
    "data_seed": None,
    "dataset": "mnist5k",
    "swap_splits": False,
    "train_limit": None,
    "test_limit": None,
    "hold_out": 0,
    "augment": "none",
    "model": "cnn",
    "epochs": 10,
    "max_steps": None,
    "batch_size": 100,
    "accumulate": 1,
    "clip_norm": None,
    "optimizer": "sgd",
    "lr": 0.01,
    "momentum": 0.9,
    "nesterov": False,
    "weight_decay": 0.0,
    "optimizer_options": [],
    "schedule": "step",
    "drop_every": 40,
    "drop_factor": 0.1,
    "warmup_epochs": 0.0,
    "metric": "identity",
    "direction": "output",
    "layers": "conv",
    "control": "none",
    "backend": "auto",
    "smooth_epochs": None,
    "eval_every": 1,
    "eval_batch_size": 500,
    "precision": "32",
    "channels_last": True,
    "compile": False,
    "recipe": "custom",
}


def test_defaults_never_change():
    values = Config().to_dict()
    assert {key: values[key] for key in DEFAULTS} == DEFAULTS


def test_id_stays_the_same_between_versions():
    assert Config(seed=3, lr=0.5, metric="sobolev-tilde", optimizer_options=("eps=1e-6",)).id == "2a36d4efafd0"


def test_recipe_is_a_plain_name_because_it_becomes_a_folder():
    for name in ("../x", "a/b", "", ".hidden", "a\nb"):
        with pytest.raises(ConfigError, match="recipe: expected str matching"):
            Config(recipe=name)


def test_group_is_the_id_without_the_seeds():
    assert Config(seed=1).group == Config(seed=2, data_seed=5).group != Config(lr=0.5).group


def test_seeds_of_initialisation_and_order_can_be_told_apart():
    config = Config(seed=3, init_seed=7)
    assert (config.effective_init_seed, config.effective_data_seed) == (7, 3)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"lr": "high"}, "lr: expected float, got 'high'"),
        ({"lr": float("inf")}, "lr: expected float <= "),
        ({"lr": 10**400}, "lr: expected float, got 1000"),
        ({"max_steps": "all"}, "max_steps: expected int | None, got 'all'"),
        ({"lr": float("nan")}, "lr: expected float >= 0.0, got nan"),
        ({"epochs": 0}, "epochs: expected int >= 1, got 0"),
        ({"epochs": True}, "epochs: expected int, got True"),
        ({"seed": -1}, "seed: expected int >= 0, got -1"),
        ({"augment": "mixup"}, "augment: expected 'none', 'crop-flip', 'flip', 'scale-crop-flip-colour', got 'mixup'"),
        ({"metric": "sobolef"}, "did you mean 'sobolev'"),
        ({"metric": "sobolev-tilde(lam=0)"}, "lam"),
        ({"accumulate": 200}, "accumulate: expected at most batch_size=100, got 200"),
        ({"clip_norm": 0.0}, "clip_norm: expected float > 0.0, got 0.0"),
        ({"drop_factor": 2.0}, "drop_factor: expected float <= 1.0, got 2.0"),
        ({"direction": "sideways"}, "'rasterized', 'output+fan_in', 'output+input' or int, got 'sideways'"),
    ],
)
def test_errors_name_setting_value_and_what_is_allowed(settings, told):
    with pytest.raises(ConfigError) as error:
        Config(**settings)
    assert told in str(error.value)


def test_unknown_keys_are_refused_with_a_suggestion():
    with pytest.raises(ConfigError, match="did you mean 'batch_size'"):
        Config.from_dict({"batchsize": 3})


def test_unknown_recipe_is_refused_with_a_suggestion():
    with pytest.raises(ConfigError, match="did you mean 'cifar10-resnet56-b8'"):
        recipe("cifar-resnet56-b8")


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_is_complete_and_its_cost_is_known(name):
    config = recipe(name)
    assert config.recipe == name
    assert costs.hours(config) > 0


def test_recipes_are_the_rows_of_the_papers_table():
    rows = {
        (c.model, c.optimizer, c.metric.partition("(")[0], c.batch_size, c.epochs, c.lr)
        for c in map(recipe, RECIPES)
        if not c.recipe.endswith("-mini")
    }
    for batch in (128, 32, 8):
        assert ("resnet56", "sgd", "identity", batch, 240, 0.1) in rows
        assert ("resnet56", "adam", "identity", batch, 200, 1e-3) in rows
        assert ("resnet56", "sgd", "laplacian-smoothing", batch, 240, 0.1) in rows
    for batch in (128, 8, 6):
        assert ("vgg16", "sgd", "identity", batch, 240, 0.01) in rows
    for name in ("mnist-cnn", "fashion-cnn"):
        config = recipe(name)
        assert (config.batch_size, config.epochs, config.lr, config.swap_splits) == (100, 100, 0.01, True)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"height": 64}, "height=64: expected task segmentation or generation, got classification"),
        ({"task": "segmentation", "fid": "inception"}, "fid='inception': expected task generation, got segmentation"),
        ({"task": "generation", "pretrained": "x"}, "pretrained='x': expected task segmentation, got generation"),
        ({"augment": "flip"}, "augment: expected none, crop-flip for classification, got 'flip'"),
        ({"task": "generation", "augment": "crop-flip"}, "for generation, got 'crop-flip'"),
    ],
)
def test_settings_of_other_tasks_are_refused(settings, told):
    with pytest.raises(ConfigError) as error:
        Config(**settings)
    assert told in str(error.value)


@pytest.mark.parametrize("name", RECIPES)
def test_the_parameters_of_recipes_are_those_of_their_models(name):
    config = recipe(name)
    if config.task == "classification":
        shapes = {"channels": DATASETS[config.dataset].channels, "classes": 10}
    else:
        classes = READERS[config.dataset].labels(config.label_set).classes
        shapes = {"channels": 3, "classes": classes}
    discriminator = 0
    if config.task == "generation":
        # One-hot classes and void, and an edge map where the dataset has instances, which Cityscapes alone has.
        shapes = {"channels": classes + 1 + (config.dataset == "cityscapes"), "classes": 3}
        with torch.device("meta"):
            built = generation._discriminator(config.discriminator_options)(shapes["channels"] + 3)
        discriminator = models.parameters(built)
    counted = models.count(config.model, task=config.task, options=config.model_options, **shapes)
    assert costs.parameters(config) == counted + discriminator
