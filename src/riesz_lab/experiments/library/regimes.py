"""The regime map: batch size x learning rate x method. Where does a metric help, and does the best rate only shift?

The paper's largest gains are at batch 8 with a rate of 0.1. A cell of the map is one batch size and one rate; its
methods are compared at equal seeds with the plain optimizer in the same cell. The figure of the report compares them
with the plain optimizer at its best rate too.
"""

from collections.abc import Iterable
from dataclasses import replace

from riesz_lab.config import Config
from riesz_lab.experiments.arm import Arm
from riesz_lab.experiments.experiment import ACCURACY, Experiment
from riesz_lab.experiments.library.paper import CHANCE, by_name, methods
from riesz_lab.recipes import recipe


def cells(base: Config, sizes: Iterable[int], rates: Iterable[float]) -> tuple[Arm, ...]:
    """The plain optimizer and the paper's two metrics in every cell."""
    return tuple(
        arm
        for size in sizes
        for rate in rates
        for arm in methods(replace(base, batch_size=size, lr=rate), prefix=f"b{size} lr {rate:g} ")
    )


REGIMES = Experiment(
    name="regimes", score=ACCURACY, collapsed=CHANCE,
    question="batch size x learning rate: where a metric helps, and whether it only shifts the best rate",
    reproduces="no such map; batch sizes 8 to 128 of the CIFAR-10 table are at a rate of 0.1",
    arms=cells(replace(recipe("cifar10-resnet20-b8"), recipe="regimes"), (8, 32, 128), (0.01, 0.03, 0.1, 0.3)),
)  # fmt: skip

SMALL = replace(
    recipe("fashion-cnn-mini"), recipe="regimes-mini",
    train_limit=2000, test_limit=5000, epochs=3, drop_every=1, drop_factor=0.3, eval_every=3,
)  # fmt: skip
"""The two-layer CNN on 2,000 images of Fashion-MNIST, three epochs."""

EXPERIMENTS = by_name(
    REGIMES, replace(REGIMES, name="regimes-mini", arms=cells(SMALL, (8, 32, 128), (0.003, 0.01, 0.03, 0.1)))
)
