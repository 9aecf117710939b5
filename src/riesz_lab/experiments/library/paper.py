"""The paper's tables and figures as experiments, and the controls it lacks.

Choices where the paper leaves them open:
1. lam from 0 to 20: the values of `LAMBDAS`; 0 is the plain optimizer for every metric.
2. SobolevTilde at "lam" has two readings (docs/theory.md, errata): f + lam G f with G at 1, and f + G f with lam inside
   G. Both are run; at lam = 1 they are one and the same.
3. "Ours" in the figure of directions is SobolevTilde, the main method.
4. Figures without a named network are ResNet-56 with batch size 8, where the paper sees the largest effect.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from riesz_lab.config import Config, MetricText
from riesz_lab.experiments.arm import CONTROLS, Arm, controls_of
from riesz_lab.experiments.experiment import ACCURACY, MIOU, Experiment, Seeds, fid_score
from riesz_lab.experiments.margin import Margin
from riesz_lab.recipes import recipe

TILDE, REWEIGHTED = MetricText("sobolev-tilde(lam=1.0)"), MetricText("reweighted-l2(lam=1.0)")
LS = MetricText("laplacian-smoothing(sigma=0.5)")
RASTERIZED_LS: dict[str, Any] = {"metric": LS, "direction": "rasterized", "layers": "all"}
LAMBDAS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
RESNET, RESNET_LS = recipe("cifar10-resnet56-b8"), recipe("cifar10-resnet56-ls-b8")

FID = fid_score(recipe("cityscapes-spade"))

CHANCE = 0.15
"""Ten classes: an accuracy up to this is a network that learned nothing."""


def methods(base: Config, name: str = "SGD", prefix: str = "") -> tuple[Arm, ...]:
    """The plain optimizer and the paper's two metrics on it."""
    baseline = f"{prefix}{name}"
    return (
        Arm(baseline, base),
        Arm(f"{baseline} + SobolevTilde", replace(base, metric=TILDE), baseline),
        Arm(f"{baseline} + ReweightedL2", replace(base, metric=REWEIGHTED), baseline),
    )


def with_ls(base: Config, ls: Config, prefix: str = "") -> tuple[Arm, ...]:
    """The same on SGD, with LS, and with LS along the output channels of conv layers, the paper's "LS-ChanOrd"."""
    along_output = Arm(f"{prefix}LS along output", replace(base, metric=LS), f"{prefix}SGD")
    return *methods(base, "SGD", prefix), Arm(f"{prefix}LS", ls, f"{prefix}SGD"), along_output


def cifar_arms(resnet: str, vgg: str, config: Callable[[str, int], Config]) -> tuple[Arm, ...]:
    """The rows of the table; `config` gives the settings of "sgd", "ls", "vgg" and "adam" at a batch size."""
    arms: list[Arm] = []
    for size in (128, 32, 8):
        arms += methods(config("sgd", size), "SGD", f"{resnet} b{size} ")
        arms.append(Arm(f"{resnet} b{size} LS", config("ls", size), f"{resnet} b{size} SGD"))
    for size in (128, 8, 6):
        arms += methods(config("vgg", size), "SGD", f"{vgg} b{size} ")
    for size in (128, 32, 8):
        arms += methods(config("adam", size), "Adam", f"{resnet} b{size} ")
    return tuple(arms)


def curve_arms() -> Iterator[Arm]:
    """SGD and Adam at every batch size, with LS at the smallest."""
    for size in (128, 32):
        yield from methods(recipe(f"cifar10-resnet56-b{size}"), "SGD", f"b{size} ")
    yield from with_ls(RESNET, RESNET_LS, "b8 ")
    for size in (128, 32, 8):
        yield from methods(recipe(f"cifar10-resnet56-adam-b{size}"), "Adam", f"b{size} ")


def lambdas(base: Config, values: Iterable[float]) -> tuple[Arm, ...]:
    """Both metrics at each lam, SobolevTilde in both readings."""
    plain = "SGD (lam = 0)"
    metrics = {f"ReweightedL2 lam = {lam:g}": MetricText(f"reweighted-l2(lam={lam})") for lam in values}
    for lam in values:
        if lam == 1:
            metrics["SobolevTilde lam = 1, both readings"] = TILDE
        else:
            metrics[f"SobolevTilde lam = {lam:g}, as scale"] = MetricText(f"sobolev-tilde(lam=1.0, scale={lam})")
    for lam in values:
        if lam != 1:
            metrics[f"SobolevTilde lam = {lam:g}, in G"] = MetricText(f"sobolev-tilde(lam={lam})")
    return Arm(plain, base), *(Arm(label, replace(base, metric=metric), plain) for label, metric in metrics.items())


def directed(base: Config, ls: Config, smooth_epochs: int) -> tuple[Arm, ...]:
    """Every direction and scope for SobolevTilde and LS; `ls` is LS as its authors run it, rasterized on all layers."""
    arms = [Arm("SGD", base)]
    metrics = (("SobolevTilde", TILDE), ("LS", LS))
    for (name, metric), direction, layers in product(metrics, ("output", "input", "rasterized"), ("conv", "all")):
        settings: dict[str, Any] = {"metric": metric, "direction": direction, "layers": layers}
        # LS as its authors run it has a recipe.
        config = replace(base, **settings) if settings != RASTERIZED_LS else ls
        arms.append(Arm(f"{name} {direction}, {layers} layers", config, "SGD"))
    arms.append(Arm(f"LS {smooth_epochs} epochs, then SGD", replace(ls, smooth_epochs=smooth_epochs), "SGD"))
    return tuple(arms)


def controlled(base: Config) -> tuple[Arm, ...]:
    """What remains of the effect when step length, or the order of the channels, is taken out of it.

    The second lam is one where SobolevTilde is far from a plain mean and its kernel still positive (lam = 1 is nearly
    one).
    """
    arms = [Arm("SGD", base)]
    metrics = {f"SobolevTilde {lam:g}": MetricText(f"sobolev-tilde(lam={lam})") for lam in (1.0, 0.05)}
    for name, metric in (metrics | {"ReweightedL2": REWEIGHTED}).items():
        directed = replace(base, metric=metric)
        arms.append(Arm(name, directed, "SGD"))
        for config in controls_of(directed):
            if config.control == "signs":  # the published tables of this sweep have no such arm
                continue
            against = name if config.control == "permuted" else "SGD"
            arms.append(Arm(f"{name}, {CONTROLS[config.control]}", config, against))
    return tuple(arms)


CIFAR = {"sgd": "resnet56", "ls": "resnet56-ls", "vgg": "vgg16", "adam": "resnet56-adam"}


def by_name(*experiments: Experiment) -> dict[str, Experiment]:
    return {experiment.name: experiment for experiment in experiments}


EXPERIMENTS = by_name(
    Experiment(
        name="table-cifar", score=ACCURACY, seeds=Seeds(count=10), collapsed=CHANCE,
        question="CIFAR-10 test accuracy: three pairs of network and optimizer, three batch sizes, two metrics, and LS",
        reproduces='table "Test accuracy on CIFAR-10", all 27 cells, and its LS rows',
        arms=cifar_arms("ResNet-56", "VGG-16", lambda kind, size: recipe(f"cifar10-{CIFAR[kind]}-b{size}")),
    ),
    Experiment(
        name="lambda-mnist", score=ACCURACY, collapsed=CHANCE,
        question="how much of the metric: lam from 0 to 20 on MNIST",
        reproduces="figure of lam, MNIST; SobolevTilde in both readings",
        arms=lambdas(recipe("mnist-cnn"), LAMBDAS),
    ),
    Experiment(
        name="lambda-fashion", score=ACCURACY, collapsed=CHANCE,
        question="how much of the metric: lam from 0 to 20 on Fashion-MNIST",
        reproduces="figure of lam, Fashion-MNIST; SobolevTilde in both readings",
        arms=lambdas(recipe("fashion-cnn"), LAMBDAS),
    ),
    Experiment(
        name="directions", score=ACCURACY, seeds=Seeds(count=10), collapsed=CHANCE,
        question="which axis to smooth along: output, input, rasterized; conv layers or all; ours and LS",
        reproduces="figure of directions, and LS for 40 epochs, then SGD",
        arms=directed(RESNET, RESNET_LS, 40),
    ),
    Experiment(
        name="variance", score=ACCURACY, seeds=Seeds(count=30), collapsed=CHANCE,
        question="how test accuracy scatters over trials",
        reproduces="histogram of test accuracy over trials",
        arms=methods(RESNET),
    ),
    Experiment(
        name="initialisation", score=ACCURACY, seeds=Seeds(count=5, crossed=True), collapsed=CHANCE,
        question="what chance is made of: every initialisation seed with every data seed",
        reproduces="the question whether results hang on the initialisation",
        arms=methods(RESNET),
    ),
    Experiment(
        name="regularity", score=ACCURACY, seeds=Seeds(count=3), collapsed=CHANCE,
        question="trained weights, for pictures of their stripes and the correlation of filters by distance",
        reproduces="figures of trained weights and of regularity",
        arms=with_ls(RESNET, RESNET_LS),
    ),
    Experiment(
        name="curves", score=ACCURACY, seeds=Seeds(count=10), collapsed=CHANCE,
        question="train and test accuracy, epoch by epoch; shares its trials with table-cifar",
        reproduces="figure of curves at batch 8, and the appendix's curves per batch size for SGD and Adam",
        arms=tuple(curve_arms()),
    ),
    Experiment(
        name="controls", score=ACCURACY, seeds=Seeds(count=10), collapsed=CHANCE,
        question="is it only a longer gradient (norm kept)? does it matter which channels are neighbours (permuted)?",
        reproduces="no such controls",
        arms=controlled(RESNET),
    ),
    Experiment(
        name="voc", score=MIOU, seeds=Seeds(count=3),
        question="segmentation of PascalVOC",
        reproduces="figure of VOC losses and accuracy, and the generalisation gap",
        arms=methods(recipe("voc-unet50")),
    ),
    Experiment(
        name="spade", score=FID, seeds=Seeds(count=6), margin=Margin(0.05, "relative"),
        question="image synthesis on Cityscapes, by FID; how many runs collapse",
        reproduces="figure of FID against epoch",
        arms=(*methods(recipe("cityscapes-spade")), *methods(recipe("cityscapes-spade-adam"), "Adam")),
    ),
)  # fmt: skip
