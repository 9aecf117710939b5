"""What all pictures share: the same bytes every time, text as text, a white ground that dark pages keep."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

BLUE, ORANGE, GREY = "#2a6fbb", "#d9822b", "#b8bec6"


def configure() -> None:
    mpl.rcParams.update({"svg.hashsalt": "riesz", "svg.fonttype": "none", "font.size": 9})


def save(figure: Figure, module: str) -> None:
    """Write the picture beside the module that draws it; a fixed date keeps the file the same."""
    path = Path(module).with_suffix(".svg")
    figure.savefig(path, metadata={"Date": None})
    # matplotlib ends lines with spaces, which lint tools of repositories complain about
    path.write_text("\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n")
