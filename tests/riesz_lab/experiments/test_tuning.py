"""Settings are chosen fairly: one grid for all arms, on held-out data, from stored trials alone."""

import re

import pytest

from riesz_lab.config import Config
from riesz_lab.errors import ConfigError
from riesz_lab.experiments import Arm, Tuning, experiment, result
from riesz_lab.store import Store
from stored import change
from sweep_helpers import two_arms, write

FIRST = Tuning().first_seed


def tuned(runs, score, **tuning):
    """The result of two tuned arms, with all trials of the grid that are asked for; `score` gives each its own."""
    asked = two_arms(tuning=Tuning(**{"hold_out": 20, **tuning}))
    while missing := [config for config, _ in result(asked, Store(runs)).missing if config.hold_out]:
        for config in missing:
            value = score(config)
            write(runs, config, value, "diverged" if value is None else "finished")
    return result(asked, Store(runs))


def test_every_arm_has_the_same_grid_as_often_on_held_out_data_with_other_seeds():
    asked = two_arms(tuning=Tuning(factors=(0.5, 1.0, 2.0), hold_out=20))
    by_metric = {}
    for config, _ in result(asked, []).missing:
        assert (config.hold_out, config.seed >= FIRST) == (20, True)
        by_metric.setdefault(config.metric, []).append((config.lr, config.seed))
    one, other = (sorted(grid) for grid in by_metric.values())
    assert one == other
    assert len(one) == 6
    assert not {config.seed for config in asked.all_configs()} & {seed for _, seed in one}


@pytest.mark.parametrize(("best", "side"), [(0.0, 0), (10.0, 1)])
def test_a_grid_grows_by_a_few_values_at_most(best, side, tmp_path):
    found = tuned(tmp_path, lambda config: -abs(config.lr - best), factors=(0.5, 1.0, 2.0), seeds=1)
    powers = range(-5, 2) if side == 0 else range(-1, 6)
    assert found.tuned.grid["lr"] == [0.05 * 2.0**k for k in powers]
    assert found.tuned.at_the_edge == ("SGD", "ours")


def test_factors_that_nothing_lies_beyond_are_left_as_they_are(tmp_path):
    assert tuned(tmp_path, lambda config: -config.lr, factors=(1e-200, 1.0), seeds=1).tuned.extended == 0


def test_a_rate_that_diverged_once_is_not_chosen(tmp_path):
    def score(config):
        bad = config.lr == 0.1 and config.seed == FIRST
        return None if bad else {0.025: 0.4, 0.05: 0.5, 0.1: 0.99}[config.lr]

    assert tuned(tmp_path, score, factors=(0.5, 1.0, 2.0)).arms["ours"].chosen == {"lr": 0.05}


def test_of_rates_with_equal_means_the_smaller_is_chosen_however_the_sums_round(tmp_path):
    assert (0.7 + 0.1) / 2 < 0.4  # equal, but for rounding

    def score(config):
        return {0.05: {FIRST: 0.7, FIRST + 1: 0.1}[config.seed], 0.1: 0.4}.get(config.lr, 0.0)

    assert tuned(tmp_path, score, factors=(0.5, 1.0, 2.0, 4.0)).arms["ours"].chosen == {"lr": 0.05}


def test_tuning_that_is_not_complete_is_no_tuning(tmp_path):
    found = tuned(tmp_path, lambda config: -abs(config.lr - 0.05), factors=(0.5, 1.0, 2.0))
    next(tmp_path.glob("*/identity-seed1000-*/result.json")).unlink()
    found = result(found.experiment, Store(tmp_path))
    assert found.tuned.why_not.startswith("arm 'SGD' is not tuned yet: 1 trial to be completed, the first at lr=")
    assert [title.partition(",")[0] for _, title in found.missing] == ["SGD"]
    assert not any(each.trials or each.judgement for each in found.arms.values())


def test_an_arm_that_is_complete_asks_for_a_wider_grid_without_waiting_for_the_others(tmp_path):
    found = tuned(tmp_path, lambda config: config.lr, factors=(0.5, 1.0), seeds=1)
    assert found.tuned.extended == 4
    for left in tmp_path.glob("*/sobolev-*/result.json"):
        left.unlink()
    assert result(found.experiment, Store(tmp_path)).tuned.extended == 4


def test_a_dataset_of_unknown_size_asks_for_the_number_to_hold_out():
    with pytest.raises(ConfigError, match="--hold-out N"):
        result(two_arms(tuning=Tuning()), [])
    known = two_arms(arms=(Arm("SGD", Config()),), tuning=Tuning())
    assert {config.hold_out for config, _ in result(known, []).missing} == {400}


def test_tuning_takes_the_direction_of_the_stored_trials(tmp_path):
    """A task of the user's own has no direction in its class."""
    asked = two_arms(tuning=Tuning(factors=(0.25, 0.5, 1.0), seeds=1, hold_out=10))
    for config, _ in result(asked, []).missing:
        trial = write(tmp_path, config, {0.25: 0.5, 0.5: 0.1, 1.0: 0.9}[config.lr / 0.05])
        change(trial.path, "result.json", higher_is_better=False)
    assert result(asked, Store(tmp_path)).tuned.best == {"SGD": {"lr": 0.025}, "ours": {"lr": 0.025}}


def stored_grid(runs, score, factors):
    asked = experiment("variance-mini")
    rates = {config.lr for arm in asked.arms for config in [arm.config]}
    assert len(rates) == 1
    wide = two_arms(arms=asked.arms, tuning=Tuning(factors=factors))
    for config, _ in result(wide, []).missing:
        write(runs, config, score(config))
    return asked.arms[0].config.lr


def test_the_command_gives_a_part_of_a_sweep_the_rates_of_the_whole(riesz, tmp_path):
    own = experiment("variance-mini").arms[0].config.lr
    # SobolevTilde asks for factor 8, which then suits ReweightedL2 best, which asks for 16.
    best = {"identity": {1.0: 0.9}, "sobolev-tilde": {4.0: 0.9}, "reweighted-l2": {1.0: 0.8, 8.0: 0.9}}

    def score(config):
        return best[config.metric.partition("(")[0]].get(config.lr / own, 0.5)

    stored_grid(tmp_path, score, (*Tuning().factors, 8.0, 16.0))
    command = ("sweep", "variance-mini", "--tune-lr", "--dry-run", "--runs", str(tmp_path))
    for only in ((), ("--only", "ReweightedL2")):
        out = riesz(*command, *only)[1]
        assert re.search(rf"^comparison .*reweighted-l2.* lr={8 * own:g}\b", out, re.MULTILINE), out


def test_a_dry_run_counts_the_final_trials_once_their_rates_are_known(riesz, tmp_path):
    command = ("sweep", "variance-mini", "--tune-lr", "--dry-run", "--runs", str(tmp_path))
    assert "which of them are stored is known after tuning" in riesz(*command)[1]
    own = experiment("variance-mini").arms[0].config.lr
    stored_grid(tmp_path, lambda config: 0.9 - abs(config.lr - 2 * own), Tuning().factors)
    for config in experiment("variance-mini").configs(experiment("variance-mini").arms[0]):
        write(tmp_path, config, 0.9)  # at the recipe's rate, which is not the one that is chosen
    out = riesz(*command)[1]
    assert "known after tuning" not in out
    assert "90 trials, 30 complete, 60 to run" in out
