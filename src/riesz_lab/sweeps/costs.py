"""What a trial costs, roughly, so that nobody starts a month of training by accident.

CPU: measured steps; between and beyond the measured batch sizes along a line through the two nearest ones.
GPU: not measured. A step is the launch of its layers' kernels plus the arithmetic, with the assumptions below.
"""

from collections.abc import Sequence

from riesz_lab.config import Config
from riesz_lab.data.sizes import images

MEASURED_ON = "two cores of a Xeon with AVX-512, float32, plain optimizer"

STEP_MS: dict[str, dict[int, float]] = {
    "cnn": {50: 20, 100: 38},
    "resnet20": {8: 30, 32: 60, 128: 220},
    "resnet56": {8: 85, 32: 180, 128: 650},
    "vgg11": {32: 300},
    "vgg16": {6: 220, 8: 250, 128: 2400},
}
"""Milliseconds per step by model and batch size: rough, scaled from a few measurements by the work of each model."""

SCENES_STEP_MS: dict[str, float] = {
    "voc-unet50": 3500, "cityscapes-spade": 26000, "cityscapes-spade-adam": 26000,
    "camvid-unet-mini": 90, "camvid-spade-mini": 300,
}  # fmt: skip
"""Milliseconds per step by recipe, since the size of a scene counts here, too."""

PARAMETERS: dict[str, int] = {
    "cnn": 142_410, "resnet20": 269_722, "resnet56": 853_018, "vgg11": 9_231_114, "vgg16": 14_728_266,
    "voc-unet50": 30_468_437, "cityscapes-spade": 98_649_413, "cityscapes-spade-adam": 98_649_413,
    "camvid-unet-mini": 1_315_763, "camvid-spade-mini": 1_577_469,
}  # fmt: skip
"""Trained parameters by model, or by recipe where its options count. Written down, since counting them needs torch."""

GPU_LAYER_MS, GPU_TERAFLOPS = 0.35, 10.0
GPU_ASSUMED = "assumed, not measured: 0.35 ms a layer and step, 10 TFLOP/s"

WORK: dict[str, tuple[int, float]] = {
    "cnn": (3, 0.017), "resnet20": (20, 0.082), "resnet56": (56, 0.251), "vgg11": (9, 0.306), "vgg16": (14, 0.627),
}  # fmt: skip
"""Layers with weights, and GFLOP of the forward pass on one image; the backward pass is twice that."""


def parameters(config: Config) -> int | None:
    """The number of trained parameters of a recipe; None if unknown."""
    return PARAMETERS.get(config.recipe, PARAMETERS.get(config.model))


def cpu_hours(config: Config) -> float | None:
    """Hours of one trial on the two cores of `MEASURED_ON`; None if unknown."""
    if config.recipe in SCENES_STEP_MS:
        step_ms = SCENES_STEP_MS[config.recipe]
        return _hours(config, step_ms, step_ms / config.batch_size / 3)
    if config.model not in STEP_MS:
        return None
    measured = STEP_MS[config.model]
    largest = max(measured)
    # Evaluating an image costs a third of training on it.
    return _hours(config, _step_ms(measured, config.batch_size), measured[largest] / largest / 3)


def gpu_hours(config: Config) -> float | None:
    """Hours of one trial on one GPU, by the assumptions above; None if unknown."""
    if config.model not in WORK:
        return None
    layers, work = WORK[config.model]
    image_ms = work / GPU_TERAFLOPS
    return _hours(config, GPU_LAYER_MS * layers + 3 * config.batch_size * image_ms, image_ms)


def format_hours(hours: float | None) -> str:
    if hours is None:
        return "?"
    if 3600 * hours < 59.5:
        return f"{max(1, round(3600 * hours))} s"
    if hours < 1.5:
        return f"{round(60 * hours)} min"
    return f"{hours:.0f} h" if hours < 48 else f"{hours / 24:.0f} days"


def format_sum(hours: Sequence[float | None]) -> str:
    """The sum of what is known; a large one in two digits, since the estimates are rough."""
    if hours and all(each is None for each in hours):
        return "an unknown time"
    total = sum(each or 0.0 for each in hours)
    if total < 10:
        return format_hours(total)
    return f"{float(f'{total:.2g}') if total >= 100 else total:,.0f} hours"


def _step_ms(measured: dict[int, float], size: int) -> float:
    if size in measured:
        return measured[size]
    if len(measured) == 1:
        ((only, time),) = measured.items()
        return time * size / only
    low, high = sorted(sorted(measured, key=lambda known: abs(known - size))[:2])
    slope = (measured[high] - measured[low]) / (high - low)
    return max(measured[low] + slope * (size - low), min(measured.values()) / 4)


def _hours(config: Config, step_ms: float, test_image_ms: float) -> float | None:
    try:
        train, test = images(config)
    except KeyError:
        return None
    steps = config.epochs * -(-train // config.batch_size)
    if config.max_steps is not None:
        steps = min(steps, config.max_steps)
    evaluations = -(-config.epochs // config.eval_every)
    return (steps * step_ms + evaluations * test * test_image_ms) / 3.6e6
