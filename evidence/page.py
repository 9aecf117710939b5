"""docs/evidence.md, its appendix and their figures: sentences by hand, numbers from the trials.

    python -m evidence.page            write them
    python -m evidence.page --check    exit with 1 if what is written differs from what the trials say

The sentences are the templates in evidence/pages. `names.py` lists what they may name.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, UndefinedError

from evidence import TRIALS, figures
from evidence.names import names
from evidence.numbers import StaleSentenceError
from evidence.results import Evidence, read
from riesz_lab.errors import LabError
from riesz_lab.utils.amounts import count

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
TEMPLATES = Path(__file__).parent / "pages"


def pages(evidence: Evidence, templates: Path = TEMPLATES) -> dict[str, str]:
    """By file name, each template with its numbers; an error names the line that does not hold."""
    for name, found in evidence.results.items():
        if found.missing:
            raise StaleSentenceError(
                f"{name}: {count(len(found.missing), 'trial')} missing; verdicts count without gaps"
            )
    environment = Environment(loader=FileSystemLoader(templates), undefined=StrictUndefined, keep_trailing_newline=True)
    known = names(evidence)
    return {name: _render(environment, name, known) for name in environment.list_templates(["md"])}


def _render(environment: Environment, name: str, known: dict[str, Any]) -> str:
    try:
        return environment.get_template(name).render(known)
    except (StaleSentenceError, UndefinedError) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith(name)]
        raise StaleSentenceError(f"{name}, line {lines[-1]}: {error}") from error


def files(trials: Path = TRIALS) -> dict[str, bytes]:
    """Every generated file of docs/, by name."""
    evidence = read(trials)
    return {**{name: text.encode() for name, text in pages(evidence).items()}, **figures.files(evidence)}


def main(arguments: list[str]) -> int:
    try:
        wanted = files()
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    if arguments == ["--check"]:
        stale = [name for name, content in wanted.items() if _read(DOCS / name) != content]
        print(f"docs/{', docs/'.join(stale)}: not what the trials say; run `make evidence`" if stale else "up to date")
        return int(bool(stale))
    for name, content in wanted.items():
        (DOCS / name).write_bytes(content)
        print(f"docs/{name}")
    return 0


def _read(file: Path) -> bytes:
    return file.read_bytes() if file.exists() else b""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
