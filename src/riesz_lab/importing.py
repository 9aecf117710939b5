"""Objects by import path: "package.module:name". The user names code of their own here, and it is run."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from riesz_lab.errors import ConfigError


def load_object(kind: str, path: str) -> Any:
    """The object behind the path; what cannot be found is named."""
    module_name, _, name = path.partition(":")
    # As with `python -m`: the user's own files lie where the command is run.
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        found = importlib.import_module(module_name)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"{kind} {path!r}: module {module_name!r} cannot be imported: {error}") from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"{kind} {path!r}: {module_name!r} has no {name!r}")
        found = getattr(found, part)
    if not callable(found):
        raise ConfigError(f"{kind} {path!r} is a {type(found).__name__}; allowed: something that can be called")
    return found
