"""What a trial is: every setting that decides its outcome, in one frozen record.

Where it runs (device, number of processes, folders) is not here: it is the same trial wherever it runs. The id of a
trial is a hash of this record, so the same settings always land in the same directory. Settings at their default are
left out of the hash: a setting added later does not rename trials stored before it. A default must therefore never
change.

The record is flat, with `ONLY_FOR` as its parts by task: ids, config.json, the options of the command line and
`replace(config, lr=...)` all use flat names, in this order. Nested parts would have to be flattened for each of them.
"""

import dataclasses
import functools
import hashlib
import json
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from riesz_lab.errors import ConfigError, unknown

if TYPE_CHECKING:
    from riesz.metrics import Operator

SEEDS = ("seed", "init_seed", "data_seed")
"""The fields in which the trials of one group differ."""

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
"""The fields that such a trial reads; the others are at defaults that do not apply to it."""


class MetricText(str):
    """A metric as `str(metric)` writes it, so that there is nothing to parse: parsing imports torch, for seconds."""

    __slots__ = ()


FolderName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z")]
Natural = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Seed = Annotated[int, Meta(ge=0, lt=2**32)]
Amount = Annotated[float, Meta(ge=0, le=sys.float_info.max)]
Positive = Annotated[float, Meta(gt=0, le=sys.float_info.max)]
Fraction = Annotated[float, Meta(gt=0, le=1)]


@dataclass(frozen=True, kw_only=True)
class Config:
    """One trial: one complete set of settings and one seed."""

    recipe: FolderName = "custom"
    """Name of the recipe."""
    task: str = "classification"
    """What is trained and how it is scored."""

    seed: Seed = 0
    """Seed of the initial weights and of the order of the data, unless given separately."""
    init_seed: Seed | None = None
    """Seed of the initial weights; default: seed."""
    data_seed: Seed | None = None
    """Seed of order and augmentation of the data; default: seed."""

    dataset: str = "mnist5k"
    """A built-in dataset (see `riesz data list`) or your own as "package.module:function"."""
    swap_splits: bool = False
    """Train on the test images and test on the training images, as the paper does for MNIST."""
    train_limit: Count | None = None
    """Use only this many training images, the same ones for every seed."""
    test_limit: Count | None = None
    """Use only this many test images, the same ones for every seed."""
    hold_out: Natural = 0
    """Hold out this many training images and test on them instead of the test set, for tuning."""
    augment: Literal["none", "crop-flip", "flip", "scale-crop-flip-colour"] = "none"
    """crop-flip: pad by 4, crop at random, flip at random. For scenes: flip, or scale-crop-flip-colour."""
    height: Natural = 0
    """Scenes: height of the network's input."""
    width: Natural = 0
    """Scenes: width of the network's input."""
    fit: Literal["resize", "crop"] = "resize"
    """Scenes: resize all to this size; or train on crops of this size and test on whole scenes."""
    label_set: Literal["train", "all"] = "train"
    """Cityscapes: the 19 labels that are trained on, or all 34."""

    model: str = "cnn"
    """A built-in model or your own as "package.module:function"."""
    model_options: tuple[str, ...] = ()
    """Options of the model, as name=value, such as depth=50 width=64."""
    pretrained: str = ""
    """Segmentation: weights of the encoder, under torchvision's names; a path, or a name in DATA/weights."""

    epochs: Count = 10
    """Passes over the training images."""
    max_steps: Count | None = None
    """Stop after this many steps, even in the middle of an epoch."""
    batch_size: Count = 100
    """Images per step, over all devices and parts."""
    accumulate: Count = 1
    """Compute each batch in this many parts, to save memory; batch norm takes its statistics from each part."""
    clip_norm: Positive | None = None
    """Clip the ordinary gradient to this norm before it is directed."""

    optimizer: str = "sgd"
    """sgd, adam, adamw, or any optimizer as "package.module:Class"."""
    lr: Amount = 0.01
    """Initial learning rate."""
    momentum: Amount = 0.9
    """Momentum of sgd."""
    nesterov: bool = False
    """Nesterov momentum for sgd."""
    weight_decay: Amount = 0.0
    """Weight decay, as the optimizer understands it."""
    optimizer_options: tuple[str, ...] = ()
    """More options for the optimizer, as name=value."""
    schedule: Literal["step", "cosine", "constant"] = "step"
    """step: drop the rate every few epochs; cosine: decay to zero; constant."""
    drop_every: Count = 40
    """step: epochs between two drops of the rate."""
    drop_after: Natural = 0
    """step: epochs before the first drop; default: drop_every."""
    drop_factor: Fraction = 0.1
    """step: factor on the rate at each drop."""
    warmup_epochs: Amount = 0.0
    """Raise the rate linearly from zero over this many epochs."""

    discriminator_lr: Amount | None = None
    """Generation: initial rate of the discriminator; default: lr."""
    discriminator_options: tuple[str, ...] = ()
    """Generation: options of the discriminator, as name=value, such as scales=2 width=64 layers=4."""
    feature_matching: Amount = 10.0
    """Generation: weight of the distance between the discriminator's features of real and generated images."""
    perceptual: Amount = 0.0
    """Generation: weight of the distance between VGG-19's features of real and generated images."""
    perceptual_weights: str = ""
    """Generation: weights of VGG-19, under torchvision's names; a path, or a name in DATA/weights."""
    fid: Literal["proxy", "inception"] = "proxy"
    """Generation: features of the score. proxy: a small fixed network, comparable with no published FID."""
    fid_weights: str = ""
    """Generation: weights of Inception, as torch-fidelity publishes them."""

    metric: str = MetricText("identity")
    """The inner product, such as "sobolev-tilde(lam=0.5)"; identity is the plain optimizer."""
    direction: Literal["output", "input", "fan_in", "rasterized", "output+fan_in", "output+input"] | int = "output"
    """The axis to smooth along, or two of them."""
    layers: Literal["conv", "weights", "all"] = "conv"
    """Which parameters are directed: conv weights; linear ones too; or biases and scales of norms as well."""
    control: Literal["none", "norm", "permuted", "signs"] = "none"
    """norm: keep the gradient's norm; permuted: a random order of the channels; signs: of random signs."""
    backend: str = "auto"
    """The backend of the metric; see `riesz doctor`."""
    smooth_epochs: Natural | None = None
    """Direct the gradients of this many epochs only, then train plainly."""

    eval_every: Count = 1
    """Epochs between two evaluations; the last epoch is always evaluated."""
    eval_first: bool = False
    """Also evaluate before the first step, as epoch 0."""
    eval_batch_size: Count = 500
    """Images per step of an evaluation."""
    precision: Literal["32", "bf16-mixed", "16-mixed"] = "32"
    """Precision of the forward and backward pass."""
    channels_last: bool = True
    """Keep images and conv weights in channels_last memory format."""
    compile: bool = False
    """Run the model through torch.compile."""

    def __post_init__(self) -> None:
        for name, hint in _hints().items():
            object.__setattr__(self, name, _typed(name, getattr(self, name), hint))
        if self.accumulate > self.batch_size:
            raise ConfigError(f"accumulate: expected at most batch_size={self.batch_size}, got {self.accumulate}")
        _check_task(self)
        if not isinstance(self.metric, MetricText):
            # "sobolev-tilde" and "sobolev-tilde(lam=1.0)" are one metric, and must be one trial.
            object.__setattr__(self, "metric", MetricText(parse_metric(self.metric)))

    @functools.cached_property
    def effective_init_seed(self) -> int:
        return self.seed if self.init_seed is None else self.init_seed

    @functools.cached_property
    def effective_data_seed(self) -> int:
        return self.seed if self.data_seed is None else self.data_seed

    def to_dict(self) -> dict[str, Any]:
        """Plain values only, for JSON."""
        values = {name: getattr(self, name) for name in _defaults()}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}

    def describe(self) -> dict[str, Any]:
        """The settings for a reader: None where the loop is the user's, which does not read them."""
        unread = self.optimizer == OWN
        return {k: None if unread and k not in READ_BY_OWN else v for k, v in self.to_dict().items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any], expected_id: str | None = None) -> "Config":
        """The inverse of `to_dict`; unknown keys are refused.

        Args:
            values: the settings.
            expected_id: the id under which they were stored. If it is theirs, the metric is as `to_dict` wrote it
                and is not parsed again.
        """
        if not isinstance(values, dict):
            raise ConfigError(f"config: expected a JSON object, got {type(values).__name__}")
        for key in values:
            if key not in _hints():
                raise ConfigError(unknown("setting", str(key), _hints(), listed_by="riesz train demo --help"))
        metric = values.get("metric")
        if expected_id is not None and isinstance(metric, str):
            as_stored = cls(**{**values, "metric": MetricText(metric)})
            if as_stored.id == expected_id:
                return as_stored
        return cls(**values)

    @functools.cached_property
    def id(self) -> str:
        """Twelve hex digits that stand for all settings, seeds included."""
        return _hash(self.chosen())

    @functools.cached_property
    def group(self) -> str:
        """The same without the seeds: trials of one group differ by chance alone."""
        return _hash({k: v for k, v in self.chosen().items() if k not in SEEDS})

    def chosen(self) -> dict[str, Any]:
        """The settings that are not at their defaults."""
        return {k: v for k, v in self.to_dict().items() if getattr(self, k) != _defaults()[k]}


@functools.cache
def _hints() -> dict[str, Any]:
    return get_type_hints(Config, include_extras=True)


@functools.cache
def _defaults() -> dict[str, Any]:
    return {field.name: field.default for field in dataclasses.fields(Config)}


def _hash(values: dict[str, Any]) -> str:
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def parse_metric(text: str) -> "Operator":
    """The metric that a text stands for; a `ConfigError` if there is none."""
    import riesz

    try:
        return riesz.metric(text)
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from None


def _typed(name: str, value: Any, hint: Any) -> Any:
    """The value as the field's type: ints become floats, lists tuples; anything else must match."""
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        stated = re.match(r"Expected (.+?)(, got|$)", str(error).replace("`", "").replace("null", "None"))
        expected = stated[1] if stated else _format_options(hint)
        raise ConfigError(f"{name}: expected {expected}, got {value!r:.80}") from None


def _format_options(hint: Any) -> str:
    """The values of a Literal, or of a union with one: msgspec's message does not name them."""
    if get_origin(hint) is Literal:
        return ", ".join(map(repr, get_args(hint)))
    options = get_args(hint)[:1] if get_origin(hint) is Annotated else get_args(hint)
    return " or ".join(map(_format_options, options)) if options else str(hint.__name__)


def _check_task(config: Config) -> None:
    for name, tasks in ONLY_FOR.items():
        value = getattr(config, name)
        # What a task of the user's own reads is not known here.
        if config.task not in ("own", *tasks) and value != _defaults()[name]:
            raise ConfigError(f"{name}={value!r}: expected task {' or '.join(tasks)}, got {config.task}")
    allowed = ("none", "flip", "scale-crop-flip-colour") if config.task in SCENES else ("none", "crop-flip")
    if config.augment not in allowed:
        raise ConfigError(f"augment: expected {', '.join(allowed)} for {config.task}, got {config.augment!r}")
