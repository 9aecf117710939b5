"""The full report of the evidence has what the page has: the same verdicts, and the paper's figures of those sweeps."""

from __future__ import annotations

import pytest
from evidence import TRIALS
from evidence.data import read
from evidence.report import SWEEPS
from evidence.tables import tuned_fashion

from evidence_trials import SEARCH
from riesz_lab.errors import ConfigError
from riesz_lab.report import report
from stored import store_trial


@pytest.fixture(scope="module")
def full():
    return report.read(TRIALS, sweeps=SWEEPS)


def by_pair(tables):
    """Verdicts, and what they rest on, by the settings of both sides."""
    return {
        (table.sweep.name.partition(" tuned")[0], row.arm.config.group, table.sweep[row.arm.baseline].config.group): (
            row.comparison.verdict,
            row.comparison.p_holm,
            row.comparison.family,
            len(row.trials),
        )
        for table in tables
        for row in table.rows.values()
        if row.comparison is not None
    }


def test_its_verdicts_are_those_of_the_page(full):
    page = by_pair(read().tables.values())
    assert len(page) >= 40
    assert by_pair(full.tables) == page
    assert {label for _, label, _ in full.comparisons} == {
        label for table in full.tables for label, one in table.comparisons.items() if one.trials
    }


def test_it_draws_the_figures_of_lam_and_of_batch_sizes_and_rates(full):
    sections = {section.name: section for section in report.build(full).sections}
    titles = [panel.title for panel in sections["lambda"].blocks[0].panels]
    assert len(titles) == len(set(titles)) == 3
    assert sum(title.startswith("Fashion-MNIST") for title in titles) == 2
    maps = sections["regimes"].blocks[0].panels
    assert {(*panel.image.row_names, *panel.image.column_names) for panel in maps} == {
        ("8", "128", "0.01", "0.03", "0.1", "0.3")
    }
    ours = [row for row in sections["paper"].blocks[0].cells() if row[3].text.startswith("ours, 5 trials: CIFAR-10")]
    assert {row[2].text for row in ours} == {"8", "128"}
    assert sum("ResNet-20, SGD at rate 0.1, batch" in row[3].text for row in ours) == 2
    assert all(cell.text for row in ours for cell in row)


def test_the_tuned_sweep_names_its_rates_and_has_none_before_it_is_tuned(tmp_path):
    with pytest.raises(ConfigError, match=r"evidence-tuned-fashion: .* trials are missing"):
        tuned_fashion(tmp_path)
    for arm in SEARCH.arms:
        best = 0.02 if arm.config.metric == "identity" else 0.005
        for config in SEARCH.configs(arm):
            store_trial(tmp_path, config, score=0.8 - abs(arm.config.lr - best))
    sweep = tuned_fashion(tmp_path)
    assert sweep.name == "evidence-tuned-fashion"
    assert {arm.label: (arm.config.lr, arm.baseline) for arm in sweep.arms} == {
        "SGD, lr 0.02": (0.02, None),
        "SGD + SobolevTilde, lr 0.005": (0.005, "SGD, lr 0.02"),
        "SGD + ReweightedL2, lr 0.005": (0.005, "SGD, lr 0.02"),
    }
