"""The paper's claims and what they leave open, and the sweeps that test them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from evidence import small_batches, sweeps
from evidence.conclusions import Tables, by_outcome, explained_by
from evidence.wording import points
from riesz_lab.sweeps import Sweep


@dataclass(frozen=True)
class Claim:
    """A claim and the sweep that tests it.

    Attributes:
        claim: what the paper says, or leaves open, in a sentence.
        tested: what was run, and how it differs from the paper's experiment.
        sweep: the trials.
        conclude: what the protocol concludes from them, once they are complete.
        explain: what that rests on, for the section of the results, if it is too long for a cell.
    """

    claim: str
    tested: str
    sweep: Callable[[], Sweep]
    conclude: Callable[[Tables], list[str]]
    explain: Callable[[Tables], list[str]] | None = None


def _published_gains(batch: int) -> str:
    """What the paper's metrics gain over SGD with ResNet-56 on CIFAR-10."""
    tilde, reweighted = (
        points(small_batches.published_gain(name, batch)) for name in ("sobolev-tilde", "reweighted-l2")
    )
    return f"{tilde} points (SobolevTilde) and {reweighted} (ReweightedL2) at batch {batch}"


CLAIMS = (
    Claim(
        "Both metrics improve accuracy over SGD for every lam up to 20 on Fashion-MNIST.",
        "The paper's two conv layers, epochs, number of seeds and data (trained on the 10,000 test images, tested on"
        " the 60,000 training images), at lam 1, 5 and 20. Our choice, which the paper does not state: momentum 0.9,"
        " weight decay 5e-4, the schedule of the learning rate, pooling and head.",
        sweeps.lambda_fashion,
        by_outcome(sweeps.lambda_fashion),
    ),
    Claim(
        "The same on MNIST.",
        "As above.",
        sweeps.lambda_mnist,
        by_outcome(sweeps.lambda_mnist),
    ),
    Claim(
        "The same on Fashion-MNIST, if the paper used plain SGD.",
        "No momentum, no weight decay; 3 seeds.",
        sweeps.plain_sgd,
        by_outcome(sweeps.plain_sgd),
    ),
    Claim(
        "Not in the paper: is a gain there more than a longer step?",
        "The same trials, each metric against plain SGD at a larger rate. SGD's step is then as long along the mean"
        " (for lam = 20, as long as at 19) and longer than the metric's in every other direction.",
        sweeps.plain_sgd_matched,
        explained_by(sweeps.plain_sgd, sweeps.plain_sgd_matched, "step length"),
    ),
    Claim(
        "Not in the paper, which tunes no rate: is a gain on Fashion-MNIST more than a matter of the rate?",
        "Fashion-MNIST at lam 1, each arm at its best learning rate of one grid, chosen on 1,000 held-out images.",
        sweeps.tuned_fashion,
        explained_by(sweeps.lambda_fashion, sweeps.tuned_fashion, "a matter of the rate"),
    ),
    Claim(
        "Small batches gain most. On CIFAR-10 with ResNet-56 and a rate of 0.1:"
        f" {_published_gains(8)}; {_published_gains(128)}.",
        "ResNet-20, lam = 1, momentum 0.9, weight decay 5e-4, crop and flip, 10,000 training images (JPEG copies), 12"
        " epochs with the rate divided by 10 after epochs 4 and 8, three rates for each batch size; the paper: 50,000"
        " images, 240 epochs.",
        sweeps.regimes,
        lambda tables: small_batches.conclude(tables[sweeps.regimes().name]),
        lambda tables: small_batches.explain(tables[sweeps.regimes().name]),
    ),
)

REGULARITY = "Training with these metrics leaves filters correlated along the output channels."
