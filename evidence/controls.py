"""Question 4 of the protocol: the arms of a complete sweep that differ from their baseline, with controls.

    riesz sweep evidence.controls:lambda_fashion

Which arms these are is read from the stored trials. With the gradient's norm kept, an arm is compared with SGD at the
same rate: does the difference survive without the longer gradient? With the channels permuted, it is compared with the
arm itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from evidence import TRIALS, sweeps
from evidence.attribution import Attribution, attribute
from evidence.rows import compared, lengthening, metrics, train_accuracy
from evidence.tables import is_decided, tables
from evidence.wording import numbers, points, said
from riesz_lab.errors import ConfigError
from riesz_lab.statistics import Comparison
from riesz_lab.store import Store
from riesz_lab.sweeps import Arm, ArmResult, Sweep, SweepResult
from riesz_lab.sweeps.controls import CONTROLS, controls_of

CONTROLLED = (sweeps.lambda_fashion, sweeps.lambda_mnist, sweeps.plain_sgd, sweeps.tuned_fashion, sweeps.regimes)
"""Not `plain_sgd_matched`, which is a control itself."""

KEPT, PERMUTED = (f", {CONTROLS[control]}" for control in ("norm", "permuted"))


def name_of(sweep: str) -> str:
    """What the controls of a sweep are called."""
    return f"{sweep}-controls"


def all_controls(by_name: Mapping[str, SweepResult]) -> Iterator[Sweep]:
    """The controls of every decided sweep in which a metric differs."""
    for name in (make().name for make in CONTROLLED):
        if is_decided(by_name[name]) and (found := controls(name, by_name[name])):
            yield found


def controls(name: str, table: SweepResult) -> Sweep | None:
    """The controls of a sweep; None if no metric differs."""
    differing = [
        table.sweep[label]
        for label, comparison in table.comparisons.items()
        if comparison.verdict in ("better", "worse")
        and table.sweep[label].config.metric != "identity"
        and not sweeps.repeats_lambda_fashion(table.sweep, table.sweep[label])
    ]
    if not differing:
        return None
    arms = {arm.label: arm for one in differing for arm in _controlled(table.sweep, one)}
    return replace(
        table.sweep,
        name=name_of(name),
        about="the arms that differ from SGD, trained with the norm of the gradient kept, and SobolevTilde also with"
        " the channels in random order. They were selected because they differ, so part of the difference may be"
        " chance. With the norm kept, they are compared with the same trials of SGD, so chance in those remains and"
        " chance in the arm's own trials does not. Random order, and the change, are compared with the arm's own"
        " trials, so chance in those remains there",
        reproduces="no such controls",
        arms=tuple(arms.values()),
    )


def _controlled(sweep: Sweep, arm: Arm) -> Iterator[Arm]:
    assert arm.baseline is not None
    plain = sweep[arm.baseline]
    if plain.config.lr == arm.config.lr:
        yield plain
        yield replace(arm, baseline=None)  # it is compared in its own sweep
    else:  # tuned: the norm is kept at the metric's own rate, so that both are compared with SGD at that one
        plain = Arm(f"{plain.label} at {arm.config.lr:g}", replace(plain.config, lr=arm.config.lr))
        yield plain
        yield replace(arm, baseline=plain.label)
    for config in controls_of(arm.config):
        if config.control == "signs":  # not in the protocol
            continue
        against = arm.label if config.control == "permuted" else plain.label
        yield Arm(f"{arm.label}, {CONTROLS[config.control]}", config, against)


def conclude(table: SweepResult, controlled: SweepResult) -> list[str]:
    """What the controls of a table say, once all of them are complete."""
    kept = {row.arm.label.removesuffix(KEPT): row for row in metrics(controlled) if row.arm.config.control == "norm"}
    uncontrolled = {label: controlled if controlled.rows[label].comparison else table for label in kept}
    found = attribute({label: (at := uncontrolled[label], at.rows[label], controlled, kept[label]) for label in kept})
    lines = []
    for label, one in found.items():
        before = uncontrolled[label]
        conclusion = {
            "larger": "the difference is larger",
            "remains": _remains(one),
            "part": "part of the difference remains",
            "gone": _gone(one),
            "small": "the difference is within the margin, so no control can tell",
            "open": _open(one),
            "none": "there is no difference",
        }[one.fate]
        then = f"{said(one.then)}, {points(one.then.difference)} against {before.sweep[label].baseline}"
        now = f"{said(one.now)} ({numbers(one.now)})"
        line = f"{label} ({then}): with the norm kept, against {kept[label].arm.baseline}, {now}; {conclusion}"
        if one.fate not in ("none", "small"):
            line += f" (a change of {_change(one.change)})"
            line += _training(kept[label], before.rows[label], controlled.rows[kept[label].arm.baseline or ""])
        if (permuted := controlled.rows.get(label + PERMUTED)) is not None:
            order = compared(permuted)
            line += f"; random against true order of the channels: {said(order)} ({numbers(order)})"
        lines.append(line)
    return lines


def _training(kept: ArmResult, before: ArmResult, plain: ArmResult) -> str:
    """How far training went, and how much longer the metric makes gradients: a kept norm may merely train less."""
    text = ""
    accuracies = [train_accuracy(row) for row in (kept, before, plain)]
    if None not in accuracies:
        of_kept, of_before, of_plain = (f"{100 * (accuracy or 0.0):.2f}%" for accuracy in accuracies)
        text += f"; on training images {of_kept} (without the norm kept {of_before}, {plain.arm.label} {of_plain})"
    if (factors := lengthening(before)) is not None:
        low, high = factors
        text += (
            f"; without the norm kept, the metric makes a layer's gradient {low:.1f} to {high:.1f} times as long"
            " (medians over the last steps of epochs)"
        )
    return text


def _remains(one: Attribution) -> str:
    shown = one.change.verdict in ("better", "worse")
    if shown and one.change.verdict != one.then.verdict:
        return "a smaller difference remains; the change is within the margin"
    return f"{one.then.verdict} with and without the norm kept"


def _open(one: Attribution) -> str:
    if one.now.verdict == one.then.verdict:
        return "the difference is still there, within the margin; open whether it became smaller"
    if one.change.verdict in ("better", "worse"):
        return "the difference changed; open what is left of it"
    return "what becomes of the difference is open"


def _gone(one: Attribution) -> str:
    reversed_ = one.now.verdict in ("better", "worse") and one.now.verdict != one.then.verdict
    return "the difference is reversed" if reversed_ and not one.now.equivalent else "what is left is within the margin"


def _change(change: Comparison) -> str:
    shown = change.verdict in ("better", "worse")
    return numbers(change, failures=False, detectable=False) + ("" if shown else f", {said(change)}")


def lambda_fashion() -> Sweep:
    return _stored(sweeps.lambda_fashion().name)


def lambda_mnist() -> Sweep:
    return _stored(sweeps.lambda_mnist().name)


def plain_sgd() -> Sweep:
    return _stored(sweeps.plain_sgd().name)


def tuned_fashion() -> Sweep:
    return _stored(sweeps.tuned_fashion().name)


def regimes() -> Sweep:
    return _stored(sweeps.regimes().name)


def _stored(name: str, trials: Path = TRIALS) -> Sweep:
    table = tables(Store(trials))[name]
    if not is_decided(table):
        raise ConfigError(f"{name}: controls are chosen once all of its trials are complete, and some are missing")
    found = controls(name, table)
    if found is None:
        raise ConfigError(f"{name}: no metric differs from its baseline, so there is nothing to control")
    return found
