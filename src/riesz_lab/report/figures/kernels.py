"""Figure 2: the kernels of all metrics at lam = 1."""

import riesz
from riesz_lab.report.data import ReportData
from riesz_lab.report.figure import Figure, Panel, Series

N = 64
METRICS = {
    "SobolevTilde": (riesz.SobolevTilde(1.0, blend=0.0), 1),
    "Sobolev": (riesz.Sobolev(1.0), 4),
    "LaplacianSmoothing, sigma = 1": (riesz.LaplacianSmoothing(1.0), 3),
    "ReweightedL2": (riesz.ReweightedL2(1.0), 2),
}


def kernels(data: ReportData) -> Figure:
    """Needs no trial: it follows from the definitions."""
    del data
    series = []
    for dash, (name, (metric, color)) in enumerate(METRICS.items()):
        y_N = (N * metric.kernel(N).roll(N // 2)).tolist()
        series.append(Series(name=name, x=range(-N // 2, N // 2), y=y_N, color=color, dash=dash))
    x, y = "distance in output channels", "n x kernel"
    return Figure(
        name="kernels",
        title="Kernels of the metrics, lam = 1",
        caption=f"How each metric spreads an impulse over {N} output channels; SobolevTilde without the plain gradient"
        " that it adds by default. Left, the peaks of LaplacianSmoothing and ReweightedL2 are cut off. Right: close to"
        " 1. At lam = 1 SobolevTilde and Sobolev nearly coincide with a plain mean.",
        alt="SobolevTilde varies only between 0.96 and 1.08 over all distances; LaplacianSmoothing is a narrow peak;"
        " ReweightedL2 is an impulse on a constant 1.",
        panels=[
            Panel(title="All", series=series, y_range=(-0.5, 4.5), x=x, y=y),
            Panel(title="Close up", series=series[:2], x=x, y=y),
        ],
    )
