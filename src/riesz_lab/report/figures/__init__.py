"""Every figure by name: the paper's ten, then those that the paper does not have."""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from riesz_lab.report.evidence import ReportData
    from riesz_lab.report.figure import Figure


@dataclass(frozen=True)
class Entry:
    """A figure that can be made."""

    draw: str  # module and function from evidence to figure, imported on first use
    about: str  # its content
    needs: str  # the stored files it needs, and the command that stores them
    number: int = 0  # its number in the paper; 0 if it is not there

    def make(self, evidence: "ReportData") -> "Figure | None":
        """The figure; None if the stored files do not allow it, which `draw` says by None or by no panels."""
        module, _, function = self.draw.partition(".")
        draw: Callable[[ReportData], Figure | None] = getattr(import_module(f"{__name__}.{module}"), function)
        figure = draw(evidence)
        return figure if figure and figure.panels else None


FIGURES: dict[str, Entry] = {
    "stripes": Entry(
        "stripes.stripes",
        "weights of trained conv layers as images",
        "trials with weights: riesz sweep regularity-mini",
        1,
    ),
    "kernels": Entry("kernels.kernels", "kernels of all metrics, lam = 1", "nothing", 2),
    "curves": Entry(
        "curves.curves",
        "train and test accuracy by epoch",
        "trials evaluated at two epochs or more: riesz sweep curves-mini",
        3,
    ),
    "histogram": Entry(
        "histogram.histogram",
        "histogram of test accuracy over trials",
        "five trials or more per method: riesz sweep variance-mini",
        4,
    ),
    "directions": Entry("differences.directions", "direction of smoothing", "riesz sweep directions-mini", 5),
    "regularity": Entry(
        "regularity.regularity",
        "correlation between filters by distance",
        "trials with weights whose conv layers have 8 filters or more: riesz sweep regularity-mini",
        6,
    ),
    "lambda": Entry(
        "lambda_sweep.lambda_sweep",
        "test accuracy by lam",
        "riesz sweep lambda-mnist-mini, riesz sweep lambda-fashion-mini, or --sweeps with two lam or more",
        7,
    ),
    "voc": Entry("tasks.segmentation", "segmentation, with the generalisation gap", "riesz sweep voc-mini", 8),
    "fid": Entry("tasks.fid", "image synthesis, FID by epoch", "riesz sweep spade-mini", 9),
    "appendix": Entry(
        "curves.appendix",
        "accuracy curves per batch size and optimizer",
        "several settings with curves: riesz sweep curves",
        10,
    ),
    "overview": Entry(
        "differences.overview", "all comparisons at a glance", "a method and its baseline with seeds in common"
    ),
    "controls": Entry(
        "differences.controls",
        "controls: norm kept, channels permuted",
        "riesz sweep controls-mini, or riesz compare --controls",
    ),
    "regimes": Entry(
        "regimes.regimes",
        "batch size and learning rate: where a metric helps",
        "riesz sweep regimes-mini, riesz sweep regimes, or --sweeps with two batch sizes and two rates or more",
    ),
    "spectra": Entry("spectra.spectra", "update spectra over epochs", "trials of this version: riesz demo"),
    "speed": Entry("speed.speed", "time to direct all gradients of a network", "benchmark results: make bench"),
}
