"""How each metric spreads an impulse over the output channels."""

from __future__ import annotations

import matplotlib.pyplot as plt
import torch

import riesz
from docs.figures import canvas

N = 64
PANELS = {
    "lam = 1, as in the paper": [
        riesz.ReweightedL2(1.0),
        riesz.Sobolev(1.0),
        riesz.SobolevTilde(1.0, blend=0.0),
        riesz.LaplacianSmoothing(1.0),
    ],
    "smaller lam, where the Sobolev metrics differ": [
        riesz.ReweightedL2(0.25),
        riesz.Sobolev(0.01),
        riesz.SobolevTilde(0.05, blend=0.0),
        riesz.LaplacianSmoothing(10.0),
    ],
}


def main() -> None:
    canvas.configure()
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 4.2), sharey=True)
    channel = torch.arange(N) - N // 2
    for axis, (title, metrics) in zip(axes, PANELS.items(), strict=True):
        for metric, style in zip(metrics, ("-", "-", "--", "-"), strict=True):
            axis.plot(channel, N * metric.kernel(N).roll(N // 2), style, label=repr(metric), linewidth=1.8)
        axis.set(title=title, xlabel="distance in output channels", ylim=(-0.5, 4.5), xlim=(-N // 2, N // 2 - 1))
        axis.axhline(0, color="grey", linewidth=0.6)
        axis.legend(fontsize=8, frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.17))
    axes[0].set_ylabel("n x kernel")
    figure.tight_layout()
    canvas.save(figure, __file__)


if __name__ == "__main__":
    main()
