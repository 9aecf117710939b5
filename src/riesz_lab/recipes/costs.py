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


def hours(config: Config, train_images: int, test_images: int) -> float:
    """Estimated hours of one trial; evaluating an image costs a third of training on it."""
    step = STEP_MS[config.model, config.batch_size] / 1000
    steps = config.epochs * -(-train_images // config.batch_size)
    evaluations = max(1, config.epochs // config.eval_every)
    largest = max(batch for model, batch in STEP_MS if model == config.model)
    image = STEP_MS[config.model, largest] / 1000 / largest / 3
    return (steps * step + evaluations * test_images * image) / 3600
