"""The largest difference that does not matter: a number, points, standard deviations, or a share of the baseline."""

import math
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from riesz_lab.errors import ConfigError
from riesz_lab.store.result import is_percent

NO_SPREAD = math.ulp(1.0)
"""A margin must be above zero; without any spread, every difference matters."""


@dataclass(frozen=True)
class Margin:
    """A size and its unit: "" for that of the score, "points" for percent, "sd" for standard deviations of the
    baselines, "relative" for a share of the baseline's mean."""

    size: float
    unit: Literal["", "points", "sd", "relative"] = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.size) and self.size > 0):
            raise ConfigError(f"margin: expected a number above 0, in the unit of the scores, got {self.size!r}")

    def value(self, percent: bool, baseline: Sequence[float] = (), baselines: Iterable[Sequence[float]] = ()) -> float:
        """In the unit of the scores.

        Args:
            percent: whether scores are fractions that are printed in percent.
            baseline: the scores that an arm is compared with; its mean counts.
            baselines: the scores of every baseline; their pooled standard deviation counts.
        """
        if self.unit == "points":
            return self.size / 100 if percent else self.size
        if self.unit == "relative":
            return abs(self.size * sum(baseline) / len(baseline)) if any(baseline) else NO_SPREAD
        if self.unit == "sd":
            variances = [statistics.variance(scores) for scores in baselines if len(scores) > 1]
            spread = math.sqrt(statistics.fmean(variances)) if variances else 0.0
            return self.size * spread if spread > 0 else NO_SPREAD
        return self.size

    def check(self, score: str) -> None:
        """Refuse a margin that no difference of fractions could exceed: 1 is 100 points."""
        if is_percent(score) and self.unit in ("", "points") and self.value(percent=True) >= 1:
            raise ConfigError(
                f"margin: expected less than 1 for {score!r}, a fraction, got {self.size:g}{self.unit}; one point is "
                "0.01, or 1points"
            )

    def __str__(self) -> str:
        if self.unit == "relative":
            return f"{100 * self.size:g}% of the baseline"
        return f"{self.size:g} {self.unit}".rstrip()


DEFAULT_MARGIN = Margin(0.002)
"""0.2 points of accuracies."""


def read_margin(margin: "float | str | Margin") -> Margin:
    """A number, "0.3points" or "0.5sd".

    Example:
        >>> read_margin("0.5sd")
        Margin(size=0.5, unit='sd')
    """
    if isinstance(margin, Margin):
        return margin
    form = re.fullmatch(r"\s*([-+.\deE]+?)\s*(sd|points?)?\s*", str(margin))
    try:
        size = float(form[1]) if form else math.nan
    except ValueError:
        size = math.nan
    if form is None or not (math.isfinite(size) and size > 0):
        raise ConfigError(f"margin: expected a number above 0, or one such as 0.3points or 0.5sd, got {margin!r}")
    unit = form[2] or ""
    return Margin(size, "points" if unit.startswith("point") else "sd" if unit else "")
