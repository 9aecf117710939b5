"""The verdict of a comparison, and how its numbers are printed. A null result is stated as plainly as a gain."""

import math
from enum import Enum

LEAST_PAIRS = 3
ALPHA = 0.05


class Verdict(str, Enum):
    """What a comparison concludes: four words, wherever a person or a file meets them."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "same"  # no difference larger than the margin
    UNDECIDED = "undecided"

    def __str__(self) -> str:
        return self.value


Interval = tuple[float, float]


def format_difference(difference: float, interval: Interval | None, unit: str = "") -> str:
    """A difference with its interval, in as many digits as the interval deserves.

    Args:
        difference: method - baseline.
        interval: its ends; None if there is none.
        unit: "points" for fractions that are printed in percent, "" for the unit of the scores.

    Example:
        >>> format_difference(0.0102, (0.0079, 0.0126), "points")
        '+1.02 (+0.79 to +1.26) points'
        >>> format_difference(0.00016, (-0.0000091, 0.00033))
        '+0.00016 (-0.00001 to +0.00033)'
    """
    middle, ends = difference_cells(difference, interval, unit)
    return " ".join(filter(None, (middle, f"({ends})" if ends else "", middle and unit)))


def difference_cells(difference: float, interval: Interval | None, unit: str = "") -> tuple[str, str]:
    """The same as two cells of a table: the difference and the ends of its interval, without the unit."""
    times = 100.0 if unit == "points" else 1.0
    if not math.isfinite(difference):
        return "", ""
    finite = interval is not None and all(map(math.isfinite, interval))
    width = (interval[1] - interval[0]) / 2 if interval is not None and finite else abs(difference)
    places = _places(times * width)
    ends = " to ".join(_signed(times * end, places) for end in interval) if interval is not None and finite else ""
    return _signed(times * difference, places), ends


def format_margin(margin: float, unit: str = "") -> str:
    """A margin, or another size without a sign: two significant digits.

    Example:
        >>> format_margin(0.002, "points"), format_margin(0.0312)
        ('0.20 points', '0.031')
    """
    size = 100 * margin if unit == "points" else margin
    return f"{without_noise(size):.{_places(size)}f}{unit and ' '}{unit}"


def _places(width: float) -> int:
    """The decimals that show two significant digits of a width, rounding included: 0.0996 is shown as 0.10."""
    if not (math.isfinite(width) and width > 0):
        return 2
    return max(0, 1 - math.floor(math.log10(float(f"{width:.1e}"))))


def _signed(value: float, places: int) -> str:
    # The sign of a small number stays: it says on which side of zero an end lies.
    return f"{'-' if value < 0 else '+'}{abs(without_noise(value)):.{places}f}"


def without_noise(value: float) -> float:
    """To ten significant digits, so that one difference is rounded the same wherever it is printed.

    Example:
        >>> 0.1 + 0.2, without_noise(0.1 + 0.2)
        (0.30000000000000004, 0.3)
    """
    return float(f"{value:.10g}")


def describe_p(p: float) -> str:
    """For example "p = 0.041"."""
    return f"p {format_p(p)}" if p < 1e-4 else f"p = {format_p(p)}"


def format_p(p: float) -> str:
    """A p-value with two significant digits.

    Example:
        >>> [format_p(p) for p in (0.0412, 0.00003)]
        ['0.041', '< 0.0001']
    """
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"
