"""The shared part of gradients, as a page: a table and a figure by layer."""

import math
from collections.abc import Callable, Sequence

from riesz_lab.inspection.gradients import DIRECTIONS, GradientModes, Mode
from riesz_lab.report.content import Cell, Page, Section, Table
from riesz_lab.report.figure import Figure, Panel, Series, finite

READ = (
    "A metric f + lam mean(f) amplifies what a gradient shares along an axis if lam > 0, and damps it if lam < 0. Here"
    " is what one step of a quadratic model says of it, for gradients of batches of {size}: no momentum, no later"
    " steps, this moment of the training alone. Whether it helps, only training tells: riesz compare."
)


def gradients_page(name: str, modes: GradientModes) -> Page:
    """The page of `riesz inspect --gradients`."""
    text = (READ.format(size=modes.batch_size), *_answers(modes))
    section = Section(name="gradients", title=name, text=text, blocks=[modes_table(modes), modes_figure(modes)])
    return Page(title="What gradients share", sections=[section])


def modes_table(modes: GradientModes) -> Table:
    """A row per layer and direction, then those of all layers at once."""
    lams = list(modes.network[0].gains)
    rows: list[list[Cell | str]] = []
    for mode in (*modes.layers, *modes.network):
        rows.append(
            [
                mode.layer,
                mode.direction,
                str(mode.length) if mode.length else "",
                f"{100 * mode.share:.1f}",
                _number(mode.signal_to_noise),
                _number(mode.curvature),
                _lam(mode),
                *(_percent(mode.gains[lam]) for lam in lams),
            ]
        )
    return Table(
        caption="The shared part of gradients",
        head=(
            "layer",
            "along",
            "n",
            "share %",
            "signal/noise",
            "curvature",
            "best lam",
            *(f"gain at {lam:g}, %" for lam in lams),
        ),
        rows=rows,
        numbers=frozenset(range(2, 7 + len(lams))),
        note="Share: of the energy of the mean gradient. Signal/noise and curvature: of the shared part, divided by"
        " those of the rest. Best lam: of one step of the quadratic model at its best rate, with its 95% interval"
        " (jackknife over groups of batches). Gain: how much more the loss falls than at lam = 0, each at its best"
        " rate. A dash: the model has no minimum.",
    )


def modes_figure(modes: GradientModes) -> Figure:
    ratios: list[tuple[str, Callable[[Mode], float]]] = [
        ("signal to noise, shared / rest", lambda mode: mode.signal_to_noise),
        ("curvature, shared / rest", lambda mode: mode.curvature),
    ]
    panels = [
        Panel(
            title=title,
            x="layer",
            y="ratio",
            log_y=True,
            series=[_series(modes, direction, value) for direction in DIRECTIONS],
        )
        for title, value in ratios
    ]
    return Figure(
        name="gradient-modes",
        title="Signal to noise and curvature of the shared part, by layer",
        caption="Layers in their order. A ratio of 1 is no difference between the shared part and the rest. Values that"
        " are not above 0 are left out: a signal that is not seen in the noise, or curvature below 0.",
        alt=" ".join(_answers(modes)),
        panels=panels,
        columns=2,
    )


def _series(modes: GradientModes, direction: str, value: Callable[[Mode], float]) -> Series:
    chosen = [mode for mode in modes.layers if mode.direction == direction]
    names = list(dict.fromkeys(mode.layer for mode in modes.layers))
    values = [finite(value(mode)) for mode in chosen]
    return Series(
        name=direction.replace("_", "-"),
        x=[1.0 + names.index(mode.layer) for mode in chosen],
        y=[None if one is None or one <= 0 else one for one in values],
        color=1 + DIRECTIONS.index(direction),
        dash=DIRECTIONS.index(direction),
    )


def _answers(modes: GradientModes) -> Sequence[str]:
    return tuple(
        f"Along {mode.direction}, all layers: curvature {_number(mode.curvature)} times that of the rest, best lam"
        f" {_lam(mode)}."
        for mode in modes.network
    )


def _lam(mode: Mode) -> str:
    if mode.lam is None:
        return "-"
    return f"{mode.lam:+.2f} ± {mode.lam_error:.2g}"


def _number(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "-"


def _percent(value: float) -> str:
    return f"{100 * value:+.1f}" if math.isfinite(value) else "-"
