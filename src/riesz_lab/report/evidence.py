"""The content of stored files, read once and shared by all figures and tables of a report."""

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from riesz_lab.config import Config
from riesz_lab.errors import LabError
from riesz_lab.inspection import read_tensors
from riesz_lab.report.benchmarks import Measurement
from riesz_lab.report.labels import REST, by_number, rank
from riesz_lab.report.parts import parts
from riesz_lab.report.tables import tables
from riesz_lab.statistics import Comparison
from riesz_lab.store import Store, StoredTrial
from riesz_lab.store.comparison import ComparisonRecord
from riesz_lab.sweeps import SWEEPS, Sweep, SweepResult
from riesz_lab.sweeps.methods import method, setting

Array = NDArray[np.float64]
Methods = dict[str, list[StoredTrial]]


@dataclass
class ReportData:
    """A store, the tables it allows, benchmark results, and comparisons of users' functions by file; the margin is for
    trials of no sweep, and `sweeps` are those that the user asked for, by the name that loads them."""

    store: Store
    benchmarks: Sequence[Measurement] = ()
    margin: float = 0.002
    records: Mapping[Path, ComparisonRecord] = field(default_factory=dict)
    broken_records: Mapping[Path, str] = field(default_factory=dict)
    sweeps: Mapping[str, Sweep] = field(default_factory=dict)
    _rows: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)
    _weights: dict[str, dict[str, Array]] = field(default_factory=dict)

    @cached_property
    def tables(self) -> list[SweepResult]:
        # Trials of sequential or tuned comparisons are left out: a test for a fixed number of pairs would be invalid.
        arms = [(record, arm) for record in self.records.values() if not record.has_table for arm in record.arms]
        judged = {id_ for _, arm in arms for id_ in arm.trials}
        # A later call that stopped sooner leaves trials beyond its own: they were looked at one by one too.
        looked_at = {arm.group for record, arm in arms if record.sequential and arm.baseline is not None}
        store = copy.copy(self.store)
        store.trials = [
            trial for trial in store.trials if trial.config.id not in judged and trial.config.group not in looked_at
        ]
        return tables(store, self.margin, self.sweeps.values())

    def tables_of(self, *names: str) -> list[SweepResult]:
        """The tables of these built-in sweeps, in full or small form."""
        return [table for table in self.tables if table.sweep.name.removesuffix("-mini") in names]

    def is_given(self, table: SweepResult) -> bool:
        """Whether it is that of a sweep which the user asked for."""
        return table.sweep in self.sweeps.values()

    def own_tables(self, key: Callable[[Config], Config], *beside: str) -> list[SweepResult]:
        """Those of given sweeps that are not built in, as figures can show them beside built-in ones; see `parts`."""
        own = [table for table in self.tables if self.is_given(table) and table.sweep.name not in SWEEPS]
        return parts(own, key, self.tables_of(*beside))

    @cached_property
    def comparisons(self) -> list[tuple[SweepResult, str, Comparison]]:
        """Every comparison with its table and label, once: of a given sweep, else of the largest table that has it."""
        by_pair: dict[tuple[str, str], tuple[SweepResult, str, Comparison]] = {}
        for table in sorted(self.tables, key=lambda table: (not self.is_given(table), -len(table.comparisons))):
            for label, comparison in table.comparisons.items():
                arm = table.rows[label].arm
                assert arm.baseline is not None
                pair = (arm.config.group, table.rows[arm.baseline].arm.config.group)
                if comparison.trials:
                    by_pair.setdefault(pair, (table, label, comparison))
        return list(by_pair.values())

    @property
    def verdicts(self) -> str:
        """How many comparisons have each verdict, in words."""
        counts = Counter(comparison.verdict for _, _, comparison in self.comparisons)
        return ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())

    @cached_property
    def settings(self) -> dict[Config, Methods]:
        """Complete trials by setting and method, the plain optimizer first; those that chose a rate are left out."""
        settings: dict[Config, Methods] = {}
        for trial in self.store.trials:
            if trial.result is not None and not trial.config.hold_out:
                methods = settings.setdefault(setting(trial.config), {})
                methods.setdefault(method(trial.config), []).append(trial)
        return {
            base: dict(sorted(methods.items(), key=lambda item: (rank(item[1][0].config), by_number(item[0]))))
            for base, methods in settings.items()
        }

    def settings_with(self, file: Literal["weights_file", "updates_file"]) -> list[tuple[Config, Methods]]:
        """Settings and methods of the trials that have this file."""
        settings = []
        for base, methods in self.settings.items():
            having = {name: [t for t in trials if getattr(t.files, file).exists()] for name, trials in methods.items()}
            if any(having.values()):
                settings.append((base, {name: trials for name, trials in having.items() if trials}))
        return settings

    def settings_of(self, *tasks: str) -> list[tuple[Config, Methods]]:
        """Settings of these tasks."""
        return [(base, methods) for base, methods in self.settings.items() if base.task in tasks]

    def rows(self, trial: StoredTrial, file: Literal["history", "updates"]) -> list[dict[str, Any]]:
        """The lines of one of a trial's files that have an epoch."""
        key = (str(trial.path), file)
        if key not in self._rows:
            self._rows[key] = [row for row in getattr(trial, file)() if isinstance(row.get("epoch"), int)]
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
        """A value of the history by epoch, one row per trial; see `align`."""
        histories = (self.rows(trial, "history") for trial in trials)
        return align(
            {row["epoch"]: float(row[key]) for row in rows if isinstance(row.get(key), int | float)}
            for rows in histories
        )


def align(by_trial: Iterable[Mapping[int, Any]]) -> tuple[list[float], Array]:
    """The epochs that every trial has a value of, and the values: one row per trial. Trials without any are dropped."""
    kept = [values for values in by_trial if values]
    if not kept:
        return [], np.zeros((0, 0))
    epochs = sorted(set.intersection(*(set(values) for values in kept)))
    return [float(epoch) for epoch in epochs], np.array([[values[epoch] for epoch in epochs] for values in kept])


def main_methods(methods: Methods, most: int) -> Methods:
    """The methods of the paper's figures, if there are two or more; else the first ones."""
    chosen = {name: trials for name, trials in methods.items() if rank(trials[0].config) < REST}
    return dict(list((chosen if len(chosen) > 1 else methods).items())[:most])


def score_of(methods: Methods) -> tuple[str, bool]:
    """The name of the score of a setting, and whether it is printed in percent."""
    result = next(iter(methods.values()))[0].result
    return ("test_accuracy", True) if result is None else (result.score, result.percent)


def count_collapsed(trials: Sequence[StoredTrial]) -> int:
    return sum(trial.status in ("collapsed", "diverged") for trial in trials)
