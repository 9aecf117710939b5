"""Errors a user can act on. The command line prints them without a traceback; anything else is a bug and shows one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class LabError(Exception):
    """What went wrong, in words: the object, the value received, what is allowed."""


class ConfigError(LabError, ValueError):
    """A setting that cannot be."""


class MissingDataError(LabError):
    """A file of a dataset is not there."""


class BadFileError(LabError):
    """A file that is not what its name says: corrupt, truncated or hostile."""


class BusyError(LabError):
    """Another process is at work in the trial's directory."""


class StoppedError(LabError):
    """The trial was asked to stop; its state is saved."""


def unknown(kind: str, value: str, allowed: Iterable[str]) -> str:
    """The sentence for a name that is not known, with the nearest one that is."""
    names = list(allowed)
    close = get_close_matches(value, names, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"{kind} {value!r} is not known.{hint} Allowed: {', '.join(names)}"
