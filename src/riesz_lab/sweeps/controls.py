"""Controls: a metric with one of its effects taken out. They are listed without importing torch."""

from collections.abc import Iterator
from dataclasses import replace

from riesz_lab.config import Config

CONTROLS = {"norm": "norm kept", "permuted": "channels permuted"}
"""What a trial with `Config.control` is called."""


def controls_of(directed: Config) -> Iterator[Config]:
    """The controls of a metric: the gradient's norm kept, and the channels permuted.

    ReweightedL2 needs no permuted one: it does not depend on channel order.

    Example:
        >>> from riesz_lab.recipes import recipe
        >>> [one.control for one in controls_of(replace(recipe("demo"), metric="reweighted-l2"))]
        ['norm']
    """
    yield replace(directed, control="norm")
    if directed.metric.partition("(")[0] != "reweighted-l2":
        yield replace(directed, control="permuted")
