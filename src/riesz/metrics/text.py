"""Metrics as text, for configs, command lines and checkpoints: "sobolev-tilde(lam=0.5)"."""

import ast
import re
from collections.abc import Iterable
from difflib import get_close_matches

from riesz.metrics.centralization import Centralization
from riesz.metrics.identity import Identity
from riesz.metrics.laplacian_smoothing import LaplacianSmoothing
from riesz.metrics.operator import Operator
from riesz.metrics.pair import Pair
from riesz.metrics.reweighted_l2 import ReweightedL2
from riesz.metrics.sobolev import Sobolev
from riesz.metrics.sobolev_tilde import SobolevTilde

KINDS: dict[str, type[Operator]] = {
    kind.kind_name(): kind
    for kind in (Identity, ReweightedL2, Sobolev, SobolevTilde, LaplacianSmoothing, Centralization)
}


def metric(text: str | Operator | tuple[str | Operator, str | Operator]) -> Operator:
    """The metric a text stands for; the inverse of `str(metric)`. Wherever riesz takes a metric, it takes a text too.

    Args:
        text: a name, with its settings in brackets or without. A metric is passed through. A tuple of two, or two texts
            joined by " + ", is one metric for each of two directions.

    Returns:
        The metric.

    Example:
        >>> import riesz
        >>> riesz.metric("sobolev-tilde(lam=0.5)")
        SobolevTilde(lam=0.5)
        >>> str(riesz.ReweightedL2(lam=2, blend=1))
        'reweighted-l2(lam=2.0, blend=1.0)'
    """
    if isinstance(text, Operator):
        return text
    if isinstance(text, tuple):
        if len(text) != 2:
            raise ValueError(f"metric: expected one metric or a tuple of two, got {len(text)}: {text!r}")
        return _pair(*map(metric, text))
    if not isinstance(text, str):
        hint = f"; did you mean {text.__name__}()?" if isinstance(text, type) and issubclass(text, Operator) else ""
        raise TypeError(
            "metric: expected a riesz metric such as riesz.SobolevTilde(), or a text such as 'sobolev-tilde(lam=0.5)', "
            f"got {text!r}{hint}"
        )
    return from_text(text)


def from_text(text: str, others: Iterable[type[Operator]] = ()) -> Operator:
    """The metric a text stands for, of a known kind or of one of these others."""
    others = tuple(others)
    if len(texts := re.split(r"\s\+\s", text)) == 2:
        return _pair(*(from_text(part, others) for part in texts))
    kinds = KINDS | {kind.kind_name(): kind for kind in others}
    if len(text) > 200:
        raise ValueError(f"metric: expected at most 200 characters, got {len(text)}: {text[:40]!r}...")
    form = re.fullmatch(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", text)
    if form is None:
        raise ValueError(f"metric: expected the form 'sobolev-tilde(lam=0.5, blend=0)', got {text!r}")
    name, inside = form[1], form[2] or ""
    if name not in kinds:
        spelt = re.sub(r"(?<=[a-z])(?=[A-Z])|_", "-", name).lower()  # SobolevTilde, sobolev_tilde
        raise ValueError(f"metric: expected one of {', '.join(kinds)}, got {name!r}{_did_you_mean(spelt, kinds)}")
    settings: dict[str, object] = {}
    for setting in filter(None, (part.strip() for part in inside.split(","))):
        key, equals, value = (piece.strip() for piece in setting.partition("="))
        if not equals or key in settings:
            raise ValueError(f"metric {text!r}: expected settings as name=value, each once, got {setting!r}")
        try:
            settings[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            raise ValueError(f"metric {text!r}: expected a number, True or False for {key!r}, got {value!r}") from None
    kind = kinds[name]
    allowed = [field.name for field in kind.settings()]
    if unknown := [key for key in settings if key not in allowed]:
        raise ValueError(
            f"metric {text!r}: expected settings among {', '.join(allowed) or '(none)'}, got {unknown[0]!r}"
            + _did_you_mean(unknown[0], allowed)
        )
    return kind(**settings)


def _pair(first: Operator, second: Operator) -> Pair:
    if isinstance(first, Pair) or isinstance(second, Pair):
        raise ValueError(f"metric: expected two metrics at most, got {first!r} and {second!r}")
    return Pair(first, second)


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
