"""Models by name. A model is a function of (channels, classes); one file per family."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from riesz_lab.errors import ConfigError, LabError, unknown
from riesz_lab.importing import load_object
from riesz_lab.models.cnn import cnn
from riesz_lab.models.resnet import resnet20, resnet32, resnet44, resnet56, resnet110
from riesz_lab.models.vgg import vgg11, vgg13, vgg16

MODELS: dict[str, Callable[[int, int], nn.Module]] = {
    build.__name__: build for build in (cnn, resnet20, resnet32, resnet44, resnet56, resnet110, vgg11, vgg13, vgg16)
}


def check(name: str) -> None:
    """Raise if there is no such model."""
    _builder(name)


def build(name: str, *, channels: int, classes: int, seed: int) -> nn.Module:
    """The model with its initial weights, which follow from the seed alone; the global generator is left as it was."""
    make = _builder(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = make(channels, classes)
    if not isinstance(model, nn.Module):
        raise LabError(f"model {name!r} returned {type(model).__name__}; allowed: torch.nn.Module")
    return model


def parameters(model: nn.Module) -> int:
    """How many numbers are trained."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def count(name: str, *, channels: int, classes: int) -> int:
    """The number of parameters, without making them."""
    with torch.device("meta"):
        return parameters(_builder(name)(channels, classes))


def _builder(name: str) -> Callable[[int, int], nn.Module]:
    if ":" in name:
        found: Callable[[int, int], nn.Module] = load_object("model", name)
        return found
    if name not in MODELS:
        raise ConfigError(unknown("model", name, MODELS) + ", or your own as 'package.module:function'")
    return MODELS[name]
