"""`riesz inspect FILE...`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import tyro

from riesz_lab.errors import LabError


def run(arguments: list[str]) -> int:
    return int(
        tyro.cli(
            _inspect,
            prog="riesz inspect",
            description="Look into trained weights for the regularity that the method assumes: are neighbouring filters"
            " more alike than the same filters in random order? Nothing in a file is executed.",
            args=arguments,
        )
    )


def _inspect(
    files: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILE")],
    output: Annotated[Path | None, tyro.conf.arg(aliases=("-o",))] = None,
    layers: Literal["conv", "all"] = "conv",
) -> int:
    """Inspect trained weights.

    Args:
        files: checkpoints: safetensors, or files of torch.save that hold tensors and plain values only.
        output: also write a page with figures to this file (.html).
        layers: conv takes weights of three dims or more, all takes matrices too.
    """
    from riesz_lab.commands.report import kind_of, write
    from riesz_lab.inspection import inspect
    from riesz_lab.report import page
    from riesz_lab.report.inspection_page import inspected, table
    from riesz_lab.utils.tables import print_table

    if not files:
        raise LabError("no file was given: riesz inspect weights.safetensors")
    if output is not None:
        kind_of(output, "html")
    found, failed = [], 0
    for file in files:
        try:
            one = inspect(file, layers)
        except LabError as error:
            print(f"riesz: {error}", file=sys.stderr)
            failed += 1
            continue
        found.append(one)
        shown = table(one)
        print(f"{one.name}: {len(one.layers)} weights, {one.ignored} other tensors")
        if shown.rows:
            rows = [[cell.text for cell in row] for row in shown.cells()]
            print_table(shown.head, rows, right=shown.numbers)
        print(f"{one.verdict}\n")
    if found and output is not None:
        write(output, page.html(inspected(found)))
    elif found:
        print("With figures: add -o inspection.html")
    return 1 if failed else 0
