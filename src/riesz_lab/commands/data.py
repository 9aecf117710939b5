"""`riesz data [list] | fetch NAME | verify NAME | pack NAME SOURCE`."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import tyro

from riesz_lab.commands.parsing import parse
from riesz_lab.data.images.builtin import DATASETS, data_folder
from riesz_lab.data.scenes.builtin import SCENES
from riesz_lab.errors import ConfigError, LabError, MissingDataError, printable, unknown
from riesz_lab.utils.terminal import print_table

Name = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
Folder = Annotated[
    Path | None, tyro.conf.arg(help="Folder of the datasets; RIESZ_DATA, or the user's cache, if not given.")
]


def run(arguments: list[str]) -> int:
    commands: dict[str, Callable[..., int]] = {"list": _list, "fetch": _fetch, "verify": _verify, "pack": _pack}
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-h", "--help")):
        arguments = ["list", *arguments]
    if not arguments[0].startswith("-") and arguments[0] not in commands:
        raise ConfigError(unknown("data command", arguments[0], commands))
    about = "List, fetch, verify and pack datasets."
    return int(parse(commands, arguments, prog="riesz data", description=about))


def _list(data_dir: Folder = None) -> int:
    """List the built-in datasets and whether they are present."""
    folder = data_folder(data_dir)
    rows = []
    for name, known in (DATASETS | SCENES).items():
        download, state = "-", "by hand"
        if name in DATASETS:
            size = sum(source.size for source in DATASETS[name].sources)
            download = f"{size / 1e6:.0f} MB" if size else "none"
            state = f"riesz data fetch {name}"
        state = "there" if is_present(name, folder) else state
        rows.append((name, *(f"{count:,}" for count in known.images), download, state, known.summary))
    print_table(("dataset", "train", "test", "download", "state", ""), rows, right=(1, 2, 3))
    print(f"Looked in {folder}. By hand: `riesz data fetch NAME` explains how")
    return 0


def _fetch(name: Name, data_dir: Folder = None) -> int:
    """Download a dataset, check it, unpack it."""
    from riesz_lab.data import fetch

    folder = data_folder(data_dir)
    _check_name(name)
    try:
        _check_present(name, folder)
        print(f"{name} is there already: {folder / name}. Check it with: riesz data verify {name}")
    except MissingDataError:
        if name in SCENES:
            raise  # with instructions
        fetch.fetch(name, folder)
        print(f"{name} is in {folder / name}")
    return 0


def _verify(name: Name, data_dir: Folder = None) -> int:
    """Check every file of a dataset against what was published."""
    from riesz_lab.data import fetch
    from riesz_lab.data.scenes import catalog

    folder = data_folder(data_dir)
    _check_name(name)
    all_right = True
    for file, right, remark in catalog.verify(name, folder) if name in SCENES else fetch.verify(name, folder):
        print(printable(f"{'ok   ' if right else 'WRONG'}  {file}: {remark}"), flush=True)
        all_right &= right
    return 0 if all_right else 1


def _pack(
    name: tyro.conf.Positional[Literal["cifar10"]], source: tyro.conf.Positional[Path], data_dir: Folder = None
) -> int:
    """Store images by class, SOURCE/{train,test}/<class>/<image>.jpg, in the format of the release: it loads faster."""
    from riesz_lab.data.images import cifar10

    for file in cifar10.pack(source, data_folder(data_dir) / name):
        print(printable(str(file)))
    return 0


def is_present(name: str, folder: Path) -> bool:
    """Whether a built-in dataset is in the folder and can be read."""
    try:
        _check_present(name, folder)
    except LabError:
        return False
    return True


def _check_present(name: str, folder: Path) -> None:
    # Torch, on first use.
    from riesz_lab.data.images.catalog import check
    from riesz_lab.data.scenes.catalog import load

    if name in SCENES:
        load(name, folder, "all")
    else:
        check(name, folder)


def _check_name(name: str) -> None:
    if name not in (*DATASETS, *SCENES):
        raise ConfigError(unknown("dataset", name, (*DATASETS, *SCENES)))
