"""Which parameters are directed, along which axis, and why not the others.

The axis follows from the kind of layer, because layers disagree on where their output channels lie:

| layer                 | weight shape  | output axis              | input axis               |
| --------------------- | ------------- | ------------------------ | ------------------------ |
| Conv                  | O, I/G, ...   | 0 within each group      | 1                        |
| ConvTranspose         | I, O/G, ...   | 1                        | 0 within each group      |
| Linear and the rest   | O, I, ...     | 0                        | 1                        |
| biases, norms' scales | O             | their only axis          | their only axis          |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from riesz.axis import Axis
from riesz.metrics import Metric
from riesz.report import Record

Direction = str | int
Predicate = Callable[[str, nn.Module | None, Tensor], bool]
Layers = str | Predicate

CONV = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
CONV_TRANSPOSE = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
EMBEDDING = (nn.Embedding, nn.EmbeddingBag)


@dataclass(frozen=True)
class Place:
    """Where a parameter sits: its full name, the layer it serves, and the tensor of that layer it stands for."""

    name: str
    module: nn.Module | None
    tensor: str


Places = dict[int, Place]


@dataclass(frozen=True)
class Scope:
    """The user's choice of parameters and direction, checked."""

    model: nn.Module | None
    direction: Direction
    layers: Layers

    def __post_init__(self) -> None:
        if self.model is not None and not isinstance(self.model, nn.Module):
            raise TypeError(f"model must be a torch.nn.Module or None, got {type(self.model).__name__}")
        named = ("output", "input", "rasterized")
        if isinstance(self.direction, bool) or not isinstance(self.direction, (str, int)):
            raise TypeError(f"direction must be one of {named} or an int, got {self.direction!r}")
        if isinstance(self.direction, str) and self.direction not in named:
            raise ValueError(f"direction {self.direction!r} is not known; allowed: {named} or an int")
        if isinstance(self.layers, str):
            if self.layers not in ("conv", "all"):
                raise ValueError(f"layers {self.layers!r} is not known; allowed: 'conv', 'all' or a predicate")
        elif not callable(self.layers):
            raise TypeError(f"layers must be 'conv', 'all' or a predicate, got {self.layers!r}")

    def places(self) -> Places | None:
        """Where the model's parameters sit, by id; None without a model."""
        return dict(_places(self.model)) if self.model is not None else None

    def records(self, group: dict[str, Any], index: int, places: Places | None, metric: Metric) -> list[Record]:
        """One record per parameter of an optimizer's group, in its order."""
        parameters = group["params"]
        names = group.get("param_names") or [f"group {index}, parameter {i}" for i in range(len(parameters))]
        records = []
        for given_name, parameter in zip(names, parameters, strict=True):
            place = places.get(id(parameter)) if places is not None else Place(given_name, None, "weight")
            records.append(self._record(place, given_name, parameter, metric))
        return records

    def _record(self, place: Place | None, given_name: str, parameter: Tensor, metric: Metric) -> Record:
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise ValueError(
                f"parameter {place.name if place else given_name!r} has no shape yet: run one forward pass through the "
                "lazy module before attaching"
            )
        name = place.name if place else given_name
        layer = type(place.module).__name__ if place and place.module is not None else ""
        shape = tuple(parameter.shape)
        axis_or_reason = self._axis(place, parameter)
        if isinstance(axis_or_reason, Axis):
            axis = axis_or_reason
            reason = metric.unfit(shape, axis)
            return Record(name, layer, shape, axis, reason is None, reason or "")
        return Record(name, layer, shape, None, False, axis_or_reason)

    def _axis(self, place: Place | None, parameter: Tensor) -> Axis | str:
        """The directed axis, or the reason for leaving the parameter alone."""
        if place is None:
            return "not a parameter of the model"
        if parameter.dim() == 0:
            return "0-d: no axis"
        module = place.module
        if isinstance(module, EMBEDDING):
            return "embedding: its rows are a vocabulary, not channels"
        _refuse_flattened(place, parameter)
        is_conv = _is_conv_weight(place, parameter)
        if callable(self.layers):
            if not self.layers(place.name, module, parameter):
                return "not chosen by the predicate"
        elif self.layers == "conv" and not is_conv:
            return _why_not_conv(place, parameter)
        return self._axis_of_chosen(place, parameter, is_conv)

    def _axis_of_chosen(self, place: Place, parameter: Tensor, is_conv: bool) -> Axis | str:
        wide = [d for d, size in enumerate(parameter.shape) if size > 1]
        if self.direction == "rasterized":
            return Axis(None)
        if parameter.dim() == 1 or (len(wide) == 1 and not is_conv and place.tensor != "weight"):
            # A bias, a norm's scale or the magnitudes of a weight norm: one axis, whatever the direction.
            return Axis(wide[0] if wide else 0)
        if isinstance(self.direction, int):
            dims = parameter.dim()
            if not -dims <= self.direction < dims:
                return f"no dim {self.direction} in a {dims}-d parameter"
            return Axis(self.direction % dims)
        transposed = is_conv and isinstance(place.module, CONV_TRANSPOSE)
        groups = int(getattr(place.module, "groups", 1)) if is_conv and place.module is not None else 1
        return Axis(int((self.direction == "input") != transposed), groups)


def _places(model: nn.Module) -> Iterator[tuple[int, Place]]:
    """Every parameter of the model by id, seen from the layer it serves.

    A parametrised weight (spectral norm, weight norm) lives in a ParametrizationList below the layer; what is trained,
    and so directed, is its `original`.
    """
    serves: dict[int, tuple[nn.Module, str]] = {}
    seen: set[int] = set()
    for prefix, module in model.named_modules():
        if is_parametrized(module):
            serves.update({id(chain): (module, tensor) for tensor, chain in _parametrizations(module)})
        for local, parameter in module._parameters.items():
            if parameter is None or id(parameter) in seen:
                continue
            seen.add(id(parameter))
            owner, tensor = serves.get(id(module), (module, local))
            yield id(parameter), Place(f"{prefix}.{local}" if prefix else local, owner, tensor)


def _parametrizations(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    chains = module.parametrizations
    assert isinstance(chains, nn.ModuleDict)
    yield from chains.items()


def _weight_shape(module: nn.Module | None) -> tuple[int, ...] | None:
    if isinstance(module, CONV):
        return (module.out_channels, module.in_channels // module.groups, *module.kernel_size)
    if isinstance(module, CONV_TRANSPOSE):
        return (module.in_channels, module.out_channels // module.groups, *module.kernel_size)
    return None


def _is_conv_weight(place: Place, parameter: Tensor) -> bool:
    if place.module is None:
        return parameter.dim() >= 3
    # By shape, so that every way of storing it counts (weight, weight_orig, weight_v, a parametrisation's original)
    # and its companions (weight_g, the magnitudes of a weight norm) do not.
    return place.tensor.startswith("weight") and tuple(parameter.shape) == _weight_shape(place.module)


def _refuse_flattened(place: Place, parameter: Tensor) -> None:
    expected = _weight_shape(place.module)
    if expected is not None and place.tensor == "weight" and parameter.dim() == 1 and len(expected) > 1:
        raise ValueError(
            f"parameter {place.name!r} of {type(place.module).__name__} has shape {tuple(parameter.shape)} where "
            f"{expected} is expected: it was flattened (FSDP1, ZeRO), and its channels cannot be told apart. Use FSDP2 "
            "(torch.distributed.fsdp.fully_shard), DDP, or attach to an optimizer of whole parameters"
        )


def _why_not_conv(place: Place, parameter: Tensor) -> str:
    if _weight_shape(place.module) is not None:
        what = "bias" if place.tensor == "bias" else "norm's magnitudes" if "weight" in place.tensor else "parameter"
        return f"{what} of a conv layer, not its weight (layers='conv')"
    if place.module is None:
        return f"{parameter.dim()}-d: without a model, a conv weight has 3 dims or more (layers='conv')"
    return "not a conv weight (layers='conv')"
