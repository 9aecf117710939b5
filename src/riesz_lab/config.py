"""What a trial is: every setting that decides its outcome, in one frozen record.

Where it runs (device, number of processes, folders) is not here: it is the same trial wherever it runs. The id of a
trial is a hash of this record, so the same settings always land in the same directory. What equals its default is left
out of the hash: a setting that is added later does not rename the trials that were stored before it. A default must
therefore never change.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re
import types
import typing
from dataclasses import dataclass
from typing import Any, Literal

from riesz_lab.errors import ConfigError, unknown

SEEDS = ("seed", "init_seed", "data_seed")
"""The fields that tell apart the trials of one group."""

SCENES = ("segmentation", "generation")
ONLY_FOR: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("height", "width", "fit", "label_set"), SCENES),
    "pretrained": ("segmentation",),
    **dict.fromkeys(("discriminator_lr", "discriminator_options", "feature_matching"), ("generation",)),
    **dict.fromkeys(("perceptual", "perceptual_weights", "fid", "fid_weights"), ("generation",)),
}
"""The fields that only some tasks read."""

OWN = "own"
"""The optimizer of a trial whose loop is the user's."""
READ_BY_OWN = (
    "recipe", "task", "seed", "dataset", "model", "model_options", "optimizer", "metric", "direction", "layers",
    "control", "backend",
)  # fmt: skip
"""The fields that such a trial reads; the others stand at defaults that are not true of it."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """One trial: one complete set of settings and one seed."""

    recipe: str = "custom"
    """Name of the recipe it came from."""
    task: str = "classification"
    """What is trained and how it is scored."""

    seed: int = 0
    """Seeds the initialisation and the order of the data, unless they are given apart."""
    init_seed: int | None = None
    """Seed of the initial weights; the seed if not given."""
    data_seed: int | None = None
    """Seed of order and augmentation of the data; the seed if not given."""

    dataset: str = "mnist5k"
    """A built-in dataset (see `riesz data list`) or your own as "package.module:function"."""
    swap_splits: bool = False
    """Train on the test images and test on the training images, as the paper does for MNIST."""
    train_limit: int | None = None
    """Use only this many training images, the same ones for every seed."""
    test_limit: int | None = None
    """Use only this many test images, the same ones for every seed."""
    hold_out: int = 0
    """Keep this many training images apart and test on them instead of the test set, for tuning."""
    augment: Literal["none", "crop-flip", "flip", "scale-crop-flip-colour"] = "none"
    """crop-flip: pad by 4, crop at random, flip at random. For scenes: flip, or scale-crop-flip-colour."""
    height: int = 0
    """Scenes: rows that the network sees."""
    width: int = 0
    """Scenes: columns that the network sees."""
    fit: Literal["resize", "crop"] = "resize"
    """Scenes: bring all to this size; or train on crops of this size and test on whole scenes."""
    label_set: Literal["train", "all"] = "train"
    """Scenes of Cityscapes: the 19 labels that are trained on, or all 34."""

    model: str = "cnn"
    """A built-in model or your own as "package.module:function"."""
    model_options: tuple[str, ...] = ()
    """Options of the model, as name=value, such as depth=50 width=64."""
    pretrained: str = ""
    """Segmentation: file with the encoder's weights under torchvision's names; a path, or a name in DATA/weights."""

    epochs: int = 10
    """Passes over the training images."""
    max_steps: int | None = None
    """Stop after this many steps, whatever the epochs."""
    batch_size: int = 100
    """Images per step, over all devices and parts."""
    accumulate: int = 1
    """Compute each batch in this many parts, to save memory."""
    clip_norm: float | None = None
    """Clip the ordinary gradient to this norm before it is directed."""

    optimizer: str = "sgd"
    """sgd, adam, adamw, or any optimizer as "package.module:Class"."""
    lr: float = 0.01
    """Initial learning rate."""
    momentum: float = 0.9
    """Momentum of sgd."""
    nesterov: bool = False
    """Nesterov momentum for sgd."""
    weight_decay: float = 0.0
    """Weight decay, as the optimizer understands it."""
    optimizer_options: tuple[str, ...] = ()
    """More options for the optimizer, as name=value."""
    schedule: Literal["step", "cosine", "constant"] = "step"
    """step: divide the rate at fixed epochs; cosine: to zero, step by step; constant."""
    drop_every: int = 40
    """step: epochs between two drops of the rate."""
    drop_factor: float = 0.1
    """step: what the rate is multiplied with at a drop."""
    warmup_epochs: float = 0.0
    """Raise the rate linearly from zero over this many epochs."""

    discriminator_lr: float | None = None
    """Generation: initial rate of the discriminator; lr is then the generator's."""
    discriminator_options: tuple[str, ...] = ()
    """Generation: options of the discriminator, as name=value, such as scales=2 width=64 layers=4."""
    feature_matching: float = 10.0
    """Generation: weight of the distance between the discriminator's features of real and generated images."""
    perceptual: float = 0.0
    """Generation: weight of the distance between VGG-19's features of real and generated images."""
    perceptual_weights: str = ""
    """Generation: file with VGG-19's weights under torchvision's names; a path, or a name in DATA/weights."""
    fid: Literal["proxy", "inception"] = "proxy"
    """Generation: features of the score. proxy: a small fixed network, comparable with no published FID."""
    fid_weights: str = ""
    """Generation: file with the weights of inception, as torch-fidelity publishes them."""

    metric: str = "identity"
    """The inner product, such as "sobolev-tilde(lam=0.5)"; identity is the plain optimizer."""
    direction: Literal["output", "input", "rasterized"] | int = "output"
    """The axis that is smoothed along."""
    layers: Literal["conv", "all"] = "conv"
    """Which parameters are directed."""
    control: Literal["none", "norm", "permuted"] = "none"
    """norm: keep the gradient's norm; permuted: smooth along a random order of the channels."""
    backend: str = "auto"
    """What computes the metric; see `riesz doctor`."""
    smooth_epochs: int | None = None
    """Direct only the first so many epochs, then train plainly."""

    eval_every: int = 1
    """Evaluate on the test images every so many epochs, and always after the last."""
    eval_first: bool = False
    """Evaluate before the first step too, as epoch 0."""
    eval_batch_size: int = 500
    """Images per step of an evaluation."""
    precision: Literal["32", "bf16-mixed", "16-mixed"] = "32"
    """Arithmetic of the forward and backward pass."""
    channels_last: bool = True
    """Keep images and conv weights in channels_last memory format."""
    compile: bool = False
    """Run the model through torch.compile."""

    def __post_init__(self) -> None:
        hints = _hints(type(self))
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, _typed(field.name, getattr(self, field.name), hints[field.name]))
        _check_ranges(self)
        _check_task(self)
        object.__setattr__(self, "metric", _canonical_metric(self.metric))

    @property
    def effective_init_seed(self) -> int:
        """The seed of the initial weights."""
        return self.seed if self.init_seed is None else self.init_seed

    @property
    def effective_data_seed(self) -> int:
        """The seed of order and augmentation of the data."""
        return self.seed if self.data_seed is None else self.data_seed

    def to_dict(self) -> dict[str, Any]:
        """Plain values only, for JSON."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in vars(self).items()}

    def describe(self) -> dict[str, Any]:
        """The settings for a reader: None where the loop is the user's own, which reads none of the lab's."""
        values = self.to_dict()
        if self.optimizer == OWN:
            return {name: value if name in READ_BY_OWN else None for name, value in values.items()}
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Config:
        """The inverse of `to_dict`; unknown keys are refused."""
        if not isinstance(values, dict):
            raise ConfigError(f"a config must be a JSON object, got {type(values).__name__}")
        names = [field.name for field in dataclasses.fields(cls)]
        for key in values:
            if key not in names:
                raise ConfigError(unknown("setting", str(key), names))
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})

    @property
    def id(self) -> str:
        """Twelve hex digits that stand for all settings, seeds included."""
        return _hash(self._chosen())

    @property
    def group(self) -> str:
        """The same without the seeds: trials of one group differ by chance alone."""
        return _hash({k: v for k, v in self._chosen().items() if k not in SEEDS})

    def _chosen(self) -> dict[str, Any]:
        """What differs from the defaults."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        return {k: v for k, v in self.to_dict().items() if getattr(self, k) != defaults[k]}


@functools.lru_cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _hash(values: dict[str, Any]) -> str:
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def _canonical_metric(text: str) -> str:
    # "sobolev-tilde" and "sobolev-tilde(lam=1.0)" are one metric, and must be one trial.
    import riesz

    try:
        return str(riesz.metric(text))
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from None


def _typed(name: str, value: Any, hint: Any) -> Any:
    """The value, if it is of the type the field asks for; ints become floats where floats are asked for."""
    for option in _options(hint):
        if typing.get_origin(option) is Literal:
            if isinstance(value, str) and value in typing.get_args(option):
                return value
        elif option is type(None):
            if value is None:
                return value
        elif option is float:
            if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < float("inf"):
                return float(value)
        elif typing.get_origin(option) is tuple:
            if isinstance(value, tuple) and all(isinstance(item, str) for item in value):
                return value
        elif type(value) is option:
            return value
    raise ConfigError(f"{name}={value!r} cannot be; allowed: {_told(hint)}")


def _options(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _told(hint: Any) -> str:
    told = []
    for option in _options(hint):
        if typing.get_origin(option) is Literal:
            told.append(", ".join(map(repr, typing.get_args(option))))
        else:
            told.append("None" if option is type(None) else getattr(option, "__name__", str(option)))
    return " or ".join(told)


def _check_task(config: Config) -> None:
    """A setting that the task does not read would be ignored without a word."""
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    for name, tasks in ONLY_FOR.items():
        value = getattr(config, name)
        if config.task in ("classification", *SCENES) and config.task not in tasks and value != defaults[name]:
            raise ConfigError(f"{name}={value!r} means nothing to {config.task}; it is for {' and '.join(tasks)}")
    augmentations = ("flip", "scale-crop-flip-colour") if config.task in SCENES else ("crop-flip",)
    if config.augment not in ("none", *augmentations):
        raise ConfigError(
            f"augment={config.augment!r} is not for {config.task}; allowed: none, {', '.join(augmentations)}"
        )


def _check_ranges(config: Config) -> None:
    # It becomes the name of a folder.
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", config.recipe):
        raise ConfigError(f"recipe={config.recipe!r} cannot be; allowed: letters, digits, and . _ - after the first")
    at_least = dict.fromkeys(("epochs", "batch_size", "accumulate", "drop_every", "eval_every", "eval_batch_size"), 1)
    at_least |= dict.fromkeys(("max_steps", "train_limit", "test_limit"), 1)
    at_least |= dict.fromkeys(("hold_out", "smooth_epochs", "lr", "momentum", "weight_decay", "warmup_epochs"), 0)
    at_least |= dict.fromkeys(("height", "width", "discriminator_lr", "feature_matching", "perceptual"), 0)
    # The seeds end in torch generators, which take 64 bits.
    at_least |= dict.fromkeys(SEEDS, 0)
    for name, least in at_least.items():
        value = getattr(config, name)
        if value is not None and value < least:
            raise ConfigError(f"{name}={value!r} cannot be; allowed: {least} or more")
        if name in SEEDS and value is not None and value >= 2**32:
            raise ConfigError(f"{name}={value!r} cannot be; allowed: 0 to 2**32 - 1")
    if config.clip_norm is not None and config.clip_norm <= 0:
        raise ConfigError(f"clip_norm={config.clip_norm!r} cannot be; allowed: above 0, or None")
    if not 0 < config.drop_factor <= 1:
        raise ConfigError(f"drop_factor={config.drop_factor!r} cannot be; allowed: above 0, up to 1")
    if config.accumulate > config.batch_size:
        raise ConfigError(
            f"accumulate={config.accumulate} cannot be: a batch of {config.batch_size} has no so many parts; "
            f"allowed: 1 to {config.batch_size}"
        )
