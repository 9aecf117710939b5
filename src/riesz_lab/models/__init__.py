"""Models by task and name. A model is a function of (channels, classes) and its options; one file per family."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import nn

from riesz_lab.errors import ConfigError, LabError, unknown
from riesz_lab.models.cnn import cnn
from riesz_lab.models.resnet import resnet20, resnet32, resnet44, resnet56, resnet110
from riesz_lab.models.spade import spade
from riesz_lab.models.unet import unet
from riesz_lab.models.vgg import vgg11, vgg13, vgg16
from riesz_lab.utils.importing import load_object
from riesz_lab.utils.options import parse

Builder = Callable[..., nn.Module]

MODELS: dict[str, Builder] = {
    build.__name__: build for build in (cnn, resnet20, resnet32, resnet44, resnet56, resnet110, vgg11, vgg13, vgg16)
}
OF_TASK: dict[str, dict[str, Builder]] = {
    "classification": MODELS,
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
    make = _builder(name, task, options)
    model = seeded(lambda: make(channels, classes), seed)
    if not isinstance(model, nn.Module):
        raise LabError(f"model {name!r} returned {type(model).__name__}; allowed: torch.nn.Module")
    return model


def seeded(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Make a model with weights that follow from the seed; the global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def parameters(model: nn.Module) -> int:
    """How many numbers are trained."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


@functools.lru_cache
def count(
    name: str, *, channels: int, classes: int, task: str = "classification", options: tuple[str, ...] = ()
) -> int:
    """The number of parameters, without making them."""
    with torch.device("meta"):
        return parameters(_builder(name, task, options)(channels, classes))


def _builder(name: str, task: str, options: tuple[str, ...]) -> Callable[[int, int], nn.Module]:
    known = OF_TASK[task]
    if ":" not in name and name not in known:
        raise ConfigError(unknown("model", name, known) + ", or your own as 'package.module:function'")
    make = load_object("model", name) if ":" in name else known[name]
    return with_options(f"model {name!r}", make, "model_options", options)


def with_options(what: str, make: Builder, setting: str, texts: tuple[str, ...]) -> Builder:
    """The builder with its options given; those it refuses are the user's mistake, not ours."""
    options = parse(setting, texts)
    if not options:
        return make

    def made(*arguments: int) -> nn.Module:
        try:
            return make(*arguments, **options)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{setting}: {what} cannot be made with {options}: {error}") from None

    return made
