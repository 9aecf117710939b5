"""What the pages say of the results: numbers as text, and verdict words that hold or stop the build.

In a template, `{{ arm }}` prints a difference with its interval, and `{{ arm.worse }}` prints "worse" if that is the
verdict. If it is not, or if there is no such arm or number, the page is not written.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import riesz
from riesz_lab.config import Config
from riesz_lab.errors import LabError
from riesz_lab.experiments import ArmResult, Result
from riesz_lab.statistics import Comparison, format_p
from riesz_lab.statistics.verdict import difference_cells, format_margin
from riesz_lab.store import StoredTrial


class StaleSentenceError(LabError):
    """A page says what the trials do not say."""


def _stated(word: str) -> Any:
    def state(self: Difference) -> str:
        if self.verdict != word:
            raise StaleSentenceError(f"{self.name}: the page says {word!r}, the trials say {self.verdict!r}")
        return word

    return property(state)


class Difference:
    """A comparison with a baseline, over pairs of trials with one seed."""

    better = _stated("better")
    worse = _stated("worse")
    same = _stated("same")
    undecided = _stated("undecided")

    unit = "points"

    def __init__(self, name: str, comparison: Comparison | None):
        self.name = name
        self._comparison = comparison

    @property
    def comparison(self) -> Comparison:
        if self._comparison is None:
            raise StaleSentenceError(f"{self.name}: the page states a difference, but this arm is a baseline")
        return self._comparison

    @property
    def verdict(self) -> str:
        return str(self.comparison.verdict)

    @property
    def conclusion(self) -> str:
        """The verdict; of "same", with the margin."""
        margin = format_margin(self.comparison.margin, self.unit)
        return f"same within {margin}" if self.verdict == "same" else self.verdict

    def __str__(self) -> str:
        return f"{self.size} ({self.interval})"

    @property
    def size(self) -> str:
        return difference_cells(self.comparison.difference, self.comparison.interval, self.unit)[0]

    @property
    def interval(self) -> str:
        return difference_cells(self.comparison.difference, self.comparison.interval, self.unit)[1]

    @property
    def ends(self) -> tuple[float, float]:
        """Of the interval."""
        return self.comparison.interval or (math.nan, math.nan)

    @property
    def detectable(self) -> str:
        """The smallest difference that this test, alone, finds with 80% power."""
        found = self.comparison.detectable
        return "" if found is None else format_margin(found, self.unit).removesuffix(f" {self.unit}")

    @property
    def p(self) -> str:
        return "" if self.comparison.p is None else format_p(self.comparison.p)

    @property
    def p_holm(self) -> str:
        return "" if self.comparison.p_holm is None else format_p(self.comparison.p_holm)

    def contains(self, value: str) -> str:
        """The word, if the interval does."""
        return self._expect("contains", self.ends[0] <= float(value) / 100 <= self.ends[1], value)

    def excludes(self, value: str) -> str:
        return self._expect("excludes", not self.ends[0] <= float(value) / 100 <= self.ends[1], value)

    def _expect(self, word: str, holds: bool, value: str) -> str:
        if not holds:
            raise StaleSentenceError(f"{self.name}: the page says that {self.interval} {word} {value}; it does not")
        return word


class Correlation(Difference):
    """A difference in correlation, which is neither good nor bad."""

    higher = _stated("higher")
    unit = ""

    @property
    def verdict(self) -> str:
        return {"better": "higher", "worse": "lower"}.get(super().verdict, super().verdict)


class Arm(Difference):
    """An arm of an experiment: its scores in percent, and its difference from its baseline."""

    def __init__(self, name: str, result: ArmResult):
        super().__init__(name, result.comparison)
        self.result = result

    @property
    def label(self) -> str:
        return self.result.arm.label

    @property
    def config(self) -> Config:
        """Its settings, with those that tuning chose."""
        return self.result.arm.at(self.result.chosen).config

    @property
    def metric(self) -> str:
        return type(riesz.metric(self.config.metric)).__name__

    @property
    def lam(self) -> float:
        """As the protocol counts it: lam of ReweightedL2, the scale of SobolevTilde."""
        metric = riesz.metric(self.config.metric)
        return float(getattr(metric, {"SobolevTilde": "scale", "ReweightedL2": "lam"}[self.metric]))

    @property
    def trials(self) -> list[StoredTrial]:
        return list(self.result.trials.values())

    @property
    def mean(self) -> str:
        return f"{100 * statistics.fmean(self.result.finite):.2f}"

    @property
    def sd(self) -> str:
        return f"{100 * statistics.stdev(self.result.finite):.2f}"

    @property
    def train(self) -> str:
        """Accuracy on training images in the last epoch, as they were trained on."""
        return f"{100 * statistics.fmean(trial.last()['train_accuracy'] for trial in self.trials):.2f}"

    @property
    def steps(self) -> int:
        return max(trial.result.step for trial in self.trials if trial.result)

    @property
    def longer(self) -> str:
        """By what factor the metric lengthens the gradient of a layer: least and greatest median over epochs."""
        by_layer: dict[tuple[int, str], list[float]] = {}
        for number, trial in enumerate(self.trials):
            for epoch in trial.updates():
                for name, layer in epoch["layers"].items():
                    if layer.get("ratio") is not None:  # null where a gradient was zero or not finite
                        by_layer.setdefault((number, name), []).append(layer["ratio"])
        medians = [statistics.median(ratios) for ratios in by_layer.values()]
        return f"{min(medians):.1f} to {max(medians):.1f}"


Arms = dict[str, Arm]
"""Those of an experiment, by label."""


def arms_of(result: Result) -> Arms:
    return {label: Arm(f"{result.experiment.name}, {label}", arm) for label, arm in result.arms.items()}


def metrics(arms: Mapping[str, Arm]) -> list[Arm]:
    """Those that are compared and have a metric; SGD at another rate is none."""
    return [arm for arm in arms.values() if arm.result.comparison is not None and arm.config.metric != "identity"]


class Group:
    """Counts over several comparisons, and the range of their differences."""

    def __init__(self, *differences: Difference):
        self.differences = differences
        self.total = len(differences)
        words = [one.verdict for one in differences]
        self.better, self.worse, self.same, self.undecided, self.higher = (
            words.count(word) for word in ("better", "worse", "same", "undecided", "higher")
        )

    @property
    def least(self) -> str:
        return self._extreme(min, (one.comparison.difference for one in self.differences))

    @property
    def greatest(self) -> str:
        return self._extreme(max, (one.comparison.difference for one in self.differences))

    @property
    def lowest(self) -> str:
        """The least end of their intervals."""
        return self._extreme(min, (one.ends[0] for one in self.differences))

    @property
    def highest(self) -> str:
        return self._extreme(max, (one.ends[1] for one in self.differences))

    def _extreme(self, choose: Callable[[Iterable[float]], float], values: Iterable[float]) -> str:
        return difference_cells(choose(values), None, self.differences[0].unit)[0]


def group(*members: Arms | Difference) -> Group:
    """Single comparisons, and all comparisons of a metric in an experiment."""
    each = ([one] if isinstance(one, Difference) else metrics(one) for one in members)
    return Group(*(difference for differences in each for difference in differences))
