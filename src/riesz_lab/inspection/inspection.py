"""Does this trained network have the regularity that the method assumes?"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from riesz_lab.inspection.regularity import MIN_FILTERS, Array, Regularity, regularity
from riesz_lab.statistics import adjusted
from riesz_lab.utils.amounts import count
from riesz_lab.utils.tensor_files import read_tensors

Layers = Literal["conv", "all"]
DIRECTIONS = ("output", "input")


@dataclass(frozen=True)
class Layer:
    """One weight."""

    name: str
    shape: tuple[int, ...]  # output channels first
    stripes_OI: Array | None = None  # the weight's central tap, output x input, which shows stripes as an image
    output: Regularity | None = None  # the regularity along each axis; None where the axis is too short
    input: Regularity | None = None
    skipped: str = ""  # why nothing was computed; empty otherwise

    def regularities(self) -> list[tuple[str, Regularity]]:
        """The directions that could be examined, with their regularity."""
        pairs = zip(DIRECTIONS, (self.output, self.input), strict=True)
        return [(direction, regularity) for direction, regularity in pairs if regularity is not None]


@dataclass(frozen=True)
class Inspection:
    """The regularity of the weights in one file."""

    name: str  # the file
    layers: tuple[Layer, ...]
    ignored: int  # number of other tensors (biases, norms, buffers)
    matrices: int = 0  # those of them that are matrices, which layers="all" examines

    def along(self, direction: str) -> list[tuple[Layer, Regularity]]:
        """The layers that could be examined along a direction."""
        return [(layer, value) for layer in self.layers for name, value in layer.regularities() if name == direction]

    def ordered(self, direction: str) -> list[str]:
        """Layers whose neighbours are more alike than in random order, at 5% over all layers (Holm)."""
        return [layer.name for layer, _ in self._significant(direction, "p")]

    def with_common_part(self, direction: str) -> list[str]:
        """Layers whose filters are alike in any order, at 5% over all layers (Holm)."""
        alike = self._significant(direction, "level_p")
        return [layer.name for layer, regularity in alike if regularity.level > 0]

    def _significant(self, direction: str, p: Literal["p", "level_p"]) -> list[tuple[Layer, Regularity]]:
        pairs = self.along(direction)
        corrected = adjusted([getattr(regularity, p) for _, regularity in pairs])
        return [pair for pair, value in zip(pairs, corrected, strict=True) if value is not None and value < 0.05]

    @property
    def size(self) -> str:
        """How much there was to examine."""
        return f"{count(len(self.layers), 'weight')}, {count(self.ignored, 'other tensor')}"

    @property
    def findings(self) -> list[tuple[str, str, str]]:
        """Per assumption: a question, its answer ("Yes", "In part" or "No evidence"), and what that rests on."""
        examined = [regularity for _, regularity in self.along("output")]
        if not examined:
            least = f"no weight has {MIN_FILTERS} filters or more along the output to compare ({self.size})"
            if self.matrices:
                skipped = "1 matrix was" if self.matrices == 1 else f"{self.matrices} matrices were"
                least = f"no conv weight with {MIN_FILTERS} filters or more; {skipped} skipped: add --layers all"
            return [("Are filters alike?", "Nothing can be said", f"{least}.")]
        ordered, shared = len(self.ordered("output")), len(self.with_common_part("output"))
        order = float(np.mean([regularity.order for regularity in examined]))
        level = float(np.mean([regularity.level for regularity in examined]))
        total = count(len(examined), "layer")
        return [
            (
                "Are neighbouring filters along the output alike, as Sobolev metrics assume?",
                _answer(ordered, len(examined)),
                f"more than in random order in {ordered} of {total} (mean excess correlation {order:+.3f}).",
            ),
            (
                "Do all filters have a common part, as re-weighted L2 assumes?",
                _answer(shared, len(examined)),
                f"their correlation is above zero in {shared} of {total} (mean {level:+.3f}).",
            ),
        ]

    @property
    def verdict(self) -> str:
        """A question and its answer per assumption."""
        return " ".join(f"{question} {answer}: {reason}" for question, answer, reason in self.findings)


def _answer(found: int, total: int) -> str:
    # A test that finds nothing does not show that there is nothing.
    return "Yes" if 2 * found > total else "In part" if found else "No evidence"


def inspect(path: Path | str, layers: Layers = "conv") -> Inspection:
    """Look for regularity in a stored network.

    Args:
        path: a safetensors or torch file; nothing in it is executed.
        layers: "conv" takes tensors of three dims or more, "all" matrices too.

    Returns:
        The regularity, layer by layer. Output channels are taken to lie along axis 0 and input channels along axis 1,
        as in every layer but transposed convolutions, which a file does not mark.
    """
    return inspect_tensors(str(path), read_tensors(path), layers)


def inspect_tensors(name: str, tensors: dict[str, Tensor], layers: Layers = "conv") -> Inspection:
    """The same for tensors in memory."""
    least = 3 if layers == "conv" else 2
    chosen = {key: tensor for key, tensor in tensors.items() if least <= tensor.dim() <= 5}
    matrices = sum(tensor.dim() == 2 for key, tensor in tensors.items() if key not in chosen)
    return Inspection(name, tuple(_layer(*item) for item in chosen.items()), len(tensors) - len(chosen), matrices)


def _layer(name: str, tensor: Tensor) -> Layer:
    shape = tuple(tensor.shape)
    if reason := _skip_reason(tensor):
        return Layer(name, shape, skipped=reason)
    weight_OIK = tensor.detach().double().reshape(shape[0], shape[1], -1).numpy()
    if not np.isfinite(weight_OIK).all():
        return Layer(name, shape, skipped="has values that are not finite")
    along_output, along_input = regularity(weight_OIK), regularity(weight_OIK.swapaxes(0, 1))
    few = f"too small: fewer than {MIN_FILTERS} filters that vary" if along_output is along_input is None else ""
    return Layer(name, shape, weight_OIK[:, :, weight_OIK.shape[2] // 2], along_output, along_input, few)


def _skip_reason(tensor: Tensor) -> str:
    if tensor.is_quantized or tensor.layout != torch.strided:
        return "quantised or sparse"
    if tensor.is_meta:
        return "on the meta device, without values"
    if not tensor.is_floating_point():
        return f"of type {str(tensor.dtype).removeprefix('torch.')}, not floating point"
    return "empty" if tensor.numel() == 0 else ""
