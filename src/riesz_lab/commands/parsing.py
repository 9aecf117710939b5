"""Options of the commands, read by tyro; one place for what their help looks like."""

import io
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import tyro

EMPTY_DEFAULT = re.compile(r"\(default:[\s│]*(None)?\)")
"""What tyro prints for an option without a default; it may be broken over two lines of a box."""


def parse(target: Any, arguments: list[str], *, prog: str, description: str | None, default: Any = None) -> Any:
    """Call a function, or make a record, with the options given; print help and errors and exit as tyro does.

    Args:
        target: a function, a dataclass, or functions by the name of their subcommand.
        arguments: the command line after the command.
        prog: the command, for its help.
        description: what the command does.
        default: the record whose values are the defaults.
    """
    options: dict[str, Any] = {"prog": prog, "description": description, "args": arguments}
    options["config"] = (tyro.conf.DisallowNone,)
    call: Callable[..., Any] = tyro.cli
    if isinstance(target, dict):
        call = tyro.extras.subcommand_cli_from_dict
    elif default is not None:
        options["default"] = default
    if not {"-h", "--help"} & set(arguments):
        return call(target, **options)
    # Alone: the help leaves out what was given before it.
    options["args"] = [*(each for each in arguments[:1] if isinstance(target, dict) and each in target), "--help"]
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            return call(target, **options)
    finally:
        # Blanks of the same width: the lines stand in a box.
        print(EMPTY_DEFAULT.sub(lambda hint: re.sub(r"[^\s│]", " ", hint[0]), printed.getvalue()), end="")
