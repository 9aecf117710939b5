"""What stored files say, read once and shared by all figures and tables of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from riesz_lab.config import Config
from riesz_lab.errors import LabError
from riesz_lab.inspection import read_tensors
from riesz_lab.report import labels as gather
from riesz_lab.report.benchmarks import Measurement
from riesz_lab.report.figure import Series
from riesz_lab.statistics import Comparison
from riesz_lab.store import Store, StoredTrial
from riesz_lab.sweeps import Table

Array = NDArray[np.float64]
Methods = dict[str, list[StoredTrial]]

MOST_POINTS = 80
"""Of a curve over epochs."""


@dataclass
class Evidence:
    """A store, the tables it allows, and benchmark results.

    Attributes:
        store: the trials.
        benchmarks: measured times, if any were given.
        margin: the largest difference that does not matter, where no sweep says.
    """

    store: Store
    benchmarks: Sequence[Measurement] = ()
    margin: float = 0.002
    _rows: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)
    _weights: dict[str, dict[str, Array]] = field(default_factory=dict)

    @cached_property
    def tables(self) -> list[Table]:
        return gather.tables(self.store, self.margin)

    def tables_of(self, *names: str) -> list[Table]:
        """The tables of these sweeps, in full or small form."""
        return [table for table in self.tables if table.sweep.name.removesuffix("-mini") in names]

    @cached_property
    def comparisons(self) -> list[tuple[Table, str, Comparison]]:
        """Every comparison with its table and label. Sweeps share some: each is here once, of the largest table."""
        found: dict[tuple[str, str], tuple[Table, str, Comparison]] = {}
        for table in sorted(self.tables, key=lambda one: -len(one.comparisons)):
            for label, one in table.comparisons.items():
                arm = table.rows[label].arm
                assert arm.baseline is not None
                pair = (arm.config.group, table.rows[arm.baseline].arm.config.group)
                if one.trials:
                    found.setdefault(pair, (table, label, one))
        return list(found.values())

    @cached_property
    def settings(self) -> dict[Config, Methods]:
        """Complete trials by setting and method, the plain optimizer first; trials that chose a rate are left out."""
        found: dict[Config, Methods] = {}
        for trial in self.store.trials:
            if trial.result is not None and not trial.config.hold_out:
                methods = found.setdefault(gather.setting(trial.config), {})
                methods.setdefault(gather.method(trial.config), []).append(trial)
        return {base: _in_order(methods) for base, methods in found.items()}

    def history(self, trial: StoredTrial) -> list[dict[str, Any]]:
        return self._read(trial, "history")

    def updates(self, trial: StoredTrial) -> list[dict[str, Any]]:
        return self._read(trial, "updates")

    def _read(self, trial: StoredTrial, what: str) -> list[dict[str, Any]]:
        key = (str(trial.path), what)
        if key not in self._rows:
            self._rows[key] = [row for row in getattr(trial, what)() if isinstance(row.get("epoch"), int)]
        return self._rows[key]

    def conv_weights(self, trial: StoredTrial) -> dict[str, Array]:
        """The final conv weights of a trial, as (output, input, taps); empty if they cannot be read."""
        key = str(trial.path)
        if key not in self._weights:
            try:
                tensors = read_tensors(trial.files.weights_file)
            except LabError:
                tensors = {}
            self._weights[key] = {
                name: tensor.double().reshape(tensor.shape[0], tensor.shape[1], -1).numpy()
                for name, tensor in tensors.items()
                if tensor.dim() >= 3 and tensor.is_floating_point() and tensor.numel()
            }
        return self._weights[key]

    def curve(self, trials: Sequence[StoredTrial], key: str) -> tuple[list[float], Array]:
        """Epochs that every trial has the value of, and the values: one row per trial."""
        by_trial = [
            {row["epoch"]: float(row[key]) for row in self.history(trial) if isinstance(row.get(key), int | float)}
            for trial in trials
        ]
        by_trial = [values for values in by_trial if values]
        if not by_trial:
            return [], np.zeros((0, 0))
        epochs = sorted(set.intersection(*(set(values) for values in by_trial)))
        return [float(epoch) for epoch in epochs], np.array([[values[e] for e in epochs] for values in by_trial])


def band(
    name: str, x: Sequence[float], values_TX: Array, config: Config, *, times: float = 1.0, **style: Any
) -> Series:
    """Mean over trials with a band of one standard deviation. Long curves are thinned: the page must stay small."""
    step = -(-len(x) // MOST_POINTS)
    x, values_TX = x[::-1][::step][::-1], values_TX[:, ::-1][:, ::step][:, ::-1]  # the last epoch stays
    mean = values_TX.mean(0) * times
    spread = values_TX.std(0, ddof=1) * times if len(values_TX) > 1 else None
    return Series(
        name=name,
        x=list(x),
        y=mean.tolist(),
        low=None if spread is None else (mean - spread).tolist(),
        high=None if spread is None else (mean + spread).tolist(),
        color=gather.color(config),
        note=f"one standard deviation, {len(values_TX)} trials",
        **style,
    )


def styles(methods: Methods) -> dict[str, dict[str, int]]:
    """A dash for each method, so that lines can be told apart without colours, and where they lie on each other."""
    return {name: {"dash": (0, 1, 3)[index % 3]} for index, name in enumerate(methods)}


def main_methods(methods: Methods, most: int) -> Methods:
    """Those that the paper's figures show, if there are two or more; else the first ones."""
    chosen = {name: trials for name, trials in methods.items() if gather.rank(trials[0].config) < gather.REST}
    return dict(list((chosen if len(chosen) > 1 else methods).items())[:most])


def _in_order(methods: Methods) -> Methods:
    return {name: methods[name] for name in sorted(methods, key=lambda one: (gather.rank(methods[one][0].config), one))}
