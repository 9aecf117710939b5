"""Metrics as text, for configs, command lines and checkpoints: "sobolev-tilde(lam=0.5)"."""

from __future__ import annotations

import ast
import re
from difflib import get_close_matches

from riesz.metrics.base import Metric
from riesz.metrics.centralization import Centralization
from riesz.metrics.identity import Identity
from riesz.metrics.laplacian_smoothing import LaplacianSmoothing
from riesz.metrics.reweighted_l2 import ReweightedL2
from riesz.metrics.sobolev import Sobolev
from riesz.metrics.sobolev_tilde import SobolevTilde

KINDS: dict[str, type[Metric]] = {
    kind.kind_name(): kind
    for kind in (Identity, ReweightedL2, Sobolev, SobolevTilde, LaplacianSmoothing, Centralization)
}


def metric(text: str | Metric) -> Metric:
    """The metric a text stands for; the inverse of `str(metric)`.

    Args:
        text: a name, with its settings in brackets or without. A metric is passed through.

    Returns:
        The metric.

    Example:
        >>> import riesz
        >>> riesz.metric("sobolev-tilde(lam=0.5)")
        SobolevTilde(lam=0.5)
        >>> str(riesz.ReweightedL2(lam=2, blend=1))
        'reweighted-l2(lam=2.0, blend=1.0)'
    """
    if isinstance(text, Metric):
        return text
    if not isinstance(text, str):
        raise TypeError(f"metric must be a text such as 'sobolev-tilde(lam=0.5)', got {text!r}")
    if len(text) > 200:
        raise ValueError(f"metric {text[:40]!r}... has {len(text)} characters; 200 are enough for any metric")
    form = re.fullmatch(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", text)
    if form is None:
        raise ValueError(f"metric {text!r} cannot be read; write it like 'sobolev-tilde(lam=0.5, blend=0)'")
    name, inside = form[1], form[2] or ""
    if name not in KINDS:
        close = get_close_matches(name, KINDS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise ValueError(f"metric {name!r} is not known{hint} Allowed: {', '.join(KINDS)}")
    settings: dict[str, object] = {}
    for setting in filter(None, (part.strip() for part in inside.split(","))):
        key, equals, value = (piece.strip() for piece in setting.partition("="))
        if not equals or key in settings:
            raise ValueError(f"metric {text!r}: {setting!r} is not a setting of its own; write name=value, each once")
        try:
            settings[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            raise ValueError(f"metric {text!r}: {value!r} is not a number, True or False") from None
    kind = KINDS[name]
    allowed = [field.name for field in kind.settings()]
    if unknown := [key for key in settings if key not in allowed]:
        raise ValueError(
            f"metric {text!r}: {name} has no setting {unknown[0]!r}; allowed: {', '.join(allowed) or 'none'}"
        )
    return kind(**settings)  # type: ignore[arg-type]
