"""Prints the table of targets and writes docs/benchmarks.md with its plots; reads the stored results only."""

from __future__ import annotations

from pathlib import Path

from benchmarks.gpu_page import devices
from benchmarks.harness import Measurement, load
from benchmarks.networks import NETWORKS
from benchmarks.scaling import COLUMNS, FIXED_M, FIXED_N, LENGTHS, METRICS
from benchmarks.sharded_steps import ratios
from benchmarks.targets import Row, rows, table
from riesz_lab.report.drawing import picture
from riesz_lab.report.figure import Figure, Panel, Series

DOCS = Path(__file__).parent.parent / "docs"

HEAD = """# Benchmarks

`make bench` measures all of this and writes this page. {machine}

How it is timed: rivals run in turn in a new random order each round; in its turn each runs once untimed, then short
ones as often as fill 4 ms; turns during which the scheduler kept a thread waiting for more than 2% of the time are left
out, for all rivals alike; every figure is a median, with its 20th and 80th percentile and the number of quiet turns in
`benchmarks/results/`. Ratios are of medians within one run. "memcpy" in the table is a `copy_` of every gradient to a
second tensor; one flat copy of the same bytes is in the last table.

## Targets

| what | where | measured | target | |
| --- | --- | --- | --- | --- |
{targets}

{met} of {all} are met. A share of a training step cannot fall below what memory takes there: at the place of the hook,
right after a backward pass, a `copy_` of the same gradients took {copy} of a step. Speed-ups over other ways
are bounded likewise, by their time over that of a copy.

Time grows faster than n for long columns: a tile of columns must stay in the second-level cache, so it is the narrower
the longer they are, and its rows lie on as many pages of memory. At n = 256 the kernels beat a copy, at 4,096 they take
half as long again. Huge pages help: with `THP_MEM_ALLOC_ENABLE=1`, which torch's allocator reads, SobolevTilde at
n = 4,096 took 1.15 times a copy instead of 1.45 in one run.

## Time against n and M

![Time against n and M](benchmarks-scaling.svg)

A straight line of slope one is linear time. {fixed}

## Against other ways to do the same

![Speed-up over other implementations](benchmarks-rivals.svg)

{rivals}

## Sharded steps

What directing adds to a step of SGD with momentum under FSDP2 over gloo, as a part of that step: on the wall / in
processor time of one rank, medians of {steps}. The last rows are what no implementation can leave out: a collective of
the same bytes, one pass that reads the gradients for the sums, one that reads and writes them. Together: the floor.

{sharded}

## Milliseconds, all metrics and directions

{memory}

## On GPUs

`riesz doctor --gpu`, or `make bench-gpu` in a checkout, writes `gpu-<device>.csv`; files in `benchmarks/results/` are
shown here. What is known without one is in [GPU kernels](gpu.md).

{gpus}
"""


def _verdict(row: Row) -> str:
    return "met" if row.met else "**missed**"


def _targets(targets: list[Row]) -> str:
    return "\n".join(
        f"| {row.what} | {row.where} | {row.measured:.2f} | {'<=' if row.at_most else '>='} {row.target:g} | "
        f"{_verdict(row)} |"
        for row in targets
    )


def _copy_share() -> str:
    figures, _ = load("hook")
    median = {(f.shape, f.rival): f.median for f in figures}
    shares = [(b, 100 * median[b, "copy_ per tensor"] / median[b, "training step"]) for b in ("batch 8", "batch 128")]
    return " and ".join(f"{share:.2f}% ({batch})" for batch, share in shares)


def _milliseconds(figures: list[Measurement]) -> str:
    """One row per rival, one column per network."""
    names = list(dict.fromkeys(f.rival for f in figures))
    by = {(f.rival, f.shape): f for f in figures}
    lines = [f"| ms | {' | '.join(NETWORKS)} |", "| --- |" + " --- |" * len(NETWORKS)]
    for name in names:
        cells = [f"{by[name, n].median * 1e3:.3g}" if (name, n) in by else "-" for n in NETWORKS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _scaling(figures: list[Measurement]) -> Figure:
    median = {(f.shape, f.rival): f.median * 1e3 for f in figures}
    panels = []
    for sizes, fixed, label in ((LENGTHS, f"M={FIXED_M}", "n"), (COLUMNS, f"n={FIXED_N}", "M")):
        series = [
            Series(
                name=name,
                x=[float(size) for size in sizes],
                y=[median[fixed, f"{size} {name}"] for size in sizes],
                color=index,
                dash=1 if name == "copy_" else 0,
            )
            for index, name in enumerate(("copy_", *METRICS))
        ]
        panels.append(Panel(x=f"{label} ({fixed})", y="ms", series=series, log_x=True, log_y=True))
    return Figure(name="scaling", title="Time against n and M", panels=panels)


def _rivals(figures: list[Measurement]) -> Figure:
    pairs = {
        "paper's SobolevTilde": ("paper SobolevTilde, eager", "riesz SobolevTilde"),
        "paper's ReweightedL2": ("paper ReweightedL2, eager", "riesz ReweightedL2"),
        "real FFT, output": ("real FFT along output", "riesz Sobolev output"),
        "FFT as LS-SGD": ("FFT as LS-SGD", "riesz LaplacianSmoothing rasterized"),
        "torchzero": ("torchzero LaplacianSmoothing", "riesz LaplacianSmoothing rasterized"),
        "pytorch_optimizer": ("pytorch_optimizer centralization", "riesz Centralization"),
    }
    median = {(f.shape, f.rival): f.median for f in figures}
    series = []
    for index, network in enumerate(NETWORKS):
        known = {
            name: median[network, slow] / median[network, fast]
            for name, (slow, fast) in pairs.items()
            if (network, slow) in median
        }
        x, y = list(known), list(known.values())
        series.append(Series(name=network, x=x, y=y, kind="points", color=index + 1, dash=index))
    panel = Panel(y="times slower than riesz", series=series, sideways=True, log_y=True)
    return Figure(name="rivals", title="Speed-up over other implementations", panels=[panel])


def main() -> None:
    targets = rows()
    (memory, machine), (rivals, _), (scaling, _) = load("memory"), load("rivals"), load("scaling")
    sharded, _ = load("sharded")
    DOCS.mkdir(exist_ok=True)
    for figure in (_scaling(scaling), _rivals(rivals)):
        (DOCS / f"benchmarks-{figure.name}.svg").write_bytes(picture(figure, "svg"))
    described = (
        f"Last run {machine['date']} on {machine['cpu']}, {machine['threads']} threads, {machine['instructions']}, "
        f"torch {machine['torch']}, Python {machine['python']}."
    )
    page = HEAD.format(
        machine=described,
        targets=_targets(targets),
        met=sum(row.met for row in targets),
        all=len(targets),
        copy=_copy_share(),
        fixed=f"Left M is {FIXED_M}, right n is {FIXED_N}; float32.",
        rivals=_milliseconds(rivals),
        steps=sharded[0].runs,
        sharded="\n".join(ratios(sharded)),
        memory=_milliseconds(memory),
        gpus=devices(),
    )
    (DOCS / "benchmarks.md").write_text(page)
    print(table(targets))


if __name__ == "__main__":
    main()
