"""`riesz train RECIPE [options]`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from riesz_lab.commands.parsing import parse
from riesz_lab.config import Config
from riesz_lab.errors import ConfigError, LabError, printable
from riesz_lab.recipes import RECIPES, recipe
from riesz_lab.store.files import read_config
from riesz_lab.training import progress
from riesz_lab.training.hardware import Hardware, is_main_process
from riesz_lab.training.progress import Kind as ProgressKind
from riesz_lab.utils.amounts import count
from riesz_lab.utils.malloc import keep_freed_memory

if TYPE_CHECKING:
    from riesz_lab.training.trainer import Outcome

USAGE = """usage: riesz train RECIPE [options]

Train one trial of a recipe. Run the same command again to continue it, or to see its result once it is complete.
RECIPE is one of these, or the path of a stored config.json:
  {recipes}

All settings of a recipe and their values: riesz train RECIPE --help
Example: riesz train demo --metric "sobolev-tilde(lam=0.5)" --batch-size 8 --seed 3"""


# The comments are the help of the options: tyro prints them.
@dataclass(frozen=True, kw_only=True)
class Run:
    """Where the trial runs and what is shown of it; not part of its identity."""

    runs: Path = Path("runs")  # Folder of all trials.
    data_dir: Path | None = None  # Folder of the datasets; RIESZ_DATA, or the user's cache, if not given.
    save_every: float = 60.0  # Seconds between two checkpoints; 0 saves after each step.
    threads: int | None = None  # Threads on the CPU; as torch finds best, if not given.
    progress: ProgressKind = "auto"  # live in a terminal, plain lines elsewhere, or none.
    tensorboard: bool = False  # Also write TensorBoard logs into the trial's directory.


@dataclass(frozen=True, kw_only=True)
class _Options:
    config: Annotated[Config, tyro.conf.arg(name="", help="")]
    hardware: Annotated[Hardware, tyro.conf.arg(name="")] = field(default_factory=Hardware)
    run: Annotated[Run, tyro.conf.arg(name="")] = field(default_factory=Run)


def run(arguments: list[str]) -> int:
    if not arguments:
        raise ConfigError("expected a recipe: riesz train RECIPE; `riesz recipes` lists them")
    if arguments[0] in ("-h", "--help"):
        print(USAGE.format(recipes="\n  ".join(RECIPES)))
        return 0
    name = arguments[0]
    if name.startswith("-"):
        raise ConfigError(f"the recipe comes first: riesz train RECIPE {name} ...; `riesz recipes` lists them")
    options = _parse(name, arguments[1:])
    # After the help: importing torch takes seconds.
    import torch

    from riesz_lab.training.trainer import train

    if options.run.threads is not None:
        if options.run.threads < 1:
            raise ConfigError(f"threads: expected 1 or more, got {options.run.threads}")
        torch.set_num_threads(options.run.threads)
    keep_freed_memory()
    config = options.config
    title = f"{config.recipe} {config.metric} seed {config.seed}"
    outcome = train(
        config,
        runs=options.run.runs,
        data_dir=options.run.data_dir,
        hardware=options.hardware,
        save_every=options.run.save_every,
        show=progress.make(options.run.progress if is_main_process() else "none", title),
        tensorboard=options.run.tensorboard,
    )
    if is_main_process():
        print(printable(summary(outcome), keep="\n"))
    return 0


def summary(outcome: "Outcome") -> str:
    """The result in a few lines."""
    result, score = outcome.result, outcome.result.score
    lines = [] if outcome.trained else ["this trial was already complete:"]
    if result.status == "diverged":
        lines.append(f"diverged: the loss was not a number at step {result.step}; recorded as such")
    if result.status == "collapsed":
        lines.append(f"collapsed: {result.collapse}; recorded as such")
    for which, row in (("last", result.last), ("best", result.best)):
        if row is not None:
            lines.append(f"{which}: epoch {row['epoch']}  {progress.format_scores(row, score, result.percent)}")
    if result.last is None and result.best is None:
        lines.append(f"no {score.replace('_', ' ')} was measured")
    lines.append(f"{result.parameters:,} parameters, {count(result.step, 'step')}, stored in {outcome.path}")
    return "\n".join(lines)


def _parse(name: str, arguments: list[str]) -> _Options:
    if name.endswith(".json") and not Path(name).is_file():
        raise LabError(f"config {name!r} does not exist")
    config = read_config(Path(name)) if name.endswith(".json") else recipe(name)
    options = parse(
        tyro.conf.configure(tyro.conf.OmitArgPrefixes)(_Options),
        arguments,
        prog=f"riesz train {name}",
        description=f"Train one trial of the recipe {config.recipe}: every setting, and its value in the recipe.",
        default=_Options(config=config),
    )
    assert isinstance(options, _Options)
    # A file may come from anyone: code that it names is run only if the user names it too.
    named = {*arguments, *(argument.partition("=")[2] for argument in arguments if argument.startswith("--"))}
    for setting in ("dataset", "model", "optimizer") if name.endswith(".json") else ():
        value = getattr(options.config, setting)
        if ":" in value and value not in named:
            trust = f"If you trust it, say so: --{setting} {value}"
            raise ConfigError(f"{name} asks to run code, {setting}={value!r}. {trust}")
    return options
