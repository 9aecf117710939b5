"""Rates are chosen fairly: one grid for all arms, on held-out images, from stored trials alone."""

import re
from dataclasses import replace

import pytest

from riesz_lab.config import Config
from riesz_lab.errors import ConfigError
from riesz_lab.report.comparison_view import format_comparisons, tuning_notes
from riesz_lab.store import Store
from riesz_lab.sweeps import Arm, results, sweep, tuning
from stored import change
from sweep_helpers import two_arms, write


def tuned_store(runs, best):
    """Every arm's score is highest at the rate that is nearest to its own best; as many trials as the grid asks for."""
    found, how = two_arms(), tuning.Tuning(factors=(0.5, 1.0, 2.0), trials=2, hold_out=20)
    grid, written = None, set()
    while (wider := tuning.extended(found, how, Store(runs))) != grid:
        grid = wider
        for config in tuning.search(found, grid).all_configs():
            if config.id not in written:
                write(runs, config, 0.9 - abs(config.lr - best[config.metric]))
                written.add(config.id)
    return found, grid


def test_tuning_gives_every_arm_the_same_grid_as_often_on_held_out_images_with_other_seeds():
    found, how = two_arms(), tuning.Tuning(factors=(0.5, 1.0, 2.0), trials=2, hold_out=20)
    search = tuning.search(found, how)
    by_metric = {}
    for config in search.all_configs():
        assert config.hold_out == 20
        assert config.seed >= tuning.FIRST_SEED
        by_metric.setdefault(config.metric, []).append((config.lr, config.seed))
    grids = [sorted(grid) for grid in by_metric.values()]
    assert len(grids) == 2
    assert grids[0] == grids[1]
    assert len(grids[0]) == 6
    final = {config.seed for config in found.all_configs()}
    assert not final & {config.seed for config in search.all_configs()}


def test_each_arm_gets_its_own_best_rate(tmp_path):
    found, grid = tuned_store(tmp_path, {"identity": 0.05, "sobolev-tilde(lam=1.0)": 0.025})
    chosen = tuning.choices(found, grid, Store(tmp_path))
    assert (chosen["SGD"].rate, chosen["ours"].rate) == (0.05, 0.025)
    final = tuning.tuned(found, chosen)
    assert [arm.config.lr for arm in final.arms] == [0.05, 0.025]
    assert all(arm.config.hold_out == 0 for arm in final.arms)
    shown = format_comparisons(results(final, Store(tmp_path)), chosen, tuning_notes(chosen))
    assert shown.splitlines()[0].endswith("  lr")
    assert "may lie beyond" not in shown


def test_a_best_rate_at_the_edge_extends_the_grid_for_all_arms(tmp_path):
    found, grid = tuned_store(tmp_path, {"identity": 0.2, "sobolev-tilde(lam=1.0)": 0.0125})
    assert grid.factors == (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
    chosen = tuning.choices(found, grid, Store(tmp_path))
    assert (chosen["SGD"].rate, chosen["ours"].rate) == (0.2, 0.0125)
    for choice in chosen.values():
        assert list(choice.scores) == [0.05 * factor for factor in grid.factors]
        assert choice.edge is None
    for only in ("SGD", "ours"):  # a part of the sweep has the rates of the whole
        part = tuning.choices(found.only([only]), grid, Store(tmp_path))
        assert part == {label: chosen[label] for label in part}


@pytest.mark.parametrize(("best", "edge"), [(0.0, "low"), (10.0, "high")])
def test_a_grid_is_extended_by_a_few_values_at_most(tmp_path, best, edge):
    found, grid = tuned_store(tmp_path, {"identity": 0.05, "sobolev-tilde(lam=1.0)": best})
    assert grid.factors == tuple(2.0**k for k in (range(-5, 2) if edge == "low" else range(-1, 6)))
    chosen = tuning.choices(found, grid, Store(tmp_path))
    assert (chosen["SGD"].edge, chosen["ours"].edge) == (None, edge)
    assert "extended 4 times, so a better rate may lie beyond it: ours." in " ".join(tuning_notes(chosen))


def test_rates_are_not_chosen_before_the_extended_grid_is_complete(tmp_path):
    found, how = two_arms(), tuning.Tuning(factors=(0.5, 1.0), trials=1, hold_out=20)
    for config in tuning.search(found, how).all_configs():
        write(tmp_path, config, config.lr)
    grid = tuning.extended(found, how, Store(tmp_path))
    with pytest.raises(ConfigError, match=r"arm 'SGD' is not tuned yet: 1 trial at rate 0\.1 "):
        tuning.choices(found, grid, Store(tmp_path))
    for left in tmp_path.glob("*/sobolev-*/result.json"):
        left.unlink()  # an arm that is complete asks for its rates without waiting for the others
    assert tuning.extended(found, how, Store(tmp_path)) == grid
    assert grid.factors == (0.5, 1.0, 2.0)


def test_factors_that_nothing_lies_beyond_are_left_as_they_are(tmp_path):
    found, how = two_arms(), tuning.Tuning(factors=(1e-200, 1.0), trials=1, hold_out=20)
    for config in tuning.search(found, how).all_configs():
        write(tmp_path, config, -config.lr)
    assert tuning.extended(found, how, Store(tmp_path)) == how


def test_the_command_gives_a_part_of_a_sweep_the_rates_of_the_whole(riesz, tmp_path):
    found = sweep("variance-mini")
    own = found.arms[0].config.lr
    # SobolevTilde asks for factor 8, which then suits ReweightedL2 best, which asks for 16.
    best = {"identity": {1.0: 0.9}, "sobolev-tilde": {4.0: 0.9}, "reweighted-l2": {1.0: 0.8, 8.0: 0.9}}
    grid = tuning.Tuning(factors=(*tuning.Tuning().factors, 8.0, 16.0))
    for config in tuning.search(found, grid).all_configs():
        write(tmp_path, config, best[config.metric.partition("(")[0]].get(config.lr / own, 0.5))
    command = ("sweep", "variance-mini", "--tune-lr", "--dry-run", "--runs", str(tmp_path))
    for only in ((), ("--only", "ReweightedL2")):
        final = re.split(r"variance-mini tuned \w+: ", riesz(*command, *only)[1])[1]
        assert re.search(rf"reweighted-l2.* lr {8 * own:g}\b", final)


def test_a_rate_that_diverged_once_is_not_chosen(tmp_path):
    found, how = two_arms(), tuning.Tuning(factors=(0.5, 1.0, 2.0), trials=2, hold_out=20)
    for config in tuning.search(found, how).all_configs():
        bad = config.lr == 0.1 and config.seed == tuning.FIRST_SEED
        score = {0.025: 0.4, 0.05: 0.5, 0.1: 0.99}[config.lr]
        write(tmp_path, config, None if bad else score, "diverged" if bad else "finished")
    assert tuning.choices(found, how, Store(tmp_path))["ours"].rate == 0.05


def test_of_rates_with_equal_means_the_smaller_is_chosen_however_the_sums_round(tmp_path):
    found, how = two_arms(), tuning.Tuning(factors=(0.5, 1.0, 2.0, 4.0), trials=2, hold_out=20)
    assert (0.7 + 0.1) / 2 < 0.4  # equal, but for rounding
    for config in tuning.search(found, how).all_configs():
        smaller = {tuning.FIRST_SEED: 0.7, tuning.FIRST_SEED + 1: 0.1}[config.seed]
        write(tmp_path, config, {0.05: smaller, 0.1: 0.4}.get(config.lr, 0.0))
    assert tuning.choices(found, how, Store(tmp_path))["ours"].rate == 0.05


def test_tuning_that_is_not_complete_is_no_tuning(tmp_path):
    found, how = tuned_store(tmp_path, {"identity": 0.05, "sobolev-tilde(lam=1.0)": 0.025})
    next(tmp_path.glob("*/identity-seed1000-*/result.json")).unlink()
    with pytest.raises(ConfigError, match="arm 'SGD' is not tuned yet: 1 trial at rate"):
        tuning.choices(found, how, Store(tmp_path))


def test_a_dataset_of_unknown_size_asks_for_the_number_to_hold_out():
    with pytest.raises(ConfigError, match="--hold-out N"):
        tuning.search(two_arms(), tuning.Tuning())
    assert tuning.search(two_arms(arms=(Arm("SGD", Config()),)), tuning.Tuning()).arms[0].config.hold_out == 400


def test_tuning_takes_the_direction_of_the_stored_trials(tmp_path):
    """A task of the user's own has no direction in its class."""
    chosen = replace(two_arms(), trials=1)
    tune = tuning.Tuning(factors=(0.25, 0.5, 1.0), trials=1, hold_out=10)
    for arm in chosen.arms:
        for rate, loss in ((0.25, 0.5), (0.5, 0.1), (1.0, 0.9)):
            for config in tuning.search(chosen, tune).all_configs():
                if config.metric == arm.config.metric and config.lr == arm.config.lr * rate:
                    trial = write(tmp_path, config, loss)
                    change(trial.path, "result.json", higher_is_better=False)
    rates = tuning.choices(chosen, tune, Store(tmp_path))
    assert {label: choice.rate for label, choice in rates.items()} == {
        arm.label: arm.config.lr * 0.5 for arm in chosen.arms
    }


def test_a_dry_run_of_a_tuned_sweep_counts_the_final_trials_once_their_rates_are_known(riesz, tmp_path):
    command = ("sweep", "variance-mini", "--tune-lr", "--dry-run", "--runs", str(tmp_path))
    assert "The rates are chosen after that; at those of the recipe, until then:" in riesz(*command)[1]
    found = sweep("variance-mini")
    for config in tuning.search(found, tuning.Tuning()).all_configs():
        write(tmp_path, config, 0.9 - abs(config.lr - 2 * found.arms[0].config.lr))
    for config in found.configs(found.arms[0]):
        write(tmp_path, config, 0.9)  # at the recipe's rate, which is not the one that is chosen
    out = riesz(*command)[1]
    assert "The rates are chosen after that" not in out
    assert re.search(r"variance-mini tuned [0-9a-f]{6}: ", out)
    assert "60 trials, 0 complete, 0 failed, 60 to run" in out
