"""What the values of a mask mean: classes, their names and colours, and void.

A mask is one number per pixel. `Labels` maps these numbers to classes 0..n-1, or to `VOID`, which is neither trained on
nor scored.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

VOID = 255
BLACK = (0, 0, 0)
Colour = tuple[int, int, int]


@dataclass(frozen=True)
class Labels:
    """Classes and how a mask writes them.

    Attributes:
        names: of the classes, in their order.
        colours: of the classes, for pictures.
        values: the class, or `VOID`, of every value that a mask may hold.
    """

    names: tuple[str, ...]
    colours: tuple[Colour, ...]
    values: dict[int, int]

    @property
    def classes(self) -> int:
        return len(self.names)

    @cached_property
    def table(self) -> np.ndarray:
        """Mask value to class; values that are not allowed are void here, and found by `unknown_value`."""
        table = np.full(256, VOID, np.uint8)
        table[list(self.values)] = list(self.values.values())
        return table

    @cached_property
    def palette(self) -> np.ndarray:
        """Colours of all 256 values of a map of classes; void is black."""
        palette = np.zeros((256, 3), np.uint8)
        palette[: self.classes] = self.colours
        return palette

    def unknown_value(self, mask: np.ndarray) -> int | None:
        """A value of the mask that is not allowed, if there is one."""
        present = np.bincount(mask.ravel(), minlength=256).nonzero()[0]
        return next((int(value) for value in present if int(value) not in self.values), None)

    @property
    def allowed(self) -> str:
        kept = sorted(value for value, label in self.values.items() if label != VOID)
        void = sorted(value for value, label in self.values.items() if label == VOID)
        text = f"{kept[0]} to {kept[-1]}" if kept == list(range(kept[0], kept[-1] + 1)) else ", ".join(map(str, kept))
        return text + (f", and {', '.join(map(str, void))} for void" if void else "")


def plain(names: tuple[str, ...], colours: tuple[Colour, ...], void: int) -> Labels:
    """Classes written as 0..n-1, and one value for void."""
    return Labels(names, colours, {**{i: i for i in range(len(names))}, void: VOID})


def voc_colours(count: int) -> tuple[Colour, ...]:
    """PascalVOC's colours: the bits of a class go to red, green and blue in turn, from the top."""

    def channel(label: int, first: int) -> int:
        return sum((label >> (3 * bit + first) & 1) << (7 - bit) for bit in range(8))

    return tuple((channel(label, 0), channel(label, 1), channel(label, 2)) for label in range(count))
