"""Schedules for `Attachment.schedule`: a warm-up, and smoothing in the first epochs only.

They are frozen records: they can be pickled, copied and compared, which a lambda cannot. A schedule takes the metric
that the attachment has when the schedule is set. What it returns depends on the step alone, so training continues from
a checkpoint of any step.
"""

from dataclasses import dataclass, replace
from typing import TypeVar

from riesz.metrics import Identity, Metric, Operator

Self = TypeVar("Self", bound="MetricSchedule")


@dataclass(frozen=True)
class MetricSchedule:
    """A schedule that starts from a metric or ends with it; `Attachment.schedule` supplies that metric."""

    steps: int  # how many it takes
    metric: Operator | None = None  # the attachment's; None until the schedule is set

    def of(self: Self, metric: Operator) -> Self:
        """The same schedule for this metric."""
        return replace(self, metric=metric)

    def __call__(self, step: int) -> Operator:
        if self.metric is None:
            raise RuntimeError(f"{self!r} has no metric yet: expected a call of attachment.schedule with it")
        return self._at(step, self.metric)

    def _at(self, step: int, metric: Operator) -> Operator:
        raise NotImplementedError


@dataclass(frozen=True)
class FirstSteps(MetricSchedule):
    """The metric in the first steps, plain gradients afterwards."""

    def _at(self, step: int, metric: Operator) -> Operator:
        return metric if step < self.steps else Identity()


@dataclass(frozen=True)
class Warmup(MetricSchedule):
    """From plain gradients to the metric, linearly."""

    def of(self, metric: Operator) -> "Warmup":
        if not isinstance(metric, Metric):
            raise TypeError(f"warmup: expected a metric with scale and blend, got {metric!r}")
        return super().of(metric)

    def _at(self, step: int, metric: Operator) -> Operator:
        assert isinstance(metric, Metric)
        if step >= self.steps:
            return metric
        share = step / self.steps
        return replace(metric, scale=share * metric.scale, blend=share * metric.blend + (1 - share))


def first_epochs(epochs: int, steps_per_epoch: int) -> FirstSteps:
    """Direct gradients in the first epochs, then train on plain ones.

    Args:
        epochs: how many epochs are directed.
        steps_per_epoch: optimizer steps in an epoch; with gradient accumulation fewer than batches.

    Returns:
        A picklable callable for `Attachment.schedule`.

    Example:
        >>> import riesz, torch
        >>> conv = torch.nn.Conv2d(3, 8, 3)
        >>> optimizer = torch.optim.SGD(conv.parameters(), lr=0.1)
        >>> attachment = riesz.attach(optimizer, conv, metric=riesz.LaplacianSmoothing())
        >>> attachment.schedule(riesz.schedule.first_epochs(1, steps_per_epoch=2))
        >>> for _ in range(3):
        ...     optimizer.step()
        ...     print(attachment.metric)
        laplacian-smoothing(sigma=1.0)
        laplacian-smoothing(sigma=1.0)
        identity
    """
    epochs, steps_per_epoch = _count("epochs", epochs), _count("steps_per_epoch", steps_per_epoch)
    return FirstSteps(epochs * steps_per_epoch)


def warmup(steps: int) -> Warmup:
    """Start from plain gradients and reach the metric after some steps.

    With `A` the attachment's metric as an operator, step `t` applies `A_t = (t / steps) A + (1 - t / steps) I`. That is
    a metric of the same kind with another `scale` and `blend`, so nothing is recompiled.

    Args:
        steps: the step from which on the metric is applied in full.

    Returns:
        A picklable callable for `Attachment.schedule`.

    Example:
        >>> import riesz, torch
        >>> conv = torch.nn.Conv2d(3, 8, 3)
        >>> optimizer = torch.optim.SGD(conv.parameters(), lr=0.1)
        >>> attachment = riesz.attach(optimizer, conv, metric=riesz.SobolevTilde())
        >>> attachment.schedule(riesz.schedule.warmup(4))
        >>> for _ in range(5):
        ...     optimizer.step()
        ...     print(attachment.metric.scale, attachment.metric.blend)
        0.0 1.0
        0.25 1.0
        0.5 1.0
        0.75 1.0
        1.0 1.0
    """
    return Warmup(_count("steps", steps))


def _count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name}: expected an int of 1 or more, got {value!r}")
    return value
