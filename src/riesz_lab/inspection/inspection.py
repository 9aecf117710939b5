"""Does this trained network have the regularity that the method assumes?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from torch import Tensor

from riesz_lab.inspection.reading import read_tensors
from riesz_lab.inspection.regularity import FEWEST, Array, Regularity, regularity
from riesz_lab.statistics import adjusted

Layers = Literal["conv", "all"]
DIRECTIONS = ("output", "input")


@dataclass(frozen=True)
class Layer:
    """One weight.

    Attributes:
        name: its name in the file.
        shape: its shape, output channels first.
        stripes_OI: the image that shows stripes: the weight's central tap, output x input.
        output, input: the regularity along each axis; None where the axis is too short.
        skipped: why nothing was computed; empty if something was.
    """

    name: str
    shape: tuple[int, ...]
    stripes_OI: Array | None = None
    output: Regularity | None = None
    input: Regularity | None = None
    skipped: str = ""


@dataclass(frozen=True)
class Inspection:
    """What was found in one file.

    Attributes:
        name: the file.
        layers: its weights in order.
        ignored: how many tensors are none (biases, norms, buffers).
    """

    name: str
    layers: tuple[Layer, ...]
    ignored: int

    def along(self, direction: str) -> list[tuple[Layer, Regularity]]:
        """The layers that could be examined along a direction."""
        pairs = [(layer, getattr(layer, direction)) for layer in self.layers]
        return [(layer, found) for layer, found in pairs if found is not None]

    def ordered(self, direction: str) -> list[str]:
        """Layers whose neighbours are more alike than in random order, at 5% over all layers (Holm)."""
        found = self.along(direction)
        ps = adjusted([regular.p for _, regular in found])
        return [layer.name for (layer, _), p in zip(found, ps, strict=True) if p is not None and p < 0.05]

    def shared(self, direction: str) -> list[str]:
        """Layers whose filters have something in common whatever their order: the level's interval lies above 0."""
        return [layer.name for layer, found in self.along(direction) if found.level > found.level_error]

    @property
    def verdict(self) -> str:
        """One sentence."""
        found = [regular for _, regular in self.along("output")]
        if not found:
            return (
                f"Nothing can be said: no weight has {FEWEST} filters or more along the output to compare"
                f" ({len(self.layers)} weights, {self.ignored} other tensors)."
            )
        total, ordered, shared = len(found), len(self.ordered("output")), len(self.shared("output"))
        order = float(np.mean([regular.order for regular in found]))
        level = float(np.mean([regular.level for regular in found]))
        answer = "Yes" if 2 * ordered > total else "In part" if ordered else "No"
        return (
            f"{answer}: along the output, neighbouring filters are more alike than in random order in {ordered} of"
            f" {total} layers (mean excess correlation {order:+.3f}), which is what a Sobolev metric assumes; and"
            f" filters share a common part in {shared} of {total} (mean correlation {level:+.3f}), which is what"
            " re-weighted L2 assumes."
        )


def inspect(path: Path | str, layers: Layers = "conv") -> Inspection:
    """Look for regularity in a stored network.

    Args:
        path: a safetensors or torch file; nothing in it is executed.
        layers: "conv" takes tensors of three dims or more, "all" matrices too.

    Returns:
        What was found, layer by layer. Output channels are taken to lie along axis 0 and input channels along axis 1,
        as in every layer but transposed convolutions, which a file does not tell apart.
    """
    return inspect_tensors(str(path), read_tensors(path), layers)


def inspect_tensors(name: str, tensors: dict[str, Tensor], layers: Layers = "conv") -> Inspection:
    """The same for tensors in memory."""
    least = 3 if layers == "conv" else 2
    chosen = {key: tensor for key, tensor in tensors.items() if least <= tensor.dim() <= 5}
    found = tuple(_layer(key, tensor) for key, tensor in chosen.items())
    return Inspection(name, found, len(tensors) - len(chosen))


def _layer(name: str, tensor: Tensor) -> Layer:
    shape = tuple(tensor.shape)
    if reason := _unfit(tensor):
        return Layer(name, shape, skipped=reason)
    weight_OIK = tensor.detach().double().reshape(shape[0], shape[1], -1).numpy()
    if not np.isfinite(weight_OIK).all():
        return Layer(name, shape, skipped="holds numbers that are not finite")
    along_output, along_input = regularity(weight_OIK), regularity(weight_OIK.swapaxes(0, 1))
    few = f"too small: fewer than {FEWEST} filters that vary"
    return Layer(
        name,
        shape,
        stripes_OI=weight_OIK[:, :, weight_OIK.shape[2] // 2],
        output=along_output,
        input=along_input,
        skipped=few if along_output is along_input is None else "",
    )


def _unfit(tensor: Tensor) -> str:
    import torch

    if tensor.is_quantized or tensor.layout != torch.strided:
        return "quantised or sparse"
    if tensor.is_meta:
        return "a shape without numbers"
    if not tensor.is_floating_point():
        return f"of type {str(tensor.dtype).removeprefix('torch.')}, no real numbers"
    return "empty" if tensor.numel() == 0 else ""
