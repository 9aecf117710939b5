"""Settings and methods in words and colours."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from riesz_lab.config import OWN, Config
from riesz_lab.experiments.arm import OPTIMIZERS
from riesz_lab.utils.amounts import count

DATASETS = {
    "cifar10": "CIFAR-10",
    "mnist": "MNIST",
    "mnist5k": "MNIST, 5,000 images",
    "fashion-mnist": "Fashion-MNIST",
    "camvid": "CamVid",
    "voc2012": "PascalVOC",
    "cityscapes": "Cityscapes",
}
MODELS = {"cnn": "two-layer CNN", "unet": "U-Net", "spade": "SPADE"}
COLORS = {"identity": 0, "sobolev-tilde": 1, "reweighted-l2": 2, "laplacian-smoothing": 3, "sobolev": 4}

PAPER_METHODS: tuple[tuple[str, str | int, str], ...] = (
    ("sobolev-tilde(lam=1.0)", "output", "conv"),
    ("reweighted-l2(lam=1.0)", "output", "conv"),
    ("laplacian-smoothing(sigma=0.5)", "rasterized", "all"),
    ("laplacian-smoothing(sigma=0.5)", "output", "conv"),
)
"""Metric, direction and layers of the methods in the paper's figures."""
REST = len(PAPER_METHODS) + 1


def rank(config: Config) -> int:
    """Position of a method among others: plain, then those of the paper, then the rest."""
    if config.metric == "identity":
        return 0
    key = (config.metric, config.direction, config.layers)
    if key in PAPER_METHODS and config.control == "none" and config.smooth_epochs is None:
        return 1 + PAPER_METHODS.index(key)
    return REST


def is_as_published(config: Config) -> bool:
    """Whether a metric is applied as in the paper's tables: along the output channels of conv layers, in all epochs."""
    where = (config.direction, config.layers, config.control, config.smooth_epochs)
    return config.metric == "identity" or where == ("output", "conv", "none", None)


def metric_kind(config: Config) -> str:
    """The registered name of a config's metric, without its settings."""
    return config.metric.partition("(")[0]


def color(config: Config) -> int:
    """Index into the palette."""
    return 5 if rank(config) == 4 else COLORS.get(metric_kind(config), 6)


def by_number(name: str) -> list[str | float]:
    """A key that sorts names by the numbers in them.

    Example:
        >>> sorted(["lam 20", "lam 5", "lam 0.5"], key=by_number)
        ['lam 0.5', 'lam 5', 'lam 20']
    """
    parts = re.split(r"(\d+(?:\.\d+)?)", name)
    return [float(part) if index % 2 else part for index, part in enumerate(parts)]


@lru_cache(maxsize=4096)
def scale(config: Config) -> str:
    """The setting of a trial in words."""
    return _join(_parts(config).items())


def common_scale(configs: Sequence[Config]) -> str:
    """What all these trials have in common, in words, and what differs."""
    parts = [_parts(config) for config in configs]
    names = list(dict.fromkeys(name for each in parts for name in each))
    texts = {name: {each.get(name, "") for each in parts} for name in names}
    shared = [(name, next(iter(texts[name]))) for name in names if len(texts[name]) == 1]
    varied = [name for name in names if len(texts[name]) > 1]
    both = [_join(shared), f"arms differ in {' and '.join(varied)}" if varied else ""]
    return "; ".join(filter(None, both))


def differing_scale(config: Config, others: Iterable[Config]) -> str:
    """What tells a setting apart from others, in words; empty if nothing does."""
    parts = _parts(config)
    compared = [_parts(other) for other in others]
    return _join((name, text) for name, text in parts.items() if any(other.get(name) != text for other in compared))


def _join(parts: Iterable[tuple[str, str]]) -> str:
    """For example "MNIST, two-layer CNN, SGD at rate 0.1, batch 8"."""
    text = {name: text for name, text in parts if text}
    if {"optimizer", "rate"} <= text.keys():
        text["optimizer"] += f" at {text.pop('rate')}"
    return ", ".join(text.values())


def _parts(config: Config) -> dict[str, str]:
    """The setting of a trial in words, by what each is about."""
    optimizer = {
        "optimizer": OPTIMIZERS.get(config.optimizer, config.optimizer),
        "rate": f"rate {config.lr:g}",
        "batch size": f"batch {config.batch_size}",
        "epochs": count(config.epochs, "epoch"),
    }
    if config.task == "own":
        parts = {"function": _function(config)}
        if config.optimizer == OWN:
            options = {text.partition("=")[0]: text for text in config.model_options}
            parts |= {name: text for name, text in options.items() if name not in ("score", "better")}
        else:
            parts |= optimizer
    else:
        parts = {"dataset": dataset(config), "network": network(config.model), **optimizer}
    if config.optimizer == "sgd" and config.momentum == 0:
        parts["momentum"] = "no momentum"
    if config.train_limit is not None:
        parts["training images"] = f"{config.train_limit:,} training images"
    if config.max_steps is not None:
        parts["steps"] = f"stopped after {count(config.max_steps, 'step')}"
    if config.hold_out:
        parts["test"] = "tested on held-out training images"
    return parts


def short_scale(config: Config) -> str:
    """The same in a few words."""
    if config.task == "own":
        return f"{_function(config)}, version {version(config)}"
    return f"{dataset(config)}, {network(config.model)}, batch {config.batch_size}"


def tell_apart(configs: Sequence[Config]) -> list[str]:
    """A few words for each setting; the scale it was run at where these are the same for two."""
    titles = [short_scale(config) for config in configs]
    return titles if len(set(titles)) == len(titles) else [scale(config) for config in configs]


def dataset(config: Config) -> str:
    return DATASETS.get(config.dataset, config.dataset)


def network(model: str) -> str:
    for prefix, name in (("resnet", "ResNet-"), ("vgg", "VGG-")):
        if model.startswith(prefix) and model[len(prefix) :].isdigit():
            return name + model[len(prefix) :]
    return MODELS.get(model, model)


def score_label(score: str) -> str:
    """The name of a score in words, such as "test accuracy"."""
    return score.replace("_", " ")


def version(config: Config) -> str:
    """What tells apart the versions of a user's function: the beginning of its hash."""
    return config.model.partition("@")[2][:6]


def _function(config: Config) -> str:
    return config.model.partition("@")[0]
