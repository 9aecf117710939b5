"""Sweeps are what they say, and a table is a pure function of stored trials."""

from dataclasses import replace

import pytest

from riesz_lab.errors import ConfigError
from riesz_lab.experiments import EXPERIMENTS, Seeds, experiment, result
from riesz_lab.experiments.dry_run import _setting
from riesz_lab.experiments.running.jobs import find_pending
from riesz_lab.recipes import recipe
from riesz_lab.report.table import format_result
from riesz_lab.store import Store
from riesz_lab.store.trial import Trial
from riesz_lab.training.progress import clock
from stored import store_trial
from sweep_helpers import two_arms, write

# -- definitions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_sweep_is_well_formed(name):
    found = experiment(name)
    assert found.name == name
    assert found.question
    assert found.reproduces
    assert any(arm.baseline for arm in found.arms)
    groups = [arm.config.group for arm in found.arms]
    assert len(set(groups)) == len(groups), "two arms are one and the same"
    for arm in found.arms:
        if arm.baseline is not None:
            # Seeds aside, an arm and its baseline train on the same data with the same network.
            same = ("dataset", "model", "batch_size", "epochs", "lr", "train_limit", "swap_splits", "hold_out")
            for setting in same:
                assert getattr(arm.config, setting) == getattr(found[arm.baseline].config, setting), arm.label


def test_every_full_sweep_has_a_small_form():
    assert {f"{name}-mini" for name in EXPERIMENTS if not name.endswith("-mini")} <= set(EXPERIMENTS)


def test_table_cifar_has_the_papers_27_cells_and_ls():
    found = experiment("table-cifar")
    assert sum("LS" not in arm.label for arm in found.arms) == 27
    assert sum("LS" in arm.label for arm in found.arms) == 3
    assert len(found.all_configs()) == 300


@pytest.mark.parametrize("name", ["lambda-mnist", "lambda-fashion", "lambda-fashion-mini"])
def test_lambda_runs_both_readings_and_lambda_zero_is_the_plain_optimizer(name):
    metrics = [arm.config.metric for arm in experiment(name).arms]
    assert metrics[0] == "identity"
    assert "sobolev-tilde(lam=1.0, scale=20.0)" in metrics
    assert "sobolev-tilde(lam=20.0)" in metrics
    assert metrics.count("sobolev-tilde(lam=1.0)") == 1


def test_directions_cross_direction_scope_and_metric():
    arms = experiment("directions").arms
    kinds = {(a.config.metric, a.config.direction, a.config.layers) for a in arms[1:-1]}
    assert len(kinds) == 12
    assert arms[-1].config.smooth_epochs == 40


def test_a_permuted_arm_is_compared_with_the_same_metric_unpermuted():
    found = experiment("controls")
    for arm in found.arms:
        if arm.config.control == "permuted":
            assert replace(arm.config, control="none") == found[arm.baseline].config


def test_initialisation_crosses_the_seeds_and_shares_the_plain_trials():
    crossed, plain = experiment("initialisation"), experiment("variance")
    seeds = {(c.effective_init_seed, c.effective_data_seed) for c in crossed.configs(crossed.arms[0])}
    assert seeds == {(i, j) for i in range(5) for j in range(5)}
    ids = {c.id for c in plain.configs(plain.arms[0])}
    assert sum(c.id in ids for c in crossed.configs(crossed.arms[0])) == 5


def test_small_forms_say_what_they_train():
    for name in EXPERIMENTS:
        found = experiment(name)
        told = {"camvid": "CamVid", "voc2012": "PascalVOC", "cityscapes": "Cityscapes"}
        assert told.get(found.arms[0].config.dataset, "") in found.question
    assert "shares" not in experiment("curves-mini").question


def test_curves_share_their_trials_with_the_table():
    table = {config.id for config in experiment("table-cifar").all_configs()}
    assert sum(config.id not in table for config in experiment("curves").all_configs()) == 10  # LS along output


def test_only_keeps_the_baselines_that_are_needed():
    assert [arm.label for arm in experiment("controls").only(["0.05, channels"]).chosen] == [
        "SGD",
        "SobolevTilde 0.05",
        "SobolevTilde 0.05, channels permuted",
    ]
    with pytest.raises(ConfigError, match=r"no arm of 'controls' matches 'adam'; its arms: SGD"):
        experiment("controls").only(["adam"])


# -- tables --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lambda-fashion", "lambda-fashion-mini", "controls-mini"])
def test_a_whole_sweep_is_corrected_for_its_own_comparisons(tmp_path, name):
    found = experiment(name).with_seeds(3)
    for config in found.all_configs():
        write(tmp_path, config, 0.8 + 0.0001 * config.seed**2)
    for comparison in result(found, Store(tmp_path)).comparisons.values():
        assert comparison.family == sum(arm.baseline is not None for arm in found.arms)


def test_a_crossed_sweep_tells_the_sources_of_the_spread(tmp_path):
    found = two_arms(seeds=Seeds(count=3, crossed=True))
    for arm in found.arms:
        for config in found.configs(arm):
            write(
                tmp_path,
                config,
                0.9
                + 0.01 * config.effective_init_seed
                + 0.001 * config.effective_data_seed * config.effective_init_seed,
            )
    table = result(found, Store(tmp_path))
    assert table.arms["ours"].reason.startswith("identical scores in all 9 pairs")
    assert "standard deviation from initialisation" in format_result(table)


# -- plans ---------------------------------------------------------------------------------------------------------


def test_a_plan_skips_what_is_complete_continues_what_is_not_and_sets_aside_what_is_damaged(tmp_path):
    found = two_arms()
    done, begun, failed, torn, lost = found.configs(found.arms[0])
    write(tmp_path, done, 0.9)
    write(tmp_path, begun, 0.9).result_file.unlink()
    trial = write(tmp_path, failed, 0.9)
    trial.result_file.unlink()
    trial.fail("the disk was full")
    write(tmp_path, torn, 0.9).result_file.write_text('{"status": "fini')
    (write(tmp_path, lost, 0.9).path / "config.json").write_text("{}")
    looked = find_pending(found.all_configs(), tmp_path, set_aside=False)
    assert len(looked.aside) == 2
    made = find_pending(found.all_configs(), tmp_path)
    assert list(made.done) == [done.id]
    assert made.failed == {failed.id: "the disk was full"}
    assert made.interrupted == 1
    assert {begun.id, torn.id, lost.id} <= set(made.waiting)
    assert all(path.is_dir() for path in made.aside)
    assert "result.json" in next(iter(made.aside.values()))
    # They are out of the store's sight, and the next plan finds nothing to set aside.
    assert not Store(tmp_path).broken
    assert not find_pending(found.all_configs(), tmp_path).aside
    assert failed.id in find_pending(found.all_configs(), tmp_path, retry_failed=True).waiting


def test_a_failed_trial_that_is_interrupted_when_retried_counts_as_interrupted(tmp_path):
    config = two_arms().all_configs()[0]
    trial = Trial(tmp_path, config)
    trial.fail("the disk was full")
    assert find_pending([config], tmp_path).failed
    with pytest.raises(KeyboardInterrupt), trial.open():
        raise KeyboardInterrupt
    made = find_pending([config], tmp_path)
    assert (made.failed, made.interrupted) == ({}, 1)


def test_a_table_of_a_folder_that_is_not_there_is_refused(riesz):
    status, _, err = riesz("sweep", "controls-mini", "--table", "--runs", "nowhere")
    assert status == 1
    assert err.startswith("riesz: there is no folder nowhere; say where the trials are: --runs DIR; riesz demo,")


@pytest.mark.parametrize(
    ("chosen", "advised"),
    [(["controls-mini"], False), (["controls-mini", "--only", "norm kept"], False), (["lambda-fashion-mini"], True)],
)
def test_a_table_with_controls_does_not_advise_to_tune(riesz, tmp_path, chosen, advised):
    (tmp_path / "runs").mkdir()
    status, out, err = riesz("sweep", *chosen, "--table")
    assert status == 0, err
    assert ("tune before you conclude" in out) == advised


def test_a_dry_run_takes_its_estimate_from_the_first_trials(riesz, tmp_path):
    out = riesz("sweep", "controls-mini", "--dry-run")[1]
    assert "0 complete" in out
    assert "their time is known after the first" in out
    first = store_trial(tmp_path / "runs", experiment("controls-mini").all_configs()[0])
    (first / "timing.jsonl").write_text('{"epoch": 1, "seconds": 60}\n')
    out = riesz("sweep", "controls-mini", "--dry-run", "--workers", "2")[1]
    left = len(experiment("controls-mini").all_configs()) - 1
    assert f"{left + 1} trials, 1 complete, {left} to run: about {clock(left * 30)}, as the 1 stored ones took." in out


def test_a_sweep_runs_until_sure_or_plans(riesz, tmp_path, monkeypatch):
    asked = two_arms()
    for config in asked.with_seeds(6).all_configs():
        directed = config.metric != "identity"
        write(tmp_path / "runs", config, 0.5 + directed * (0.1 + 0.001 * (config.seed**2 % 3)))
    (tmp_path / "mine.py").write_text("from sweep_helpers import two_arms\n")
    status, out, err = riesz("sweep", "mine.py:two_arms", "--until-sure", "--budget", "6")
    assert status == 0, err
    assert "8 stored trials read" in out
    assert "ours: better after 4 pairs" in out
    assert "intervals allow for a look after every pair" in out
    status, out, _ = riesz("sweep", "mine.py:two_arms", "--plan")
    assert status == 0
    assert "To notice a difference of 0.20 points with 80% power:" in out
    assert riesz("sweep", "mine.py:two_arms", "--plan", "--until-sure")[0] == 1


def test_a_dry_run_prints_the_settings_that_are_run():
    config = experiment("controls-mini").arms[0].config
    assert "epochs=77" in _setting([replace(config, epochs=77)])
    assert "epochs=" not in _setting([recipe(config.recipe)])
