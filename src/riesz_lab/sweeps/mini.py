"""Forms of the sweeps that end within half an hour on two cores: smaller networks, fewer images, fewer epochs.

They ask the paper's questions of small networks. Whether their answers hold for the paper's networks they cannot say.
"""

from collections.abc import Callable
from dataclasses import replace

from riesz_lab.config import Config
from riesz_lab.recipes import recipe
from riesz_lab.sweeps import paper
from riesz_lab.sweeps.definition import Arm, Sweep


def _mini(full: Sweep, arms: tuple[Arm, ...] | list[Arm], trials: int = 5, about: str | None = None) -> Sweep:
    """The small form of a sweep; `about` where it asks of something else than the full one."""
    about = f"{about or full.about} (small)"
    return replace(full, name=f"{full.name}-mini", arms=tuple(arms), trials=trials, about=about)


def _cnn(name: str = "fashion-cnn-mini") -> Config:
    """The two-layer CNN on 3,000 images in batches of 10: the paper's effect is largest where batches are small."""
    return replace(recipe(name), train_limit=3000, batch_size=10, epochs=4, drop_every=2, eval_every=4)


def _resnet(size: int, name: str = "cifar10-resnet20-mini") -> Config:
    base = replace(recipe(name), train_limit=2000, test_limit=1000)
    return replace(base, batch_size=size, epochs=3, drop_every=1, eval_every=3)


def _resnet_adam(size: int) -> Config:
    return _resnet(size, "cifar10-resnet20-adam-mini")


def _vgg(size: int) -> Config:
    return replace(_resnet(size, "cifar10-vgg11-mini"), train_limit=400, test_limit=500)


def _ls(base: Config) -> Config:
    return replace(base, **paper.RASTERIZED_LS)


def table_cifar() -> Sweep:
    makers = {"sgd": _resnet, "ls": lambda size: _ls(_resnet(size)), "vgg": _vgg, "adam": _resnet_adam}
    arms = paper.cifar_arms("ResNet-20", "VGG-11", lambda kind, size: makers[kind](size))
    return _mini(paper.table_cifar(), arms, trials=3)


def lambda_mnist() -> Sweep:
    return _mini(paper.lambda_mnist(), paper.lambdas(_cnn("mnist-cnn-mini"), (1.0, 5.0, 20.0)))


def lambda_fashion() -> Sweep:
    return _mini(paper.lambda_fashion(), paper.lambdas(_cnn(), (1.0, 5.0, 20.0)))


def directions() -> Sweep:
    return _mini(paper.directions(), paper.directed(_cnn(), _ls(_cnn()), 2))


def variance() -> Sweep:
    return _mini(paper.variance(), paper.methods(_cnn()), trials=20)


def initialisation() -> Sweep:
    return _mini(paper.initialisation(), paper.methods(_cnn()), trials=4)


def regularity() -> Sweep:
    return _mini(paper.regularity(), paper.with_ls(_cnn(), _ls(_cnn())), trials=3)


def curves() -> Sweep:
    base, adam = (replace(make(8), eval_every=1) for make in (_resnet, _resnet_adam))
    arms = [*paper.with_ls(base, _ls(base), "b8 "), *paper.methods(adam, "Adam", "b8 ")]
    return _mini(paper.curves(), arms, trials=3, about="train and test accuracy, epoch by epoch")


def controls() -> Sweep:
    return _mini(paper.controls(), paper.controlled(_cnn()))


def voc() -> Sweep:
    base = replace(recipe("camvid-unet-mini"), epochs=5, drop_every=4)
    return _mini(paper.voc(), paper.methods(base), trials=3, about="segmentation of CamVid, in place of PascalVOC")


def spade() -> Sweep:
    about = "image synthesis on CamVid, in place of Cityscapes, by a stand-in for FID; how many runs collapse"
    return _mini(paper.spade(), paper.methods(recipe("camvid-spade-mini"), "Adam"), trials=3, about=about)


MAKERS: tuple[Callable[[], Sweep], ...] = (
    table_cifar, lambda_mnist, lambda_fashion, directions, variance, initialisation, regularity, curves, controls,
    voc, spade,
)  # fmt: skip
SWEEPS = {make().name: make for make in MAKERS}
