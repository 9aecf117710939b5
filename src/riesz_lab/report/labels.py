"""From a store to what a report speaks of: settings, methods, and tables of comparisons.

Trials of a known sweep are compared as that sweep says. Those of none (the demo, `riesz compare`, trials by hand) are
compared with the plain optimizer at the same settings, permuted channels with the true order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import riesz
from riesz_lab.config import OWN, SEEDS, Config
from riesz_lab.store import Store, StoredTrial
from riesz_lab.sweeps import SWEEPS, Arm, Sweep, Table, results

PLAIN: dict[str, object] = {
    "metric": "identity",
    "direction": "output",
    "layers": "conv",
    "control": "none",
    "smooth_epochs": None,
    "backend": "auto",
}
"""What tells methods apart; without them, a config is the plain optimizer at the same settings."""

OPTIMIZERS = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", OWN: "plain"}
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
NAMES = {"laplacian-smoothing": "LS"}


def setting(config: Config) -> Config:
    """The plain optimizer at the same settings, whatever the seed: trials of one setting can be compared."""
    return replace(config, **PLAIN, seed=0, init_seed=None, data_seed=None)  # type: ignore[arg-type]


@lru_cache(maxsize=4096)
def method(config: Config) -> str:
    """The name of a trial's method among those of its setting."""
    plain = OPTIMIZERS.get(config.optimizer, config.optimizer.rpartition(":")[2])
    if config.metric == "identity":
        return plain
    metric = riesz.metric(config.metric)
    kind, default = metric.kind_name(), type(metric)()
    told = ", ".join(
        f"{field.name} {getattr(metric, field.name):g}"
        for field in metric.settings()
        if getattr(metric, field.name) != getattr(default, field.name) and kind != "laplacian-smoothing"
    )
    parts = [NAMES.get(kind, type(metric).__name__), told]
    if kind == "laplacian-smoothing":
        # As the paper calls them: LS is that of its authors, all weights in rasterized order.
        parts[1] = "" if metric.sigma == 0.5 else f"sigma {metric.sigma:g}"  # type: ignore[attr-defined]
        if (config.direction, config.layers) == ("output", "conv"):
            parts[0] += " along output"
        elif (config.direction, config.layers) != ("rasterized", "all"):
            parts.append(f"{config.direction}, {config.layers} layers")
    elif config.direction != "output" or config.layers != "conv":
        parts.append(f"{config.direction}, {config.layers} layers")
    parts.append({"norm": "norm kept", "permuted": "channels permuted"}.get(config.control, ""))
    if config.smooth_epochs is not None:
        parts.append(f"first {config.smooth_epochs} epochs")
    return ", ".join(part for part in parts if part)


MAIN = ("sobolev-tilde(lam=1.0)", "reweighted-l2(lam=1.0)", "laplacian-smoothing(sigma=0.5)")
"""The methods of the paper's figures."""


def rank(config: Config) -> int:
    """Where a method stands among others: plain, SobolevTilde, ReweightedL2, LS, LS along output, then the rest."""
    if config.metric == "identity":
        return 0
    where = (config.direction, config.layers)
    if config.metric in MAIN and config.control == "none" and config.smooth_epochs is None:
        place = MAIN.index(config.metric)
        if place < 2 and where == ("output", "conv"):
            return 1 + place
        if place == 2 and where in (("rasterized", "all"), ("output", "conv")):
            return 3 + (where == ("output", "conv"))
    return REST


REST = 5


def color(config: Config) -> int:
    if rank(config) == 4:
        return 5
    return COLORS.get(config.metric.partition("(")[0], 6)


@lru_cache(maxsize=4096)
def scale(config: Config) -> str:
    """At what scale a trial was run, in words."""
    parts = [
        DATASETS.get(config.dataset, config.dataset),
        MODELS.get(config.model, network(config.model)),
        f"{OPTIMIZERS.get(config.optimizer, config.optimizer)} at rate {config.lr:g}",
        f"batch {config.batch_size}",
        f"{config.epochs} epochs",
    ]
    if config.task == "own":
        parts = [config.model.partition("@")[0], *(parts[2:] if config.optimizer != OWN else config.model_options)]
    if config.train_limit is not None:
        parts.append(f"{config.train_limit:,} training images")
    if config.max_steps is not None:
        parts.append(f"stopped after {config.max_steps} steps")
    if config.hold_out:
        parts.append("tested on held-out training images")
    return ", ".join(parts)


def short_scale(config: Config) -> str:
    """The same in a few words."""
    if config.task == "own":
        return config.model.partition("@")[0]
    return f"{DATASETS.get(config.dataset, config.dataset)}, {network(config.model)}, batch {config.batch_size}"


def network(model: str) -> str:
    for prefix, name in (("resnet", "ResNet-"), ("vgg", "VGG-")):
        if model.startswith(prefix) and model[len(prefix) :].isdigit():
            return name + model[len(prefix) :]
    return MODELS.get(model, model)


def tables(store: Store, margin: float) -> list[Table]:
    """Every table that complete trials allow: those of sweeps, in the order of `SWEEPS`, then what belongs to none.

    Sweeps share trials. One whose trials all belong to sweeps with more arms there is left out: it would say again what
    they say. What belongs to no sweep is compared with this margin.
    """
    groups: dict[str, list[StoredTrial]] = {}
    for trial in store.trials:
        if trial.result is not None:
            groups.setdefault(trial.config.group, []).append(trial)
    known = [(sweep, [arm for arm in sweep.arms if arm.config.group in groups]) for sweep in map(_make, SWEEPS)]
    known.sort(key=lambda pair: (-len(pair[1]), -len(pair[1]) / len(pair[0].arms)))
    covered: set[str] = set()
    chosen: list[Sweep] = []
    for sweep, arms in known:
        mine = {arm.config.group for arm in arms}
        if not mine <= covered:
            chosen.append(_with_seeds(sweep, [trial for group in sorted(mine) for trial in groups[group]]))
            covered |= mine
    order = list(SWEEPS)
    chosen.sort(key=lambda sweep: order.index(sweep.name))
    left = [trial for group, trials in groups.items() if group not in covered for trial in trials]
    return [results(sweep, store) for sweep in (*chosen, *_adhoc(left, margin))]


@lru_cache(maxsize=64)
def _make(name: str) -> Sweep:
    return SWEEPS[name]()


@dataclass(frozen=True, kw_only=True)
class _Stored(Sweep):
    """A sweep whose seeds are those that were run, whatever they are.

    Attributes:
        also: settings of seeds, beyond those that the sweep itself asks for.
    """

    also: tuple[tuple[tuple[str, int | None], ...], ...] = ()
    planned: bool = True

    def seeds(self) -> Iterator[dict[str, int]]:
        asked = list(super().seeds()) if self.planned else []
        yield from asked
        for seeds in self.also:
            settings = {name: seed for name, seed in seeds if seed is not None}
            if settings not in asked:
                yield settings


def _with_seeds(sweep: Sweep, trials: list[StoredTrial], planned: bool = True) -> _Stored:
    also = sorted(
        {tuple((name, getattr(trial.config, name)) for name in SEEDS) for trial in trials},
        key=lambda seeds: [-1 if seed is None else seed for _, seed in seeds],
    )
    settings = {field.name: getattr(sweep, field.name) for field in fields(sweep)}
    return _Stored(**settings, also=tuple(also), planned=planned)


def baseline(config: Config, names: Collection[str]) -> str | None:
    """Which of the methods there are one is compared with: the plain one, or for permuted channels the true order."""
    if config.metric == "identity":
        return None
    ordered = method(replace(config, control="none"))
    if config.control == "permuted" and ordered in names:
        return ordered
    plain = method(setting(config))
    return plain if plain in names else None


def _adhoc(trials: list[StoredTrial], margin: float) -> Iterator[Sweep]:
    """A sweep per setting, of the trials that no known sweep has."""
    settings: dict[Config, list[StoredTrial]] = {}
    for trial in trials:
        settings.setdefault(setting(trial.config), []).append(trial)
    for base, mine in settings.items():
        if base.hold_out:
            continue  # they served to choose a learning rate
        arms = {method(one.config): replace(one.config, seed=0, init_seed=None, data_seed=None) for one in mine}
        plain = method(base)
        names = sorted(arms, key=lambda name: (name != plain, name))
        yield _with_seeds(
            Sweep(
                name=base.recipe,
                about=scale(base),
                reproduces="",
                arms=tuple(Arm(name, arms[name], baseline(arms[name], names)) for name in names),
                margin=margin,
            ),
            mine,
            planned=False,
        )
