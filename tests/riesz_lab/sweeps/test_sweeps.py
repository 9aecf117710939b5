"""Sweeps are what they say, and a table is a pure function of stored trials."""

import re
from dataclasses import replace

import pytest

from riesz_lab.errors import ConfigError
from riesz_lab.recipes import recipe
from riesz_lab.report.comparison_view import format_comparisons, records
from riesz_lab.store import Store
from riesz_lab.store.trial import Trial
from riesz_lab.sweeps import SWEEPS, Arm, costs, results, sweep
from riesz_lab.sweeps.dry_run import _setting
from riesz_lab.sweeps.running.pending import find_pending
from sweep_helpers import short, two_arms, write

SCENES = [name for name in SWEEPS if name.removesuffix("-mini") in ("voc", "spade")]


# -- definitions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SWEEPS)
def test_every_sweep_is_well_formed(name):
    found = sweep(name)
    assert found.name == name
    assert found.about
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
    assert {f"{name}-mini" for name in SWEEPS if not name.endswith("-mini")} <= set(SWEEPS)


def test_table_cifar_has_the_papers_27_cells_and_ls():
    found = sweep("table-cifar")
    assert sum("LS" not in arm.label for arm in found.arms) == 27
    assert sum("LS" in arm.label for arm in found.arms) == 3
    assert len(found.all_configs()) == 300


@pytest.mark.parametrize("name", ["lambda-mnist", "lambda-fashion", "lambda-fashion-mini"])
def test_lambda_runs_both_readings_and_lambda_zero_is_the_plain_optimizer(name):
    metrics = [arm.config.metric for arm in sweep(name).arms]
    assert metrics[0] == "identity"
    assert "sobolev-tilde(lam=1.0, scale=20.0)" in metrics
    assert "sobolev-tilde(lam=20.0)" in metrics
    assert metrics.count("sobolev-tilde(lam=1.0)") == 1


def test_directions_cross_direction_scope_and_metric():
    arms = sweep("directions").arms
    kinds = {(a.config.metric, a.config.direction, a.config.layers) for a in arms[1:-1]}
    assert len(kinds) == 12
    assert arms[-1].config.smooth_epochs == 40


def test_a_permuted_arm_is_compared_with_the_same_metric_unpermuted():
    found = sweep("controls")
    for arm in found.arms:
        if arm.config.control == "permuted":
            assert replace(arm.config, control="none") == found[arm.baseline].config


def test_initialisation_crosses_the_seeds_and_shares_the_plain_trials():
    crossed, plain = sweep("initialisation"), sweep("variance")
    seeds = {(c.effective_init_seed, c.effective_data_seed) for c in crossed.configs(crossed.arms[0])}
    assert seeds == {(i, j) for i in range(5) for j in range(5)}
    ids = {c.id for c in plain.configs(plain.arms[0])}
    assert sum(c.id in ids for c in crossed.configs(crossed.arms[0])) == 5


def test_small_forms_say_what_they_train():
    for name in SWEEPS:
        found = sweep(name)
        told = {"camvid": "CamVid", "voc2012": "PascalVOC", "cityscapes": "Cityscapes"}
        assert told.get(found.arms[0].config.dataset, "") in found.about
    assert "shares" not in sweep("curves-mini").about


def test_curves_share_their_trials_with_the_table():
    table = {config.id for config in sweep("table-cifar").all_configs()}
    assert sum(config.id not in table for config in sweep("curves").all_configs()) == 10  # LS along output


def test_only_keeps_the_baselines_that_are_needed():
    assert [arm.label for arm in sweep("controls").only(["0.05, channels"]).arms] == [
        "SGD",
        "SobolevTilde 0.05",
        "SobolevTilde 0.05, channels permuted",
    ]
    with pytest.raises(ConfigError, match=r"no arm of 'controls' matches 'adam'; its arms: SGD"):
        sweep("controls").only(["adam"])


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: sweep("lambda-mnits"), "did you mean 'lambda-mnist'"),
        (lambda: sweep("sweep_helpers:data"), "expected a riesz_lab.sweeps.Sweep, got Data"),
        (lambda: two_arms(trials=0), "trials: expected 1 or more, got 0"),
        (lambda: two_arms(arms=(Arm("a", short()), Arm("a", short()))), "two arms labelled 'a'"),
        (lambda: two_arms(arms=(Arm("a", short(), "b"),)), "baseline: expected one of a, got 'b'"),
    ],
)
def test_mistakes_are_named(make, told):
    with pytest.raises(ConfigError, match=told):
        make()


@pytest.mark.parametrize("name", SWEEPS)
def test_every_trial_has_an_estimate(name):
    for arm in sweep(name).arms:
        assert costs.cpu_hours(arm.config) > 0
        # What scenes cost on a GPU is not known, and a dry run says so.
        assert (costs.gpu_hours(arm.config) is None) == (name in SCENES)


def test_small_forms_are_estimated_at_half_an_hour_at_most():
    for name in SWEEPS:
        if name.endswith("-mini"):
            assert sum(costs.cpu_hours(config) for config in sweep(name).all_configs()) <= 0.5, name


# -- tables --------------------------------------------------------------------------------------------------------


def test_results_pair_by_seed_and_correct_over_the_table(tmp_path):
    found = two_arms()
    for arm, gain in zip(found.arms, (0, 0.01), strict=True):
        for config in found.configs(arm):
            write(tmp_path, config, 0.9 + 0.01 * config.seed + gain + 0.0001 * gain * config.seed**2 * 100)
    table = results(found, Store(tmp_path))
    comparison = table.comparisons["ours"]
    assert comparison.n == 5
    assert comparison.verdict == "better"
    assert comparison.p_holm == comparison.p
    assert table.rows["SGD"].comparison is None
    assert table.sentences[0].startswith("ours against SGD: better by")
    assert "better" in format_comparisons(table).splitlines()[3]
    flat = records(table)
    assert [record["arm"] for record in flat] == ["SGD", "ours"]
    assert flat[1]["interval_low"] == comparison.interval[0]
    assert flat[1]["verdict"] == "better"


@pytest.mark.parametrize("name", ["lambda-fashion", "lambda-fashion-mini", "controls-mini"])
def test_a_whole_sweep_is_corrected_for_its_own_comparisons(tmp_path, name):
    found = sweep(name).with_trials(3)
    for config in found.all_configs():
        write(tmp_path, config, 0.8 + 0.0001 * config.seed**2)
    for comparison in results(found, Store(tmp_path)).comparisons.values():
        assert comparison.family == sum(arm.baseline is not None for arm in found.arms)


def test_a_margin_may_be_a_share_of_the_baselines_mean(tmp_path):
    found = two_arms(relative_margin=0.05)
    for config in found.all_configs():
        write(tmp_path, config, 0.8 + 0.01 * config.seed)
    assert results(found, Store(tmp_path)).comparisons["ours"].margin == pytest.approx(0.05 * 0.82)
    assert results(found, Store(tmp_path / "nowhere")).comparisons["ours"].margin == 0.002


def test_a_part_of_a_sweep_is_corrected_for_the_whole(tmp_path):
    whole = sweep("controls-mini")
    part = whole.only(["ReweightedL2, norm"])
    assert len(part.arms) == 2
    assert part.family == sum(arm.baseline is not None for arm in whole.arms) == 8
    for arm, gain in zip(part.arms, (0, 0.01), strict=True):
        for config in part.configs(arm):
            write(tmp_path, config, 0.8 + gain + 0.003 * gain * config.seed)
    found = results(part, Store(tmp_path)).comparisons["ReweightedL2, norm kept"]
    assert found.p_holm == pytest.approx(8 * found.p)
    assert "after Holm for 8" in found.sentence


def test_results_take_what_is_there_and_leave_foreign_trials_out(tmp_path):
    found = two_arms()
    for config in found.configs(found.arms[0])[:4]:
        write(tmp_path, config, 0.9)
    write(tmp_path, found.configs(found.arms[1])[0], None, "diverged")
    write(tmp_path, replace(short(), lr=0.9), 0.1)
    table = results(found, Store(tmp_path))
    assert len(table.rows["SGD"].scores) == 4
    assert list(table.rows["ours"].scores.values()) == [None]
    assert table.comparisons["ours"].verdict == "no claim"
    assert "1 of 5" in format_comparisons(table)
    assert "Not complete." in format_comparisons(table)


def test_a_crossed_sweep_tells_the_sources_of_the_spread(tmp_path):
    found = two_arms(crossed=True, trials=3)
    for arm in found.arms:
        for config in found.configs(arm):
            write(
                tmp_path,
                config,
                0.9
                + 0.01 * config.effective_init_seed
                + 0.001 * config.effective_data_seed * config.effective_init_seed,
            )
    table = results(found, Store(tmp_path))
    assert table.comparisons["ours"].verdict == "identical"
    assert "standard deviation from initialisation" in format_comparisons(table)


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
    assert made.done == {done.id: "finished"}
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


def test_a_cost_that_is_not_known_is_not_told_as_zero(riesz):
    out = riesz("sweep", "voc-mini", "--dry-run")[1]
    assert "or an unknown time on one GPU" in out


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
    assert ("(--tune-lr)" in out) == advised


def test_costs_of_short_trials_add_up(riesz):
    out = riesz("sweep", "controls-mini", "--dry-run")[1]
    assert " hours" not in out
    assert re.search(r"about \d+ min on two cores", out)
    assert [costs.format_hours(seconds / 3600) for seconds in (0.2, 8, 60, 45 * 8, 7200)] == [
        "1 s", "8 s", "1 min", "6 min", "2 h",
    ]  # fmt: skip


def test_a_dry_run_prints_the_settings_that_are_run():
    config = sweep("controls-mini").arms[0].config
    assert "epochs=77" in _setting(replace(config, epochs=77))
    assert "epochs=" not in _setting(recipe(config.recipe))
