"""Roughly what a step costs, so that nobody starts a trial of a month by accident."""

from __future__ import annotations

from riesz_lab.config import Config

MEASURED_ON = "two cores of a Xeon with AVX-512, float32, plain optimizer"

STEP_MS: dict[tuple[str, int], float] = {
    ("cnn", 50): 20,
    ("cnn", 100): 38,
    ("resnet20", 8): 30,
    ("resnet20", 32): 60,
    ("resnet20", 128): 220,
    ("resnet56", 8): 85,
    ("resnet56", 32): 180,
    ("resnet56", 128): 650,
    ("vgg11", 32): 300,
    ("vgg16", 6): 220,
    ("vgg16", 8): 250,
    ("vgg16", 128): 2400,
}
"""Milliseconds per step by model and batch size: rough, scaled from a few measurements by the work of each model."""

SCENES_STEP_MS: dict[str, float] = {
    "voc-unet50": 3500,
    "cityscapes-spade": 26000,
    "cityscapes-spade-adam": 26000,
    "camvid-unet-mini": 90,
    "camvid-spade-mini": 300,
}
"""Milliseconds per step by recipe: the size of a scene counts here, too."""


def hours(config: Config, train_images: int, test_images: int) -> float:
    """Estimated hours of one trial; evaluating an image costs a third of training on it."""
    step, image = _seconds(config)
    steps = config.epochs * -(-train_images // config.batch_size)
    evaluations = max(1, config.epochs // config.eval_every)
    return (steps * step + evaluations * test_images * image) / 3600


def _seconds(config: Config) -> tuple[float, float]:
    """Of a training step, and of evaluating an image."""
    if config.task != "classification":
        step = SCENES_STEP_MS[config.recipe] / 1000
        return step, step / config.batch_size / 3
    largest = max(batch for model, batch in STEP_MS if model == config.model)
    return STEP_MS[config.model, config.batch_size] / 1000, STEP_MS[config.model, largest] / 1000 / largest / 3
