"""From coarse to fine: a rise of the mean frequency counts for a metric if it is larger than the plain optimizer's."""

import json

import numpy as np

from riesz_lab.experiments.arm import method
from riesz_lab.report.data import read
from riesz_lab.report.report import build
from riesz_lab.store import Store
from riesz_lab.training.update_recorder import BINS
from stored import store_sweep


def test_a_rise_is_compared_with_the_plain_optimizers(tmp_path):
    store_sweep(tmp_path, "curves-mini", trials=4)
    trials = Store(tmp_path).trials
    steepest = max(method(trial.config) for trial in trials if trial.config.metric != "identity")
    rng = np.random.default_rng(0)
    for trial in trials:
        # All rise, one of them by twice as much.
        rise = 0.4 if method(trial.config) == steepest else 0.2
        rows = [_row(epoch, 0.2 + rise * (epoch - 1) / 2 + 0.01 * rng.normal()) for epoch in (1, 2, 3)]
        trial.files.updates_file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = read(tmp_path)
    findings = next(each for each in build(data).sections if each.name == "spectra").findings
    first, second = dict.fromkeys(finding.group for finding in findings)
    within = [finding for finding in findings if finding.group == first]
    beyond = [finding for finding in findings if finding.group == second]
    assert {finding.verdict for finding in within} == {"coarse to fine"}
    assert all(finding.sentence.startswith("+0.") for finding in within)
    assert len(beyond) == len(within) - 1
    assert [finding.subject for finding in beyond if finding.verdict == "rises more"] == [steepest]


def _row(epoch, high):
    """Updates with this share of their power at the highest frequencies, and the rest in the mean over channels."""
    spectrum = [1 - high, *[0.0] * (BINS - 1), high]
    return {"epoch": epoch, "layers": {"conv1.weight": {"n": 16, "moved": 0.1, "spectrum": spectrum, "ratio": 1.1}}}
