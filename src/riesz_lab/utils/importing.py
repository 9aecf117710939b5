"""Objects by import path: "package.module:name" or "path/to/file.py:name". This runs the user's code."""

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from riesz_lab.errors import ConfigError, did_you_mean

MOST_NAMES = 10
"""Names of a module that a message lists."""


@contextmanager
def same_directory() -> Iterator[None]:
    """Put the working directory back after a user's code."""
    before = os.getcwd()
    try:
        yield
    finally:
        os.chdir(before)


def load_object(kind: str, path: str) -> Any:
    """The object at the path; a `ConfigError` names what is missing."""
    module_name, _, name = path.rpartition(":") if ".py:" in path else path.partition(":")
    # As with `python -m`: the user's files are in the current folder.
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        with same_directory():
            obj = _from_file(module_name) if module_name.endswith(".py") else importlib.import_module(module_name)
    except (ImportError, ValueError, OSError) as error:
        raise ConfigError(
            f"{kind} {path!r}: module {module_name!r} cannot be imported: {error}{_where(module_name, error)}"
        ) from None
    except SystemExit as error:
        expected = 'expected a module that does nothing when it is imported (if __name__ == "__main__": ...)'
        raise ConfigError(f"{kind} {path!r}: {expected}, got SystemExit({error.code!r})") from None
    except Exception as error:
        # The user's own mistake: its place is what helps, not the way to it.
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f" ({frame.filename}, line {frame.lineno})" if not isinstance(error, SyntaxError) else ""
        problem = f"{type(error).__name__}: {error}{place}"
        raise ConfigError(f"{kind} {path!r}: module {module_name!r} cannot be imported: {problem}") from error
    public = {key: value for key, value in vars(obj).items() if callable(value) and not key.startswith("_")}
    own = [key for key, value in public.items() if getattr(value, "__module__", "") == obj.__name__]
    for part in name.split("."):
        if not hasattr(obj, part):
            names = f"; it has {', '.join(own[:MOST_NAMES])}" if own else ""
            raise ConfigError(f"{kind} {path!r}: {module_name!r} has no {name!r}{names}{did_you_mean(name, public)}")
        obj = getattr(obj, part)
    if not callable(obj):
        raise ConfigError(f"{kind} {path!r}: expected a callable, got {type(obj).__name__}")
    return obj


def _where(module_name: str, error: Exception) -> str:
    """The end of a message: where the module was looked for. Empty if it was found and something else is missing."""
    top = module_name.partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or error.name != top:
        return ""
    here = f"modules are looked up in the current folder too, {os.getcwd()}"
    return f"; {here}: run this from the folder that contains {top!r}"


def _from_file(path: str) -> Any:
    """A script as a module, with its folder on the path, as when it is run."""
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
