"""The largest difference that does not matter: in the unit of the score, in points, or in standard deviations."""

import math
import re
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from riesz_lab.errors import ConfigError
from riesz_lab.store.result import is_percent


@dataclass(frozen=True)
class Margin:
    """A size and its unit: "" for that of the score, "points" for percent, "sd" for the baseline's spread."""

    size: float
    unit: Literal["", "points", "sd"] = ""

    def value(self, percent: bool, baselines: Iterable[Iterable[float]] = ()) -> float:
        """In the unit of the scores.

        Args:
            percent: whether scores are fractions that are printed in percent.
            baselines: the scores of every baseline so far; their pooled standard deviation counts.
        """
        if self.unit == "points":
            return self.size / 100 if percent else self.size
        if self.unit == "":
            return self.size
        variances = [statistics.variance(scores) for each in baselines if len(scores := list(each)) > 1]
        spread = math.sqrt(statistics.fmean(variances)) if variances else 0.0
        # Without any spread every difference matters; a margin must be above zero.
        return self.size * spread if spread > 0 else math.ulp(1.0)

    def check(self, score: str) -> None:
        """Refuse a margin that no difference of fractions could exceed: 1 is 100 points."""
        if is_percent(score) and self.unit != "sd" and self.value(percent=True) >= 1:
            raise ConfigError(
                f"margin: expected less than 1 for {score!r}, a fraction, got {self.size:g}{self.unit}; one point is "
                "0.01, or 1points"
            )

    def __str__(self) -> str:
        return {"": f"{self.size:g}", "points": f"{self.size:g} points", "sd": f"{self.size:g} sd"}[self.unit]


def read_margin(margin: float | str) -> Margin:
    """A number, "0.3points" or "0.5sd".

    Example:
        >>> read_margin("0.5sd")
        Margin(size=0.5, unit='sd')
    """
    form = re.fullmatch(r"\s*([-+.\deE]+?)\s*(sd|points?)?\s*", str(margin))
    try:
        size = float(form[1]) if form else math.nan
    except ValueError:
        size = math.nan
    if form is None or not (math.isfinite(size) and size > 0):
        raise ConfigError(f"margin: expected a number above 0, or one such as 0.3points or 0.5sd, got {margin!r}")
    unit = form[2] or ""
    return Margin(size, "points" if unit.startswith("point") else "sd" if unit else "")
