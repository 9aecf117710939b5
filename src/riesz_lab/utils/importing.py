"""Objects by import path: "package.module:name" or "path/to/file.py:name". It is the user's own code, and is run."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from riesz_lab.errors import ConfigError


def load_object(kind: str, path: str) -> Any:
    """The object behind the path; what cannot be found is named."""
    module_name, _, name = path.rpartition(":") if ".py:" in path else path.partition(":")
    # As with `python -m`: the user's own files lie where the command is run.
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        found = _from_file(module_name) if module_name.endswith(".py") else importlib.import_module(module_name)
    except (ImportError, ValueError, OSError) as error:
        raise ConfigError(f"{kind} {path!r}: module {module_name!r} cannot be imported: {error}") from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"{kind} {path!r}: {module_name!r} has no {name!r}")
        found = getattr(found, part)
    if not callable(found):
        raise ConfigError(f"{kind} {path!r} is a {type(found).__name__}; allowed: something that can be called")
    return found


def _from_file(path: str) -> Any:
    """A script as a module; what lies beside it can be imported, as when it is run."""
    file = Path(path).resolve()
    if not file.is_file():
        raise ImportError("there is no such file")
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module
