"""A result is a pure function of an experiment and of stored trials: it equals what sweeps and comparisons said."""

import json
from dataclasses import replace

import pytest

from riesz_lab.config import OWN, Config
from riesz_lab.errors import BadFileError, ConfigError
from riesz_lab.experiments import (
    EXPERIMENTS,
    Arm,
    Fixed,
    Margin,
    Pilot,
    Score,
    Seeds,
    Tuning,
    UntilSure,
    all_experiments,
    experiment,
    read_experiments,
    result,
)
from riesz_lab.experiments.arm import with_settings
from riesz_lab.experiments.stopping import look_at_pairs
from riesz_lab.statistics.verdict import Verdict
from riesz_lab.store import Store
from sweep_helpers import short, two_arms, write


def store(runs, asked, gain=0.0, noise=0.0):
    """Every trial that the experiment misses, until it misses none; the method gains, and its differences scatter."""
    while missing := result(asked, Store(runs)).missing:
        for config, _ in missing:
            wave = noise * (1 if config.seed % 2 else -1) * (1 + 0.1 * (config.seed % 3))
            directed = config.metric != "identity"
            write(runs, config, 0.5 + 0.001 * config.seed + directed * (gain + wave))
    return result(asked, Store(runs))


# -- the record ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_is_stored_and_read_as_it_was(name, tmp_path):
    asked = experiment(name)
    folder = asked.write(tmp_path)
    assert folder == tmp_path / "experiments" / f"{name}-{asked.id}"
    assert read_experiments(tmp_path) == ({folder: asked}, {})


@pytest.mark.parametrize(
    "changes",
    [
        {"stopping": UntilSure(budget=9)},
        {"stopping": Pilot()},
        {"tuning": Tuning(grid={"lr": (0.1, 0.2), "width": (4, 8)}, own=("width",), hold_out=3)},
        {"tuning": Tuning(factors=(0.5, 1.0))},
        {"score": Score("test_loss", higher_is_better=False, percent=False), "margin": Margin(0.5, "sd")},
        {"seeds": Seeds(count=0, also=((3, None, None), (4, 1, None)))},
        {"family": 7, "collapsed": 0.1, "reproduces": "a table"},
    ],
)
def test_a_record_keeps_all_that_is_asked(changes, tmp_path):
    asked = two_arms(**changes)
    asked.write(tmp_path)
    found, broken = read_experiments(tmp_path)
    assert (list(found.values()), broken) == ([asked], {})


def test_the_same_comparison_with_more_seeds_replaces_the_record(tmp_path):
    asked = two_arms()
    for other in (asked.with_seeds(9), replace(asked, margin=Margin(1.0), question="again?"), asked):
        other.write(tmp_path)
    assert list(read_experiments(tmp_path)[0].values()) == [asked]
    for other in (two_arms(stopping=UntilSure()), two_arms(tuning=Tuning()), two_arms(arms=asked.arms[:1])):
        assert other.id != asked.id


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"name": 3, "arms": []}', '{"arms": [{"label": "a"}]}'])
def test_a_broken_record_is_reported_and_hides_no_other(content, tmp_path):
    folder, broken = two_arms().write(tmp_path), tmp_path / "experiments" / "x"
    broken.mkdir()
    (broken / "experiment.json").write_text(content)
    found, reasons = read_experiments(tmp_path, tmp_path / "test")
    assert list(found) == [folder]
    assert list(reasons) == [broken]


def test_a_record_with_a_changed_setting_is_refused_or_has_it(tmp_path):
    """An id is there to trust the text of a metric: with another one the text is parsed, as any user's."""
    folder = two_arms().write(tmp_path)
    content = json.loads((folder / "experiment.json").read_text())
    content["arms"][1]["config"]["metric"] = "sobolev-tilde(lam=2)"
    (folder / "experiment.json").write_text(json.dumps(content))
    assert read_experiments(tmp_path)[0][folder]["ours"].config.metric == "sobolev-tilde(lam=2.0)"
    content["arms"][1]["config"]["metric"] = "no-metric"
    (folder / "experiment.json").write_text(json.dumps(content))
    assert "no-metric" in read_experiments(tmp_path)[1][folder]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: two_arms(seeds=Seeds(count=0)), "seeds: expected 1 or more, got 0"),
        (lambda: two_arms(arms=(Arm("a", short()), Arm("a", short()))), "two arms labelled 'a'"),
        (lambda: two_arms(arms=(Arm("a", short(), "b"),)), "baseline: expected one of a, got 'b'"),
        (lambda: two_arms(stopping=UntilSure(budget=2)), "budget: expected 3 or more pairs, got 2"),
        (lambda: two_arms(margin=Margin(0)), "margin: expected a number above 0"),
        (lambda: Tuning(factors=(1.0,)), "lr_factors: expected two or more different factors above 0"),
        (lambda: Tuning(seeds=0), "tune_seeds: expected 1 or more, got 0"),
        (lambda: experiment("lambda-mnits"), "did you mean 'lambda-mnist'"),
        (lambda: experiment("sweep_helpers:data"), "expected a riesz_lab Experiment, got Data"),
        (lambda: two_arms().only(["adam"]), r"no arm of 'two' matches 'adam'; its arms: SGD, ours"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_settings_go_to_the_function_or_to_the_config():
    own = Config(optimizer=OWN, model_options=("score=acc", "better=higher", "width=4"))
    changed = with_settings(own, {"lr": 0.3, "width": 8}, own=("width", "lr"))
    assert changed.model_options == ("score=acc", "better=higher", "lr=0.3", "width=8")
    assert changed.lr == Config().lr
    adversarial = Config(task="generation", lr=0.1, discriminator_lr=0.4)
    assert with_settings(adversarial, {"lr": 0.2}).discriminator_lr == pytest.approx(0.8)


# -- a fixed number of seeds ---------------------------------------------------------------------------------------


def test_a_gain_is_found_with_its_interval(tmp_path):
    found = store(tmp_path, two_arms(), gain=0.01, noise=0.0001)
    ours = found.arms["ours"]
    assert found.complete
    assert found.score == Score("test_accuracy")
    assert (ours.verdict, ours.reason) == (Verdict.BETTER, "")
    assert ours.comparison.difference == pytest.approx(0.01, abs=1e-4)
    assert found.arms["SGD"].verdict is None
    assert found.verdicts == {"ours": Verdict.BETTER}
    assert [len(each.trials) for each in found.arms.values()] == [5, 5]
    assert len(found.trials) == 10


@pytest.mark.parametrize(
    ("gain", "noise", "seeds", "verdict", "reason"),
    [
        (-0.01, 0.0001, 5, "worse", ""),
        (0.0001, 0.0001, 5, "same", ""),
        (0.0, 0.01, 5, "undecided", ""),
        (0.0, 0.0, 5, "undecided", "identical scores in all 5 pairs"),
        (0.01, 0.0, 5, "undecided", "the difference is the same in all 5 pairs"),
        (0.01, 0.001, 2, "undecided", "2 pairs; at least 3 are needed"),
        (0.0015, 0.00005, 5, "better", "by less than the margin"),
    ],
)
def test_verdicts_have_four_words_and_a_reason_besides_the_interval(gain, noise, seeds, verdict, reason, tmp_path):
    ours = store(tmp_path, two_arms(seeds=Seeds(count=seeds)), gain, noise).arms["ours"]
    assert ours.verdict == verdict
    assert ours.reason.startswith(reason)
    assert bool(ours.reason) == bool(reason)


def test_an_arm_that_diverged_is_not_better(tmp_path):
    asked = two_arms()
    write(tmp_path, asked.configs(asked["ours"])[0], None, "diverged")
    ours = store(tmp_path, asked, gain=0.01, noise=0.0001).arms["ours"]
    assert ours.verdict == "undecided"
    assert ours.reason == "trials diverged: the baseline alone in 0 pairs, the method alone in 1"


def test_what_is_missing_is_listed_seed_by_seed(tmp_path):
    asked = two_arms(seeds=Seeds(count=2))
    titles = [title for _, title in result(asked, []).missing]
    assert titles == ["SGD, seed 0", "ours, seed 0", "SGD, seed 1", "ours, seed 1"]
    write(tmp_path, asked.configs(asked["SGD"])[0], 0.5)
    found = result(asked, Store(tmp_path))
    assert len(found.missing) == 3
    assert not found.complete
    assert found.arms["ours"].reason == "no pairs of scores yet"


def test_a_part_is_corrected_for_the_whole_and_stored_as_the_whole(tmp_path):
    whole = experiment("controls-mini").with_seeds(3)
    part = whole.only(["ReweightedL2, norm"])
    assert [arm.label for arm in part.chosen] == ["SGD", "ReweightedL2, norm kept"]
    assert list(store(tmp_path, part, 0.01, 0.001).arms) == ["SGD", "ReweightedL2, norm kept"]
    assert result(part, Store(tmp_path)).comparisons["ReweightedL2, norm kept"].family == 8
    assert part.id == whole.id
    assert part.to_dict() == whole.to_dict()


def test_another_column_of_the_history_may_be_the_score(tmp_path):
    asked = two_arms(seeds=Seeds(count=3), score=Score("step", higher_is_better=False, percent=False))
    found = store(tmp_path, asked)
    assert found.arms["SGD"].finite == [1.0, 1.0, 1.0]


def test_a_margin_may_be_a_share_of_the_baseline_or_of_its_spread(tmp_path):
    found = store(tmp_path, two_arms(margin=Margin(0.05, "relative")), noise=0.01)
    assert found.comparisons["ours"].margin == pytest.approx(0.05 * 0.502)
    spread = two_arms(margin=Margin(2, "sd"))
    assert result(spread, Store(tmp_path)).comparisons["ours"].margin == pytest.approx(2 * 0.001 * 2.5**0.5)


# -- until sure, and pilots ----------------------------------------------------------------------------------------


def test_pairs_are_added_until_every_arm_has_a_verdict(tmp_path):
    asked = two_arms(stopping=UntilSure(budget=30), margin=Margin(0.02))
    first = result(asked, [])
    assert [title for _, title in first.missing] == ["SGD, seed 0", "ours, seed 0"]
    found = store(tmp_path, asked, gain=0.1, noise=0.001)
    ours = found.arms["ours"]
    assert (ours.verdict, ours.judgement.pairs, ours.judgement.stopped) == ("better", 4, False)
    assert [len(each.trials) for each in found.arms.values()] == [4, 4]
    assert ours.comparison is None
    assert ours.look == look_at_pairs(found.arms["SGD"].scores, ours.scores, 0.02, found.score)
    # Further trials in the store change nothing: the rule had stopped before.
    for config in asked.with_seeds(9).all_configs()[8:]:
        write(tmp_path, config, 0.1)
    assert result(asked, Store(tmp_path)).arms["ours"].look == ours.look


def test_an_arm_without_a_verdict_in_reach_is_stopped(tmp_path):
    ours = store(tmp_path, two_arms(stopping=UntilSure(budget=9), margin=Margin(1e-6)), noise=0.1).arms["ours"]
    assert (ours.verdict, ours.reason) == ("undecided", "stopped: no verdict is in reach")
    assert 5 <= ours.judgement.pairs < 9


def test_a_pilot_takes_three_pairs_or_all_that_are_stored(tmp_path):
    asked = two_arms(stopping=Pilot())
    assert store(tmp_path, asked, noise=0.1).arms["ours"].look.n == 3
    store(tmp_path, two_arms(seeds=Seeds(count=6)), noise=0.1)
    assert result(asked, Store(tmp_path)).arms["ours"].look.n == 6


@pytest.mark.parametrize("stopping", [Pilot(), Fixed()])
def test_an_arm_that_lacks_trials_says_how_many_are_wanted(tmp_path, stopping):
    asked = two_arms(seeds=Seeds(count=3), stopping=stopping)
    for config in asked.all_configs()[:5]:
        write(tmp_path, config, 0.5 + 0.001 * config.seed)
    ours = result(asked, Store(tmp_path)).arms["ours"]
    assert (len(ours.trials), ours.wanted) == (2, 3)


def test_of_an_arm_that_has_a_verdict_no_more_trials_are_wanted(tmp_path):
    asked = two_arms(stopping=UntilSure(budget=30), margin=Margin(0.02))
    slow = replace(asked["ours"], label="slow", config=replace(asked["ours"].config, lr=0.06))
    asked = replace(asked, arms=(*asked.arms, slow))
    for config in asked.with_seeds(9).all_configs():
        if config.metric == "identity":
            write(tmp_path, config, 0.5)
        elif config.lr != 0.06 or config.seed < 5:
            wave = 0.1 if config.lr == 0.06 else 0.001
            write(tmp_path, config, 0.6 + wave * (-1) ** config.seed)
    found = result(asked, Store(tmp_path))
    assert [config.lr for config, _ in found.missing] == [0.06]
    pairs = found.arms["ours"].judgement.pairs
    assert pairs < found.arms["slow"].judgement.pairs == 5
    assert found.arms["slow"].wanted == 6
    assert len(found.arms["ours"].trials) == found.arms["ours"].wanted


@pytest.mark.parametrize("stopping", [UntilSure(budget=4), Pilot(4), Fixed()])
def test_the_best_epoch_is_judged_where_it_is_asked_for(tmp_path, stopping):
    """A verdict and the scores beside it are of one epoch."""
    asked = two_arms(seeds=Seeds(count=4), stopping=stopping)
    for config in asked.all_configs():
        gain = 0.1 if config.metric != "identity" else 0.0
        wave = 0.001 * (config.seed % 2) * (gain > 0)
        write(tmp_path, config, 0.5 - gain + wave, best=0.6 + gain + wave)
    assert result(asked, Store(tmp_path), "last").arms["ours"].judged.difference < 0
    assert result(asked, Store(tmp_path), "best").arms["ours"].judged.difference > 0


def test_an_unknown_stopping_rule_is_refused():
    with pytest.raises(TypeError, match="stopping: expected one of Fixed, UntilSure, Pilot, got 'five'"):
        result(replace(two_arms(), stopping="five"), [])


# -- tuning --------------------------------------------------------------------------------------------------------


def tuned_store(runs, asked, best):
    """Every arm's score is highest at the rate that is nearest to its own best; as many trials as are asked for."""
    while missing := result(asked, Store(runs)).missing:
        for config, _ in missing:
            write(runs, config, 0.9 - abs(config.lr - best[config.metric]) + 0.0001 * config.seed)
    return result(asked, Store(runs))


TUNED = Tuning(factors=(0.5, 1.0, 2.0), hold_out=20)


def test_each_arm_has_its_own_best_rate(tmp_path):
    asked = two_arms(tuning=TUNED)
    titles = [title for _, title in result(asked, []).missing]
    assert len(titles) == 12
    assert titles[0] == "SGD, lr=0.025, seed 1000"
    found = tuned_store(tmp_path, asked, {"identity": 0.05, "sobolev-tilde(lam=1.0)": 0.025})
    assert {label: each.chosen for label, each in found.arms.items()} == {"SGD": {"lr": 0.05}, "ours": {"lr": 0.025}}
    # The best rate of one lies at the edge, so the grid was extended for both.
    assert found.tuned.grid == {"lr": [0.0125, 0.025, 0.05, 0.1]}
    assert (found.tuned.extended, found.tuned.at_the_edge) == (1, ())
    assert [each.arm.config.lr for each in found.arms.values()] == [0.05, 0.025]
    assert all(each.arm.config.hold_out == 0 for each in found.arms.values())
    assert len(found.trials) == 2 * 4 * 2 + 2 * 5
    assert {trial.config.hold_out for trial in found.tuned.trials} == {20}
    part = result(asked.only(["ours"]), Store(tmp_path))  # a part has the rates of the whole
    assert part.arms["ours"] == found.arms["ours"]


def test_a_grid_is_extended_by_a_few_values_at_most(tmp_path):
    found = tuned_store(tmp_path, two_arms(tuning=TUNED), {"identity": 0.05, "sobolev-tilde(lam=1.0)": 10.0})
    assert found.tuned.extended == 4
    assert found.tuned.at_the_edge == ("ours",)


def test_a_tuned_experiment_says_what_it_waits_for(tmp_path):
    asked = two_arms(tuning=TUNED)
    assert (
        "arm 'SGD' is not tuned yet: 6 trials to be completed, the first at lr=0.025" in result(asked, []).tuned.why_not
    )
    for config, _ in result(asked, []).missing:
        write(
            tmp_path,
            config,
            None if config.metric == "identity" else 0.5 + config.lr,
            "diverged" if config.metric == "identity" else "finished",
        )
    found = result(asked, Store(tmp_path))
    assert (
        "arm 'SGD' diverged at every point of the grid: lr=0.025; lr=0.05; lr=0.1" in found.tuned.why_not
        or found.missing
    )


def test_settings_of_a_function_are_tuned_too(tmp_path):
    base = replace(short(), optimizer=OWN, task="own", model_options=("score=acc", "better=higher"))
    tuning = Tuning(grid={"width": (4, 8), "kind": ("a", "b")}, own=("width", "kind"), seeds=1, hold_out=1)
    asked = two_arms(arms=(Arm("plain", base),), tuning=tuning, seeds=Seeds(count=1))
    while missing := result(asked, Store(tmp_path)).missing:
        for config, _ in missing:
            options = dict(text.split("=") for text in config.model_options)
            write(tmp_path, config, 0.5 - abs(int(options["width"]) - 8) / 100 - (options["kind"] == "'a'") / 10)
    found = result(asked, Store(tmp_path))
    assert found.arms["plain"].chosen == {"width": 8, "kind": "b"}
    assert found.tuned.grid == {"width": [4, 8, 16], "kind": ["a", "b"]}
    assert found.arms["plain"].arm.config.model_options[2:] == ("width=8", "kind='b'")


# -- trials of no experiment ---------------------------------------------------------------------------------------


def test_trials_of_no_experiment_are_asked_the_plain_question(tmp_path):
    asked = two_arms(seeds=Seeds(count=3))
    store(tmp_path, asked, 0.01, 0.001)
    for seed in (0, 5):
        write(tmp_path, replace(short(metric="reweighted-l2"), seed=seed), 0.5)
    whole = Store(tmp_path)
    found, plain = all_experiments(whole.trials, [asked, replace(asked, name="part", arms=asked.arms[:1])])
    assert found == asked
    assert [arm.label for arm in plain.arms] == ["SGD", "ReweightedL2"]
    assert sorted(key[0] for key in result(plain, whole).arms["SGD"].trials) == [0, 1, 2]
    assert all_experiments(whole.trials, [two_arms(arms=(Arm("a", short(epochs=7)),))])[0].name == "test"


def test_an_experiment_within_a_larger_one_is_left_out(tmp_path):
    asked = two_arms(seeds=Seeds(count=3))
    store(tmp_path, asked)
    larger = replace(asked, arms=(*asked.arms, Arm("more", short(metric="reweighted-l2"), "SGD")), name="larger")
    assert all_experiments(Store(tmp_path).trials, [asked, larger]) == [larger]


def test_a_stored_experiment_is_named_by_its_folder(tmp_path):
    asked = two_arms(seeds=Seeds(count=2))
    folder = asked.write(tmp_path)
    assert experiment(str(folder)) == asked
    (folder / "experiment.json").write_text('{"name": "two"}')
    with pytest.raises(BadFileError, match=r"experiment\.json: not an experiment: .*arms"):
        experiment(str(folder))
    with pytest.raises(ConfigError, match=r"expected a name .* or a stored one by its folder, or your own"):
        experiment(str(tmp_path))
