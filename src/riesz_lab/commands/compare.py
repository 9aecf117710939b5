"""`riesz compare path/to/script.py:function`."""

import ast
import shlex
import sys
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from tyro.conf import arg

from riesz_lab.commands.parsing import parse
from riesz_lab.errors import ConfigError, printable
from riesz_lab.utils import atomic

if TYPE_CHECKING:
    from riesz_lab.commands.report import Format
    from riesz_lab.experiments.answer import Answer

USAGE = """usage: riesz compare FILE.py:FUNCTION [options]

Train with and without each metric, several seeds each, on your own model and data; compare pair by pair; answer in
words, and write a page, comparison.html. FUNCTION is one of

  train(attach, seed) -> score              your own loop; call attach(optimizer, model) in it
  build() -> model, (train, test), loss     trained by the lab's loop: see --epochs, --batch-size, --optimizer, --lr

Both may take settings: train(attach, seed, lr=0.1).

  riesz compare mine.py:train                               five seeds, at your function's settings
  riesz compare mine.py:train --tune lr --until-sure        each arm at its best rate, seeds until it is conclusive
  riesz compare mine.py:train --plan --margin 0.3points     how many seeds would that take?
  riesz compare mine.py:train --workers 4 --dry-run         which trials, and how long?"""

COUNTS = ("--seeds", "--budget")
SWITCHES = ("--until-sure", "--plan", "--fresh", "--dry-run", "--open")
SETTINGS = ("epochs", "batch_size", "optimizer", "lr")
QUESTION = ("metrics", "seeds", "controls", "score", "margin", "tune_seeds", "until_sure", "budget", "plan")


def run(arguments: list[str]) -> int:
    if not arguments:
        print(f"{USAGE}\n\nAll options: riesz compare --help")
        return 0
    if arguments[0] in ("-h", "--help"):
        print(f"{USAGE}\n")
    about = "Train with and without each metric on your own model and data, and answer in words."
    options = parse(Options, arguments, prog="riesz compare", description=about)
    try:
        _run(options, _without_counts(arguments))
    except KeyboardInterrupt:
        from riesz_lab.experiments.compare import STOPPED

        print(f"riesz: {STOPPED}", file=sys.stderr)
        return 130
    return 0


# The comments are the help of the options: tyro prints them.
@dataclass(frozen=True, kw_only=True)
class Options:
    """What is compared, and how."""

    # FILE.py:FUNCTION or package.module:FUNCTION.
    function: Annotated[str, tyro.conf.Positional, arg(metavar="FILE.py:FUNCTION")]
    # what to compare with the plain optimizer; several values in one go: "sobolev-tilde(lam=0.1,1)".
    metrics: tuple[str, ...] = ("reweighted-l2", "sobolev-tilde")
    seeds: int = 5  # trials per metric; 3 or more for a conclusion.
    # also run each metric with the gradient's norm kept, and along a random order of the channels.
    controls: bool = False
    # name of what train returns; one that ends in accuracy is a fraction and printed in percent.
    score: str = "score"
    lower_is_better: bool = False  # for scores such as a loss.
    # the largest difference that does not matter: in the score's unit, or as 0.3points, or 0.5sd.
    margin: str = "0.002"
    # settings of your function, as name=value; several values are crossed: lr=0.01,0.03,0.1.
    set: tuple[str, ...] = ()
    # settings to tune for every arm alike, on the held-out score that train returns: lr.
    tune: tuple[str, ...] = ()
    tune_seeds: int = 3  # trials per arm and value of a tuned setting.
    until_sure: bool = False  # add seeds until every arm has a conclusion, up to the budget.
    budget: int = 50  # the most seeds of --until-sure.
    plan: bool = False  # run three seeds, or take all that are stored, and say how many would be needed.
    fresh: bool = False  # train stored trials anew.

    # passes over the training data. This and the next three are for build(), which the lab's loop trains.
    epochs: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: 10)")] = None
    # items per step.
    batch_size: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: 100)")] = None
    # sgd, adam, adamw, or package.module:Class.
    optimizer: Annotated[str | None, arg(metavar="STR", help_behavior_hint="(default: sgd)")] = None
    # the learning rate; that of a train(attach, seed, lr) is a setting of its own: --set lr=0.1.
    lr: Annotated[float | None, arg(metavar="FLOAT", help_behavior_hint="(default: 0.01)")] = None

    # trials at once, each in a process of its own; 1 is in this process.
    workers: Annotated[int, arg(metavar="INT")] = 1
    # threads of each trial; its share of the cores if not given.
    threads: Annotated[int | None, arg(metavar="INT")] = None
    # local is processes on this machine; ray is a Ray cluster.
    executor: Literal["local", "ray"] = "local"
    dry_run: bool = False  # list the trials, which of them are stored, and stop.
    runs: Path = Path("runs")  # folder of all trials.
    # the page: .html, .md, .csv or .json.
    output: Annotated[Path, arg(aliases=("-o",))] = Path("comparison.html")
    open: bool = False  # open the page in the browser.
    # live in a terminal, plain lines elsewhere, or none.
    progress: Literal["auto", "live", "plain", "none"] = "auto"


def _run(options: Options, command: list[str]) -> None:
    from riesz_lab.commands.report import format_of, write
    from riesz_lab.experiments.compare import compare, where
    from riesz_lab.experiments.dry_run import dry_run
    from riesz_lab.experiments.function import reference_to
    from riesz_lab.experiments.question import ask
    from riesz_lab.utils.importing import load_object

    name, output, runs = options.function, options.output, options.runs.absolute()
    kind = format_of(output)  # fails before anything is trained
    output = output if str(output) == "-" else output.absolute()  # the function may change the working directory
    if str(output) != "-":
        atomic.check_place(output)
    if ":" not in name:
        raise ConfigError(_which_function(name))
    function = load_object("function", name)
    given = {each: getattr(options, each) for each in SETTINGS}
    settings = {name: value for name, value in given.items() if value is not None} | read_settings(options.set)
    asked = {each: getattr(options, each) for each in QUESTION}
    asked["tune"] = [each for text in options.tune for each in text.split(",") if each]
    asked["higher_is_better"] = not options.lower_is_better
    if options.dry_run:
        user, experiment = ask(function, **asked, settings=settings)
        if not where(options.workers, options.threads, options.executor, runs).in_process:
            reference_to(user.call)
        print(dry_run(experiment, runs, options.workers))
        return
    silent = options.progress == "none"
    answer = compare(
        function,
        **asked,
        fresh=options.fresh,
        workers=options.workers,
        threads=options.threads,
        executor=options.executor,
        runs=runs,
        say=(lambda line: None) if silent else (lambda line: print(printable(line), flush=True)),
        live=options.progress in ("auto", "live"),
        command=shlex.join(["riesz", "compare", *command]),
        **settings,
    )
    print(f"\n{printable(answer_text(answer), keep=chr(10))}\n")
    if answer.plan is not None:
        return
    write(output, _content(kind, answer, output, f"Does a metric help {name}?"))
    if options.open and str(output) != "-":
        webbrowser.open(output.resolve().as_uri())


def answer_text(answer: "Answer") -> str:
    """The table first; then what an undecided arm would take, warnings, what to do next, and what it cost."""
    from riesz_lab.report.table import format_result

    shown = answer.answers if answer.plan is not None else [format_result(answer), *answer.explanations]
    return "\n".join([*shown, *answer.warnings, "", *answer.next_steps, "", *answer.costs])


def _content(kind: "Format", answer: "Answer", output: Path, title: str) -> str:
    """The page of the answer as text of that format."""
    from riesz_lab.report.page import html, markdown
    from riesz_lab.report.result_page import result_page
    from riesz_lab.report.table import to_csv, to_json

    if kind in ("csv", "json"):
        return to_csv([answer]) if kind == "csv" else to_json([answer])
    advice = [*answer.explanations, *answer.warnings, *answer.next_steps]
    home = None if str(output) == "-" else output.resolve().parent
    page = result_page(answer, title, advice=advice, remarks=answer.costs, home=home)
    return html(page) if kind == "html" else markdown(page)


def _which_function(path: str) -> str:
    """The message for a file without a function: those of its functions that could be meant. The file is not run."""
    expected = f"function: expected FILE.py:FUNCTION or package.module:FUNCTION, got {path!r}"
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return expected
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
    shown = [f"{node.name}({ast.unparse(node.args)})" for node in functions]
    return f"{expected}; its functions: {', '.join(shown) or 'none'}"


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
