"""What the page is computed from: the stored trials, read once and shared by all of its parts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from evidence import TRIALS, controls, regularity, tables
from riesz_lab.statistics import Comparison
from riesz_lab.store import Store
from riesz_lab.sweeps import SweepResult, results


@dataclass(frozen=True)
class EvidenceData:
    """The trials of the evidence, and what is computed of them."""

    store: Store

    @cached_property
    def tables(self) -> dict[str, SweepResult]:
        """Those of all sweeps, then of the controls of what differs, by name."""
        by_name = tables.tables(self.store)
        return by_name | {one.name: results(one, self.store) for one in controls.all_controls(by_name)}

    @cached_property
    def why_not_tuned(self) -> str:
        """Why the tuned sweep has no rates yet; empty if it has."""
        return tables.why_not_tuned(self.store)

    @cached_property
    def measured(self) -> dict[str, regularity.Arms]:
        """The regularity of trained weights, of the sweeps in which metrics meet SGD at the same rate."""
        return regularity.measure(tables.at_one_rate(self.tables))

    @cached_property
    def measured_controls(self) -> dict[str, regularity.Arms]:
        """The same of their controls, without the arms that they control."""
        names = [controls.name_of(table.sweep.name) for table in tables.at_one_rate(self.tables)]
        measured = regularity.measure(self.tables[name] for name in names if name in self.tables)
        return {
            name: {label: (arm, trials) for label, (arm, trials) in arms.items() if arm.config.control != "none"}
            for name, arms in measured.items()
        }

    @cached_property
    def correlations(self) -> dict[regularity.Key, Comparison]:
        """The same, compared with SGD's."""
        return regularity.compare(self.measured)


def read(trials: Path = TRIALS) -> EvidenceData:
    return EvidenceData(Store(trials))
