"""The controls of what differs: which there are, and what is concluded from them, on trials with made-up scores."""

from __future__ import annotations

import pytest
from evidence import controls, figures, page, sweeps
from evidence.attribution import Attribution
from evidence.data import read

from evidence_trials import SEARCH, store, store_arm
from riesz_lab.errors import ConfigError
from riesz_lab.statistics import paired
from stored import store_trial


def test_what_differs_gets_controls_once_its_sweep_is_complete(tmp_path):
    sweep = sweeps.lambda_fashion()
    worse = {"ReweightedL2 lam = 20": -0.01, "SobolevTilde lam = 20, as scale": -0.02}
    for config in sweep.configs(sweep.arms[0]):
        store_trial(tmp_path, config, score=0.8)
    with pytest.raises(ConfigError, match="controls are chosen once all of its trials are complete"):
        controls._stored(sweep.name, tmp_path)
    store(tmp_path, sweep, {})
    with pytest.raises(ConfigError, match="no metric differs"):
        controls._stored(sweep.name, tmp_path)
    store(tmp_path, sweep, worse)
    found = controls._stored(sweep.name, tmp_path)
    assert {arm.label: arm.baseline for arm in found.arms} == {
        "SGD (lam = 0)": None,
        "ReweightedL2 lam = 20": None,
        "ReweightedL2 lam = 20, norm kept": "SGD (lam = 0)",
        "SobolevTilde lam = 20, as scale": None,
        "SobolevTilde lam = 20, as scale, norm kept": "SGD (lam = 0)",
        "SobolevTilde lam = 20, as scale, channels permuted": "SobolevTilde lam = 20, as scale",
    }
    kept, tilde = "ReweightedL2 lam = 20, norm kept", "SobolevTilde lam = 20, as scale"
    store(tmp_path, found, worse | {kept: 0.0, f"{tilde}, norm kept": -0.02, f"{tilde}, channels permuted": -0.005})
    row = next(line for line in page.text(tmp_path).splitlines() if "where [lambda-fashion]" in line)
    to_sgd = "against SGD (lam = 0))**: with the norm kept, against SGD (lam = 0),"
    assert f"15 of 15 | **ReweightedL2 lam = 20 (worse, -1.00 {to_sgd} equal within 0.2 points (+0.00, " in row
    assert "); what is left is within the margin (a change of +1.00, " in row.partition("<br>")[0]
    assert f"<br>**{tilde} (worse, -2.00 {to_sgd} worse (-2.00, " in row
    assert "; worse with and without the norm kept (a change of +0.00, " in row
    trained = "on training images 93.00% (without the norm kept 93.00%, SGD (lam = 0) 93.00%)"
    median = "(medians over the last steps of epochs)"
    longer = f"without the norm kept, the metric makes a layer's gradient 1.1 to 1.1 times as long {median}"
    order = "random against true order of the channels: better (+1.50"
    assert f", equal within 0.2 points); {trained}; {longer}; {order}" in row
    for left, concluded in (
        (-0.03, "the difference is larger (a change of -1.00, "),
        (-0.021, "worse with and without the norm kept (a change of -0.10, "),
        (-0.019, "a smaller difference remains; the change is within the margin (a change of +0.10, "),
        (-0.01, "part of the difference remains (a change of +1.00, "),
        (-0.001, "what is left is within the margin (a change of +1.90, "),
        (0.001, "what is left is within the margin (a change of +2.10, "),
        (0.01, "the difference is reversed (a change of +3.00, "),
    ):
        store(tmp_path, found, worse | {f"{tilde}, norm kept": left, f"{tilde}, channels permuted": -0.021})
        row = next(line for line in page.text(tmp_path).splitlines() if "where [lambda-fashion]" in line)
        assert f"; {concluded}" in row.partition("<br>")[2]
        assert "order of the channels: worse, yet by no more than 0.2 points (-0.10, " in row
    store_arm(tmp_path, found, f"{tilde}, norm kept", -0.01 + 0.8, spread=0.02)
    row = next(line for line in page.text(tmp_path).splitlines() if "where [lambda-fashion]" in line)
    assert "; what becomes of the difference is open (a change of +1.00, " in row
    assert f", undecided); {trained}; {longer}; random against true order" in row


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        (
            (-50, -30, -10, -40, -20),
            (-17, -17, -16, -18, -17),
            "the difference is still there, within the margin; open",
        ),
        ((-300, -310, -290, -305, -295), (-20, 10, -40, 25, -30), "the difference changed; open what is left of it"),
        ((-40, -30, -20, -35, -25), (-20, 10, -40, 25, -30), "what becomes of the difference is open"),
    ],
)
def test_an_open_control_says_what_of_it_is_known(then, now, said):
    """By seed, in hundredths of a point: one that is there and small, one that changed, and one of which neither is."""

    def against(before, after):
        return paired(*(dict(enumerate(value / 1e4 for value in side)) for side in (before, after)), margin=0.002)

    one = Attribution(against([0] * 5, then), against([0] * 5, now), against(then, now))
    assert one.fate == "open"
    assert controls._open(one).startswith(said)


def test_the_summary_and_the_figure_tell_what_a_kept_norm_leaves_once_all_such_controls_are_complete(tmp_path):
    def lead():
        return page.text(tmp_path).splitlines()[3]

    worse = {"ReweightedL2 lam = 20": -0.01}
    for make in (sweeps.lambda_fashion, sweeps.lambda_mnist):
        store(tmp_path, make(), worse)
    store(tmp_path, sweeps.plain_sgd(), {})
    for make, kept in ((sweeps.lambda_fashion, -0.01), (sweeps.lambda_mnist, 0.0)):
        assert "norm" not in lead()
        found = controls._stored(make().name, tmp_path)
        store(tmp_path, found, worse | {"ReweightedL2 lam = 20, norm kept": kept})
    counted = "0 of 2 comparisons better, 1 worse, 1 equal within 0.2 points; mean differences -1.00 to +0.00 points"
    trained = "; the 2 that differ, trained again with the gradient rescaled to its plain norm: "
    why = "; what is still worse may be so by its direction or by shorter steps"
    assert lead().endswith(f"{trained}{counted}{why}.")
    alt = figures.figures(read(tmp_path))[figures.DIFFERENCES].alt
    assert "lambda-fashion-controls: 0 of 1 comparisons better, 1 worse;" in alt
    store_arm(
        tmp_path, controls._stored(sweeps.lambda_fashion().name, tmp_path), "ReweightedL2 lam = 20, norm kept", 0.8
    )
    assert "0 of 2 comparisons better, 2 equal within 0.2 points" in lead()
    assert "still worse" not in lead()


def test_permuted_channels_are_no_comparison_with_sgd_in_the_figure(tmp_path):
    worse = {"SobolevTilde lam = 20, as scale": -0.01}
    store(tmp_path, sweeps.lambda_fashion(), worse)
    found = controls._stored(sweeps.lambda_fashion().name, tmp_path)
    store(tmp_path, found, worse)
    alt = figures.figures(read(tmp_path))[figures.DIFFERENCES].alt
    assert alt.endswith("; lambda-fashion-controls: 0 of 1 comparisons better, 1 equal within 0.2 points.")


def test_a_control_of_a_tuned_arm_meets_sgd_at_the_same_rate(tmp_path):
    for arm in SEARCH.arms:
        best = 0.02 if arm.config.metric == "identity" else 0.005
        for config in SEARCH.configs(arm):
            store_trial(tmp_path, config, score=0.8 - abs(arm.config.lr - best))
    store(tmp_path, read(tmp_path).tables["evidence-tuned-fashion"].sweep, {"SGD + ReweightedL2": 0.01})
    found = controls._stored("evidence-tuned-fashion", tmp_path)
    assert [(arm.label, arm.config.lr, arm.baseline) for arm in found.arms] == [
        ("SGD at 0.005", 0.005, None),
        ("SGD + ReweightedL2", 0.005, "SGD at 0.005"),
        ("SGD + ReweightedL2, norm kept", 0.005, "SGD at 0.005"),
    ]
    # The metric is better than SGD at SGD's rate, and as good at its own: a control at its own explains nothing.
    store(tmp_path, found, {"SGD at 0.005": 0.01, "SGD + ReweightedL2": 0.01, "SGD + ReweightedL2, norm kept": 0.01})
    (row,) = (line for line in page.text(tmp_path).splitlines() if "where [tuned-fashion]" in line)
    assert "**SGD + ReweightedL2 (equal within 0.2 points, +0.00 against SGD at 0.005)**: with the norm kept" in row
    assert row.endswith("; there is no difference |")
