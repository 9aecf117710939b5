"""`riesz inspect FILE...`, and `riesz inspect FILE.py:build --gradients`."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from riesz_lab.commands.parsing import parse
from riesz_lab.errors import LabError, print_error, printable
from riesz_lab.utils import atomic


def run(arguments: list[str]) -> int:
    about = (
        "Look into trained weights for the regularity that the method assumes: are neighbouring filters more alike than"
        " the same filters in random order? Nothing in a file is executed, but with --gradients your own function is."
    )
    return int(parse(_inspect, arguments, prog="riesz inspect", description=about))


def _inspect(
    files: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILE")],
    output: Annotated[Path | None, tyro.conf.arg(aliases=("-o",))] = None,
    layers: Literal["conv", "all"] = "conv",
    gradients: bool = False,
    batch_size: int = 8,
) -> int:
    """Inspect trained weights, or the gradients of a network.

    Args:
        files: checkpoints: safetensors, or files of torch.save that hold tensors and plain values only. With
            --gradients, FILE.py:build, a function that returns model, (train, test), loss.
        output: also write a page with figures to this file (.html).
        layers: conv takes weights of three dims or more, all takes matrices too.
        gradients: what do gradients share along an axis, and which lam follows from it? Signal, noise and curvature.
        batch_size: with --gradients, that of the training.
    """
    if gradients:
        return _inspect_gradients(files, output, layers, batch_size)
    from riesz_lab.commands.report import format_of, write
    from riesz_lab.inspection import inspect
    from riesz_lab.report import page
    from riesz_lab.report.inspection_page import inspection_page, layer_table
    from riesz_lab.utils.terminal import print_table

    if not files:
        raise LabError("expected one file or more: riesz inspect weights.safetensors")
    if output is not None:
        format_of(output, "html")
        if str(output) != "-":
            atomic.check_place(output)
    inspections = []
    for file in files:
        try:
            inspection = inspect(file, layers)
        except LabError as error:
            print_error(error)
            continue
        inspections.append(inspection)
        table = layer_table(inspection)
        print(f"{printable(inspection.name)}: {inspection.size}")
        if table.rows:
            print_table(table.head, [[cell.text for cell in row] for row in table.cells()], right=table.numbers)
        print(f"{inspection.verdict}\n")
    if inspections and output is not None:
        write(output, page.html(inspection_page(inspections)))
    elif any(layer.regularities() for inspection in inspections for layer in inspection.layers):
        print("With figures: add -o inspection.html")
    return 1 if len(inspections) < len(files) else 0


def _inspect_gradients(
    files: tuple[Path, ...], output: Path | None, layers: Literal["conv", "all"], batch_size: int
) -> int:
    from riesz_lab.commands.report import format_of, write
    from riesz_lab.experiments.function import inspect_function
    from riesz_lab.inspection import gradient_modes
    from riesz_lab.report import page
    from riesz_lab.report.gradients_page import gradients_page, modes_table
    from riesz_lab.tasks.user_defined import checked
    from riesz_lab.utils.importing import load_object
    from riesz_lab.utils.terminal import print_table

    if len(files) != 1 or ":" not in str(files[0]):
        raise LabError("expected one function: riesz inspect FILE.py:build --gradients")
    if output is not None:
        format_of(output, "html")
        if str(output) != "-":
            atomic.check_place(output)
    name = str(files[0])
    function = inspect_function(load_object("function", name))
    if function.trains:
        raise LabError(
            f"{name}: expected build(), which returns model, (train, test), loss, got {function.name}(attach, seed)"
        )
    model, (train, _), loss = checked(function.call(), function.name)
    modes = gradient_modes(model, train, loss, layers=layers, batch_size=batch_size)
    table = modes_table(modes)
    print_table(table.head, [[cell.text for cell in row] for row in table.cells()], right=table.numbers)
    print(table.note)
    if output is not None:
        write(output, page.html(gradients_page(name, modes)))
    return 0
