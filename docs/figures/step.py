"""One training step: where riesz acts."""

from __future__ import annotations

import matplotlib.pyplot as plt
from docs.figures import canvas

STAGES = [
    ("loss.backward()", ".grad = f", False),
    ("scaler.unscale_()\nclip_grad_norm_()", "act on f", False),
    ("riesz", ".grad = A f,\nin place", True),
    ("the optimizer", "momentum, Adam,\nweight decay", True),
    ("zero_grad()", "", False),
]


def main() -> None:
    canvas.configure()
    figure, axis = plt.subplots(figsize=(9.6, 2.2))
    for index, (title, below, inside) in enumerate(STAGES):
        left = 2.0 * index
        color = canvas.ORANGE if title == "riesz" else canvas.BLUE if inside else "#7a828c"
        axis.add_patch(plt.Rectangle((left, 0.35), 1.6, 0.7, facecolor="white", edgecolor=color, linewidth=1.8))
        axis.text(left + 0.8, 0.7, title, ha="center", va="center")
        axis.text(left + 0.8, 0.22, below, ha="center", va="top", fontsize=8, color="#444444")
        if index:
            arrow = {"arrowstyle": "-|>", "color": "#444444"}
            axis.annotate("", (left - 0.02, 0.7), (left - 0.38, 0.7), arrowprops=arrow)
    frame = {"facecolor": "none", "edgecolor": canvas.GREY, "linestyle": "--"}
    axis.add_patch(plt.Rectangle((3.8, -0.25), 4.0, 1.75, **frame))
    axis.text(5.8, 1.32, "optimizer.step()", ha="center", va="center")
    axis.set(xlim=(-0.1, 9.8), ylim=(-0.3, 1.6))
    axis.axis("off")
    figure.tight_layout()
    canvas.save(figure, __file__)


if __name__ == "__main__":
    main()
