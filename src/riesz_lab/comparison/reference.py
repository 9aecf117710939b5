"""A function by name, for processes that import it themselves: "path/to/file.py:train" or "package.module:train"."""

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from riesz_lab.errors import ConfigError


def reference_to(call: Callable[..., Any]) -> str:
    """The name that another process imports this function by; a ConfigError says why there is none."""
    name = getattr(call, "__qualname__", type(call).__name__)
    if reason := _unreachable(call):
        raise ConfigError(
            f"workers: expected 1, in this process, since {name!r} {reason}, so that no other process can import it; "
            "for more, write it as a function at the top level of a file"
        )
    module = sys.modules[call.__module__]
    # A module of a package is imported by its name, for its relative imports; a script by its file.
    if "." in call.__module__:
        return f"{call.__module__}:{name}"
    return f"{Path(str(module.__file__)).resolve()}:{name}"


def _unreachable(call: Any) -> str:
    if not isinstance(call, types.FunctionType):
        return f"is a {type(call).__name__}"
    if call.__name__ == "<lambda>":
        return "is a lambda"
    if "<locals>" in call.__qualname__:
        return "is defined within another function"
    module = sys.modules.get(call.__module__)
    if module is None or not getattr(module, "__file__", None):
        return "was typed at a prompt or in a notebook"
    found: Any = module
    for part in call.__qualname__.split("."):
        found = getattr(found, part, None)
    return "" if found is call else f"is not what {call.__module__}.{call.__qualname__} names"
