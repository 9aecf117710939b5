"""An experiment on disk: what was asked, written before the first trial.

    RUNS/experiments/<name>-<id>/
        experiment.json       the record; see `experiments.experiment`

Trials lie in the folders of their recipes, since experiments share them.
"""

import re
from pathlib import Path
from typing import Any

from riesz_lab.errors import BadFileError
from riesz_lab.store.files import read_json
from riesz_lab.utils import atomic

FOLDER, FILE = "experiments", "experiment.json"


def write(runs: Path, name: str, id_: str, content: dict[str, Any]) -> Path:
    """Write the record as a whole; returns its folder."""
    folder = Path(runs) / FOLDER / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', name).strip('-.')}-{id_}"
    atomic.make_directory(folder)
    atomic.write_json(folder / FILE, content)
    return folder


def read(*folders: Path) -> tuple[dict[Path, dict[str, Any]], dict[Path, str]]:
    """The records below some folders, by the experiment's folder; and unreadable ones, with the reason."""
    records: dict[Path, dict[str, Any]] = {}
    broken: dict[Path, str] = {}
    files: dict[Path, Path] = {}
    for folder in map(Path, folders):
        # RUNS, a folder of one recipe in it, or the folder of one experiment.
        places = (folder / FOLDER, folder.parent / FOLDER)
        for file in [*folder.glob(FILE), *(file for place in places for file in sorted(place.glob(f"*/{FILE}")))]:
            files.setdefault(file.resolve(), file)
    for file in files.values():
        try:
            content = read_json(file)
            if not isinstance(content, dict):
                raise BadFileError(f"not an experiment: expected a JSON object, got {type(content).__name__}")
            records[file.parent] = content
        except BadFileError as error:
            broken[file.parent] = str(error)
    return records, broken
