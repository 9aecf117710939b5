"""The second protocol's trials: rates are searched as it says, and nothing is compared before it may be looked at."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from evidence import signs, signs_figures, signs_predict, signs_table
from evidence.signs import PART_1, PART_3, Cell, chosen, left, search, tuning_trials
from evidence.signs_table import complete, lines

from riesz_lab import models
from riesz_lab.config import Config
from riesz_lab.report.drawing import picture
from riesz_lab.tasks import optimizers

ARM = Config(recipe="signs", train_limit=1000, lr=0.015)


def answers(config, best, diverges_above=math.inf):
    """Held-out accuracies with one optimum, of every rate that the search may ask for."""
    found = {}
    for rate in signs.rates(config, -12, 12):
        for trial in tuning_trials(config, rate):
            score = 0.9 - 0.01 * math.log(rate / best) ** 2
            found[trial.id] = None if rate > diverges_above else score
    return found


@pytest.mark.parametrize(("best", "tried"), [(0.015, 5), (0.029, 6), (0.11, 10), (0.0056, 7)])
def test_the_grid_grows_until_the_best_rate_lies_inside(best, tried):
    found = search(ARM, answers(ARM, best))
    assert not found.missing
    assert not found.at_edge
    assert abs(math.log(found.rate / best)) <= math.log(1.4) / 2 + 0.01
    assert len(found.scores) == tried


def test_a_rate_that_diverges_ends_the_grid_and_is_not_chosen():
    found = search(ARM, answers(ARM, 0.11, diverges_above=0.05))
    assert found.rate == max(rate for rate, score in found.scores.items() if score is not None) == 0.0412


def test_of_equal_rates_the_smaller_is_chosen_and_a_grid_without_end_has_one():
    flat = dict.fromkeys(answers(ARM, 1.0), 0.5)
    found = search(ARM, flat)
    assert found.rate == min(found.scores)
    assert len(found.scores) == 5 + 8
    assert found.at_edge


def test_tuning_trains_on_as_many_images_and_never_on_the_test_set():
    for cell in PART_1:
        for config in cell.arms.values():
            for trial in tuning_trials(config, 0.01):
                assert trial.hold_out == signs.HOLD_OUT
                assert trial.train_limit - trial.hold_out == config.train_limit
                assert trial.seed not in (*signs.SCREENING, *signs.CONFIRMING)


def test_rates_come_first_and_compared_trials_follow_seed_by_seed():
    damped = Config(recipe="signs", train_limit=1000, lr=0.015, metric=signs.DAMPED)
    cell = Cell("two arms", {"SGD": ARM, "damped": damped}, (0, 1))
    assert len(list(left(iter([cell]), {}))) == 2 * 5 * 2
    done = {id_: score for arm in cell.arms.values() for id_, score in answers(arm, 0.015).items()}
    trials = list(left(iter([cell]), done))
    assert [(trial.metric, trial.seed) for trial in trials] == [
        ("identity", 0), (signs.DAMPED, 0), ("identity", 1), (signs.DAMPED, 1),
    ]  # fmt: skip
    assert all(trial.hold_out == 0 for trial in trials)
    assert {config.lr for config in chosen(cell, done).values()} == {0.015}
    assert complete(cell, done) is None
    done |= {trial.id: 0.7 + 0.01 * trial.seed for trial in trials[:-1]}
    assert "trials are missing" in next(lines(cell, done))
    assert complete(cell, done | {trials[-1].id: 0.71}) == {"SGD": {0: 0.7, 1: 0.71}, "damped": {0: 0.7, 1: 0.71}}


def test_the_arms_of_part_1_are_what_the_protocol_says():
    assert len(PART_1) == 8
    assert {len(cell.arms) for cell in PART_1} == {9}
    ids = {config.id for cell in PART_1 for config in cell.arms.values()}
    assert len(ids) == 72
    assert PART_1[0].arms["fan-in -0.9"].id == "9f612c869aec", "a default changed, or an arm: trials would be run anew"
    assert PART_3[0].arms["output +1"].id == "0a6d1e114c02"


def test_every_arm_can_be_built():
    for cell in (*PART_1, *signs.PART_2, *PART_3):
        for config in cell.arms.values():
            models.check(config.model, options=config.model_options)
            optimizers.check(config)


def test_predictions_are_ranked_within_cells():
    right = [([0.1, 0.2, 0.3, -0.5], [1.0, 2.0, 3.0, -1.0])] * 4
    correlation, p = signs_predict.agreement(right, orders=999)
    assert correlation == pytest.approx(1)
    assert p == pytest.approx(0.001, abs=1e-3)
    wrong = [(one, [-value for value in other]) for one, other in right]
    assert signs_predict.agreement(wrong, orders=999) == (pytest.approx(-1), pytest.approx(1))
    # Cells that differ as a whole, with arms in no order, predict nothing.
    level = [([x, x, x + 1, x], [x, x + 1, x, x + 1]) for x in (0.0, 10.0, 20.0, 30.0)]
    assert signs_predict.agreement(level, orders=999)[1] > 0.5


def test_a_prediction_looks_at_an_early_moment_of_another_seed():
    for cell in PART_1:
        early = signs_predict.early(cell.arms["SGD"])
        assert early.seed not in (*signs.SCREENING, *signs.CONFIRMING, *signs.TUNING)
        steps = cell.arms["SGD"].epochs * -(-early.train_limit // early.batch_size)
        assert early.max_steps == steps // 5


def test_what_earlier_trials_decide_is_run_once_it_is_written_down(monkeypatch):
    name, gain = PART_1[0].name, "centralization, output -0.9"
    assert [cell.name for cell in signs.parts([1], {})] == [cell.name for cell in PART_1]
    monkeypatch.setattr(signs, "CONFIRMED", {name: ((gain, "SGD"), (gain, "centralization"))})
    monkeypatch.setattr(signs, "CONTROLLED", ((name, gain),))
    monkeypatch.setattr(signs, "BEST_CELL", (name, gain))
    done = {id_: score for arm in PART_1[0].arms.values() for id_, score in answers(arm, 0.015).items()}
    cells = {cell.name: cell for cell in signs.parts([1], done)}
    for cell in cells.values():
        assert {label for pair in cell.pairs for label in pair} <= {*cell.arms}
        for config in cell.arms.values():
            optimizers.check(config)
    confirmed = cells[f"{name}, confirmed"]
    assert [*confirmed.arms] == ["SGD", gain, "centralization"]
    assert confirmed.seeds == tuple(range(100, 116))
    signed = cells[f"{name}, controls of {gain}"].arms["signs"]
    assert signed.metric == "reweighted-l2(lam=-0.9) + reweighted-l2(lam=-0.99)"
    assert (signed.direction, signed.control) == ("output+fan_in", "signs")
    assert cells[f"{name}, {gain} and SGD at 0.015"].tuned is False
    assert len(cells[f"{name}, elsewhere"].arms) == 6
    assert cells[f"{name}, other lam"].arms["lam -0.5"].metric == "reweighted-l2(lam=-0.5) + reweighted-l2(lam=-0.5)"
    assert len([cell for cell in cells if "picture of lam" in cell]) == 2
    assert "trials are missing" in next(signs_table.verdicts(done))


def test_verdicts_are_corrected_for_all_confirmed_comparisons(monkeypatch):
    name, gain = PART_1[0].name, "centralization"
    monkeypatch.setattr(signs, "CONFIRMED", {name: ((gain, "SGD"), ("output -0.9", "SGD"))})
    done = {id_: score for arm in PART_1[0].arms.values() for id_, score in answers(arm, 0.015).items()}
    level = {"SGD": 0.5, gain: 0.53, "output -0.9": 0.5}
    (cell,) = signs.confirmations()
    for label, arm in chosen(cell, done).items():
        for seed in cell.seeds:
            done[replace(arm, seed=seed).id] = level[label] + 0.001 * math.sin(7 * seed + len(label))
    better, other = signs_table.verdicts(done)
    assert "centralization against SGD: better: +" in better
    assert "output -0.9 against SGD: better" not in other


def test_pictures_are_drawn_of_complete_cells_alone(monkeypatch):
    name, arm = PART_1[0].name, "input -0.9"
    monkeypatch.setattr(signs, "BEST_CELL", (name, arm))
    done: dict[str, float | None] = {}
    assert [*signs_figures.figures(done)] == []
    for cell in (PART_1[0], *(cell for cell in signs.best_cell() if "picture" in cell.name)):
        for number, config in enumerate(cell.arms.values()):
            done |= answers(config, 0.015)
            for seed in cell.seeds:
                done[replace(config, lr=0.015, seed=seed).id] = 0.5 + 0.01 * number + 0.001 * (seed % 2)
    rates, lams = signs_figures.figures(done)
    assert [series.name for series in rates.panels[0].series] == ["SGD", "output -0.9, signs"]
    assert rates.panels[0].series[0].x == signs.rates(PART_1[0].arms["SGD"], -2, 2)
    other = name.replace("no norm", "batch norm")
    assert [panel.title for panel in lams.panels] == [f"{one}, picture of lam" for one in (name, other)]
    along_input = lams.panels[0].series[1]
    assert along_input.x == [-0.9, -0.5, 0.0, 0.5, 1.0, 2.0, 5.0]
    assert along_input.y[2] == 0
    assert picture(rates, "svg").startswith(b"<svg")
