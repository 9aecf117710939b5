"""Figure 1: weights of trained conv layers as images."""

from __future__ import annotations

from riesz_lab.report.evidence import Array, Evidence, Methods, main_methods
from riesz_lab.report.figure import Figure, Image, Panel
from riesz_lab.report.labels import scale
from riesz_lab.store import StoredTrial

MOST_SIDE = 64
MOST_PANELS = 6


def stripes(evidence: Evidence) -> Figure | None:
    found = _best_setting(evidence)
    if found is None:
        return None
    shown = {method: trials[0] for method, trials in main_methods(found, MOST_PANELS).items()}
    layer = _layer(evidence, next(iter(shown.values())))
    panels, largest = [], (0, 0)
    for method, trial in shown.items():
        weight_OIK = evidence.conv_weights(trial).get(layer)
        if weight_OIK is None:
            continue
        largest = weight_OIK.shape[:2]
        image = weight_OIK[:MOST_SIDE, :MOST_SIDE, weight_OIK.shape[2] // 2]
        panels.append(Panel(title=method, image=Image(image, "output channel", "input channel")))
    config = next(iter(shown.values())).config
    cut = " (the first 64 of each)" if max(largest) > MOST_SIDE else ""
    return Figure(
        name="stripes",
        title="Weights of a trained conv layer",
        caption=f"The central tap of {layer}, {largest[0]} output by {largest[1]} input channels{cut}, after training;"
        f" one trial each, seed {config.effective_init_seed}. {scale(config)}. Vertical stripes would mean that all"
        " output channels weight an input channel alike.",
        alt="Whether stripes are more than noise is measured in the figure of regularity.",
        panels=panels,
    )


def _best_setting(evidence: Evidence) -> Methods | None:
    """The setting with most methods whose first trials have weights with two channels or more on both sides."""
    candidates = []
    for methods in evidence.settings.values():
        there = {
            name: [trial for trial in trials if trial.files.weights_file.exists()] for name, trials in methods.items()
        }
        there = {name: trials for name, trials in there.items() if trials}
        if there and _layer(evidence, next(iter(there.values()))[0]):
            candidates.append(there)
    return max(candidates, key=len, default=None)


def _layer(evidence: Evidence, trial: StoredTrial) -> str:
    """The layer that fills the picture best."""

    def shown(weight_OIK: Array) -> int:
        return min(weight_OIK.shape[0], MOST_SIDE) * min(weight_OIK.shape[1], MOST_SIDE)

    weights = {name: w for name, w in evidence.conv_weights(trial).items() if min(w.shape[:2]) > 1}
    return max(weights, key=lambda name: shown(weights[name]), default="")
