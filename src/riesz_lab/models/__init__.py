"""Models by task and name. A model is a function of (channels, classes) and its options; one file per family."""

import functools
from collections.abc import Callable

import torch
from torch import nn

from riesz_lab.errors import ConfigError, LabError, unknown
from riesz_lab.models.cnn import TwoLayerCNN
from riesz_lab.models.plain import ThreeLayerCNN
from riesz_lab.models.resnet import PlainResNet, ResNet
from riesz_lab.models.spade import spade
from riesz_lab.models.unet import unet
from riesz_lab.models.vgg import VGG
from riesz_lab.utils.importing import load_object
from riesz_lab.utils.options import parse

Builder = Callable[..., nn.Module]

MODELS: dict[str, dict[str, Builder]] = {
    "classification": {
        "cnn": TwoLayerCNN,
        "cnn3": functools.partial(ThreeLayerCNN, False),
        "cnn3-norm": functools.partial(ThreeLayerCNN, True),
        **{f"resnet{6 * blocks + 2}": functools.partial(ResNet, blocks) for blocks in (3, 5, 7, 9, 18)},
        "resnet20-plain": functools.partial(PlainResNet, 3),
        **{f"vgg{depth}": functools.partial(VGG, depth) for depth in (11, 13, 16)},
    },
    "segmentation": {"unet": unet},
    "generation": {"spade": spade},
}


def check(name: str, *, task: str = "classification", options: tuple[str, ...] = ()) -> None:
    """Raise if there is no such model, or not with these options."""
    _builder(name, task, options)
    if options and ":" not in name:
        count(name, channels=3, classes=3, task=task, options=options)


def build(
    name: str, *, channels: int, classes: int, seed: int, task: str = "classification", options: tuple[str, ...] = ()
) -> nn.Module:
    """The model with its initial weights, which follow from the seed alone."""
    builder = _builder(name, task, options)
    model = seeded(lambda: builder(channels, classes), seed)
    if not isinstance(model, nn.Module):
        raise LabError(f"model {name!r}: expected a torch.nn.Module, got {type(model).__name__}")
    return model


def seeded(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Build a model with weights that follow from the seed; the global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


@functools.lru_cache
def count(
    name: str, *, channels: int, classes: int, task: str = "classification", options: tuple[str, ...] = ()
) -> int:
    """The number of parameters, without allocating them."""
    with torch.device("meta"):
        return parameters(_builder(name, task, options)(channels, classes))


def _builder(name: str, task: str, options: tuple[str, ...]) -> Builder:
    known = MODELS[task]
    if ":" not in name and name not in known:
        raise ConfigError(unknown("model", name, known, other="your own as 'package.module:function'"))
    builder = load_object("model", name) if ":" in name else known[name]
    return with_options(f"model {name!r}", builder, "model_options", options)


def with_options(what: str, builder: Builder, setting: str, texts: tuple[str, ...]) -> Builder:
    """The builder with its options given; a `ConfigError` if it refuses them."""
    options = parse(setting, texts)
    if not options:
        return builder

    def build(*arguments: int) -> nn.Module:
        try:
            return builder(*arguments, **options)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{setting}: {what} cannot be built with {options}: {error}") from None

    return build
