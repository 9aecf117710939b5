"""Every figure by name: the paper's ten, then those that the paper does not have."""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from riesz_lab.report.data import ReportData
    from riesz_lab.report.figure import Figure


@dataclass(frozen=True)
class Entry:
    """A figure that can be made."""

    draw: str  # module and function from the data to the figure, imported on first use
    about: str  # its content
    needs: str  # the stored files it needs, and the command that stores them
    number: int = 0  # its number in the paper; 0 if it is not there

    def make(self, data: "ReportData") -> "Figure | None":
        """The figure; None if the stored files do not allow it, which `draw` says by None or by no panels."""
        module, _, function = self.draw.rpartition(".")
        draw: Callable[[ReportData], Figure | None] = getattr(import_module(f"riesz_lab.report.{module}"), function)
        figure = draw(data)
        return figure if figure and figure.panels else None


FIGURES: dict[str, Entry] = {
    "stripes": Entry(
        "figures.weights.stripes",
        "weights of trained conv layers as images",
        "trials with weights: riesz sweep regularity-mini",
        1,
    ),
    "kernels": Entry("figures.kernels.kernels", "kernels of all metrics, lam = 1", "nothing", 2),
    "curves": Entry(
        "figures.epochs.curves",
        "train and test accuracy by epoch",
        "trials evaluated at two epochs or more: riesz sweep curves-mini",
        3,
    ),
    "histogram": Entry(
        "figures.histogram.histogram",
        "histogram of test accuracy over trials",
        "five trials or more per method: riesz sweep variance-mini",
        4,
    ),
    "directions": Entry("figures.comparison.directions", "direction of smoothing", "riesz sweep directions-mini", 5),
    "regularity": Entry(
        "figures.weights.regularity",
        "correlation between filters by distance",
        "trials with weights whose conv layers have 8 filters or more: riesz sweep regularity-mini",
        6,
    ),
    "lambda": Entry(
        "figures.lambda_sweep.lambda_sweep",
        "test accuracy by lam",
        "riesz sweep lambda-mnist-mini, riesz sweep lambda-fashion-mini, or --sweeps with two lam or more",
        7,
    ),
    "voc": Entry("figures.epochs.segmentation", "segmentation, with the generalisation gap", "riesz sweep voc-mini", 8),
    "fid": Entry("figures.epochs.fid", "image synthesis, FID by epoch", "riesz sweep spade-mini", 9),
    "appendix": Entry(
        "figures.epochs.appendix",
        "accuracy curves per batch size and optimizer",
        "several settings with curves: riesz sweep curves",
        10,
    ),
    "overview": Entry(
        "figures.comparison.overview", "all comparisons at a glance", "an arm and its baseline with seeds in common"
    ),
    "controls": Entry(
        "figures.comparison.controls",
        "controls: norm kept, channels permuted",
        "riesz sweep controls-mini, or riesz compare --controls",
    ),
    "regimes": Entry(
        "figures.regimes.regimes",
        "batch size and learning rate: where a metric helps",
        "riesz sweep regimes-mini, riesz sweep regimes, or --sweeps with two batch sizes and two rates or more",
    ),
    "spectra": Entry("figures.spectra.spectra", "update spectra over epochs", "trials of this version: riesz demo"),
    "speed": Entry("benchmarks.speed", "time to direct all gradients of a network", "benchmark results: make bench"),
}
