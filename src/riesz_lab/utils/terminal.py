"""What the terminal can do."""

import os
import sys


def can_redraw() -> bool:
    """Whether lines of standard output can be drawn over.

    A notebook runs `!command` in a pseudo terminal and appends all that it prints, so that every redrawing of a table
    would stay. JPY_PARENT_PID is set in Jupyter's kernels and in what they start.
    """
    return sys.stdout.isatty() and "JPY_PARENT_PID" not in os.environ and os.environ.get("TERM") != "dumb"
