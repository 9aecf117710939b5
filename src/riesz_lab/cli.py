"""The command `riesz`. It imports only the standard library at first, so that it can list missing packages."""

import os
import runpy
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

from riesz_lab.commands import COMMANDS
from riesz_lab.requirements import NEEDED

HELP = """riesz: experiments with channel-directed gradients

usage: riesz COMMAND [options]

{commands}

Options of a command: riesz COMMAND --help
Trials are stored below ./runs, datasets are read from RIESZ_DATA (or --data-dir)."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the return value is the exit status."""
    try:
        status = _main(list(sys.argv[1:] if arguments is None else arguments))
        # Inside the try: a short text is written only when the buffer is flushed.
        sys.stdout.flush()
    except BrokenPipeError:
        # `riesz recipes | head`: the reader has closed the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


def _main(given: list[str]) -> int:
    if not given or given[0] in ("-h", "--help", "help"):
        width = max(map(len, COMMANDS))
        print(HELP.format(commands="\n".join(f"  {name:<{width}}  {about}" for name, about in COMMANDS.items())))
        return 0
    if given[0] in ("-V", "--version"):
        print(f"riesz {_version()}")
        return 0
    if missing := [package for module, package in NEEDED.items() if find_spec(module) is None]:
        print(
            f"riesz: the command line needs packages that are not installed: {', '.join(missing)}\n"
            "Install them with: pip install 'riesz[lab]', or in a checkout: pip install '.[lab]'",
            file=sys.stderr,
        )
        return 1
    return _run(given[0], given[1:])


def _version() -> str:
    """The version, read from its file: importing the library imports torch, for seconds."""
    (folder,) = find_spec("riesz").submodule_search_locations  # type: ignore[union-attr, misc]
    return str(runpy.run_path(os.path.join(folder, "_version.py"))["__version__"])


def _run(command: str, arguments: list[str]) -> int:
    from riesz_lab.errors import LabError, StoppedError, first_to_report, print_error, unknown

    if command not in COMMANDS:
        print_error(unknown("command", command, COMMANDS))
        return 2
    try:
        return int(import_module(f"riesz_lab.commands.{command}").run(arguments))
    except LabError as error:
        if first_to_report(error):  # one that several processes share is printed once
            print_error(error)
        return 143 if isinstance(error, StoppedError) else 1
    except KeyboardInterrupt:
        print("riesz: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
