"""The full report of the evidence has the verdicts of the page."""

from __future__ import annotations

import pytest
from evidence import TRIALS, results

from riesz_lab.report.data import read
from riesz_lab.report.report import build


@pytest.fixture(scope="module")
def full():
    return read(TRIALS)


def test_its_verdicts_are_those_of_the_page(full):
    page = {
        (name, label): (one.p_holm, one.family, len(found.arms[label].trials))
        for name, found in results.read().results.items()
        for label, one in found.comparisons.items()
    }
    assert len(page) >= 40
    assert {
        (found.experiment.name.removeprefix("evidence-"), label): (
            one.p_holm,
            one.family,
            len(found.arms[label].trials),
        )
        for found in full.asked
        for label, one in found.comparisons.items()
    } == page
    assert not full.loose


def test_it_draws_the_figures_of_lam_and_of_batch_sizes_and_rates(full):
    sections = {section.name: section for section in build(full).sections}
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
