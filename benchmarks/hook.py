"""Claim: inside a training step the hook does not show. ResNet-56 on random images, every metric in turn."""

from __future__ import annotations

import random
import time
from typing import Any

import torch
from torch.nn import functional

import riesz
from benchmarks.harness import PATIENCE, THREADS, Figure, Samples, figure, save, undisturbed
from benchmarks.networks import ResNet56

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
        self.hooks = {type(metric).__name__: Samples() for metric in METRICS}

    def timed_step(self, metric: riesz.Metric) -> None:
        """One step with the metric attached; the hook's share of it is timed apart."""
        attachment = riesz.attach(self.optimizer, self.model, metric=metric, backend="cpu")
        hooks: dict[int, Any] = self.optimizer._optimizer_step_pre_hooks
        (key,) = hooks
        hook = hooks[key]

        def timed(*arguments: Any) -> None:
            self.hooks[type(metric).__name__].time(lambda: hook(*arguments))

        self.step()  # the first one plans
        hooks[key] = timed
        self.steps.time(self.step)
        hooks[key] = hook
        attachment.detach()

    def step(self) -> None:
        self.optimizer.zero_grad()
        functional.cross_entropy(self.model(self.images), self.labels).backward()
        self.optimizer.step()


def main() -> None:
    torch.set_num_threads(THREADS)
    random.seed(0)
    figures: list[Figure] = []
    for batch, rounds in ((8, 20), (128, 4)):
        run = Timed(batch)
        end = time.monotonic() + PATIENCE
        while True:
            for metric in random.sample(METRICS, len(METRICS)):
                with undisturbed():
                    run.timed_step(metric)
            enough = all(len(samples.quiet) >= rounds for samples in (run.steps, *run.hooks.values()))
            if enough or time.monotonic() > end:
                break
        figures.append(figure("hook", f"batch {batch}", "training step", run.steps))
        figures += [figure("hook", f"batch {batch}", f"hook {name}", samples) for name, samples in run.hooks.items()]
        figures.append(figure("hook", f"batch {batch}", "hook Identity, caches warm", warm(run)))
    save("hook", figures)


def warm(run: Timed) -> Samples:
    """The hook again and again on the same gradients; with Identity no kernel runs, so this is what is around it."""
    samples = Samples()
    attachment = riesz.attach(run.optimizer, run.model, metric=METRICS[-1], backend="cpu")
    run.step()
    with undisturbed():
        (hook,) = run.optimizer._optimizer_step_pre_hooks.values()
        for _ in range(200):
            samples.time(lambda: hook(run.optimizer, (run.optimizer,), {}))
    attachment.detach()
    return samples


if __name__ == "__main__":
    main()
