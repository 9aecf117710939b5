"""Forms of the experiments that end within half an hour on two cores: smaller networks, fewer images, fewer epochs.

They ask the paper's questions of small networks. Whether their answers hold for the paper's networks they cannot say.
"""

from dataclasses import replace

from riesz_lab.config import Config
from riesz_lab.experiments.arm import Arm
from riesz_lab.experiments.experiment import Experiment, fid_score
from riesz_lab.experiments.library import paper
from riesz_lab.recipes import recipe


def _mini(name: str, arms: tuple[Arm, ...], seeds: int = 5, question: str = "") -> Experiment:
    """The small form of an experiment; `question` where it asks of something else than the full one."""
    full = paper.EXPERIMENTS[name]
    score = fid_score(arms[0].config) if full.score == paper.FID else full.score
    small = replace(full, name=f"{name}-mini", arms=arms, score=score, question=f"{question or full.question} (small)")
    return small.with_seeds(seeds)


def _cnn(name: str = "fashion-cnn-mini") -> Config:
    """The two-layer CNN on 3,000 images in batches of 10: the paper's effect is largest where batches are small."""
    return replace(recipe(name), train_limit=3000, batch_size=10, epochs=4, drop_every=2, eval_every=4)


def _resnet(size: int, name: str = "cifar10-resnet20-mini") -> Config:
    base = replace(recipe(name), train_limit=2000, test_limit=1000)
    return replace(base, batch_size=size, epochs=3, drop_every=1, eval_every=3)


def _ls(base: Config) -> Config:
    return replace(base, **paper.RASTERIZED_LS)


def _cifar(kind: str, size: int) -> Config:
    if kind == "vgg":
        return replace(_resnet(size, "cifar10-vgg11-mini"), train_limit=400, test_limit=500)
    if kind == "adam":
        return _resnet(size, "cifar10-resnet20-adam-mini")
    return _ls(_resnet(size)) if kind == "ls" else _resnet(size)


CNN, LAMBDAS = _cnn(), (1.0, 5.0, 20.0)
RESNET, ADAM = (replace(_cifar(kind, 8), eval_every=1) for kind in ("sgd", "adam"))
UNET = replace(recipe("camvid-unet-mini"), epochs=5, drop_every=4)
CURVES = "train and test accuracy, epoch by epoch"
VOC = "segmentation of CamVid, in place of PascalVOC"
SPADE = "image synthesis on CamVid, in place of Cityscapes, by a stand-in for FID; how many runs collapse"

EXPERIMENTS = paper.by_name(
    _mini("table-cifar", paper.cifar_arms("ResNet-20", "VGG-11", _cifar), seeds=3),
    _mini("lambda-mnist", paper.lambdas(_cnn("mnist-cnn-mini"), LAMBDAS)),
    _mini("lambda-fashion", paper.lambdas(CNN, LAMBDAS)),
    _mini("directions", paper.directed(CNN, _ls(CNN), 2)),
    _mini("variance", paper.methods(CNN), seeds=20),
    _mini("initialisation", paper.methods(CNN), seeds=4),
    _mini("regularity", paper.with_ls(CNN, _ls(CNN)), seeds=3),
    _mini("curves", (*paper.with_ls(RESNET, _ls(RESNET), "b8 "), *paper.methods(ADAM, "Adam", "b8 ")), 3, CURVES),
    _mini("controls", paper.controlled(CNN)),
    _mini("voc", paper.methods(UNET), 3, VOC),
    _mini("spade", paper.methods(recipe("camvid-spade-mini"), "Adam"), 3, SPADE),
)
