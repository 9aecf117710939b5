"""Claim: inside a training step the hook does not show. ResNet-56 on random images, every metric in turn.

Beside them, at the same place of the step, a `copy_` of every directed gradient: what memory itself takes there, after
a backward pass has filled the caches with other things.
"""

from __future__ import annotations

import random
import time
from functools import partial
from typing import Any

import torch
from torch.nn import functional

import riesz
from benchmarks.harness import PATIENCE, THREADS, Measurement, Samples, figure, save, undisturbed
from benchmarks.networks import ResNet56

COPY = "copy_ per tensor"

METRICS = [
    riesz.SobolevTilde(),
    riesz.ReweightedL2(),
    riesz.Sobolev(0.1),
    riesz.LaplacianSmoothing(1.0),
    riesz.Centralization(),
    riesz.Identity(scale=0.5, blend=0.5),  # goes the whole way, where Identity() is passed over
]


class Timed:
    """Steps of one training run, and the time spent in riesz' hook inside each."""

    def __init__(self, batch: int):
        torch.manual_seed(0)
        self.model = ResNet56()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.images, self.labels = torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))
        self.steps = Samples()
        self.inside = {name: Samples() for name in (COPY, *(f"hook {type(metric).__name__}" for metric in METRICS))}
        self.convs = [p for p in self.model.parameters() if p.dim() == 4]
        self.copies = [torch.empty_like(p) for p in self.convs]

    def timed_step(self, metric: riesz.Metric) -> None:
        """One step with the metric attached; the hook's share of it is timed apart."""
        attachment = riesz.attach(self.optimizer, self.model, metric=metric, backend="cpu")
        hooks: dict[int, Any] = self.optimizer._optimizer_step_pre_hooks
        (key,) = hooks
        self.step()  # the first one plans
        self._time(hooks, key, hooks[key], f"hook {type(metric).__name__}")
        attachment.detach()

    def timed_copy(self) -> None:
        """One step with a copy in place of the hook."""
        handle = self.optimizer.register_step_pre_hook(lambda *_: None)
        self._time(self.optimizer._optimizer_step_pre_hooks, handle.id, self._copy, COPY)
        handle.remove()

    def _copy(self, *arguments: Any) -> None:
        for copy, parameter in zip(self.copies, self.convs, strict=True):
            copy.copy_(parameter.grad)

    def _time(self, hooks: dict[int, Any], key: int, hook: Any, name: str) -> None:
        inside = 0.0

        def timed(*arguments: Any) -> None:
            # Nothing but the clock: whatever else were done here would take the caches and the threads from the hook.
            nonlocal inside
            start = time.perf_counter()
            hook(*arguments)
            inside = time.perf_counter() - start

        hooks[key] = timed
        self.steps.time(self.step)
        self.inside[name].add(inside, self.steps.all[-1][0] * inside)
        hooks[key] = hook

    def step(self) -> None:
        self.optimizer.zero_grad()
        functional.cross_entropy(self.model(self.images), self.labels).backward()
        self.optimizer.step()


def main() -> None:
    torch.set_num_threads(THREADS)
    random.seed(0)
    figures: list[Measurement] = []
    for batch, rounds in ((8, 20), (128, 4)):
        run = Timed(batch)
        end = time.monotonic() + PATIENCE
        while True:
            turns = [run.timed_copy, *(partial(run.timed_step, metric) for metric in METRICS)]
            for turn in random.sample(turns, len(turns)):
                with undisturbed():
                    turn()
            enough = all(len(samples.quiet) >= rounds for samples in (run.steps, *run.inside.values()))
            if enough or time.monotonic() > end:
                break
        figures.append(figure("hook", f"batch {batch}", "training step", run.steps))
        figures += [figure("hook", f"batch {batch}", name, samples) for name, samples in run.inside.items()]
        figures.append(figure("hook", f"batch {batch}", "hook Identity, caches warm", warm(run)))
    save("hook", figures)


def warm(run: Timed) -> Samples:
    """The hook again and again on the same gradients; with Identity no kernel runs, so this is what is around it."""
    samples = Samples()
    attachment = riesz.attach(run.optimizer, run.model, metric=METRICS[-1], backend="cpu")
    run.step()
    with undisturbed():
        (hook,) = run.optimizer._optimizer_step_pre_hooks.values()
        for _ in range(50):
            samples.time(lambda: hook(run.optimizer, (run.optimizer,), {}), times=20)
    attachment.detach()
    return samples


if __name__ == "__main__":
    main()
