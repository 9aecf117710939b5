"""`riesz compare path/to/script.py:function`."""

from __future__ import annotations

import ast
import math
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from tyro.conf import arg

from riesz_lab.errors import ConfigError

if TYPE_CHECKING:
    from riesz_lab.commands.report import Format
    from riesz_lab.comparison import Answer
    from riesz_lab.report.evidence import Evidence

USAGE = """usage: riesz compare FILE.py:FUNCTION [options]

Train with and without each metric, several seeds each, on your own model and data; compare pair by pair; answer in
words, and write a report. FUNCTION is one of

  train(attach, seed) -> score              your own loop; call attach(optimizer, model) in it
  build() -> model, (train, test), loss     trained by the lab's loop: see --epochs, --batch-size, --optimizer, --lr

Both may take settings: train(attach, seed, lr=0.1).

  riesz compare mine.py:train                               five seeds, at your function's settings
  riesz compare mine.py:train --tune lr --until-sure        each arm at its best rate, seeds until it is conclusive
  riesz compare mine.py:train --plan --margin 0.3points     how many seeds would that take?

All options: riesz compare FILE.py:FUNCTION --help"""

HEAD = ("method", "conclusion", "pairs", "difference", "interval, valid at every look", "alpha")
COUNTS = ("--seeds", "--budget")
SWITCHES = ("--until-sure", "--plan", "--fresh")


def run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return 0
    options = tyro.cli(_options, prog="riesz compare", description="Compare metrics on your own model.", args=arguments)
    _run(options, _without_counts(arguments))
    return 0


def _options(
    function: Annotated[str, tyro.conf.Positional],
    metrics: tuple[str, ...] = ("reweighted-l2", "sobolev-tilde"),
    seeds: int = 5,
    controls: bool = False,
    score: str = "score",
    lower_is_better: bool = False,
    margin: str = "0.002",
    set: tuple[str, ...] = (),  # noqa: A002 - the option's name
    tune: tuple[str, ...] = (),
    tune_seeds: int = 2,
    until_sure: bool = False,
    budget: int = 50,
    plan: bool = False,
    fresh: bool = False,
    epochs: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: 10)")] = None,
    batch_size: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: 100)")] = None,
    optimizer: Annotated[str | None, arg(metavar="STR", help_behavior_hint="(default: sgd)")] = None,
    lr: Annotated[float | None, arg(metavar="FLOAT", help_behavior_hint="(default: 0.01)")] = None,
    runs: Path = Path("runs"),
    output: Annotated[Path, arg(aliases=("-o",))] = Path("report.html"),
) -> dict[str, Any]:
    """Compare.

    Args:
        function: FILE.py:FUNCTION or package.module:FUNCTION.
        metrics: what to compare with the plain optimizer; several values in one go: "sobolev-tilde(lam=0.1,1)".
        seeds: trials per metric; 3 or more for a conclusion.
        controls: also run each metric with the gradient's norm kept, and along a random order of the channels.
        score: name of what train returns; one that ends in accuracy is a fraction and printed in percent.
        lower_is_better: for scores such as a loss.
        margin: the largest difference that does not matter: in the score's unit, or as 0.3points, or 0.5sd.
        set: settings of your function, as name=value; several values are crossed: lr=0.01,0.03,0.1.
        tune: settings to tune for every arm alike, on the held-out score that train returns: lr.
        tune_seeds: trials per arm and value of a tuned setting.
        until_sure: add seeds until every arm has a conclusion, up to the budget.
        budget: the most seeds of --until-sure.
        plan: run three seeds and say how many would be needed.
        fresh: train stored trials anew.
        epochs: for build.
        batch_size: for build.
        optimizer: for build: sgd, adam, adamw, or package.module:Class.
        lr: for build: the learning rate; for train it is a setting: --set lr=0.1.
        runs: folder of all trials.
        output: the report: .html, .md or .csv.
    """
    return locals()


def _run(options: dict[str, Any], command: list[str]) -> None:
    from riesz_lab.commands.report import content, format_of, write
    from riesz_lab.comparison import compare
    from riesz_lab.report import report
    from riesz_lab.utils.importing import load_object

    function, output, runs = options["function"], options["output"], options["runs"]
    kind = format_of(output)  # fails before anything is trained
    _check_folder(output)
    asked = ("epochs", "batch_size", "optimizer", "lr")
    settings = {name: options[name] for name in asked if options[name] is not None} | read_settings(options["set"])
    given = ("metrics", "seeds", "controls", "score", "margin", "tune_seeds", "until_sure", "budget", "plan", "fresh")
    answer = compare(
        load_object("function", function),
        **{name: options[name] for name in given},
        tune=[name for text in options["tune"] for name in text.split(",") if name],
        higher_is_better=not options["lower_is_better"],
        runs=runs,
        say=lambda line: print(line, flush=True),
        command=shlex.join(["riesz", "compare", *command]),
        **settings,
    )
    print(f"\n{answer.text}\n")
    if answer.plan is not None:
        return
    print(f"{statistics(answer)}\n")
    evidence = report.read(runs / answer.sweep.name, margin=answer.sweep.margin)
    # Trials of the function as it was before it was changed lie there too.
    wanted = {config.id for config in answer.sweep.all_configs()}
    evidence.store.trials = [trial for trial in evidence.store.trials if trial.config.id in wanted]
    # Arms may differ in their settings, which the report would not put into one table by itself.
    evidence.tables = [answer]
    title = f"{function}: with and without"
    if answer.verdicts is None:
        write(output, content(kind, evidence, output, title))
    else:
        write(output, _sequential_content(kind, answer, evidence, output, title))


def _sequential_content(kind: Format, answer: Answer, evidence: Evidence, output: Path, title: str) -> str:
    """A report without any statistic that assumes a number of pairs fixed in advance."""
    from riesz_lab.report import appendix
    from riesz_lab.report.content import Finding, Page, Section, Table
    from riesz_lab.report.markdown import markdown
    from riesz_lab.report.page import html

    assert answer.verdicts is not None
    rows = _sequential_rows(answer)
    if kind == "csv":
        return "".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in (HEAD, *rows))
    arms = zip(answer.verdicts.arms.items(), answer.answers, strict=True)
    page = Page(
        title=title,
        lead=[*answer.answers, *answer.warnings, *answer.next_steps],
        sections=[
            Section(
                name="answer",
                title="Conclusions",
                text=answer.notes,
                findings=[Finding(each.conclusion, label, sentence) for (label, each), sentence in arms],
                blocks=[Table(caption="All arms", head=HEAD, rows=rows, numbers=frozenset(range(2, len(HEAD))))],
            ),
            appendix.layers(evidence),
            appendix.environments(evidence),
            appendix.settings(evidence),
            appendix.trials(evidence, None if str(output) == "-" else output.resolve().parent),
        ],
    )
    return html(page) if kind == "html" else markdown(page)


def statistics(answer: Answer) -> str:
    """The table below the answer: of a fixed number of pairs, or of a sequence of looks, never of both."""
    from riesz_lab.report.comparison_view import format_comparisons
    from riesz_lab.utils.tables import table

    if answer.verdicts is None:
        return format_comparisons(answer)
    return table(HEAD, _sequential_rows(answer), right=range(2, len(HEAD)))


def _sequential_rows(answer: Answer) -> list[list[str]]:
    from riesz_lab.statistics.verdict import format_signed

    assert answer.verdicts is not None
    rows = []
    for label, each in answer.verdicts.arms.items():
        low, high = each.interval or (-math.inf, math.inf)
        ends = " to ".join(format_signed(end, answer.percent) for end in (low, high)) if math.isfinite(low) else ""
        difference = format_signed(each.difference, answer.percent) if each.n else ""
        rows.append([label, each.conclusion, str(each.n), difference, ends, f"{each.alpha:.3g}"])
    return rows


def read_settings(texts: tuple[str, ...]) -> dict[str, Any]:
    """Settings from the command line; several values become a list.

    Example:
        >>> read_settings(("lr=0.01,0.03", "width=8", "name=small"))
        {'lr': [0.01, 0.03], 'width': 8, 'name': 'small'}
    """
    settings: dict[str, Any] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not name.isidentifier() or not values or name in settings:
            raise ConfigError(f"set: expected name=value or name=value,value, each name once, got {text!r}")
        read = [_literal(value) for value in values.split(",")]
        settings[name] = read if len(read) > 1 else read[0]
    return settings


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _check_folder(output: Path) -> None:
    """A page that cannot be written should be known before hours of training."""
    if str(output) == "-":
        return
    folder = output.resolve().parent
    if not folder.is_dir():
        raise ConfigError(f"output: expected a folder that exists, got {folder}")
    if output.is_dir() or not os.access(folder, os.W_OK):
        raise ConfigError(f"output: expected a file that can be written, got {output}")


def _without_counts(arguments: list[str]) -> list[str]:
    """The command, without what says how many seeds: advice adds that."""
    kept, skip = [], False
    for argument in arguments:
        name = argument.partition("=")[0]
        if skip or name in SWITCHES or name in COUNTS:
            skip = name in COUNTS and "=" not in argument
            continue
        kept.append(argument)
    return kept
