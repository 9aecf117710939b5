"""What the shared part of a gradient is like: signal, noise and curvature along it, against the rest.

For a layer and an axis, `P g` is the mean of the gradient over the axis, in every column, and `Q g` the rest. A metric
`f + lam mean(f)` steps along `c P g + Q g` with c = 1 + lam. With gradients g_i of batches, whose mean is g, and the
Hessian H of the loss, the expected loss after a step of rate r changes by

    -r (c |P g|^2 + |Q g|^2) + r^2 / 2 (c^2 h_PP + 2 c h_PQ + h_QQ),    h_PQ = E <P g_i, H Q g_i>, and so on.

Each lam has a best rate; the decrease there, over that of lam = 0, is its *gain*. The lam of the largest gain solves
two linear equations. This is one step of a quadratic: no momentum, no later steps.

- signal |P g|^2 is estimated without bias, from products of different batches; noise is E |P g_i|^2 minus the signal;
- H is that of batches of their own, larger ones, so that a gradient's noise does not meet itself in it;
- errors are those of a jackknife over groups of batches. Each group has its own Hessian.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor, nn
from torch.utils.data import default_collate

from riesz.layout.axis import Axis, ColumnView
from riesz.layout.scope import Scope
from riesz_lab.errors import LabError

Direction = Literal["output", "input", "fan_in"]
DIRECTIONS: tuple[Direction, ...] = ("output", "input", "fan_in")
GROUPS = 8
"""Groups of the jackknife."""
Named = dict[str, Tensor]
"""Tensors by the names of their parameters."""
NETWORK = "all of them"
"""The name of the row in which every layer is directed at once."""


@dataclass(frozen=True)
class Sums:
    """Sums over batches, by group of the jackknife: all that a mode is computed from."""

    squares: NDArray[np.float64]  # (group, part): the sum of |P g|^2 and of |Q g|^2
    sums: Tensor  # (group, entry): the sum of P g
    rests: Tensor  # the same of Q g
    count: int  # gradients in a group
    curvature: NDArray[np.float64]  # (group, 3): h_PP, h_PQ, h_QQ


@dataclass(frozen=True)
class Mode:
    """The shared part of one layer's gradient along one axis. Ratios are those of the shared part to the rest."""

    layer: str
    direction: Direction
    length: int  # of the axis
    share: float  # of the signal's energy that lies in the shared part
    signal_to_noise: float
    curvature: float
    lam: float | None  # of the largest gain; None where the model has none
    lam_error: float | None  # half of its 95% interval
    gains: dict[float, float]  # by lam, over lam = 0, each at its best rate; NaN where the model has none


@dataclass(frozen=True)
class GradientModes:
    """What `gradient_modes` returns."""

    layers: tuple[Mode, ...]  # layer by layer
    network: tuple[Mode, ...]  # by direction, all layers at once, with what they do to each other
    batch_size: int
    batches: int

    def gain(self, direction: Direction, lam: float) -> float:
        """The gain of directing every layer with this lam."""
        return next(mode.gains[lam] for mode in self.network if mode.direction == direction)


def gradient_modes(
    model: nn.Module,
    data: Any,
    loss: Callable[[Any, Any], Tensor],
    *,
    batch_size: int = 8,
    batches: int = 64,
    products: int = 16,
    curvature_batch: int = 256,
    lams: Sequence[float] = (-0.9, 1.0),
    layers: Literal["conv", "all"] = "conv",
    seed: int = 0,
) -> GradientModes:
    """Signal, noise and curvature of the shared part of each layer's gradient, and the lam that follows from them.

    The model is left as it was. It is seen in training mode, as it is now: look at several moments of a training.

    Args:
        model, loss: as they are trained; `loss(model(inputs), targets)` is a mean over a batch.
        data: the training data, with a length: items are (inputs, target).
        batch_size: of the training that is asked about: noise depends on it.
        batches: how many gradients are taken.
        products: how many of them are multiplied by the Hessian. Each costs some backward passes per layer.
        curvature_batch: items of each batch whose Hessian is taken.
        lams: the values whose gains are wanted.
        layers: "conv", or "all" for every weight.
        seed: of the choice of items.

    Returns:
        The modes.
    """
    for name, value in (("batches", batches), ("products", products)):
        if value < GROUPS or value % GROUPS:
            raise LabError(f"{name}: expected a multiple of {GROUPS}, got {value}")
    if products > batches or batch_size < 1:
        raise LabError(f"expected products <= batches and batch_size >= 1, got {products}, {batches}, {batch_size}")
    parameters: Named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    axes = {direction: _axes(model, parameters, direction, layers) for direction in DIRECTIONS}
    if not any(axes.values()):
        raise LabError("expected a model with conv weights (layers='all' takes others too), found none to direct")
    sampler = _Sampler(data, seed)
    buffers, training = {name: b.clone() for name, b in model.named_buffers()}, model.training
    model.train()
    try:
        measured = [
            _Group(model, parameters, loss, axes).measure(sampler, batch_size, batches, products, curvature_batch)
            for _ in range(GROUPS)
        ]
    finally:
        model.train(training)
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(buffers[name])
    modes: dict[str, list[Mode]] = {"layers": [], "network": []}
    for key in measured[0]:
        name, direction = key
        length = 0 if name == NETWORK else axes[direction][name].length(tuple(parameters[name].shape))
        mode = _mode(name, direction, length, _gathered([group[key] for group in measured]), lams)
        modes["network" if name == NETWORK else "layers"].append(mode)
    order = [*parameters]
    modes["layers"].sort(key=lambda mode: (DIRECTIONS.index(mode.direction), order.index(mode.layer)))
    return GradientModes(tuple(modes["layers"]), tuple(modes["network"]), batch_size, batches)


def _axes(model: nn.Module, parameters: dict[str, Tensor], direction: Direction, layers: Any) -> dict[str, Axis]:
    scope = Scope(model, direction, layers)
    group = {"params": list(parameters.values()), "param_names": list(parameters)}
    records = zip(parameters, scope.records(group, 0, scope.locations()), strict=True)
    return {
        name: record.where
        for name, record in records
        if record.applied and record.where is not None and record.where.length(record.shape) > 1
    }


def shared(f: Tensor, axis: Axis) -> Tensor:
    """`P f`: in every column, the mean over the axis."""
    opened = ColumnView.open(f, axis)
    columns_ONI = opened.read()
    return opened.unfold(columns_ONI.mean(1, keepdim=True).expand_as(columns_ONI), f)


class _Sampler:
    """Items in random order, again and again."""

    def __init__(self, data: Any, seed: int):
        self._data, self._generator = data, torch.Generator().manual_seed(seed)
        self._order: list[int] = []

    def take(self, size: int) -> Any:
        while len(self._order) < size:
            self._order += torch.randperm(len(self._data), generator=self._generator).tolist()
        chosen, self._order = self._order[:size], self._order[size:]
        return default_collate([self._data[index] for index in chosen])


class _Group:
    """The sums of one group of the jackknife."""

    def __init__(self, model: nn.Module, parameters: Named, loss: Any, axes: dict[Direction, dict[str, Axis]]):
        self.model, self.parameters, self.loss, self.axes = model, parameters, loss, axes

    def measure(
        self, sampler: "_Sampler", batch_size: int, batches: int, products: int, curvature_batch: int
    ) -> dict[tuple[str, Direction], Sums]:
        gradients = [self._gradient(sampler.take(batch_size)) for _ in range(batches // GROUPS)]
        hessian = self._hessian(sampler.take(curvature_batch))
        multiplied = gradients[: products // GROUPS]
        directed = [name for name in self.parameters if any(name in axes for axes in self.axes.values())]
        found = {}
        for row, names in {**{name: [name] for name in directed}, NETWORK: list(self.parameters)}.items():
            whole = [hessian({name: g[name] for name in names}) for g in multiplied]
            for direction, axes in self.axes.items():
                if any(name in axes for name in names):
                    shares = [{n: shared(g[n], axes[n]) for n in names if n in axes} for g in gradients]
                    found[row, direction] = self._sums(names, gradients, shares, whole, hessian)
        return found

    def _gradient(self, batch: Any) -> Named:
        gradients = torch.autograd.grad(self._loss(batch), self._values(), materialize_grads=True)
        return dict(zip(self.parameters, gradients, strict=True))

    def _values(self) -> list[Tensor]:
        return list(self.parameters.values())

    def _loss(self, batch: Any) -> Tensor:
        inputs, targets = batch
        loss = self.loss(self.model(inputs), targets)
        if not isinstance(loss, Tensor) or loss.dim():
            raise LabError(f"loss: expected a tensor with one number, such as a mean, got {loss!r:.80}")
        return loss

    def _hessian(self, batch: Any) -> Callable[[Named], Named]:
        """The Hessian's product with a vector of some parameters, as those same entries of it."""
        first = torch.autograd.grad(self._loss(batch), self._values(), create_graph=True, materialize_grads=True)
        by_name = dict(zip(self.parameters, first, strict=True))

        def times(vector: Named) -> Named:
            chosen = [self.parameters[name] for name in vector]
            outputs = [by_name[name] for name in vector]
            product = torch.autograd.grad(
                outputs, chosen, list(vector.values()), retain_graph=True, materialize_grads=True
            )
            return dict(zip(vector, product, strict=True))

        return times

    def _sums(
        self, names: list[str], gradients: list[Named], shares: list[Named], whole: list[Named], hessian: Any
    ) -> Sums:
        """Of these parameters, of which those without a share belong to the rest as a whole.

        `whole` are the Hessian's products with the first gradients.
        """

        def parts(index: int) -> tuple[Named, Named]:
            gradient, share = gradients[index], shares[index]
            p = {name: share.get(name, torch.zeros_like(gradient[name])) for name in names}
            return p, {name: gradient[name] - p[name] for name in names}

        def flat(vector: Named) -> Tensor:
            return torch.cat([value.double().flatten() for value in vector.values()])

        both = [parts(index) for index in range(len(gradients))]
        ps, qs = torch.stack([flat(p) for p, _ in both]), torch.stack([flat(q) for _, q in both])
        curvature = []
        for index, product in enumerate(whole):
            p, q = ps[index], qs[index]
            hp = flat(hessian(both[index][0]))
            hq = flat(product) - hp
            curvature.append([float(p @ hp), float(p @ hq + q @ hp) / 2, float(q @ hq)])
        return Sums(
            squares=np.array([float(part.square().sum()) for part in (ps, qs)])[None],
            sums=ps.sum(0)[None],
            rests=qs.sum(0)[None],
            count=len(gradients),
            curvature=np.mean(curvature, axis=0)[None],
        )


def _gathered(groups: list[Sums]) -> Sums:
    joined: dict[str, Any] = {}
    for field in fields(Sums):
        values = [getattr(group, field.name) for group in groups]
        if field.name == "count":
            joined["count"] = values[0]
        else:
            joined[field.name] = torch.cat(values) if isinstance(values[0], Tensor) else np.concatenate(values)
    return Sums(**joined)


@dataclass(frozen=True)
class _Model:
    """The quadratic model of a step."""

    signal: NDArray[np.float64]  # |P g|^2, |Q g|^2
    energy: NDArray[np.float64]  # E |P g_i|^2, E |Q g_i|^2
    h: NDArray[np.float64]  # h_PP, h_PQ, h_QQ

    @classmethod
    def of(cls, sums: Sums, left_out: int | None) -> "_Model":
        kept = [index for index in range(len(sums.squares)) if index != left_out]
        number = sums.count * len(kept)
        squares = sums.squares[kept].sum(0)
        totals = [float(part[kept].sum(0).square().sum()) for part in (sums.sums, sums.rests)]
        signal = (np.array(totals) - squares) / (number * (number - 1))
        return cls(signal, squares / number, sums.curvature[kept].mean(0))

    def decrease(self, c: float) -> float:
        """Of the loss, at the best rate; NaN where the model has none."""
        slope = c * self.signal[0] + self.signal[1]
        curved = c * c * self.h[0] + 2 * c * self.h[1] + self.h[2]
        return float(slope * slope / (2 * curved)) if slope > 0 and curved > 0 else float("nan")

    def best(self) -> float:
        """The c of the largest decrease; NaN where there is none."""
        pp, pq, qq = self.h
        (p, q) = self.signal
        shared, rest = p * qq - q * pq, q * pp - p * pq
        return float(shared / rest) if pp * qq > pq * pq and pp > 0 and rest > 0 else float("nan")


def _mode(name: str, direction: Direction, length: int, sums: Sums, lams: Sequence[float]) -> Mode:
    whole = _Model.of(sums, None)
    c = whole.best()
    others = np.array([_Model.of(sums, left_out).best() for left_out in range(GROUPS)])
    spread = np.sqrt((GROUPS - 1) * np.mean((others - others.mean()) ** 2))
    error = float(stats.t.ppf(0.975, GROUPS - 1) * spread)
    known = np.isfinite(c) and np.isfinite(error)
    noise = whole.energy - whole.signal
    with np.errstate(divide="ignore", invalid="ignore"):  # without noise, or without a shared part
        ratios = whole.signal / noise
        curvatures = np.array([whole.h[0], whole.h[2]]) / whole.energy
        signal_to_noise, curvature = float(ratios[0] / ratios[1]), float(curvatures[0] / curvatures[1])
    plain = whole.decrease(1.0)
    return Mode(
        layer=name,
        direction=direction,
        length=length,
        share=float(whole.signal[0] / whole.signal.sum()),
        signal_to_noise=signal_to_noise,
        curvature=curvature,
        lam=max(c - 1, -1.0) if known else None,
        lam_error=error if known else None,
        gains={lam: whole.decrease(1 + lam) / plain - 1 for lam in lams},
    )
