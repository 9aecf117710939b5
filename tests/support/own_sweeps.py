"""Experiments as users write them, for `--sweeps own_sweeps:NAME`: each has arms that the paper's figures leave out."""

from dataclasses import replace

from riesz_lab.experiments import Arm, Experiment, Margin, Seeds
from riesz_lab.experiments.library.paper import methods
from riesz_lab.recipes import recipe


def lams():
    """Two lam or more, with a control, another direction, and a rate at which there is one lam alone."""
    base = replace(recipe("fashion-cnn-mini"), recipe="own-lams")
    faster = replace(base, lr=0.05)
    arms = (
        Arm("plain", base),
        *(Arm(f"mean {lam}", replace(base, metric=f"reweighted-l2(lam={lam})"), "plain") for lam in (1, 5)),
        Arm("mean 5, norm", replace(base, metric="reweighted-l2(lam=5)", control="norm"), "plain"),
        Arm("mean 20 along input", replace(base, metric="reweighted-l2(lam=20)", direction="input"), "plain"),
        Arm("plain, faster", faster, "plain"),
        Arm("mean 2, faster", replace(faster, metric="reweighted-l2(lam=2)"), "plain, faster"),
    )
    return Experiment(name="own-lams", question="how much", arms=arms, seeds=Seeds(count=3), margin=Margin(0.03))


def norms():
    """The control of `lams` and what it is compared with."""
    arms = [arm for arm in lams().arms if arm.label in ("plain", "mean 1", "mean 5", "mean 5, norm")]
    return replace(lams(), name="own-norms", arms=tuple(arms))


def grid():
    """Two batch sizes and two rates of ResNet-20 on CIFAR-10, and arms that are no cell of the map."""
    base = replace(recipe("cifar10-resnet20-b8"), recipe="own-grid", epochs=2)
    arms = [
        arm
        for size in (8, 128)
        for rate in (0.1, 0.01)
        for arm in methods(replace(base, batch_size=size, lr=rate), prefix=f"b{size} {rate} ")
    ]
    directed = replace(base, metric="reweighted-l2", batch_size=8, lr=0.1)
    arms += [
        Arm("norm", replace(directed, control="norm"), "b8 0.1 SGD"),
        Arm("all layers", replace(directed, layers="all"), "b8 0.1 SGD"),
        Arm("held out", replace(directed, hold_out=100), "b8 0.1 SGD"),
        Arm("other rate", replace(directed, lr=0.02), "b8 0.1 SGD"),
        Arm("lam 5", replace(directed, metric="reweighted-l2(lam=5)"), "b8 0.1 SGD"),
        Arm("VGG-13", replace(base, model="vgg13", lr=0.1)),
        Arm("batch 64", replace(base, batch_size=64, lr=0.1)),
        Arm("other data", replace(base, dataset="camvid", lr=0.1)),
    ]
    return Experiment(name="own-grid", question="where", arms=tuple(arms), seeds=Seeds(count=3))
