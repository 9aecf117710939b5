"""riesz makes any PyTorch optimizer channel-directed.

Before the step, the gradient of each conv weight is replaced by its gradient under another inner product, one that
favours smoothness along the output channels. Four nouns explain the rest:

- a *metric* is the inner product: `SobolevTilde`, `ReweightedL2`, `Sobolev`, `LaplacianSmoothing`, `Identity`;
- a *direction* is the axis it smooths along: output, input, rasterized;
- a *scope* says which parameters are directed, and why the others are not;
- a *backend* computes it.

`attach` ties them to an optimizer; `precondition_` applies them by hand.
"""

from riesz import schedule
from riesz._version import __version__
from riesz.apply import precondition_
from riesz.backends import backends
from riesz.hook.attach import attach
from riesz.hook.attachment import Attachment
from riesz.hook.directed import directed
from riesz.hook.layer_log import LayerLog
from riesz.metrics import (
    Centralization,
    Identity,
    LaplacianSmoothing,
    Metric,
    Operator,
    ReweightedL2,
    Sobolev,
    SobolevTilde,
    metric,
)

__all__ = [
    "Attachment",
    "Centralization",
    "Identity",
    "LaplacianSmoothing",
    "LayerLog",
    "Metric",
    "Operator",
    "ReweightedL2",
    "Sobolev",
    "SobolevTilde",
    "__version__",
    "attach",
    "backends",
    "directed",
    "metric",
    "precondition_",
    "schedule",
]
