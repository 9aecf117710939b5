"""An arm of an experiment, and how arms that differ by their method are named, paired and controlled."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from riesz_lab.config import OWN, Config


@dataclass(frozen=True)
class Arm:
    """What an arm trains and changes; its trials differ by their seeds alone."""

    label: str  # its name in tables
    config: Config  # its settings; the seeds in it are not used
    baseline: str | None = None  # the label of the arm it is compared with; None for a baseline

    def at(self, values: Mapping[str, Any], own: Collection[str] = ()) -> "Arm":
        return replace(self, config=with_settings(self.config, values, own))


def with_settings(config: Config, values: Mapping[str, Any], own: Collection[str] = ()) -> Config:
    """The config with other values of some settings.

    Args:
        config: the settings before.
        values: by name.
        own: which of them are settings of a user's function, and kept in `model_options`; the others are fields.
    """
    given = {name: value for name, value in values.items() if name in own}
    kept = tuple(text for text in config.model_options if text.partition("=")[0] not in given)
    fields = {name: value for name, value in values.items() if name not in own}
    if "lr" in fields and config.discriminator_lr is not None:
        fields["discriminator_lr"] = config.discriminator_lr * fields["lr"] / config.lr
    options = (*kept, *(f"{name}={value!r}" for name, value in given.items()))
    return replace(config, model_options=options, **fields)


def format_values(values: Mapping[str, Any]) -> str:
    """For example "lr=0.1, width=8"."""
    return ", ".join(
        f"{name}={value:g}" if type(value) is float else f"{name}={value}" for name, value in values.items()
    )


CONTROLS = {"norm": "norm kept", "permuted": "channels permuted", "signs": "random signs"}
"""What a trial with `Config.control` is called."""


def controls_of(directed: Config) -> Iterator[Config]:
    """The controls of a metric: the gradient's norm kept, and the channels permuted.

    ReweightedL2 does not depend on channel order: there the channels get random signs.

    Example:
        >>> from riesz_lab.recipes import recipe
        >>> [one.control for one in controls_of(replace(recipe("demo"), metric="reweighted-l2"))]
        ['norm', 'signs']
    """
    yield replace(directed, control="norm")
    yield replace(directed, control="signs" if directed.metric.startswith("reweighted-l2(") else "permuted")


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
    import riesz  # and torch, for seconds: named sweeps are listed without it
    from riesz.metrics.pair import Pair

    metric = riesz.metric(config.metric)
    where = (config.direction, config.layers)
    parts = [type(metric).__name__]
    if isinstance(metric, Pair):
        parts, usual = [str(metric)], where == ("output", "conv")
    elif isinstance(metric, riesz.LaplacianSmoothing):
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
