"""Names of methods: what sets the trials of one setting apart, and which of them is compared with which."""

from collections.abc import Collection
from dataclasses import replace
from functools import lru_cache

import riesz
from riesz_lab.config import OWN, Config
from riesz_lab.sweeps.controls import CONTROLS

PLAIN: dict[str, object] = {
    "metric": "identity", "direction": "output", "layers": "conv", "control": "none", "smooth_epochs": None,
    "backend": "auto",
}  # fmt: skip
"""The fields that define a method, at their values for the plain optimizer."""

OPTIMIZERS = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", OWN: "plain"}


def setting(config: Config) -> Config:
    """The plain optimizer at the same settings, without seeds: trials of one setting can be compared."""
    return replace(config, **PLAIN, seed=0, init_seed=None, data_seed=None)  # type: ignore[arg-type]


@lru_cache(maxsize=4096)
def method(config: Config) -> str:
    """The name of a trial's method among those of its setting.

    Example:
        >>> from dataclasses import replace
        >>> from riesz_lab.recipes import recipe
        >>> method(replace(recipe("demo"), metric="sobolev-tilde(lam=0.3)", control="norm"))
        'SobolevTilde, lam 0.3, norm kept'
    """
    if config.metric == "identity":
        return OPTIMIZERS.get(config.optimizer, config.optimizer.rpartition(":")[2])
    metric = riesz.metric(config.metric)
    where = (config.direction, config.layers)
    parts = [type(metric).__name__]
    if isinstance(metric, riesz.LaplacianSmoothing):
        # As in the paper: LS is that of its authors, along all weights in rasterized order.
        parts = ["LS along output" if where == ("output", "conv") else "LS"]
        parts += [f"sigma {metric.sigma:g}"] if metric.sigma != 0.5 else []
        usual = where in (("output", "conv"), ("rasterized", "all"))
    else:
        default = type(metric)()
        values = {field.name: getattr(metric, field.name) for field in metric.settings()}
        parts += [f"{name} {value:g}" for name, value in values.items() if value != getattr(default, name)]
        usual = where == ("output", "conv")
    if not usual:
        parts.append(f"{config.direction}, {config.layers} layers")
    if config.control in CONTROLS:
        parts.append(CONTROLS[config.control])
    if config.smooth_epochs is not None:
        parts.append(f"first {config.smooth_epochs} epochs")
    return ", ".join(parts)


def baseline(config: Config, names: Collection[str]) -> str | None:
    """The method that this one is compared with: the plain one, or for permuted channels the true order.

    None for the plain one itself, and where its baseline is not among the `names` of the methods that were run.
    """
    if config.metric == "identity":
        return None
    ordered = method(replace(config, control="none"))
    if config.control == "permuted" and ordered in names:
        return ordered
    plain = method(setting(config))
    return plain if plain in names else None
