"""`riesz completion bash | zsh | fish`: a script that completes commands, names and options of `riesz`.

All words are written into the script, so that pressing Tab starts no process.
"""

import io
import os
import re
from collections.abc import Iterable
from contextlib import redirect_stdout, suppress
from importlib import import_module
from typing import Literal
from unittest.mock import patch

import tyro

from riesz_lab.commands import COMMANDS
from riesz_lab.commands.parsing import parse

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")

BASH = """_riesz() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{commands}"
  else
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  [ "$COMP_CWORD" -gt 1 ] && COMPREPLY+=($(compgen -f -- "$cur"))
}}
complete -o filenames -F _riesz riesz
"""
ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"


def run(arguments: list[str]) -> int:
    about = 'Print a script for your shell, for example: eval "$(riesz completion bash)" in ~/.bashrc.'
    parse(_print, arguments, prog="riesz completion", description=about)
    return 0


def _print(shell: tyro.conf.Positional[Literal["bash", "zsh", "fish"]]) -> None:
    """Print the completion script of a shell.

    Args:
        shell: bash, zsh or fish.
    """
    words = completions()
    if shell == "fish":
        print("complete -c riesz -n __fish_use_subcommand -f -a " + _quoted(words))
        for command, each in words.items():
            print(f"complete -c riesz -n '__fish_seen_subcommand_from {command}' -a " + _quoted(each))
        return
    cases = "\n".join(f'      {command}) words="{" ".join(each)}" ;;' for command, each in words.items())
    print((ZSH if shell == "zsh" else "") + BASH.format(commands=" ".join(words), cases=cases), end="")


def completions() -> dict[str, list[str]]:
    """The words that may follow each command: names first, then options."""
    from riesz_lab.data.images.builtin import DATASETS
    from riesz_lab.data.scenes.builtin import SCENES
    from riesz_lab.experiments import EXPERIMENTS
    from riesz_lab.recipes import RECIPES
    from riesz_lab.report.figures import FIGURES

    names: dict[str, Iterable[str]] = {
        "train": RECIPES,
        "sweep": EXPERIMENTS,
        "figure": FIGURES,
        "runs": ("list", "compare", "export", "remove"),
        "data": ("list", "fetch", "verify", "pack", *DATASETS, *SCENES),
        "completion": ("bash", "zsh", "fish"),
    }
    # Help depends on the name that comes before it.
    before: dict[str, list[list[str]]] = {
        **{command: [[next(iter(names[command]))]] for command in ("train", "sweep", "figure")},
        "runs": [[name] for name in names["runs"]],
        "data": [[name] for name in ("list", "fetch", "verify", "pack")],
        "compare": [["file.py:function"]],
    }
    return {command: [*names.get(command, ()), *_options(command, before.get(command, [[]]))] for command in COMMANDS}


def _options(command: str, before: list[list[str]]) -> list[str]:
    """The options that the help of a command names."""
    printed = io.StringIO()
    with redirect_stdout(printed), patch.dict(os.environ, {"COLUMNS": "200"}):
        for words in before:
            with suppress(SystemExit):
                import_module(f"riesz_lab.commands.{command}").run([*words, "--help"])
    return list(dict.fromkeys(OPTION.findall(printed.getvalue())))


def _quoted(words: Iterable[str]) -> str:
    return f"'{' '.join(words)}'"
