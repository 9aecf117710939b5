"""The trials of PROTOCOL-2.md: what is trained, how rates are chosen, and which trials come next.

    python -m evidence.signs RUNS [--parts 1 2 3] [--left]

trains what is left of the parts, in the order of the protocol, one trial at a time. Start it in as many processes as
cores: a trial that another process works on is left to it, and what an interrupted one has saved is continued.
All that is chosen here is a pure function of the trials that are stored.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from riesz_lab.config import Config
from riesz_lab.data.images import catalog
from riesz_lab.data.images.builtin import data_folder
from riesz_lab.data.images.types import Data, Images, shuffled, take
from riesz_lab.errors import BusyError, StoppedError
from riesz_lab.recipes import recipe
from riesz_lab.store import Store

TRIALS_2 = Path(__file__).parent / "trials-2"
"""The complete trials, without their weights."""

SCREENING, CONFIRMING, TUNING = range(6), range(100, 116), (1000, 1001)
"""Seeds: of the first look, of the fresh ones, and of the trials that choose rates."""
FACTOR, START, FARTHEST = 1.4, 2, 10
"""The grid of rates: its ratio, the steps to both sides that every arm begins with, and the most it grows to."""
HOLD_OUT = 2000

DAMPED = "reweighted-l2(lam=-0.9)"
ARMS: dict[str, dict[str, str]] = {
    "SGD": {},
    "output -0.9": {"metric": DAMPED},
    "input -0.9": {"metric": DAMPED, "direction": "input"},
    "fan-in -0.9": {"metric": DAMPED, "direction": "fan_in"},
    "output and fan-in -0.9": {"metric": DAMPED, "direction": "output+fan_in"},
    "centralization": {"metric": "centralization"},
    "centralization, output -0.9": {"metric": f"{DAMPED} + centralization"},
    "output +1": {"metric": "reweighted-l2(lam=1.0)"},
    "output -0.9, signs": {"metric": DAMPED, "control": "signs"},
}
Pair = tuple[str, str]
COMPARED: tuple[Pair, ...] = (
    *((arm, "SGD") for arm in list(ARMS)[1:]),
    ("fan-in -0.9", "centralization"),
    ("centralization, output -0.9", "centralization"),
    ("output -0.9", "output -0.9, signs"),
)
"""The comparisons of a cell of part 1: an arm and what it is compared with."""


@dataclass(frozen=True)
class Cell:
    """Arms that are compared with each other, each at a rate of its own if it is tuned."""

    name: str
    arms: Mapping[str, Config]  # at the rate that tuning begins with, or that is given
    seeds: tuple[int, ...]
    tuned: bool = True
    pairs: tuple[Pair, ...] = ()  # the comparisons: an arm and what it is compared with


def _cell(dataset: str, images: int, model: str) -> Cell:
    base = Config(
        recipe="signs", dataset=dataset, train_limit=images, model=model, batch_size=8, momentum=0.9,
        weight_decay=5e-4, schedule="cosine", epochs=20 if images == 1000 else 6, eval_every=20, lr=0.015,
    )  # fmt: skip
    norm = "batch norm" if model.endswith("-norm") else "no norm"
    arms = {label: replace(base, **settings) for label, settings in ARMS.items()}  # type: ignore[arg-type]
    return Cell(f"{dataset}, {images:,} images, {norm}", arms, tuple(SCREENING), pairs=COMPARED)


PART_1 = tuple(
    _cell(dataset, images, model)
    for model in ("cnn3", "cnn3-norm")
    for images in (1000, 8000)
    for dataset in ("cifar10", "fashion-mnist")
)
"""Screening. In this order, since what comes last may not be reached."""

CONFIRMED: dict[str, tuple[Pair, ...]] = {}
"""By cell of part 1, the comparisons that are run with 16 fresh seeds; written here, and in the protocol, before."""
CONTROLLED: tuple[Pair, ...] = ()
"""Cells and arms whose confirmed gain gets controls: for each arm, the cell where it is largest."""
BEST_CELL: Pair | None = None
"""The cell without normalisation and the arm whose gain in screening is largest in standard errors."""
BEST: tuple[str, ...] = ()
"""The best arm of part 1, which part 2 runs; written here, and in the protocol, before it is run."""


def confirmations() -> Iterator[Cell]:
    for name, pairs in CONFIRMED.items():
        labels = dict.fromkeys(label for pair in pairs for label in reversed(pair))
        arms = {label: _screened(name).arms[label] for label in labels}
        yield Cell(f"{name}, confirmed", arms, tuple(CONFIRMING), pairs=pairs)


def controls(done: Mapping[str, float | None]) -> Iterator[Cell]:
    """Of every gain: around random signs, with the norm kept, and both sides at one rate."""
    for name, label in CONTROLLED:
        cell = _screened(name)
        plain, arm = cell.arms["SGD"], cell.arms[label]
        # Centralization has no signs of its own: they commute with it.
        signed = replace(arm, metric=near_centralization(arm.metric), direction=_signed_direction(arm), control="signs")
        arms = {"SGD": plain, label: arm, "signs": signed, "norm kept": replace(arm, control="norm")}
        pairs = ((label, "SGD"), ("signs", "SGD"), ("norm kept", "SGD"), (label, "signs"))
        yield Cell(f"{name}, controls of {label}", arms, tuple(CONFIRMING[:8]), pairs=pairs)
        at_own = chosen(replace(cell, arms={"SGD": plain, label: arm}), done)
        if len(at_own) == 2:
            for rate in {one.lr for one in at_own.values()}:
                both = {"SGD": replace(plain, lr=rate), label: replace(arm, lr=rate)}
                title = f"{name}, {label} and SGD at {rate:g}"
                yield Cell(title, both, tuple(CONFIRMING[:8]), tuned=False, pairs=((label, "SGD"),))


def near_centralization(metric: str) -> str:
    """The metrics with an invertible one in place of Centralization, whose signs make a difference."""
    return metric.replace("centralization", "reweighted-l2(lam=-0.99)")


def _signed_direction(arm: Config) -> Any:
    return {"centralization": "fan_in", ARMS["centralization, output -0.9"]["metric"]: "output+fan_in"}.get(
        arm.metric, arm.direction
    )


def best_cell() -> Iterator[Cell]:
    """The best arm elsewhere (Adam, a larger batch, no weight decay), at other lam, and the picture of lam."""
    if BEST_CELL is None:
        return
    name, label = BEST_CELL
    cell = _screened(name)
    plain, arm = cell.arms["SGD"], cell.arms[label]
    changes: dict[str, dict[str, Any]] = {
        "Adam": {"optimizer": "adam", "lr": 1e-3, "weight_decay": 0.0},
        "batch 128": {"batch_size": 128, "epochs": 4 * plain.epochs, "eval_every": 4 * plain.epochs, "lr": 0.06},
        "no weight decay": {"weight_decay": 0.0},
    }
    arms: dict[str, Config] = {}
    pairs: list[Pair] = []
    for change, values in changes.items():
        arms |= {change: replace(plain, **values), f"{change}, {label}": replace(arm, **values)}
        pairs.append((f"{change}, {label}", change))
    yield Cell(f"{name}, elsewhere", arms, tuple(CONFIRMING), pairs=tuple(pairs))
    other = {f"lam {lam:g}": _at_lam(arm, lam) for lam in (-0.99, -0.5, -0.25)}
    known = {"SGD": plain, label: arm}
    pairs = [(one, base) for one in other for base in known]
    yield Cell(f"{name}, other lam", known | other, tuple(CONFIRMING), pairs=tuple(pairs))
    for one in (cell, _screened(name.replace("no norm", "batch norm"))):
        along = {
            f"{direction} {lam:+g}": replace(one.arms["SGD"], metric=f"reweighted-l2(lam={lam})", direction=direction)
            for direction in ("output", "input")
            for lam in (-0.9, -0.5, 0.5, 1.0, 2.0, 5.0)
        }
        yield Cell(f"{one.name}, picture of lam", {"SGD": one.arms["SGD"]} | along, tuple(SCREENING))


def _at_lam(arm: Config, lam: float) -> Config:
    metric = near_centralization(arm.metric)
    return replace(arm, metric=re.sub(r"lam=[-\d.]+", f"lam={lam}", metric), direction=_signed_direction(arm))


def _screened(name: str) -> Cell:
    return {cell.name: cell for cell in PART_1}[name]


def _resnet_without_norm() -> Cell:
    sgd = Config(
        recipe="signs-resnet", dataset="cifar10", train_limit=20_000, augment="crop-flip", model="resnet20-plain",
        batch_size=32, momentum=0.9, weight_decay=5e-4, schedule="cosine", epochs=20, eval_every=20, lr=0.05,
    )  # fmt: skip
    adam = replace(sgd, optimizer="adam", lr=1e-3, weight_decay=0.0)
    arms = {"SGD": sgd, "Adam": adam}
    arms |= {label: replace(sgd, **ARMS[label]) for label in BEST}  # type: ignore[arg-type]
    pairs = tuple((label, base) for label in BEST for base in ("SGD", "Adam"))
    return Cell("CIFAR-10, ResNet-20 without normalisation", arms, tuple(range(12)), pairs=pairs)


PART_2 = (_resnet_without_norm(),)


def halves() -> Data:
    """CIFAR-10 with 25,000 training images; the other 25,000 and the 10,000 test images to test on."""
    data = catalog.load("cifar10", data_folder(None))
    assert isinstance(data.train, Images)
    assert isinstance(data.test, Images)
    order = shuffled(len(data.train), "halves")
    first, rest = take(data.train, order[:25_000]), take(data.train, order[25_000:])
    images, labels = zip((rest.images_NHWC, rest.labels_N), (data.test.images_NHWC, data.test.labels_N), strict=True)
    import torch

    return replace(data, train=first, test=Images(torch.cat(images), torch.cat(labels)))


def _largest_claim(rate: float, seeds: int) -> Cell:
    base = replace(
        recipe("cifar10-resnet20-b8"), recipe="signs-claim", dataset="evidence.signs:halves", lr=rate, epochs=16,
        drop_after=8, drop_every=4, eval_every=16,
    )  # fmt: skip
    arms = {"SGD": base, "output +1": replace(base, metric="reweighted-l2(lam=1.0)")}
    name = f"CIFAR-10, 25,000 images, batch 8, rate {rate:g}"
    return Cell(name, arms, tuple(range(seeds)), tuned=False, pairs=(("output +1", "SGD"),))


PART_3 = (_largest_claim(0.1, 24), _largest_claim(0.01, 8))


# -- rates ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Search:
    """The search for the rate of one arm, as far as it has come."""

    scores: dict[float, float | None]  # mean held-out accuracy by rate; None where a trial diverged
    missing: tuple[Config, ...]  # the trials to run next
    rate: float | None  # the best of them; None until the search is over

    @property
    def at_edge(self) -> bool:
        return self.rate in (min(self.scores), max(self.scores))


def rates(config: Config, low: int, high: int) -> list[float]:
    return [float(f"{config.lr * FACTOR**k:.3g}") for k in range(low, high + 1)]


def tuning_trials(config: Config, rate: float) -> list[Config]:
    """Trials of an arm at a rate on as many images as it trains on, tested on others of the training split."""
    assert config.train_limit is not None
    held_out = replace(config, lr=rate, train_limit=config.train_limit + HOLD_OUT, hold_out=HOLD_OUT)
    return [replace(held_out, seed=seed) for seed in TUNING]


def search(config: Config, done: Mapping[str, float | None]) -> Search:
    """Rates beside the best one are tried until it lies between two others; of equals the smaller is best.

    Args:
        config: the arm, at the rate in the middle of the first grid.
        done: accuracy by trial, of those that are complete; None of one that diverged.
    """
    low, high = -START, START
    while True:
        tried = {rate: tuning_trials(config, rate) for rate in rates(config, low, high)}
        missing = tuple(trial for trials in tried.values() for trial in trials if trial.id not in done)
        scores = {rate: _mean([done.get(trial.id) for trial in trials]) for rate, trials in tried.items()}
        if missing:
            return Search(scores, missing, None)
        ranked = sorted((-score, rate) for rate, score in scores.items() if score is not None)
        best = ranked[0][1] if ranked else min(scores)
        if best == min(scores) and -low < FARTHEST:
            low -= 1
        elif best == max(scores) and high < FARTHEST:
            high += 1
        else:
            return Search(scores, (), best)


def _mean(scores: list[float | None]) -> float | None:
    known = [score for score in scores if score is not None]
    return round(sum(known) / len(known), 12) if len(known) == len(scores) else None


def chosen(cell: Cell, done: Mapping[str, float | None]) -> dict[str, Config]:
    """The arms whose rate is known, at that rate."""
    if not cell.tuned:
        return dict(cell.arms)
    found = {label: search(config, done) for label, config in cell.arms.items()}
    return {label: replace(cell.arms[label], lr=one.rate) for label, one in found.items() if one.rate is not None}


# -- the trials that are left -----------------------------------------------------------------------------------------


def parts(numbers: list[int], done: Mapping[str, float | None]) -> Iterator[Cell]:
    """The cells of these parts, as far as what earlier ones decide is written down."""
    if 1 in numbers:
        yield from PART_1
        yield from confirmations()
        yield from controls(done)
        yield from best_cell()
    if 2 in numbers and BEST:
        yield from PART_2
    if 3 in numbers:
        yield from PART_3


def left(cells: Iterator[Cell], done: Mapping[str, float | None]) -> Iterator[Config]:
    """The trials to run, cell by cell: those that choose rates, then the compared ones, seed by seed."""
    for cell in cells:
        if cell.tuned:
            for config in cell.arms.values():
                yield from search(config, done).missing
        arms = chosen(cell, done)
        if len(arms) == len(cell.arms):
            for seed in cell.seeds:
                for config in arms.values():
                    if (trial := replace(config, seed=seed)).id not in done:
                        yield trial


def scores(store: Store) -> dict[str, float | None]:
    """The last test accuracy of every complete trial by id; None of one that diverged."""
    return {
        trial.config.id: trial.score() if trial.status == "finished" else None
        for trial in store.trials
        if trial.result is not None
    }


def _left(runs: Path, numbers: list[int]) -> list[Config]:
    done = scores(Store(runs, TRIALS_2))
    return list({config.id: config for config in left(parts(numbers, done), done)}.values())


def train(runs: Path, numbers: list[int]) -> None:
    """Train until nothing is left, or a signal stops it."""
    import torch

    from riesz_lab import train as train_one

    torch.set_num_threads(1)
    while todo := _left(runs, numbers):
        for config in todo:
            try:
                outcome = train_one(config, runs=runs)
            except BusyError:  # another process is at it
                continue
            except StoppedError as error:
                print(error, flush=True)
                return
            if outcome.trained:
                print(f"{time.strftime('%H:%M:%S')} {outcome.path.name}: {outcome.result.status}", flush=True)
                break
        else:
            time.sleep(10)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train what is left of the trials of PROTOCOL-2.md.")
    parser.add_argument("runs", type=Path)
    parser.add_argument("--parts", type=int, nargs="+", default=[1], choices=[1, 2, 3])
    parser.add_argument("--left", action="store_true", help="count what is known to be left, and stop")
    given = parser.parse_args()
    if given.left:
        print(len(_left(given.runs, given.parts)))
    else:
        train(given.runs, given.parts)
