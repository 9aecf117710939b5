"""How a step changed each gradient: its length and its angle.

While `recording`, a step keeps the norms and products of original and directed gradient: exact, at the price of a copy.
Otherwise the original is computed from the directed gradient, which is still in `.grad`, by inverting A. That is
refused where it would lose too many digits, and where `.grad` was written since.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, repeat
from operator import add

import torch
from torch import Tensor

from riesz.control import Control, norm_ratio, permutation, products, signs
from riesz.hook.plan import Target
from riesz.hook.report import Diagnoses, Diagnosis
from riesz.layout.axis import Axis, ColumnView, is_dtensor
from riesz.metrics import Metric, Operator
from riesz.private_torch import write_counts

MAX_ERROR = 0.02
"""The largest relative error of a recovered gradient that is still reported."""

MARK = "_riesz_mark"
"""The attribute of a directed gradient that holds its number. It is an int, which any checkpoint may hold."""

_first_marks = count(0, 1 << 32)


def _marked(gradients: Sequence[Tensor]) -> Sequence[int]:
    """Number gradients, each with a number that no other ever gets."""
    first = next(_first_marks)
    marks = range(first, first + len(gradients))
    deque(map(setattr, gradients, repeat(MARK), marks), maxlen=0)  # a loop that runs in C
    return marks


def _writes(gradient: Tensor) -> tuple[float, int]:
    """How often a gradient was written to, and where it lies: assigning its `.data` counts as no write.

    Inference tensors count nothing. A DTensor is written through its local part, or by operations of its own, which the
    local part does not count.
    """
    version = 0 if gradient.is_inference() else write_counts([gradient])[0]
    if is_dtensor(gradient):
        from riesz import sharded

        gradient = sharded.local_of(gradient)
        version += write_counts([gradient])[0]
    plain = type(gradient) is Tensor and gradient.layout == torch.strided
    return version, gradient.data_ptr() if plain else 0


@dataclass(eq=False, slots=True)
class StepRecord:
    """What a step leaves behind: enough to recognise its gradients, nothing that keeps them alive.

    Gradients are numbered. Ids would not do: a gradient computed later may be given the id of one that was freed. Nor
    weak references: torch refuses to swap a tensor that has one, as `Module.to` does under FSDP2. A record is made at
    every step, so it is plain lists, made in C.
    """

    targets: Sequence[Target]
    marks: Sequence[int]
    versions: Sequence[float]
    addresses: Sequence[int]
    products: Sequence[Tensor] | None = None

    def recognises(self, index: int, gradient: Tensor) -> bool:
        """Whether it is the gradient that the step directed at this place, not written since."""
        writes = self.versions[index], self.addresses[index]
        return getattr(gradient, MARK, None) == self.marks[index] and writes == _writes(gradient)

    def already_directed(self, gradient: Tensor) -> bool:
        """Whether the gradient is one that the step directed, and was not written since."""
        own = getattr(gradient, MARK, None)
        places = [index for index, mark in enumerate(self.marks) if mark == own]
        if any(math.isnan(self.versions[index]) for index in places):
            raise RuntimeError(
                f"the closure was evaluated again and left a gradient in place, and torch {torch.__version__} does not "
                "tell whether it was written: call zero_grad(set_to_none=True) in the closure"
            )
        return any(self.recognises(index, gradient) for index in places)

    def merged_with(self, later: "StepRecord") -> "StepRecord":
        """This record and that of a later evaluation of the closure: what it computed again counts once, as of then."""
        gradients = [target.parameter.grad for target in self.targets]
        kept = [i for i, gradient in enumerate(gradients) if gradient is not None and self.recognises(i, gradient)]
        products = None
        if self.products is not None and later.products is not None:
            products = [*(self.products[i] for i in kept), *later.products]
        return StepRecord(
            [*(self.targets[i] for i in kept), *later.targets],
            [*(self.marks[i] for i in kept), *later.marks],
            [*(self.versions[i] for i in kept), *later.versions],
            [*(self.addresses[i] for i in kept), *later.addresses],
            products,
        )

    def recorded_diagnoses(self) -> list[Diagnosis]:
        """The diagnoses of a step that was recorded; reading them waits for the device."""
        return [_diagnosis(t.name, sums) for t, sums in zip(self.targets, self.products or (), strict=True)]

    @classmethod
    def of_plain(cls, targets: Sequence[Target], directed: Sequence[Tensor], addresses: Sequence[int]) -> "StepRecord":
        """The record of plain tensors whose addresses are known."""
        return cls(targets, _marked(directed), write_counts(directed), addresses)

    @classmethod
    def of_shards(cls, targets: Sequence[Target], directed: Sequence[Tensor], parts: Sequence[Tensor]) -> "StepRecord":
        """The record of DTensors whose local parts are known."""
        versions = map(add, write_counts(parts), write_counts(directed))
        return cls(targets, _marked(directed), list(versions), list(map(Tensor.data_ptr, parts)))

    @classmethod
    def of(
        cls, targets: Sequence[Target], directed: Sequence[Tensor], recorded: Sequence[Tensor] | None
    ) -> "StepRecord":
        writes = list(map(_writes, directed))
        versions, addresses = [version for version, _ in writes], [address for _, address in writes]
        return cls(targets, _marked(directed), versions, addresses, recorded)


def diagnose(record: StepRecord, tensor_metric: Operator, metric: Operator, control: Control) -> Diagnoses:
    """The diagnoses of a step; notes name the parameters whose original gradient cannot be recovered.

    Args:
        record: what the step left behind.
        tensor_metric, metric: the attachment's metric as targets refer to it, and as given; groups may have their own.
        control: the control in force.
    """
    diagnoses, notes = [], []
    for index, target in enumerate(record.targets):
        sums: Tensor | str
        if record.products is not None:
            sums = record.products[index]
        else:
            applied = metric if target.metric is tensor_metric else None
            sums = _recovered(record, index, applied, control)
        if isinstance(sums, str):
            notes.append(f"{target.name}: {sums}")
            continue
        diagnoses.append(_diagnosis(target.name, sums))
    if not diagnoses:
        reasons = "\n".join(notes) or "no parameter had a gradient"
        raise RuntimeError(
            f"diagnostics: the last step cannot be diagnosed; set attachment.recording = True before it\n{reasons}"
        )
    return Diagnoses(diagnoses, tuple(notes))


def _diagnosis(name: str, sums: Tensor) -> Diagnosis:
    ff, gg, fg = sums.tolist()
    if not (ff and gg):
        return Diagnosis(name, 1.0 if not ff else 0.0, 1.0)
    return Diagnosis(name, (gg / ff) ** 0.5, fg / (ff**0.5 * gg**0.5))


def _recovered(record: StepRecord, index: int, metric: Operator | None, control: Control) -> Tensor | str:
    target: Target | None = record.targets[index]
    assert target is not None
    g = target.parameter.grad
    if g is None:
        return "its gradient is gone: zero_grad, or the optimizer's own step (HeavyBall's, for one), cleared it"
    if not record.recognises(index, g):
        return "its gradient was changed after the step directed it"
    if is_dtensor(g):
        return "it is a DTensor, and diagnostics do not communicate with other ranks"
    wide = g.to(torch.complex128 if g.is_complex() else torch.float64)
    f, condition = wide, 1.0
    while target is not None:  # operators along different axes commute
        applied = target.metric if metric is None else metric
        if not isinstance(applied, Metric):
            return "a projection cannot be undone"
        symbol_F = applied.symbol(target.axis.length(tuple(g.shape)))
        condition *= float(symbol_F.max() / symbol_F.min())
        if condition * torch.finfo(g.dtype).eps > MAX_ERROR:
            return f"{applied!r} smooths it too strongly to recover the original from a {g.dtype} result"
        f = _undirected(f, target.name, target.axis, applied, control)
        target = target.then
    if control == "norm":
        f *= norm_ratio(wide.norm(), f.norm())
    return products(f, wide)


def _undirected(g: Tensor, name: str, axis: Axis, metric: Metric, control: Control) -> Tensor:
    opened = ColumnView.open(g, axis)
    columns_ONI = opened.read()
    if control == "permuted":
        order = permutation(name, opened.length, g.device)
        columns_ONI = metric.apply_inverse(columns_ONI.index_select(1, order))[:, order.argsort()]
    elif control == "signs":
        signs_1N1 = signs(name, opened.length, g.device).view(1, -1, 1)
        columns_ONI = metric.apply_inverse(columns_ONI * signs_1N1) * signs_1N1
    else:
        columns_ONI = metric.apply_inverse(columns_ONI)
    return opened.unfold(columns_ONI, g)
