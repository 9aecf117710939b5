"""Every figure by name: the paper's ten, then those that the paper does not have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from riesz_lab.report.evidence import Evidence
from riesz_lab.report.figure import Figure
from riesz_lab.report.figures.curves import appendix, curves
from riesz_lab.report.figures.differences import controls, directions, overview
from riesz_lab.report.figures.histogram import histogram
from riesz_lab.report.figures.kernels import kernels
from riesz_lab.report.figures.lambda_sweep import lambda_sweep
from riesz_lab.report.figures.regimes import regimes
from riesz_lab.report.figures.regularity import regularity
from riesz_lab.report.figures.spectra import spectra
from riesz_lab.report.figures.speed import speed
from riesz_lab.report.figures.stripes import stripes
from riesz_lab.report.figures.tasks import fid, segmentation


@dataclass(frozen=True)
class Entry:
    """A figure that can be made.

    Attributes:
        draw: the figure from evidence; None, or one without panels, if the stored files do not allow it.
        about: its content.
        needs: the stored files it needs, and the command that stores them.
        number: its number in the paper; 0 if it is not there.
    """

    draw: Callable[[Evidence], Figure | None]
    about: str
    needs: str
    number: int = 0

    def make(self, evidence: Evidence) -> Figure | None:
        """The figure; None if the stored files do not allow it."""
        figure = self.draw(evidence)
        return figure if figure and figure.panels else None


FIGURES: dict[str, Entry] = {
    "stripes": Entry(
        stripes, "weights of trained conv layers as images", "trials with weights: riesz sweep regularity-mini", 1
    ),
    "kernels": Entry(kernels, "kernels of all metrics, lam = 1", "nothing", 2),
    "curves": Entry(
        curves, "train and test accuracy by epoch", "trials evaluated at two epochs or more: riesz sweep curves-mini", 3
    ),
    "histogram": Entry(
        histogram,
        "histogram of test accuracy over trials",
        "five trials or more per method: riesz sweep variance-mini",
        4,
    ),
    "directions": Entry(directions, "direction of smoothing", "riesz sweep directions-mini", 5),
    "regularity": Entry(
        regularity,
        "correlation between filters by distance",
        "trials with weights whose conv layers have 8 filters or more: riesz sweep regularity-mini",
        6,
    ),
    "lambda": Entry(
        lambda_sweep, "test accuracy by lam", "riesz sweep lambda-mnist-mini, riesz sweep lambda-fashion-mini", 7
    ),
    "voc": Entry(segmentation, "segmentation, with the generalisation gap", "riesz sweep voc-mini", 8),
    "fid": Entry(fid, "image synthesis, FID by epoch", "riesz sweep spade-mini", 9),
    "appendix": Entry(
        appendix, "accuracy curves per batch size and optimizer", "several settings with curves: riesz sweep curves", 10
    ),
    "overview": Entry(overview, "all comparisons at a glance", "a method and its baseline with seeds in common"),
    "controls": Entry(
        controls, "controls: norm kept, channels permuted", "riesz sweep controls-mini, or riesz compare --controls"
    ),
    "regimes": Entry(
        regimes,
        "batch size and learning rate: where a metric helps",
        "riesz sweep regimes-mini, or riesz sweep regimes",
    ),
    "spectra": Entry(spectra, "update spectra over epochs", "trials of this version: riesz demo"),
    "speed": Entry(speed, "time to direct all gradients of a network", "benchmark results: make bench"),
}
