"""Which parameters are directed, along which axis, and why not the others.

The axis follows from the kind of layer, because layers disagree on where their output channels lie:

| layer                 | weight shape  | output axis              | input axis               |
| --------------------- | ------------- | ------------------------ | ------------------------ |
| Conv                  | O, I/G, ...   | 0 within each group      | 1                        |
| ConvTranspose         | I, O/G, ...   | 1                        | 0 within each group      |
| Linear and the rest   | O, I, ...     | 0                        | 1                        |
| in_proj of attention  | 3 E, E        | 0 within q, k and v      | 1                        |
| LSTM, GRU             | 4 H or 3 H, I | 0 within each gate       | 1                        |
| biases, norms' scales | O             | their only axis          | their only axis          |

The fan-in of an output is all that leads to it: every axis but the output one, within its group.

What `layers` selects:
- "conv": the weights of convolutions;
- "weights": these and the weights of linear layers, attention and recurrent layers among them; nothing one-dimensional;
- "all": biases and scales of norms too, everything but embeddings, as the paper's "all layers" and LS-SGD mean it;
- a predicate: what it returns True for.
"""

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList, is_parametrized

from riesz.layout.axis import Axis
from riesz.layout.records import Record

Axes = Literal["output", "input", "fan_in", "rasterized"] | int
Direction = Axes | str | tuple[Axes, Axes]
"""One direction, or two that are directed along one after the other: ("output", "fan_in"), as text "output+fan_in"."""
NAMED = ("output", "input", "fan_in", "rasterized")
Predicate = Callable[[str, nn.Module | None, Tensor], bool]
Layers = Literal["conv", "weights", "all"] | Predicate

CONV = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
CONV_TRANSPOSE = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
LINEAR = (nn.Linear, nn.Bilinear, nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase)
EMBEDDING = (nn.Embedding, nn.EmbeddingBag)

FUSED = {nn.MultiheadAttention: 3, nn.LSTM: 4, nn.LSTMCell: 4, nn.GRU: 3, nn.GRUCell: 3}
"""Layers that keep several matrices in one, one above the other, and how many."""

UNKNOWN = "not a parameter of the model"


@dataclass(frozen=True)
class ParameterLocation:
    """Where a parameter sits."""

    name: str  # its full name
    module: nn.Module | None  # the layer it serves, None without a model
    tensor: str  # the tensor of that layer it stands for; "magnitudes" for the lengths that a weight norm splits off
    stored: str  # the name it is stored under, which a parametrisation changes


ParameterLocations = dict[int, list[ParameterLocation]]
"""By id of the parameter; several where layers share it."""


@dataclass(frozen=True)
class Scope:
    """The user's choice of parameters and direction, checked."""

    model: nn.Module | None
    direction: Direction
    layers: Layers

    def __post_init__(self) -> None:
        if self.model is not None and not isinstance(self.model, nn.Module):
            raise TypeError(f"model: expected a torch.nn.Module or None, got {type(self.model).__name__}")
        for direction in self._directions():
            if isinstance(direction, bool) or not isinstance(direction, (str, int)):
                raise TypeError(f"direction: expected one of {NAMED}, an int or two of them, got {self.direction!r}")
            if isinstance(direction, str) and direction not in NAMED:
                raise ValueError(f"direction: expected one of {NAMED}, an int or two of them, got {self.direction!r}")
        if isinstance(self.layers, str):
            if self.layers not in ("conv", "weights", "all"):
                raise ValueError(f"layers: expected 'conv', 'weights', 'all' or a predicate, got {self.layers!r}")
        else:
            _check_predicate(self.layers)

    def _directions(self) -> tuple[Any, ...]:
        if isinstance(self.direction, tuple) and len(self.direction) == 2:
            return self.direction
        if isinstance(self.direction, str) and self.direction.count("+") == 1:
            return tuple(self.direction.split("+"))
        return (self.direction,)

    def each(self) -> tuple["Scope", ...]:
        """The same scope for each of its directions."""
        return tuple(replace(self, direction=direction) for direction in self._directions())

    def locations(self) -> ParameterLocations | None:
        """Where the model's parameters sit; None without a model."""
        if self.model is None:
            return None
        locations: defaultdict[int, list[ParameterLocation]] = defaultdict(list)
        for key, location in _locate(self.model):
            locations[key].append(location)
        return locations

    def records(self, group: dict[str, Any], index: int, locations: ParameterLocations | None) -> list[Record]:
        """One record per parameter of an optimizer's group, in its order."""
        parameters = group["params"]
        names = group.get("param_names") or [f"group {index}, parameter {i}" for i in range(len(parameters))]
        records = []
        for name, parameter in zip(names, parameters, strict=True):
            alone = [ParameterLocation(name, None, "weight", "weight")]
            known = alone if locations is None else locations.get(id(parameter), [])
            records.append(self._record(known, name, parameter))
        return records

    def _record(self, locations: list[ParameterLocation], given_name: str, parameter: Tensor) -> Record:
        lazy = isinstance(parameter, nn.parameter.UninitializedParameter)
        # A conv layer knows the axes of its weight. Others that register the tensor too, often its parent, do not.
        of_convs = [] if lazy else [where for where in locations if where.module and _is_conv_weight(where, parameter)]
        locations = of_convs or locations
        name = locations[0].name if locations else given_name
        layer = type(locations[0].module).__name__ if locations and locations[0].module is not None else ""
        if lazy:
            return Record(name, layer, (), None, False, _uninitialised(self.layers, name, locations))
        shape = tuple(parameter.shape)
        axis = self._axis_for_all(locations, parameter)
        if isinstance(axis, str):
            return Record(name, layer, shape, None, False, axis)
        empty = parameter.numel() == 0
        return Record(name, layer, shape, axis, not empty, "empty" if empty else "")

    def _axis_for_all(self, locations: list[ParameterLocation], parameter: Tensor) -> Axis | str:
        """The axis that every layer sharing the parameter agrees on, or the reason for leaving it alone."""
        if not locations:
            return UNKNOWN
        if any(isinstance(location.module, EMBEDDING) for location in locations):
            return "embedding: its rows are a vocabulary, not channels"
        axes = [self._axis(location, parameter) for location in locations]
        if all(axis == axes[0] for axis in axes):
            return axes[0]
        names = " and ".join(location.name for location in locations)
        for location, axis in zip(locations, axes, strict=True):
            if isinstance(axis, str):
                return f"shared by {names}; {location.name}: {axis}"
        return f"shared by {names}, whose directed axes differ"

    def _axis(self, location: ParameterLocation, parameter: Tensor) -> Axis | str:
        """The directed axis as one layer sees it, or the reason for leaving the parameter alone."""
        if parameter.dim() == 0:
            return "0-d: no axis"
        is_conv = _is_conv_weight(location, parameter)
        if callable(self.layers):
            if not self.layers(location.name, location.module, parameter):
                return "not chosen by the predicate"
        elif self.layers == "conv" and not is_conv:
            _refuse_flattened(location, parameter)
            return _why_not_conv(location, parameter)
        _refuse_flattened(location, parameter)
        if self.layers == "weights" and not (is_conv or _is_linear_weight(location, parameter)):
            return _why_no_weight(location, parameter)
        return self._axis_of_chosen(location, parameter, is_conv)

    def _axis_of_chosen(self, location: ParameterLocation, parameter: Tensor, is_conv: bool) -> Axis | str:
        if self.direction == "rasterized":
            return Axis(None)
        if self.direction == "fan_in" and (parameter.dim() == 1 or location.tensor == "magnitudes"):
            return "one entry per output: no fan-in"
        if parameter.dim() == 1 or location.tensor == "magnitudes":
            # A bias, a norm's scale or the magnitudes of a weight norm: one axis in any direction.
            wide = [d for d, size in enumerate(parameter.shape) if size > 1]
            return Axis(wide[0] if wide else 0, _fused_parts(location))
        if isinstance(self.direction, int):
            dims = parameter.dim()
            if not -dims <= self.direction < dims:
                return f"no dim {self.direction} in a {dims}-d parameter"
            return Axis(self.direction % dims)
        transposed = is_conv and isinstance(location.module, CONV_TRANSPOSE)
        groups = int(getattr(location.module, "groups", 1)) if is_conv else _fused_parts(location)
        if self.direction == "fan_in":  # in a conv that is not transposed, a filter lies within its group
            return Axis(int(transposed), groups if transposed else 1, fan_in=True)
        return Axis(int((self.direction == "input") != transposed), groups)


def _check_predicate(layers: object) -> None:
    expected = "layers: expected 'conv', 'weights', 'all' or a predicate of (name, module, parameter)"
    if not callable(layers) or isinstance(layers, type):
        raise TypeError(f"{expected}, got {layers!r}")
    try:
        signature = inspect.signature(layers)
    except (TypeError, ValueError):  # of some callables written in C, nothing is known
        return
    try:
        signature.bind("", None, None)
    except TypeError:
        name = getattr(layers, "__name__", type(layers).__name__)
        raise TypeError(f"{expected}, got {name}{signature}") from None


def _locate(model: nn.Module) -> Iterator[tuple[int, ParameterLocation]]:
    """Every parameter of the model by id, seen from the layer it serves.

    A parametrised weight (spectral norm, weight norm) lives in a ParametrizationList below the layer; what is trained,
    and so directed, is its `original`.
    """
    serves: dict[int, tuple[nn.Module, str]] = {}
    for prefix, module in model.named_modules():
        if is_parametrized(module):
            chains: Any = module.parametrizations
            serves.update({id(chain): (module, tensor) for tensor, chain in chains.items()})
        for stored, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            owner, tensor = serves.get(id(module), (module, stored))
            if _is_magnitude(module, stored):
                tensor = "magnitudes"
            yield id(parameter), ParameterLocation(f"{prefix}.{stored}" if prefix else stored, owner, tensor, stored)


def _is_magnitude(module: nn.Module, stored: str) -> bool:
    """Whether a parameter holds the lengths that a weight norm, present or deprecated, split off a weight."""
    if isinstance(module, ParametrizationList):
        # Of torch's own, only weight norm stores a weight as several parameters.
        torchs_own = nn.utils.parametrizations.__name__
        return stored == "original0" and any(type(link).__module__ == torchs_own for link in module)
    return stored == "weight_g" and hasattr(module, "weight_v")


def _weight_shape(module: nn.Module | None) -> tuple[int, ...] | None:
    if isinstance(module, CONV):
        return (module.out_channels, module.in_channels // module.groups, *module.kernel_size)
    if isinstance(module, CONV_TRANSPOSE):
        return (module.in_channels, module.out_channels // module.groups, *module.kernel_size)
    return None


def _is_conv_weight(location: ParameterLocation, parameter: Tensor) -> bool:
    if location.module is None:
        return parameter.dim() >= 3
    # By shape, so that every way of storing it counts (weight, weight_orig, weight_v, a parametrisation's original)
    # and its companions (weight_g, the magnitudes of a weight norm) do not.
    return location.tensor.startswith("weight") and tuple(parameter.shape) == _weight_shape(location.module)


def _is_linear_weight(location: ParameterLocation, parameter: Tensor) -> bool:
    if parameter.dim() < 2:
        return False
    return location.module is None or (isinstance(location.module, LINEAR) and "weight" in location.tensor)


def _why_no_weight(location: ParameterLocation, parameter: Tensor) -> str:
    if parameter.dim() < 2 or location.tensor == "magnitudes":
        return "one-dimensional (layers='weights')"
    return "not a weight of a conv or linear layer (layers='weights')"


def _fused_parts(location: ParameterLocation) -> int:
    """How many matrices, or biases, of a layer are in one parameter: q, k and v of attention, the gates of an LSTM."""
    if not location.tensor.startswith(("in_proj_", "weight_ih", "weight_hh", "bias_ih", "bias_hh")):
        return 1
    return next((parts for kind, parts in FUSED.items() if isinstance(location.module, kind)), 1)


def _refuse_flattened(location: ParameterLocation, parameter: Tensor) -> None:
    expected = _weight_shape(location.module)
    if expected is not None and location.stored == "weight" and parameter.dim() == 1:
        raise ValueError(
            f"parameter {location.name!r} of {type(location.module).__name__} has shape {tuple(parameter.shape)} where "
            f"{expected} is expected: it was flattened (FSDP1, ZeRO), and its channels cannot be separated. Use "
            "DistributedDataParallel, or FSDP2 (fully_shard)"
        )


def _uninitialised(layers: Layers, name: str, locations: list[ParameterLocation]) -> str:
    kinds = (*CONV, *CONV_TRANSPOSE)
    if layers == "conv" and locations and not any(isinstance(p.module, (*kinds, type(None))) for p in locations):
        return "not a conv weight (layers='conv')"
    raise ValueError(
        f"parameter {name!r} has no shape yet: run one forward pass through the lazy module before attaching"
    )


def _why_not_conv(location: ParameterLocation, parameter: Tensor) -> str:
    expected = _weight_shape(location.module)
    if location.module is None:
        return f"{parameter.dim()}-d: without a model, a conv weight has 3 dims or more (layers='conv')"
    if expected is None:
        return "not a conv weight (layers='conv')"
    if location.tensor in ("bias", "magnitudes"):
        return f"{location.tensor} of a conv layer, not its weight (layers='conv')"
    return f"not of the shape {expected} of the layer's weight (layers='conv')"
