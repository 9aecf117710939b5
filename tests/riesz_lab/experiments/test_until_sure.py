"""Seeds until a conclusion, a plan of how many, and the margin in its units."""

import json
import re

import pytest
import torch
from torch import nn

import riesz
import riesz_lab
from riesz_lab.errors import ConfigError
from riesz_lab.experiments import all_experiments, read_experiments, result
from riesz_lab.experiments.margin import read_margin
from riesz_lab.experiments.planning import duration, fixed_pairs, make_plan
from riesz_lab.statistics.sequential import pairs_needed
from riesz_lab.store import Store
from riesz_lab.training.progress import clock


def make(gain, noise=0.1):
    def train(attach, seed):
        model = nn.Conv2d(1, 4, 3)
        attached = attach(torch.optim.SGD(model.parameters(), lr=0.1), model)
        directed = isinstance(attached, riesz.Attachment)
        kind = type(attached.metric).__name__
        own = torch.Generator().manual_seed(seed + 1000 * len(kind) * directed)
        return gain.get(kind, 0.0) + noise * torch.randn((), generator=own).item()

    return train


def test_seeds_are_added_until_every_arm_is_decided(tmp_path):
    lines = []
    gain = {"SobolevTilde": 1.0, "ReweightedL2": 0.0}
    answer = riesz_lab.compare(make(gain), until_sure=True, margin=0.5, budget=20, runs=tmp_path, say=lines.append)
    assert answer.verdicts == {"ReweightedL2": "same", "SobolevTilde": "better"}
    counts = {label: each.look.n for label, each in answer.compared.items()}
    # Arms stop by themselves; the baseline goes on for those that are left.
    assert {label: len(answer.arms[label].trials) for label in counts} == counts
    assert len(answer.arms["plain"].trials) == max(counts.values()) < 20
    assert {each.look.alpha for each in answer.compared.values()} == {0.025}
    assert answer.next_steps[0] == "Next: riesz.attach(optimizer, model, metric=riesz.SobolevTilde(lam=1.0))"
    assert any("SobolevTilde: better after" in line for line in lines)
    assert answer.answers[1].startswith("SobolevTilde against plain: better, +")
    assert not answer.without_outliers
    assert "a look after every pair and for both arms." in answer.text


def test_an_arm_out_of_reach_is_stopped_and_named(tmp_path):
    answer = riesz_lab.compare(
        make({}, 1.0), metrics=["sobolev-tilde"], until_sure=True, margin=0.001, budget=12, runs=tmp_path
    )
    judgement = answer.arms["SobolevTilde"].judgement
    assert answer.verdicts["SobolevTilde"] == "undecided"
    assert judgement.stopped
    assert 5 <= judgement.pairs < 12
    assert re.search(rf"plain: undecided, .*, {judgement.pairs} pairs; stopped: no verdict is in reach", answer.text)
    assert int(re.search(r"until_sure=True, budget=(\d+)", answer.next_steps[0])[1]) > 12


def differing(differences):
    """The plain trial scores 0.5, the directed one differs from it by that much."""

    def train(attach, seed):
        model = nn.Conv2d(1, 4, 3)
        directed = isinstance(attach(torch.optim.SGD(model.parameters(), lr=0.1), model), riesz.Attachment)
        return 0.5 + directed * differences[seed]

    return train


OPEN = [0.012, -0.008] * 10
"""Undecided at every look at a margin of one point, though 20 pairs would detect one point with 80% power."""


def test_advice_never_names_a_budget_that_was_used_up(tmp_path):
    options = {"metrics": ["sobolev-tilde"], "score": "accuracy", "until_sure": True, "runs": tmp_path}
    answer = riesz_lab.compare(
        differing(OPEN), margin="1points", budget=20, command="riesz compare a.py:train", **options
    )
    judged = answer.arms["SobolevTilde"].look
    assert (judged.n, judged.verdict) == (20, "undecided")
    assert pairs_needed(float(f"{judged.margin / judged.spread:.3g}"), judged.alpha) <= 20
    assert "would detect" not in answer.text
    said = re.search(r"about (\d+) pairs in all would decide it with 80% power", answer.answers[0])
    advice = re.fullmatch(
        r"Next: (\d+) more pairs, about a minute of training: riesz compare a.py:train --until-sure --budget (\d+)",
        answer.next_steps[0],
    )
    assert int(advice[2]) == int(said[1]) == 20 + int(advice[1]) > 20


@pytest.mark.parametrize(("pairs", "said"), [(5, "about 30 pairs would decide"), (10, "these pairs decide")])
def test_where_no_budget_decides_a_margin_that_would_be_decided_is_named(pairs, said, tmp_path):
    options = {"metrics": ["sobolev-tilde"], "score": "accuracy", "runs": tmp_path}
    function = differing([0.01, -0.01] * 15)
    answer = riesz_lab.compare(function, margin="0.01points", seeds=pairs, **options)
    assert answer.next_steps[0].startswith(f"Next: stop here, or widen the margin: {said} --margin ")
    wider = answer.next_steps[0].split()[-1]
    answer = riesz_lab.compare(function, margin=wider, until_sure=True, budget=30 if pairs == 5 else pairs, **options)
    assert answer.verdicts["SobolevTilde"] == "same"


def test_a_sequence_that_no_budget_decides_says_so(tmp_path):
    options = {"metrics": ["sobolev-tilde"], "score": "accuracy", "until_sure": True, "budget": 10, "runs": tmp_path}
    answer = riesz_lab.compare(differing([0.01, -0.01] * 5), margin="0.01points", **options)
    assert "more than 500 pairs would be needed to decide it with 80% power" in answer.answers[0]


def test_a_fixed_number_of_pairs_is_not_told_that_fewer_would_do(tmp_path):
    options = {"metrics": ["sobolev-tilde"], "score": "accuracy", "runs": tmp_path}
    function = differing([0.015, -0.005] * 6)
    answer = riesz_lab.compare(function, seeds=12, margin="1points", **options)
    assert answer.verdicts["SobolevTilde"] == "undecided"
    assert "would detect" not in answer.text
    budget = int(re.search(r"budget=(\d+)", answer.next_steps[0])[1])
    assert budget > 12
    answer = riesz_lab.compare(function, seeds=5, margin="1points", **options)
    assert "pairs would detect 1.0 points with 80% power" in answer.text


def test_stored_trials_are_one_line_and_the_time_that_is_left_is_theirs(tmp_path):
    function, lines = differing(OPEN), []
    options = {"metrics": ["sobolev-tilde"], "score": "accuracy", "until_sure": True, "budget": 20, "runs": tmp_path}
    options["say"] = lines.append
    run = riesz_lab.compare(function, margin="2points", **options).arms["SobolevTilde"].look.n
    assert sum("pair 3 plain, seed 2: accuracy" in line for line in lines) == 1
    lines.clear()
    riesz_lab.compare(function, margin="2points", **options)
    assert len(lines) == 3
    assert lines[0].startswith(f"{2 * run} stored trials read (20")
    assert lines[1].startswith(f"  SobolevTilde: same after {run} pairs")
    # A smaller margin goes on from there. Stored pairs take no time to read, but further ones take what these took.
    for file in tmp_path.glob("*/*/timing.jsonl"):
        file.write_text(json.dumps({"epoch": 1, "seconds": 90.0}) + "\n")
    lines.clear()
    riesz_lab.compare(function, margin="1.5points", **options)
    assert lines[0].startswith(f"{2 * run} stored trials read (20")
    assert lines[1].startswith(f"pair {run + 1} plain, seed {run}: accuracy")
    mean = 90 * run / (run + 1)  # of all trials so far: the new pair took no time
    left = clock((20 - run - 1) * 2 * mean)
    assert lines[4] == f"  {run + 1} of at most 20 pairs, about {left} if all are needed"


def test_the_budget_ends_it(tmp_path):
    answer = riesz_lab.compare(
        make({"SobolevTilde": 0.1}), metrics=["sobolev-tilde"], until_sure=True, margin=0.05, budget=4, runs=tmp_path
    )
    assert answer.arms["SobolevTilde"].look.n == 4
    assert "decide it with 80% power" in answer.text
    assert "intervals allow for a look after every pair.\n" in answer.text  # one arm: nothing else to allow for


def test_a_plan_after_a_pilot_of_three(tmp_path):
    answer = riesz_lab.compare(
        make({}), metrics=["sobolev-tilde"], plan=True, margin=0.1, runs=tmp_path, command="riesz compare a.py:train"
    )
    arm = answer.plan.arms["SobolevTilde"]
    assert len(answer.arms["plain"].trials) == 3
    assert arm.until_sure > arm.fixed >= 3
    assert arm.hours > 0
    assert f"SobolevTilde: {arm.until_sure} pairs with --until-sure" in answer.text
    assert answer.next_steps == [f"Next: riesz compare a.py:train --until-sure --budget {arm.until_sure}"]
    assert "3 pairs estimate the spread: the true one may be 0.5 to 6.3 times as large (95%)" in answer.text


def test_a_plan_does_not_take_a_spread_that_is_unknown_for_none(tmp_path):
    def train(attach, seed):
        model = torch.nn.Conv2d(1, 8, 3)
        attach(torch.optim.SGD(model.parameters(), lr=0.01), model)
        return 1e200 if seed else float(model.weight.sum().detach())  # beyond what a store reads as a number

    answer = riesz_lab.compare(train, metrics=["sobolev-tilde"], plan=True, margin=0.1, runs=tmp_path)
    assert answer.plan.arms == {"SobolevTilde": None}
    assert "SobolevTilde: unknown, since trials diverged and fewer than two pairs have a difference" in answer.text
    assert answer.next_steps == []


def test_a_plan_does_not_take_equal_scores_for_no_spread(tmp_path):
    options = {"metrics": ["sobolev-tilde"], "score": "accuracy", "plan": True, "runs": tmp_path}
    answer = riesz_lab.compare(differing([0.0] * 3), **options)
    assert answer.plan.arms == {"SobolevTilde": None}
    assert "SobolevTilde: unknown, since all pairs have the same difference" in answer.text
    assert answer.next_steps == []


@pytest.mark.parametrize(("margin", "pairs", "verdict"), [("20points", 14, "same"), ("2points", 15, "undecided")])
def test_ties_end_it_where_they_exclude_the_margin_and_not_before(margin, pairs, verdict, tmp_path):
    """149 ties exclude two points, 14 exclude twenty."""
    options = {"score": "accuracy", "until_sure": True, "budget": 15, "margin": margin, "runs": tmp_path}
    answer = riesz_lab.compare(differing([0.0] * 15), metrics=["sobolev-tilde"], **options)
    assert answer.arms["SobolevTilde"].look.n == pairs
    assert answer.verdicts["SobolevTilde"] == verdict
    if verdict == "undecided":
        assert "a score without spread takes 149 of them to exclude the margin" in answer.text
        assert answer.next_steps[0].startswith("Next: find out why differences are equal")


@pytest.mark.parametrize("margin", ["0.5sd", "0.002"])
def test_a_baseline_without_spread_is_no_evidence_either(margin, tmp_path):
    options = {"score": "accuracy", "until_sure": True, "budget": 4, "margin": margin, "runs": tmp_path}
    answer = riesz_lab.compare(differing([0.0] * 4), metrics=["sobolev-tilde"], **options)
    assert answer.verdicts["SobolevTilde"] == "undecided"
    assert answer.arms["SobolevTilde"].reason.startswith("identical scores in all 4 pairs")


def test_a_plan_takes_all_pairs_that_are_stored(tmp_path):
    options = {"metrics": ["sobolev-tilde"], "runs": tmp_path}
    train = make({})
    riesz_lab.compare(train, seeds=5, **options)
    answer = riesz_lab.compare(train, plan=True, **options)
    assert (answer.plan.pairs, len(answer.stored)) == (5, 10)
    assert "5 pairs estimate the spread: the true one may be 0.6 to 2.9 times as large" in answer.text
    answer = riesz_lab.compare(train, plan=True, fresh=True, **options)
    assert (answer.plan.pairs, len(answer.stored)) == (3, 0)


def test_fixed_pairs_are_those_of_the_textbook():
    assert [fixed_pairs(effect, 0.05) for effect in (0.5, 0.8, 1.0)] == [34, 15, 10]
    assert fixed_pairs(1e-4, 0.05) is None


@pytest.mark.parametrize(
    ("text", "percent", "value"),
    [(0.002, True, 0.002), ("0.3points", True, 0.003), ("0.3 points", False, 0.3), ("0.5sd", True, 1.0)],
)
def test_margins(text, percent, value):
    assert read_margin(text).value(percent, (), [[1.0, 3.0, 5.0]]) == pytest.approx(value)


@pytest.mark.parametrize("text", [0, -1, "nan", "inf", "0.5 s", "sd", ""])
def test_margins_that_are_none(text):
    with pytest.raises(ConfigError, match="margin: expected a number above 0"):
        read_margin(text)


def test_a_margin_in_standard_deviations_of_the_baseline(tmp_path):
    answer = riesz_lab.compare(make({}), metrics=["sobolev-tilde"], seeds=4, margin="2sd", runs=tmp_path)
    scores = torch.tensor(list(answer.arms["plain"].scores.values()), dtype=torch.float64)
    assert answer.comparisons["SobolevTilde"].margin == pytest.approx(2 * scores.std().item())


@pytest.mark.parametrize(
    ("options", "message"),
    [({"budget": 2}, "budget: expected 3 or more"), ({"plan": True}, "expected until_sure or plan")],
)
def test_mistakes_are_explained(options, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        riesz_lab.compare(make({}), until_sure=True, runs=tmp_path, **options)


def one_collapses(attach, seed):
    model = nn.Conv2d(1, 4, 3)
    directed = isinstance(attach(torch.optim.SGD(model.parameters(), lr=0.1), model), riesz.Attachment)
    return 0.1 if seed == 2 and directed else 0.8 + 0.001 * torch.rand(()).item()


def test_an_outlier_is_named_with_the_looks_without_it_beside(tmp_path):
    answer = riesz_lab.compare(
        one_collapses, metrics=["sobolev-tilde"], score="accuracy", until_sure=True, budget=6, runs=tmp_path
    )
    look = answer.without_outliers["SobolevTilde"]
    assert look.n == answer.arms["SobolevTilde"].look.n - 1
    assert "Outlier: SobolevTilde, seed 2 scored 10.00%" in answer.text
    assert re.search(rf"  Without such trials, SobolevTilde: undecided, .*, {look.n} pairs", answer.text)
    assert "Holm" not in answer.text


def diverging(seeds):
    def train(attach, seed):
        model = nn.Conv2d(1, 4, 3)
        directed = isinstance(attach(torch.optim.SGD(model.parameters(), lr=0.1), model), riesz.Attachment)
        return float("nan") if directed and seed in seeds else directed + 0.01 * torch.rand(()).item() * (1 + directed)

    return train


@pytest.mark.parametrize(
    ("seeds", "run", "said"),
    [
        ({1}, 6, "undecided, +1.0"),
        (range(50), 5, "undecided, 0 pairs"),
    ],
)
def test_an_arm_that_diverges_is_stopped_with_the_reason(seeds, run, said, tmp_path):
    """Nothing may be claimed in its favour any more, so more pairs are a waste."""
    answer = riesz_lab.compare(
        diverging(seeds), metrics=["sobolev-tilde"], until_sure=True, margin=0.2, budget=20, runs=tmp_path
    )
    judgement = answer.arms["SobolevTilde"].judgement
    assert (judgement.pairs, judgement.stopped) == (run, True)
    assert len(answer.arms["plain"].trials) == run
    assert answer.answers[0].startswith(f"SobolevTilde against plain: {said}")
    alone = f"trials diverged: the baseline alone in 0 pairs, the method alone in {1 if run == 6 else 5}"
    assert answer.answers[0].endswith(f"; {alone}; stopped: no verdict is in reach.")
    assert "would detect" not in answer.text
    assert answer.next_steps == [
        "Next: find out why trials diverged; a smaller learning rate, or riesz.schedule.warmup(steps), may prevent it."
    ]


def against_its_control(attach, seed):
    model = nn.Conv2d(1, 4, 3)
    attached = attach(torch.optim.SGD(model.parameters(), lr=0.1), model)
    directed = isinstance(attached, riesz.Attachment)
    own = torch.Generator().manual_seed(seed + 1000 * len(repr(attached)))
    collapsed = directed and "permuted" not in repr(attached) and seed == 7
    return 0.1 if collapsed else 0.8 + 0.1 * directed + 0.004 * torch.randn((), generator=own).item()


def test_pairs_that_an_arm_has_beyond_its_last_look_do_not_count(tmp_path):
    answer = riesz_lab.compare(
        against_its_control, metrics=["sobolev-tilde"], controls=True, score="accuracy", until_sure=True, budget=30,
        margin="1points", runs=tmp_path,
    )  # fmt: skip
    stopped, control = answer.arms["SobolevTilde"], "SobolevTilde, channels permuted"
    assert stopped.verdict == "better"
    assert len(stopped.trials) > stopped.look.n == stopped.judgement.pairs
    # Seed 7 collapsed after that: it counts for the control alone.
    assert [each.seed for each in answer.outliers] == [7]
    assert set(answer.without_outliers) == {control}


def test_pairs_of_an_earlier_longer_run_are_in_no_table_of_a_fixed_number(tmp_path):
    function, options = make({}), {"metrics": ["sobolev-tilde"], "until_sure": True, "budget": 30, "runs": tmp_path}
    longer = riesz_lab.compare(function, margin=0.15, **options).arms["SobolevTilde"].look.n
    shorter = riesz_lab.compare(function, margin=1.0, **options).arms["SobolevTilde"].look.n
    assert longer >= shorter + 3  # enough for a claim
    (asked,) = read_experiments(tmp_path)[0].values()  # the later one has replaced the earlier
    trials = Store(tmp_path).trials
    assert all_experiments(trials, [asked]) == [asked]
    assert result(asked, trials).arms["SobolevTilde"].look.n == shorter
    assert len(all_experiments(trials, [])) == 1  # without the record they would be asked the plain question


def test_a_margin_larger_than_every_score_is_named(tmp_path):
    answer = riesz_lab.compare(make({}), metrics=["sobolev-tilde"], seeds=3, margin=5, runs=tmp_path / "signed")
    assert "is larger than every score" not in answer.text  # scores below zero have no such limit

    def train(attach, seed):
        return 0.8 + 0.1 * make({})(attach, seed)

    answer = riesz_lab.compare(train, metrics=["sobolev-tilde"], seeds=3, margin=1, runs=tmp_path)
    assert "The margin, 1, is larger than every score (0.7" in answer.text


def test_advice_to_tune_keeps_the_looks(tmp_path):
    def train(attach, seed, lr=0.1):
        return make({})(attach, seed)

    options = {"metrics": ["sobolev-tilde"], "margin": 0.5, "runs": tmp_path}
    answer = riesz_lab.compare(train, until_sure=True, budget=9, **options)
    assert answer.next_steps[0].endswith("riesz_lab.compare(train, tune=['lr'], until_sure=True, budget=9, ...)")
    answer = riesz_lab.compare(train, until_sure=True, budget=9, command="riesz compare a.py:train", **options)
    assert answer.next_steps[0].endswith("best rate: riesz compare a.py:train --tune lr --until-sure --budget 9")


def test_a_plan_counts_workers_and_says_the_time_in_words(tmp_path):
    answer = riesz_lab.compare(make({}), metrics=["sobolev-tilde"], plan=True, margin=0.1, runs=tmp_path)
    for file in tmp_path.glob("*/*/timing.jsonl"):
        file.write_text(json.dumps({"epoch": 1, "seconds": 600.0}) + "\n")
    alone, two = (make_plan(answer, workers).arms["SobolevTilde"].hours for workers in (1, 2))
    assert alone == pytest.approx(2 * two)
    assert [duration(hours) for hours in (0.001, 0.2, 2.0)] == [
        "about a minute",
        "about 12 minutes",
        "about 2.0 hours",
    ]


def test_a_tuning_trial_that_diverges_ends_there_and_a_final_one_does_not(tmp_path):
    epochs = []

    def train(attach, seed, lr=0.1):
        model = nn.Conv2d(1, 4, 3)
        attach(torch.optim.SGD(model.parameters(), lr=lr), model)
        for _ in range(5):
            epochs.append((lr, seed))
            attach.log(held_out=float("nan") if lr > 0.3 or seed == 1 else 0.5)
        return {"score": torch.rand(()), "held_out": 0.5}

    answer = riesz_lab.compare(
        train, metrics=["sobolev-tilde"], tune=["lr"], lr=[0.1, 0.2, 0.4], tune_seeds=1, seeds=2, runs=tmp_path
    )
    assert [epochs.count((rate, 1000)) for rate in (0.1, 0.2, 0.4)] == [10, 10, 2]
    assert sum(seed == 1 for _, seed in epochs) == 10
    means = {point.settings["lr"]: point.mean for point in answer.tuned.points["plain"]}
    assert means[0.4] is None
    assert "of which 2 diverged" in answer.text
