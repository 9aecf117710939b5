"""The three named directions along a conv weight."""

from __future__ import annotations

import matplotlib.pyplot as plt
from docs.figures import canvas
from matplotlib.axes import Axes

OUTPUTS, INPUTS = 5, 4


def _weight(axis: Axes, title: str, caption: str) -> None:
    for o in range(OUTPUTS):
        for i in range(INPUTS):
            axis.add_patch(plt.Rectangle((i + 0.1, o + 0.1), 0.8, 0.8, facecolor="#e8edf3", edgecolor=canvas.GREY))
            for tap in range(1, 3):
                axis.plot([i + 0.1 + 0.8 * tap / 3] * 2, [o + 0.1, o + 0.9], color=canvas.GREY, linewidth=0.5)
                axis.plot([i + 0.1, i + 0.9], [o + 0.1 + 0.8 * tap / 3] * 2, color=canvas.GREY, linewidth=0.5)
    axis.set(xlim=(-0.5, INPUTS + 0.2), ylim=(OUTPUTS + 0.6, -0.5), aspect="equal", title=title)
    axis.text(INPUTS / 2, OUTPUTS + 0.45, caption, ha="center", fontsize=8)
    axis.text(INPUTS / 2, -0.15, "input channels", ha="center", fontsize=8, color="#666666")
    axis.text(-0.15, OUTPUTS / 2, "output channels", va="center", ha="right", fontsize=8, color="#666666", rotation=90)
    axis.axis("off")


def _arrow(axis: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    axis.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": canvas.ORANGE, "linewidth": 1.8})


def main() -> None:
    canvas.configure()
    figure, (output, inputs, rasterized) = plt.subplots(1, 3, figsize=(9.6, 4.2))
    _weight(output, 'direction="output"', "output channel to output channel,\none column per input channel and tap")
    for i in range(INPUTS):
        _arrow(output, (i + 0.5, 0.0), (i + 0.5, OUTPUTS))
    _weight(inputs, 'direction="input"', "input channel to input channel,\none column per output channel and tap")
    for o in range(OUTPUTS):
        _arrow(inputs, (0.0, o + 0.5), (INPUTS, o + 0.5))
    _weight(rasterized, 'direction="rasterized"', "all entries in row-major order,\none column")
    for o in range(OUTPUTS):
        _arrow(rasterized, (0.0, o + 0.5), (INPUTS, o + 0.5))
        if o + 1 < OUTPUTS:
            rasterized.plot([INPUTS, 0.0], [o + 0.5, o + 1.5], color=canvas.ORANGE, linewidth=1, linestyle=":")
    figure.tight_layout(rect=(0, 0, 1, 0.96))
    canvas.save(figure, __file__)


if __name__ == "__main__":
    main()
