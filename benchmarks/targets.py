"""The targets, and the figures held against them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from benchmarks.harness import Measurement, load
from benchmarks.networks import NETWORKS


@dataclass(frozen=True)
class Row:
    """One target on one shape; `at_most` says on which side of it the measured ratio must be."""

    what: str
    where: str
    measured: float
    target: float
    at_most: bool = True

    @property
    def met(self) -> bool:
        return self.measured <= self.target if self.at_most else self.measured >= self.target


Ratio = Callable[[str, str, str], float]


def _ratios(claim: str) -> Ratio:
    figures, _ = load(claim)
    median = {(f.shape, f.rival): f.median for f in figures}
    return lambda shape, over, under: median[shape, over] / median[shape, under]


def rows() -> list[Row]:
    return [*_memory(), *_rivals(), *_hook(), *_scaling()]


def _memory() -> Iterable[Row]:
    ratio = _ratios("memory")
    copy = "copy_ per tensor"
    for network, limit in (("ResNet-56", 1.5), ("VGG-16", 1.15), ("ResNet-50", 1.15)):
        for metric in ("SobolevTilde", "ReweightedL2"):
            yield Row(f"{metric} / copy_ per tensor", network, ratio(network, f"{metric} output", copy), limit)
    for network in NETWORKS:
        for metric in ("Sobolev", "LaplacianSmoothing"):
            yield Row(f"{metric} along output / memcpy", network, ratio(network, f"{metric} output", copy), 2.0)
    for network in NETWORKS:
        yield Row(
            "LaplacianSmoothing rasterized / memcpy",
            network,
            ratio(network, "LaplacianSmoothing rasterized", copy),
            4.0,
        )
    for network in NETWORKS:
        for metric in ("SobolevTilde", "ReweightedL2", "Sobolev", "LaplacianSmoothing"):
            yield Row(f"{metric} along input / memcpy", network, ratio(network, f"{metric} input", copy), 3.0)


def _rivals() -> Iterable[Row]:
    ratio = _ratios("rivals")
    pairs = (
        ("over the paper's eager SobolevTilde", "paper SobolevTilde, eager", "riesz SobolevTilde", 30.0),
        ("over FFT as LS-SGD, output", "FFT as LS-SGD, along output", "riesz Sobolev output", 20.0),
        ("over real FFT, output", "real FFT along output", "riesz Sobolev output", 20.0),
        ("over FFT as LS-SGD, rasterized", "FFT as LS-SGD", "riesz LaplacianSmoothing rasterized", 20.0),
    )
    for what, slow, fast, limit in pairs:
        for network in NETWORKS:
            yield Row(f"speed-up {what}", network, ratio(network, slow, fast), limit, at_most=False)


def _hook() -> Iterable[Row]:
    figures, _ = load("hook")
    ratio = _ratios("hook")
    for f in figures:
        if f.rival.startswith("hook") and "warm" not in f.rival:
            metric = f.rival.removeprefix("hook ")
            share = 100 * ratio(f.shape, f.rival, "training step")
            yield Row(f"% of the training step in the hook, {metric}", f"ResNet-56, {f.shape}", share, 0.5)
    # With Identity no kernel runs: what is left is collecting, checking and planning.
    idle = {f.rival: 1e6 * f.median for f in figures if f.shape == "batch 8"}
    yield Row("us outside the kernels, caches warm", "ResNet-56", idle["hook Identity, caches warm"], 60.0)
    yield Row("us outside the kernels, right after backward", "ResNet-56", idle["hook Identity"], 60.0)


def _scaling() -> Iterable[Row]:
    from benchmarks.scaling import GROWTH, METRICS, columns_beyond_cache

    ratio = _ratios("scaling")
    for n in GROWTH:
        columns = f"M={columns_beyond_cache(n)}"
        for metric in METRICS:
            growth = ratio(columns, f"{4 * n} {metric}", f"{n} {metric}")
            yield Row(f"time at 4n / time at n, {metric}", f"n={n}, {columns}", growth, 4.5)


def table(found: list[Row]) -> str:
    lines = [f"{'what':<56} {'where':<20} {'measured':>9} {'target':>9}"]
    for row in found:
        sign = "<=" if row.at_most else ">="
        verdict = "met" if row.met else "MISSED"
        lines.append(f"{row.what:<56} {row.where:<20} {row.measured:>9.2f} {sign:>3} {row.target:>5g}  {verdict}")
    lines.append(f"{sum(row.met for row in found)} of {len(found)} met")
    return "\n".join(lines)


def figures_of(claim: str) -> list[Measurement]:
    return load(claim)[0]
