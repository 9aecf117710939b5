"""The sweeps of the evidence, as PROTOCOL.md describes them: `riesz sweep evidence.sweeps:lambda_fashion`.

Trials are named by their settings, so sweeps that share an arm share its trials.
"""

from __future__ import annotations

from dataclasses import replace

from riesz_lab.config import Config
from riesz_lab.recipes import recipe
from riesz_lab.sweeps import Arm, Sweep
from riesz_lab.sweeps.paper import CHANCE, methods

LAMBDAS = (1.0, 5.0, 20.0)
MATCHED_RATES = {1.0: 0.02, 5.0: 0.06, 20.0: 0.2}
"""Rates of plain SGD whose step along the mean is as long as that of ReweightedL2(lam) at 0.01; 0.2 is that of 19."""


def _reweighted(base: Config, lam: float, baseline: str) -> Arm:
    return Arm(f"ReweightedL2 lam = {lam:g}", replace(base, metric=f"reweighted-l2(lam={lam})"), baseline)


def _tilde(base: Config, lam: float, baseline: str) -> Arm:
    metric = f"sobolev-tilde(lam=1, scale={lam})"
    return Arm(f"SobolevTilde lam = {lam:g}, as scale", replace(base, metric=metric), baseline)


def _lambdas(name: str, base: Config) -> Sweep:
    sgd = Arm("SGD (lam = 0)", base)
    return Sweep(
        name=name,
        about="how much of the metric: lam 1, 5, 20",
        reproduces="the figure of lam",
        arms=(
            sgd,
            *(_reweighted(base, lam, sgd.label) for lam in LAMBDAS),
            *(_tilde(base, lam, sgd.label) for lam in LAMBDAS),
        ),
        trials=5,
        collapsed=CHANCE,
    )


def lambda_fashion() -> Sweep:
    return _lambdas("evidence-lambda-fashion", recipe("fashion-cnn"))


def repeats_lambda_fashion(sweep: Sweep, arm: Arm) -> bool:
    """Whether another sweep compares the very trials of `lambda_fashion`: if tuning chooses its rate on both sides."""
    own = lambda_fashion()
    return sweep.name != own.name and _sides(sweep, arm) in [_sides(own, one) for one in own.arms if one.baseline]


def _sides(sweep: Sweep, arm: Arm) -> tuple[str, str]:
    assert arm.baseline is not None
    return arm.config.group, sweep[arm.baseline].config.group


def lambda_mnist() -> Sweep:
    return _lambdas("evidence-lambda-mnist", recipe("mnist-cnn"))


def _plain() -> Config:
    """The other reading of the paper: no momentum, no weight decay."""
    return replace(recipe("fashion-cnn"), momentum=0.0, weight_decay=0.0)


def plain_sgd() -> Sweep:
    base = _plain()
    sgd = Arm("plain SGD 0.01", base)
    return Sweep(
        name="evidence-plain-sgd",
        about="the figure of lam without momentum and weight decay, all arms at a rate of 0.01",
        reproduces="the figure of lam, Fashion-MNIST, under the other reading of its settings",
        arms=(
            sgd,
            *(_reweighted(base, lam, sgd.label) for lam in LAMBDAS),
            _tilde(base, 5.0, sgd.label),
            *(Arm(f"plain SGD {rate:g}", replace(base, lr=rate), sgd.label) for rate in MATCHED_RATES.values()),
        ),
        trials=3,
        collapsed=CHANCE,
    )


def plain_sgd_matched() -> Sweep:
    """The same trials; each method against plain SGD whose step along the mean is as long."""
    base = _plain()
    rates = {lam: Arm(f"plain SGD {rate:g}", replace(base, lr=rate)) for lam, rate in MATCHED_RATES.items()}
    return replace(
        plain_sgd(),
        name="evidence-plain-sgd-matched",
        about="is it the metric or the step along the mean: each method against SGD with as long a step along the mean",
        arms=(
            *rates.values(),
            *(_reweighted(base, lam, arm.label) for lam, arm in rates.items()),
            _tilde(base, 5.0, rates[5.0].label),
        ),
    )


def tuned_fashion() -> Sweep:
    """To be run with --tune-lr."""
    return Sweep(
        name="evidence-tuned-fashion",
        about="each method at the rate that suits it",
        reproduces="the figure of lam at lam = 1, which the paper ran at one rate",
        arms=tuple(methods(recipe("fashion-cnn"))),
        trials=5,
        collapsed=CHANCE,
    )


def regimes() -> Sweep:
    base = replace(
        recipe("cifar10-resnet20-b8"),
        recipe="evidence-regimes",
        train_limit=10_000,
        epochs=12,
        drop_every=4,
        eval_every=4,
    )
    arms: list[Arm] = []
    for size, rates in ((8, (0.1, 0.03, 0.01)), (128, (0.3, 0.1, 0.03))):
        for rate in rates:
            arms += methods(replace(base, batch_size=size, lr=rate), prefix=f"b{size} lr {rate:g} ")
    return Sweep(
        name="evidence-regimes",
        about="batch size x learning rate x method on CIFAR-10",
        reproduces="batch sizes 8 and 128 of the CIFAR-10 table, in reduced form",
        arms=tuple(arms),
        trials=5,
        collapsed=CHANCE,
    )
