"""Channel-directed optimizers as classes, for trainers that build theirs from a class and keyword arguments."""

from __future__ import annotations

import importlib
import inspect
import operator
from typing import Any

import torch
from torch import nn

from riesz.control import Control
from riesz.hook.attach import attach
from riesz.hook.attachment import attachment_of
from riesz.layout.scope import Direction, Layers
from riesz.metrics import Operator


def directed(base: type[torch.optim.Optimizer]) -> type[torch.optim.Optimizer]:
    """A subclass of an optimizer that attaches itself.

    It takes the arguments of `base` plus `metric`, `direction`, `layers`, `model`, `backend` and `control`, as
    `riesz.attach` does; `metric` may also be a text. Its instances are instances of `base`, load its checkpoints,
    survive deepcopy and pickle, and have their `riesz.Attachment` as `.attachment`. Asked again for the same base, it
    returns the same class.

    Args:
        base: a subclass of `torch.optim.Optimizer`.

    Returns:
        The class.

    Example:
        >>> import riesz, torch
        >>> conv = torch.nn.Conv2d(3, 8, 3)
        >>> DirectedSGD = riesz.directed(torch.optim.SGD)
        >>> optimizer = DirectedSGD(conv.parameters(), lr=0.1, metric="sobolev-tilde(lam=0.5)", model=conv)
        >>> isinstance(optimizer, torch.optim.SGD), optimizer.attachment.metric
        (True, SobolevTilde(lam=0.5))
    """
    if not (isinstance(base, type) and issubclass(base, torch.optim.Optimizer)):
        raise TypeError(f"directed: expected a subclass of torch.optim.Optimizer, got {base!r}")
    if base in _classes.values():
        raise TypeError(f"directed: {base.__name__} is directed already, and twice would apply the metric twice")
    # The same class for threads that ask at the same time.
    return _classes.get(base) or _classes.setdefault(base, _make_class(base))


_classes: dict[type[torch.optim.Optimizer], type[torch.optim.Optimizer]] = {}


def _make_class(base: type[torch.optim.Optimizer]) -> type[torch.optim.Optimizer]:
    def initialise(
        self: torch.optim.Optimizer,
        *args: Any,
        metric: Operator | str | tuple[Operator | str, Operator | str] | None = None,
        direction: Direction = "output",
        layers: Layers = "conv",
        model: nn.Module | None = None,
        backend: str = "auto",
        control: Control = None,
        **kwargs: Any,
    ) -> None:
        if metric is None:
            raise TypeError(
                f"{type(self).__name__}: expected metric=, for example metric='sobolev-tilde(lam=0.5)', got none"
            )
        base.__init__(self, *args, **kwargs)
        attach(self, model, metric=metric, direction=direction, layers=layers, backend=backend, control=control)

    ours = [
        p.replace(default=p.empty, annotation="Operator | str") if p.name == "metric" else p
        for p in inspect.signature(initialise).parameters.values()
        if p.kind is p.KEYWORD_ONLY
    ]
    body = {
        "__init__": initialise,
        "__doc__": f"{base.__name__}, channel-directed: see `riesz.directed`.\n\n{inspect.getdoc(base) or ''}",
        "__module__": __name__,
        "__qualname__": _qualified_name(base),
        "__signature__": _joined_signature(base, ours),
        "attachment": property(attachment_of, doc="The `riesz.Attachment` of this optimizer."),
    }
    # The type of the base itself: many optimizers are abstract base classes.
    metaclass: Any = type(base)
    directed_class: type[torch.optim.Optimizer] = metaclass(f"Directed{base.__name__}", (base,), body)
    return directed_class


def _joined_signature(base: type[torch.optim.Optimizer], ours: list[inspect.Parameter]) -> inspect.Signature:
    signature = inspect.signature(base)
    for parameter in ours:
        if parameter.name in signature.parameters or hasattr(base, "attachment"):
            clash = parameter.name if parameter.name in signature.parameters else "attachment"
            raise TypeError(f"directed: {base.__name__} has its own {clash!r}; build it, then call riesz.attach on it")
    theirs = list(signature.parameters.values())
    end = next((i for i, p in enumerate(theirs) if p.kind is p.VAR_KEYWORD), len(theirs))
    return signature.replace(parameters=[*theirs[:end], *ours, *theirs[end:]])


def _qualified_name(base: type) -> str:
    """The name a directed class is pickled by, without dots: they would be taken for nesting."""
    return f"Directed{base.__name__}@{base.__module__}:{base.__qualname__}".replace(".", "/")


def __getattr__(name: str) -> Any:
    """Directed classes by name, so that pickle finds them in a process that has not created them yet."""
    if not name.startswith("Directed") or "@" not in name:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, qualname = name.partition("@")[2].replace("/", ".").partition(":")
    return directed(operator.attrgetter(qualname)(importlib.import_module(module)))
