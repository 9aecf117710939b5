"""Errors a user can act on. The command line prints them without a traceback; any other is a bug and shows one."""

import os
from collections.abc import Iterable
from difflib import get_close_matches


class LabError(Exception):
    """States the object, what was expected, and what it got."""


class ConfigError(LabError, ValueError):
    """An invalid setting."""


class MissingDataError(LabError):
    """A file of a dataset is missing."""


class BadFileError(LabError):
    """A file does not hold what its name says: corrupt, truncated or hostile."""


class BusyError(LabError):
    """Another process is at work in the trial's directory."""


class StoppedError(LabError):
    """The trial was stopped; its state is saved."""


def unknown(kind: str, value: str, allowed: Iterable[str]) -> str:
    """The message for an unknown name, with the closest known one."""
    names = list(allowed)
    close = get_close_matches(value, names, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"{kind} {value!r} is not known.{hint} Allowed: {', '.join(names)}"


def first_line(error: Exception) -> str:
    """The first line of a message, or the kind of error if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def first_to_report(error: LabError) -> bool:
    """Whether this process prints an error: those that all processes of a machine raise, only its first one prints."""
    common = isinstance(error, (ConfigError, MissingDataError, StoppedError))
    return not common or os.environ.get("LOCAL_RANK", "0") == "0"
