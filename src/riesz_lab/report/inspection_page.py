"""An inspection as a page."""

from collections.abc import Sequence

from riesz_lab.inspection import DIRECTIONS, Inspection, Layer, Regularity
from riesz_lab.report.content import Cell, Finding, Page, Section, Table, number
from riesz_lab.report.figure import Array, Figure, Image, Panel, Series, series_around
from riesz_lab.statistics import format_p
from riesz_lab.utils.amounts import count

MAX_LAYERS = 12
MAX_SIDE = 64
MAX_DISTANCE = 64


def inspection_page(inspections: Sequence[Inspection]) -> Page:
    """The page of `riesz inspect`."""
    summary = Section(
        name="verdict",
        title="Does it have the regularity that the method assumes?",
        text=(
            "A Sobolev metric along the output smooths from filter to neighbouring filter: it assumes that"
            " neighbours are alike. Channel order in a network is arbitrary, so the control is the same filters in"
            " random order. Re-weighted L2 ignores order: it assumes that all filters have something in common.",
        ),
        findings=[
            Finding(answer, one.name, f"{question} {answer}: {reason}")
            for one in inspections
            for question, answer, reason in one.findings
        ],
    )
    files = [_file_section(inspection, f"file-{index}") for index, inspection in enumerate(inspections)]
    return Page(title="Regularity of trained weights", sections=[summary, *files])


def layer_table(inspection: Inspection) -> Table:
    """A row per layer and direction."""
    rows: list[list[Cell | str]] = []
    ordered = {direction: inspection.ordered(direction) for direction in DIRECTIONS}
    common = {direction: inspection.with_common_part(direction) for direction in DIRECTIONS}
    for layer in inspection.layers:
        shape = "x".join(map(str, layer.shape))
        for direction, regularity in layer.regularities():
            verdicts = ["neighbours alike"] if layer.name in ordered[direction] else []
            verdicts += ["common part"] if layer.name in common[direction] else []
            rows.append([layer.name, shape, direction, *_cells(regularity), ", ".join(verdicts) or "-"])
        if layer.skipped:
            rows.append([layer.name, shape, *[""] * 7, layer.skipped])
    return Table(
        caption=f"{inspection.name}: layer by layer",
        head=("layer", "shape", "along", "n", "neighbours", "random order", "p", "all pairs", "mean %", "result"),
        rows=rows,
        numbers=frozenset((3, 4, 5, 6, 7, 8)),
        note="Neighbours: mean correlation of filters with |i - j| = 1. Random order: the middle 95% of the same over"
        " shuffled filters. p: share of 10,000 orders with as much. All pairs: mean correlation at any distance, with"
        " its 95% interval. Results are after Holm's correction over the layers. Mean %: share of the weights' power in"
        " the mean over the axis.",
    )


def _cells(regularity: Regularity) -> list[Cell | str]:
    low, high = regularity.band_2D[:, 0]
    return [
        number(regularity.n),
        number(float(regularity.curve_D[0]), "+.3f"),
        f"{low:+.3f} to {high:+.3f}",
        Cell(format_p(regularity.p), regularity.p),
        Cell(f"{regularity.level:+.3f} ± {regularity.level_error:.3f}", regularity.level),
        Cell(f"{100 * regularity.spectrum_F[0]:.1f}", float(regularity.spectrum_F[0])),
    ]


def _file_section(inspection: Inspection, name: str) -> Section:
    shown = [layer for layer in inspection.layers if layer.regularities()][:MAX_LAYERS]
    blocks: list[Figure | Table] = [layer_table(inspection)]
    if shown:
        blocks += [_curves(inspection, shown), _spectra(shown), _stripes(shown)]
    missing = []
    if (left := len(inspection.layers) - len(shown)) > 0:
        missing.append(f"{left} of {len(inspection.layers)} weights are not drawn; the table has all.")
    if not inspection.layers:
        missing.append("No conv weight (a tensor of three dims or more). For matrices: riesz inspect --layers all")
    return Section(name=name, title=inspection.name, blocks=blocks, missing=missing)


def _curves(inspection: Inspection, layers: list[Layer]) -> Figure:
    panels = []
    for layer in layers:
        series = []
        for direction, regularity in layer.regularities():
            reach = min(MAX_DISTANCE, 3 * regularity.n // 4)  # beyond, few pairs are left
            x = [float(d) for d in range(1, reach + 1)]
            curve_D, error_D = regularity.curve_D[:reach], regularity.error_D[:reach]
            if direction == "output":
                series.append(_random_order("output in random order", x, regularity.band_2D[:, :reach]))
            color = 1 + DIRECTIONS.index(direction)
            series.append(series_around(f"along {direction}", x, curve_D, error_D, color=color, note="(95% interval)"))
        panels.append(Panel(title=layer.name, x="|i - j|", y="correlation", series=series, zero=True))
    return Figure(
        name="correlation",
        title="Correlation between filters by distance",
        caption="Bands around the curves are 95% intervals; the grey band holds 95% of random orders of the output"
        " channels. Regularity along the output would lift the blue curve above the grey band at small |i - j|.",
        alt=inspection.verdict,
        panels=panels,
    )


def _random_order(name: str, x: list[float], band_2X: Array) -> Series:
    low, high = band_2X.tolist()
    return Series(name=name, x=x, y=band_2X.mean(0).tolist(), low=low, high=high, dash=2, note="(95% of orders)")


def _spectra(layers: list[Layer]) -> Figure:
    panels = []
    for layer in layers:
        if layer.output is not None:
            x = [float(k) for k in range(1, layer.output.n // 2 + 1)]
            series = [
                _random_order("random order", x, layer.output.spectrum_band_2F[:, 1:]),
                Series(name="as trained", x=x, y=layer.output.spectrum_F[1:].tolist(), color=1),
            ]
            panels.append(Panel(title=layer.name, x="frequency along the output", y="share of power", series=series))
    return Figure(
        name="spectrum",
        title="Spectra along the output axis",
        caption="Without frequency 0, the mean, which no order changes (see the table). Smooth weights would have more"
        " power than random orders at low frequencies.",
        alt=f"{count(len(panels), 'layer')}.",
        panels=panels,
    )


def _stripes(layers: list[Layer]) -> Figure:
    return Figure(
        name="stripes",
        title="Weights as images",
        caption="The central tap of each weight, output by input channel, up to 64 of each. Vertical stripes would mean"
        " that all output channels weight an input channel alike.",
        alt="How much of it is more than noise is in the table.",
        panels=[
            Panel(title=layer.name, image=Image(image[:MAX_SIDE, :MAX_SIDE], "output channel", "input channel"))
            for layer in layers
            if (image := layer.stripes_OI) is not None and min(image.shape) > 1
        ],
    )
