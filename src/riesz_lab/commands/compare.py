"""`riesz compare path/to/script.py:function`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

USAGE = """usage: riesz compare FILE.py:FUNCTION [options]

Train with and without each metric, several seeds each, on your own model and data; compare pair by pair; write a
report. FUNCTION is one of

  train(attach, seed) -> score              your own loop; call attach(optimizer, model) in it
  build() -> model, (train, test), loss     trained by the lab's loop: see --epochs, --batch-size, --optimizer, --lr

All options: riesz compare FILE.py:FUNCTION --help"""


def run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return 0
    tyro.cli(_compare, prog="riesz compare", description="Compare metrics on your own model and data.", args=arguments)
    return 0


def _compare(
    function: Annotated[str, tyro.conf.Positional],
    metrics: tuple[str, ...] = ("reweighted-l2", "sobolev-tilde"),
    seeds: int = 5,
    controls: bool = False,
    score: str = "score",
    lower_is_better: bool = False,
    margin: float = 0.002,
    epochs: int | None = None,
    batch_size: int | None = None,
    optimizer: str | None = None,
    lr: float | None = None,
    runs: Path = Path("runs"),
    output: Annotated[Path, tyro.conf.arg(aliases=("-o",))] = Path("report.html"),
) -> None:
    """Compare.

    Args:
        function: FILE.py:FUNCTION or package.module:FUNCTION.
        metrics: what to compare with the plain optimizer.
        seeds: trials per metric; 3 or more for a conclusion.
        controls: also run each metric with the gradient's norm kept, and along a random order of the channels.
        score: name of what train returns; one that ends in accuracy is a fraction and printed in percent.
        lower_is_better: for scores such as a loss.
        margin: the largest difference that does not matter.
        epochs: for build.
        batch_size: for build.
        optimizer: for build: sgd, adam, adamw, or package.module:Class.
        lr: for build: the learning rate.
        runs: folder of all trials.
        output: the report: .html, .md or .csv.
    """
    from riesz_lab.commands.report import content, format_of, write
    from riesz_lab.comparison import compare
    from riesz_lab.report import report
    from riesz_lab.report.comparison_view import format_comparisons
    from riesz_lab.utils.importing import load_object

    kind = format_of(output)  # fails before anything is trained
    given = {"epochs": epochs, "batch_size": batch_size, "optimizer": optimizer, "lr": lr}
    table = compare(
        load_object("function", function),
        metrics=metrics,
        seeds=seeds,
        controls=controls,
        score=score,
        higher_is_better=not lower_is_better,
        margin=margin,
        runs=runs,
        say=lambda line: print(line, flush=True),
        **{name: value for name, value in given.items() if value is not None},
    )
    print(f"\n{format_comparisons(table)}")
    print("Learning rates are your function's, the same with and without; a metric changes the length of steps too.\n")
    evidence = report.read(runs / table.sweep.name, margin=margin)
    # Trials of the function as it was before it was changed lie there too.
    asked = {config.id for config in table.sweep.all_configs()}
    evidence.store.trials = [trial for trial in evidence.store.trials if trial.config.id in asked]
    write(output, content(kind, evidence, output, f"{function}: with and without"))
