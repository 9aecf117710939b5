"""An inspection as a page."""

from __future__ import annotations

from collections.abc import Iterable

from riesz_lab.inspection import Inspection, Layer, Regularity
from riesz_lab.report.content import Cell, Finding, Page, Section, Table
from riesz_lab.report.figure import Figure, Image, Panel, Series

MOST_FIGURES = 12
MOST_SIDE = 64
FARTHEST = 64


def inspected(inspections: Iterable[Inspection]) -> Page:
    """The page of `riesz inspect`."""
    found = list(inspections)
    sections = [
        Section(
            name="verdict",
            title="Does it have the regularity that the method assumes?",
            text=(
                "A Sobolev metric along the output smooths from filter to neighbouring filter: it assumes that"
                " neighbours are alike. Channel order in a network is arbitrary, so the control is the same filters in"
                " random order. Re-weighted L2 knows no order: it assumes that all filters have something in common.",
            ),
            findings=[
                Finding(one.verdict.partition(":")[0], one.name, one.verdict.partition(": ")[2] or one.verdict)
                for one in found
            ],
        )
    ]
    for index, one in enumerate(found):
        sections += _file_sections(one, f"file-{index}")
    return Page(title="Regularity of trained weights", sections=sections)


def table(one: Inspection) -> Table:
    """A row per layer and direction."""
    ordered = {direction: set(one.ordered(direction)) for direction in ("output", "input")}
    rows: list[list[Cell | str]] = []
    for layer in one.layers:
        shape = "x".join(map(str, layer.shape))
        for direction in ("output", "input"):
            regular: Regularity | None = getattr(layer, direction)
            if regular is None:
                continue
            told = [
                name
                for name, holds in (
                    ("neighbours alike", layer.name in ordered[direction]),
                    ("common part", regular.level > regular.level_error),
                )
                if holds
            ]
            rows.append(
                [
                    layer.name,
                    shape,
                    direction,
                    Cell(str(regular.n), regular.n),
                    Cell(f"{regular.curve_D[0]:+.3f}", float(regular.curve_D[0])),
                    f"{regular.band_2D[0, 0]:+.3f} to {regular.band_2D[1, 0]:+.3f}",
                    Cell(f"{regular.p:.2g}", regular.p),
                    Cell(f"{regular.level:+.3f} ± {regular.level_error:.3f}", regular.level),
                    Cell(f"{100 * regular.spectrum_F[0]:.1f}", float(regular.spectrum_F[0])),
                    ", ".join(told) or "-",
                ]
            )
        if layer.skipped:
            rows.append([layer.name, shape, "", "", "", "", "", "", "", layer.skipped])
    return Table(
        caption=f"{one.name}: layer by layer",
        head=("layer", "shape", "along", "n", "neighbours", "random order", "p", "all pairs", "mean %", "found"),
        rows=rows,
        numbers=frozenset((3, 4, 5, 6, 7, 8)),
        note="Neighbours: mean correlation of filters with |i - j| = 1. Random order: the middle 95% of the same over"
        " shuffled filters. p: share of 10,000 orders with as much; found after Holm's correction over the layers. All"
        " pairs: mean correlation whatever the distance, with its 95% interval. Mean %: share of the weights' power in"
        " the mean over the axis.",
    )


def _file_sections(one: Inspection, name: str) -> list[Section]:
    shown = [layer for layer in one.layers if layer.output is not None or layer.input is not None][:MOST_FIGURES]
    blocks: list[Figure | Table] = [table(one)]
    if shown:
        blocks += [_curves(one, shown), _spectra(one, shown), _stripes(one, shown)]
    missing = []
    if (left := len(one.layers) - len(shown)) > 0:
        missing.append(f"{left} of {len(one.layers)} weights are not drawn; the table has all.")
    if not one.layers:
        missing.append("No conv weight (a tensor of three dims or more). For matrices: riesz inspect --layers all")
    return [Section(name=name, title=one.name, blocks=blocks, missing=missing)]


def _curves(one: Inspection, layers: list[Layer]) -> Figure:
    panels = []
    for layer in layers:
        series = []
        for direction, color in (("output", 1), ("input", 2)):
            found: Regularity | None = getattr(layer, direction)
            if found is None:
                continue
            reach = min(FARTHEST, 3 * found.n // 4)  # beyond, a few pairs are left, and noise
            x = [float(d) for d in range(1, reach + 1)]
            curve, error = found.curve_D[:reach], found.error_D[:reach]
            series.append(
                Series(
                    name=f"along {direction}",
                    x=x,
                    y=curve.tolist(),
                    low=(curve - error).tolist(),
                    high=(curve + error).tolist(),
                    color=color,
                    note="(95% interval)",
                )
            )
            if direction == "output":
                series.insert(
                    0,
                    Series(
                        name="output in random order",
                        x=x,
                        y=found.band_2D[:, :reach].mean(0).tolist(),
                        low=found.band_2D[0, :reach].tolist(),
                        high=found.band_2D[1, :reach].tolist(),
                        color=0,
                        dash=2,
                        note="(95% of orders)",
                    ),
                )
        panels.append(Panel(title=layer.name, x="|i - j|", y="correlation", series=series, zero=True))
    return Figure(
        name="correlation",
        title="Correlation between filters by distance",
        caption="Bands around the curves are 95% intervals; the grey band holds 95% of random orders of the output"
        " channels. Regularity along the output would lift the blue curve above the grey band at small |i - j|.",
        alt=one.verdict,
        panels=panels,
    )


def _spectra(one: Inspection, layers: list[Layer]) -> Figure:
    panels = []
    for layer in layers:
        if (found := layer.output) is None:
            continue
        x = [float(k) for k in range(1, found.n // 2 + 1)]
        panels.append(
            Panel(
                title=layer.name,
                x="frequency along the output",
                y="share of power",
                series=[
                    Series(
                        name="random order",
                        x=x,
                        y=found.spectrum_band_2F[:, 1:].mean(0).tolist(),
                        low=found.spectrum_band_2F[0, 1:].tolist(),
                        high=found.spectrum_band_2F[1, 1:].tolist(),
                        color=0,
                        dash=2,
                        note="(95% of orders)",
                    ),
                    Series(name="as trained", x=x, y=found.spectrum_F[1:].tolist(), color=1),
                ],
            )
        )
    return Figure(
        name="spectrum",
        title="Spectra along the output axis",
        caption="Without frequency 0, the mean, which no order changes (see the table). Smooth weights would have more"
        " power than random orders at low frequencies.",
        alt=f"{len(panels)} layers.",
        panels=panels,
    )


def _stripes(one: Inspection, layers: list[Layer]) -> Figure:
    panels = [
        Panel(
            title=layer.name,
            image=Image(layer.stripes_OI[:MOST_SIDE, :MOST_SIDE], "output channel", "input channel"),
        )
        for layer in layers
        if layer.stripes_OI is not None and min(layer.stripes_OI.shape) > 1
    ]
    return Figure(
        name="stripes",
        title="Weights as images",
        caption="The central tap of each weight, output by input channel, up to 64 of each. Vertical stripes would mean"
        " that all output channels weight an input channel alike.",
        alt="How much of it is more than noise is in the table.",
        panels=panels,
    )
