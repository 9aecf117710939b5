"""What the paper claims and was not tested here: what it says, and what testing it would cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from evidence.rows import compared, metrics
from evidence.tables import at_one_rate, is_decided
from evidence.wording import points
from riesz_lab.report.published import COLUMNS, METHODS, published
from riesz_lab.sweeps import SweepResult, costs, sweep


@dataclass(frozen=True)
class NotTested:
    """An experiment of the paper, and the sweep that would repeat it."""

    experiment: str
    claim: str
    sweep: str


def _cifar() -> str:
    gains = [row[name] - row["baseline"] for row in published()["cifar10"] for name in METHODS]
    higher = sum(gain > 0 for gain in gains)
    return (
        f"higher accuracy in {higher} of {len(gains)} comparisons with SGD and Adam, by up to"
        f" {points(max(gains) / 100)} points; LS is better along the output channels than rasterized, and both metrics"
        " are better than LS"
    )


def _segmentation() -> str:
    gap, gained = published()["voc"]["gap"], published()["voc"]["accuracy gained, relative %"]
    gains = ", ".join(f"+{gained[name]}% ({COLUMNS[name].removeprefix('+ ')})" for name in METHODS)
    return f"accuracy {gains}, relative; gap between training and test {_to(gap, '.3f')}"


def _synthesis() -> str:
    fid, collapsed = published()["spade"]["fid"], published()["spade"]["collapsed"]
    means = {name: mean for name, (mean, _) in fid.items()}
    return f"FID {_to(means, '.2f')}; {_to(collapsed, 'd')} of {collapsed['of']} trials collapse"


def _to(values: Mapping[str, float], digits: str) -> str:
    """The baseline's value, then those of the metrics."""
    base, *others = (format(values[name], digits) for name in ("baseline", *METHODS))
    return f"from {base} to {' and '.join(others)}"


def _not_tested() -> tuple[NotTested, ...]:
    return (
        NotTested("CIFAR-10 with ResNet-56 and VGG-16, SGD, Adam and LS, 240 epochs", _cifar(), "table-cifar"),
        NotTested(
            "Direction of smoothing on CIFAR-10",
            "the output channels are the best direction for every method; smoothing conv layers in rasterized order is"
            " worse than SGD",
            "directions",
        ),
        NotTested("Spread of test accuracy on CIFAR-10", "smaller than that of SGD", "variance"),
        NotTested("Segmentation of PascalVOC", _segmentation(), "voc"),
        NotTested("Image synthesis on Cityscapes with SPADE", _synthesis(), "spade"),
    )


def section(by_name: Mapping[str, SweepResult]) -> Iterator[str]:
    """The lines of the section."""
    yield from ("## Not tested here", "")
    yield from ("| experiment | the paper says | sweep | trials | on two cores | on one GPU |", "| --- " * 6 + "|")
    yield from map(_row, _not_tested())
    yield from ("", f"Rough estimates: {costs.MEASURED_ON}; GPU {costs.GPU_ASSUMED}.", "")
    yield from _spread(by_name)
    yield (
        "What a step costs, which the paper calls negligible for re-weighted L2, is measured in"
        " [benchmarks](benchmarks.md). That updates go from coarse to fine, and that results depend less on the initial"
        " weights, are the figure `spectra` of the report and the sweep `initialisation`; neither is judged here."
    )
    yield ""


def _row(one: NotTested) -> str:
    configs = sweep(one.sweep).all_configs()
    cpu, gpu = (costs.format_sum([hours(c) for c in configs]) for hours in (costs.cpu_hours, costs.gpu_hours))
    return f"| {one.experiment} | {one.claim} | `{one.sweep}` | {len(configs)} | {cpu} | {gpu} |"


def _spread(by_name: Mapping[str, SweepResult]) -> Iterator[str]:
    """A count, not a test: the protocol does not ask, and few seeds hardly tell a standard deviation."""
    ratios = [
        ratio
        for table in at_one_rate(by_name)
        if is_decided(table)
        for row in metrics(table)
        if (ratio := compared(row).variance_ratio) is not None
    ]
    if ratios:
        smaller = sum(ratio < 1 for ratio in ratios)
        yield (
            "The protocol does not ask about the spread over seeds, and three to five seeds hardly tell it. Counted,"
            f" not tested: in the sweeps at one rate it is smaller with a metric than with SGD in {smaller} of"
            f" {len(ratios)} comparisons."
        )
        yield ""
