"""Errors a user can act on. The command line prints them without a traceback; any other is a bug and shows one."""

import os
import sys
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


def unknown(kind: str, value: str, allowed: Iterable[str], *, other: str = "", listed_by: str = "") -> str:
    """The message for an unknown name, with the closest known one.

    Args:
        kind: what it should name.
        value: the name.
        allowed: the names.
        other: what else is allowed.
        listed_by: the command that prints the names, where they are too many for a message.

    Example:
        >>> unknown("shell", "bsh", ["bash", "fish"])
        "shell: expected one of bash, fish, got 'bsh'; did you mean 'bash'?"
        >>> unknown("recipe", "x", ["demo"], listed_by="riesz recipes")
        "recipe: expected a name that `riesz recipes` lists, got 'x'"
    """
    names = list(allowed)
    expected = f"a name that `{listed_by}` lists" if listed_by else f"one of {', '.join(names)}"
    return f"{kind}: expected {expected}{other and ', or '}{other}, got {value!r}{did_you_mean(value, names)}"


def did_you_mean(value: str, names: Iterable[str]) -> str:
    """The end of a message about an unknown name: the closest known one; empty if none is close.

    Example:
        >>> did_you_mean("bsh", ["bash", "fish"])
        "; did you mean 'bash'?"
    """
    close = get_close_matches(value, list(names), n=1, cutoff=0.65)
    return f"; did you mean {close[0]!r}?" if close else ""


def first_line(error: BaseException) -> str:
    """The first line of a message, or the kind of error if it has none."""
    return printable((str(error).strip() or type(error).__name__).splitlines()[0][:200])


def printable(text: str, keep: str = "") -> str:
    """Text that cannot move a cursor, colour a terminal or reverse what is read; those in `keep` stay.

    Example:
        >>> print(printable("red \x1b[31m, next\\n line"))
        red \\x1b[31m, next\\n line
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode() for char in text
    )


def print_error(error: object) -> None:
    """Print an error of a command; what it quotes from a file cannot write to the terminal."""
    print(f"riesz: {printable(str(error), keep=chr(10))}", file=sys.stderr)


def first_to_report(error: LabError) -> bool:
    """Whether this process prints an error: those that all processes of a machine raise, only its first one prints."""
    common = isinstance(error, (ConfigError, MissingDataError, StoppedError))
    return not common or os.environ.get("LOCAL_RANK", "0") == "0"
