"""The regime map: what a cell is compared with, what is hatched, and that it is drawn."""

from __future__ import annotations

import numpy as np
import pytest

from riesz_lab.experiments import experiment
from riesz_lab.report.data import read
from riesz_lab.report.drawing import picture
from riesz_lab.report.figures.regimes import regime_maps, regimes
from riesz_lab.statistics.verdict import Verdict
from stored import change, store_trial

SHIFT = {0: 0.0, 1: 0.004, 2: -0.004}
"""Chance, the same for every arm of a seed."""
SPREAD = {0: 0.0001, 1: -0.0001, 2: 0.0}
"""Chance of the directed arms alone."""


def scores(config):
    """SGD is best at 0.03; the metric gains as much at 0.01 as SGD does by the larger rate, and nothing beyond."""
    plain = {0.003: 0.80, 0.01: 0.85, 0.03: 0.90, 0.1: 0.70}
    score = plain[config.lr] + SHIFT[config.seed]
    if config.metric != "identity":
        score += {0.003: 0.0, 0.01: 0.05, 0.03: 0.0, 0.1: 0.02}[config.lr] + SPREAD[config.seed]
    return score


@pytest.fixture
def data(tmp_path):
    chosen = experiment("regimes-mini").with_seeds(3).only(["b8 "])
    chosen.write(tmp_path)
    for config in chosen.all_configs():
        path = store_trial(tmp_path, config, epochs=1, score=scores(config))
        if config.metric != "identity" and config.lr == 0.1 and config.seed < 3:
            change(path, "result.json", status="diverged", last=None)
    return read(tmp_path)


def test_a_gain_that_a_larger_rate_gives_too_is_none_against_the_best_rate(data):
    same, to_best = regime_maps(data.named("regimes")[0])[:2]
    assert (same.against, to_best.against) == ("SGD at the same rate", "SGD at SGD's best rate")
    assert same.comparisons[8, 0.01].difference == pytest.approx(0.05)
    assert same.comparisons[8, 0.01].verdict == Verdict.BETTER
    assert to_best.comparisons[8, 0.01].difference == pytest.approx(0.0, abs=1e-9)
    assert to_best.comparisons[8, 0.01].verdict == Verdict.SAME
    assert to_best.comparisons[8, 0.003].verdict == Verdict.WORSE


def test_claims_are_corrected_for_all_cells_of_a_kind(data):
    same, to_best = regime_maps(data.named("regimes")[0])[:2]
    assert to_best.comparisons[8, 0.01].family == same.comparisons[8, 0.01].family == 24  # those not run count too


def test_cells_without_a_claim_are_hatched_and_failed_ones_named(data):
    figure = regimes(data)
    assert figure is not None
    image = figure.panels[0].image
    assert image.column_names == ["0.003", "0.01", "0.03", "0.1"]
    assert image.row_names == ["8"]
    assert image.hatched.tolist() == [[False, False, False, True]]
    assert image.texts[0][1].startswith("+5.00\n±")
    assert image.texts[0][3] == "failed"
    assert np.isnan(image.z[0, 3])
    assert "better in 1 of 4 cells" in figure.alt


def test_the_texts_are_written_and_the_cells_hatched(data):
    drawn = picture(regimes(data), "svg").decode()
    assert ">+5.00<" in drawn
    assert ">failed<" in drawn
