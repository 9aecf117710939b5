"""What a recipe costs, roughly, so that nobody starts a month of training by accident."""

from riesz_lab.config import Config

MEASURED_ON = "two cores of a Xeon with AVX-512, float32, plain optimizer"

COSTS: dict[str, tuple[int, float]] = {
    "cifar10-resnet56-b128": (853_018, 18), "cifar10-resnet56-b32": (853_018, 20), "cifar10-resnet56-b8": (853_018, 37),
    "cifar10-vgg16-b128": (14_728_266, 67), "cifar10-vgg16-b8": (14_728_266, 110),
    "cifar10-vgg16-b6": (14_728_266, 130),
    "cifar10-resnet56-adam-b128": (853_018, 15), "cifar10-resnet56-adam-b32": (853_018, 17),
    "cifar10-resnet56-adam-b8": (853_018, 30), "cifar10-resnet56-ls-b128": (853_018, 18),
    "cifar10-resnet56-ls-b32": (853_018, 20), "cifar10-resnet56-ls-b8": (853_018, 37),
    "mnist-cnn": (142_410, 0.13), "fashion-cnn": (142_410, 0.13),
    "cifar10-resnet20-b128": (269_722, 6.1), "cifar10-resnet20-b8": (269_722, 13),
    "voc-unet50": (30_468_437, 57), "cityscapes-spade": (98_649_413, 1100), "cityscapes-spade-adam": (98_649_413, 1100),
    "demo": (142_410, 0.001), "mnist-cnn-mini": (142_410, 0.011), "fashion-cnn-mini": (142_410, 0.011),
    "cifar10-resnet20-mini": (269_722, 0.026), "cifar10-resnet20-adam-mini": (269_722, 0.026),
    "cifar10-resnet20-ls-mini": (269_722, 0.026), "cifar10-vgg11-mini": (9_231_114, 0.065),
    "camvid-unet-mini": (1_315_763, 0.028), "camvid-spade-mini": (1_577_469, 0.037),
}  # fmt: skip
"""Trained parameters, which need torch to be counted, and rough hours of one trial on the two cores, evaluation
included. Of a sweep, the time of the first trial is the estimate."""


def parameters(config: Config) -> int | None:
    """The number of trained parameters of a recipe; None if unknown."""
    return COSTS[config.recipe][0] if config.recipe in COSTS else None


def hours(config: Config) -> float | None:
    """Of one trial at the recipe's own settings; None if unknown."""
    return COSTS[config.recipe][1] if config.recipe in COSTS else None


def format_hours(hours: float | None) -> str:
    """Example:
    >>> [format_hours(seconds / 3600) for seconds in (0.2, 8, 60, 480, 7200)], format_hours(67)
    (['1 s', '8 s', '1 min', '8 min', '2 h'], '3 days')
    """
    if hours is None:
        return "?"
    if 3600 * hours < 59.5:
        return f"{max(1, round(3600 * hours))} s"
    if hours < 1.5:
        return f"{round(60 * hours)} min"
    return f"{hours:.0f} h" if hours < 48 else f"{hours / 24:.0f} days"
