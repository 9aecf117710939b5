"""`riesz data list | fetch NAME | verify NAME | pack NAME SOURCE`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import tyro

from riesz_lab.data import DATASETS, check, data_folder
from riesz_lab.data.images import cifar10
from riesz_lab.data.scenes import catalog as scene_catalog
from riesz_lab.data.scenes.catalog import SCENES
from riesz_lab.errors import BadFileError, ConfigError, MissingDataError, unknown
from riesz_lab.utils.tables import print_table

Name = tyro.conf.Positional[str]
Folder = Annotated[
    Path | None, tyro.conf.arg(help="Folder of the datasets; RIESZ_DATA, or the user's cache, if not given.")
]


def run(arguments: list[str]) -> int:
    commands: dict[str, Callable[..., int]] = {"list": _list, "fetch": _fetch, "verify": _verify, "pack": _pack}
    if arguments and not arguments[0].startswith("-") and arguments[0] not in commands:
        raise ConfigError(unknown("data command", arguments[0], commands))
    return int(
        tyro.extras.subcommand_cli_from_dict(
            commands, prog="riesz data", description="List, fetch, verify and pack datasets.", args=arguments
        )
    )


def _list(data_dir: Folder = None) -> int:
    """List the built-in datasets and whether they are present."""
    folder = data_folder(data_dir)
    rows = []
    for name, known in DATASETS.items():
        try:
            check(name, folder)
            state = "there"
        except (MissingDataError, BadFileError):
            state = f"riesz data fetch {name}"
        train, test = known.images
        megabytes = sum(source.size for source in known.sources) / 1e6
        rows.append((name, f"{train:,}", f"{test:,}", f"{megabytes:.0f} MB", state, known.summary))
    for name, scenes in SCENES.items():
        try:
            scene_catalog.load(name, folder, "all")
            state = "there"
        except (MissingDataError, BadFileError):
            state = "by hand"
        train, test = scenes.images
        rows.append((name, f"{train:,}", f"{test:,}", "-", state, scenes.summary))
    print_table(("dataset", "train", "test", "download", "state", ""), rows, right=(1, 2, 3))
    print(f"Looked in {folder}. By hand: `riesz data fetch NAME` explains how")
    return 0


def _fetch(name: Name, data_dir: Folder = None) -> int:
    """Download a dataset, check it, unpack it."""
    from riesz_lab.data import fetch

    folder = data_folder(data_dir)
    if name in SCENES:
        # If it is missing, this raises with instructions.
        scene_catalog.load(name, folder, "all")
        print(f"{name} is there already: {folder / name}. Check it with: riesz data verify {name}")
        return 0
    _known(name)
    try:
        check(name, folder)
        print(f"{name} is there already: {folder / name}. Check it with: riesz data verify {name}")
        return 0
    except MissingDataError:
        fetch.fetch(name, folder)
    print(f"{name} is in {folder / name}")
    return 0


def _verify(name: Name, data_dir: Folder = None) -> int:
    """Check every file of a dataset against what was published."""
    from riesz_lab.data import fetch

    folder = data_folder(data_dir)
    if name not in SCENES:
        _known(name)
    all_right = True
    for file, right, remark in scene_catalog.verify(name, folder) if name in SCENES else fetch.verify(name, folder):
        print(f"{'ok   ' if right else 'WRONG'}  {file}: {remark}", flush=True)
        all_right &= right
    return 0 if all_right else 1


def _pack(
    name: tyro.conf.Positional[Literal["cifar10"]], source: tyro.conf.Positional[Path], data_dir: Folder = None
) -> int:
    """Store images by class, SOURCE/{train,test}/<class>/<image>.jpg, in the format of the release: it loads faster."""
    for file in cifar10.pack(source, data_folder(data_dir) / name):
        print(file)
    return 0


def _known(name: str) -> None:
    if name not in DATASETS:
        raise ConfigError(unknown("dataset", name, (*DATASETS, *SCENES)))
