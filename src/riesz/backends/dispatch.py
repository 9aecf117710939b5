"""From gradients opened as columns to the backends that serve them; a list like the last one takes a shorter path."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from riesz.backends.registry import Backend, FastPath, choose, registered
from riesz.backends.tensor_guard import TensorGuard
from riesz.layout.axis import ColumnView
from riesz.metrics import Operator


@torch.no_grad()
def direct_(columns: Sequence[ColumnView], metric: Operator, backend: str) -> None:
    """Direct gradients that were checked and opened, each with the backend that serves it."""
    by_backend: dict[str, tuple[Backend, list[ColumnView]]] = {}
    for opened in columns:
        if opened.view.numel() > 0:
            chosen = choose(backend, opened.view)
            by_backend.setdefault(chosen.name, (chosen, []))[1].append(opened)
    for chosen, served in by_backend.values():
        chosen.direct_(served, metric)


class _LeftAlone:
    """The fast path of an operator that returns its input: the gradients are recognised, and nothing is written."""

    def __init__(self, gradients: Sequence[Tensor], metric: Operator):
        self._matches = TensorGuard(gradients).matches
        self._metric = metric

    def __call__(self, gradients: Sequence[Tensor | None], metric: Operator) -> Sequence[int]:
        if metric is not self._metric or not self._matches(gradients):
            return ()
        known: list[Any] = list(gradients)
        return list(map(Tensor.data_ptr, known))


class FastPathCache:
    """The fast path of one list of gradients, kept for the next list like it."""

    def __init__(self) -> None:
        self._fast_path: FastPath | None = None
        self._backends: tuple[Backend, ...] = ()

    @property
    def ready(self) -> bool:
        """Whether there is a fast path to try."""
        return self._fast_path is not None

    def direct_(self, gradients: Sequence[Tensor | None], metric: Operator) -> Sequence[int]:
        """The addresses that were written; none if the gradients are not like those before, and nothing was touched."""
        fast_path = self._fast_path  # once: another thread may be learning
        # A backend registered since then may rank first.
        if fast_path is None or self._backends != registered():
            return ()
        return fast_path(gradients, metric)

    def learn(self, name: str, gradients: Sequence[Tensor], columns: Sequence[ColumnView]) -> None:
        """Keep the fast path for these gradients, if one backend serves them all under `name` and offers one."""
        self._fast_path = None
        if not gradients or any(gradient.numel() == 0 for gradient in gradients):
            return
        # The guard of a path that is made in inference mode would let inference tensors through outside of it.
        if torch.is_inference_mode_enabled():
            return
        first = choose(name, columns[0].view)
        if first.fast_path is not None and all(choose(name, opened.view) is first for opened in columns):
            self._fast_path = first.fast_path(gradients, columns)
            self._backends = registered()

    def learn_to_leave(self, gradients: Sequence[Tensor], metric: Operator) -> None:
        """Keep the fast path for gradients that this metric leaves as they are, if they are plain tensors."""
        plain = all(type(g) is Tensor and g.layout == torch.strided and not g.is_inference() for g in gradients)
        if gradients and plain and not torch.is_inference_mode_enabled():
            self._fast_path = _LeftAlone(gradients, metric)
            self._backends = registered()
