"""Figure 1: weights of trained conv layers as images."""

from riesz_lab.report.evidence import Methods, ReportData, main_methods
from riesz_lab.report.figure import Figure, Image, Panel
from riesz_lab.report.labels import scale
from riesz_lab.store import StoredTrial

MAX_SIDE = 64
MAX_PANELS = 6


def stripes(evidence: ReportData) -> Figure | None:
    methods = _setting(evidence)
    if methods is None:
        return None
    shown = {method: trials[0] for method, trials in main_methods(methods, MAX_PANELS).items()}
    config = next(iter(shown.values())).config
    layer = _layer(evidence, next(iter(shown.values())))
    panels, largest = [], (0, 0)
    for method, trial in shown.items():
        weight_OIK = evidence.conv_weights(trial).get(layer)
        if weight_OIK is not None:
            largest = weight_OIK.shape[:2]
            image = weight_OIK[:MAX_SIDE, :MAX_SIDE, weight_OIK.shape[2] // 2]
            panels.append(Panel(title=method, image=Image(image, "output channel", "input channel")))
    cut = " (the first 64 of each)" if max(largest) > MAX_SIDE else ""
    return Figure(
        name="stripes",
        title="Weights of a trained conv layer",
        caption=f"The central tap of {layer}, {largest[0]} output by {largest[1]} input channels{cut}, after training;"
        f" one trial each, seed {config.effective_init_seed}. {scale(config)}. Vertical stripes would mean that all"
        " output channels weight an input channel alike.",
        alt="Whether stripes are more than noise is measured in the figure of regularity.",
        panels=panels,
    )


def _setting(evidence: ReportData) -> Methods | None:
    """The setting with most methods whose first trial has weights with two channels or more on both sides."""
    settings = [methods for _, methods in evidence.settings_with("weights_file")]
    return max((one for one in settings if _layer(evidence, next(iter(one.values()))[0])), key=len, default=None)


def _layer(evidence: ReportData, trial: StoredTrial) -> str:
    """The layer with the largest image; empty if there is none."""
    weights = {name: w for name, w in evidence.conv_weights(trial).items() if min(w.shape[:2]) > 1}
    return max(weights, key=lambda name: weights[name][:MAX_SIDE, :MAX_SIDE, 0].size, default="")
