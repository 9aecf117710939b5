"""What a sweep will cost, roughly, before it is started.

CPU: the measured steps of `recipes.costs`, between and beyond them along a line through the two nearest batch sizes.
GPU: not measured. A step is taken as launching its layers' kernels plus the arithmetic, with the assumptions below.
"""

from __future__ import annotations

from riesz_lab.commands.recipes import images
from riesz_lab.config import Config
from riesz_lab.recipes.costs import STEP_MS, hours

GPU_LAYER_MS, GPU_TERAFLOPS = 0.35, 10.0
GPU_ASSUMED = "assumed, not measured: 0.35 ms a layer and step, 10 TFLOP/s"

WORK: dict[str, tuple[int, float]] = {
    "cnn": (3, 0.017),
    "resnet20": (20, 0.082),
    "resnet56": (56, 0.251),
    "vgg11": (9, 0.306),
    "vgg16": (14, 0.627),
}
"""Layers with weights, and GFLOP of the forward pass on one image; the backward pass is twice that."""


def cpu_hours(config: Config) -> float | None:
    """Hours of one trial on the two cores of `recipes.costs.MEASURED_ON`; None if it cannot be told."""
    known = {size: time for (model, size), time in STEP_MS.items() if model == config.model}
    if not known:
        try:
            return hours(config, *images(config))
        except KeyError:
            return None
    largest = max(known)
    return _hours(config, _step_ms(known, config.batch_size), known[largest] / largest / 3)


def gpu_hours(config: Config) -> float | None:
    """Hours of one trial on one GPU, by the assumptions above; None if it cannot be told."""
    if config.model not in WORK:
        return None
    layers, work = WORK[config.model]
    image_ms = work / GPU_TERAFLOPS
    return _hours(config, GPU_LAYER_MS * layers + 3 * config.batch_size * image_ms, image_ms)


def _step_ms(known: dict[int, float], size: int) -> float:
    if size in known:
        return known[size]
    if len(known) == 1:
        ((only, time),) = known.items()
        return time * size / only
    low, high = sorted(sorted(known, key=lambda one: abs(one - size))[:2])
    slope = (known[high] - known[low]) / (high - low)
    return max(known[low] + slope * (size - low), min(known.values()) / 4)


def _hours(config: Config, step_ms: float, test_image_ms: float) -> float | None:
    try:
        train, test = images(config)
    except KeyError:  # data of one's own
        return None
    train, test = (train - config.hold_out, config.hold_out) if config.hold_out else (train, test)
    steps = config.epochs * -(-train // config.batch_size)
    if config.max_steps is not None:
        steps = min(steps, config.max_steps)
    evaluations = -(-config.epochs // config.eval_every)
    return (steps * step_ms + evaluations * test * test_image_ms) / 3.6e6
