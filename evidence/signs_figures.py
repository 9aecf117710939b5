"""The pictures of PROTOCOL-2.md, of the cells that are complete.

python -m evidence.signs_figures RUNS FOLDER
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from evidence.reread import interval
from evidence.signs import TRIALS_2, Cell, best_cell, parts, scores, search
from evidence.signs_table import complete
from riesz_lab.report.drawing import picture
from riesz_lab.report.figure import Figure, Panel, Series
from riesz_lab.store import Store


def rate_curves(cell: Cell, done: Mapping[str, float | None]) -> Figure | None:
    """Held-out accuracy by rate, of SGD and of the arm with the highest mean score; None while a trial is missing."""
    by_arm = complete(cell, done)
    if by_arm is None or not cell.tuned:
        return None
    means = {label: np.mean([score or 0.0 for score in by_seed.values()]) for label, by_seed in by_arm.items()}
    best = max((label for label in means if label != "SGD"), key=lambda label: means[label])
    series = []
    for index, label in enumerate(("SGD", best)):
        found = sorted(search(cell.arms[label], done).scores.items())
        x, y = [rate for rate, _ in found], [None if score is None else 100 * score for _, score in found]
        series.append(Series(name=label, x=x, y=y, color=index, dash=index))
    panel = Panel(title=cell.name, x="learning rate", y="held-out accuracy %", log_x=True, series=series)
    return Figure(
        name="signs-rates",
        title="Held-out accuracy by learning rate",
        caption="Means of two seeds on 2,000 held-out images. Each arm is compared at its own best rate.",
        panels=[panel],
    )


def lam_picture(done: Mapping[str, float | None]) -> Figure | None:
    """Accuracy minus SGD's by lam, along output and input; None while a trial is missing."""
    panels = []
    for cell in best_cell():
        if "picture of lam" not in cell.name:
            continue
        by_arm = complete(cell, done)
        if by_arm is None:
            return None
        series = []
        for index, direction in enumerate(("output", "input"), 1):
            values: dict[float, tuple[float, float, float]] = {0.0: (0.0, 0.0, 0.0)}
            for label, by_seed in by_arm.items():
                name, _, lam = label.partition(" ")
                if name == direction:
                    plain = by_arm["SGD"]
                    values[float(lam)] = interval([100 * ((by_seed[s] or 0.1) - (plain[s] or 0.1)) for s in plain])
            x = sorted(values)
            mean, low, high = zip(*(values[lam] for lam in x), strict=True)
            note = f"95% interval, {len(cell.seeds)} seeds"
            series.append(Series(name=f"along {direction}", x=x, y=mean, low=low, high=high, color=index, note=note))
        panels.append(Panel(title=cell.name, x="lam", y="points against SGD", series=series, zero=True, margin=0.2))
    if not panels:
        return None
    return Figure(
        name="signs-lam",
        title="Accuracy by lam, every arm at its own best rate",
        caption="Differences from SGD. Bands are 95% intervals, not corrected: a picture, no verdict.",
        panels=panels,
        columns=2,
    )


def figures(done: Mapping[str, float | None]) -> Iterator[Figure]:
    curves = [figure for cell in parts([1, 2], done) if (figure := rate_curves(cell, done)) is not None]
    if curves:
        panels = [panel for figure in curves for panel in figure.panels]
        yield Figure(name=curves[0].name, title=curves[0].title, caption=curves[0].caption, panels=panels, columns=2)
    if (by_lam := lam_picture(done)) is not None:
        yield by_lam


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m evidence.signs_figures RUNS FOLDER")
    for figure in figures(scores(Store(Path(sys.argv[1]), TRIALS_2))):
        file = Path(sys.argv[2]) / f"{figure.name}.svg"
        file.write_bytes(picture(figure, "svg"))
        print(file)
