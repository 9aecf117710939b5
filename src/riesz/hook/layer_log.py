"""What each layer's gradient goes through, logged every so many steps of ordinary training.

Only the steps that are logged are recorded, and their numbers stay on the device until the next logged step: in between
nothing is copied and nothing waits for the device.
"""

from collections.abc import Callable

from riesz.hook.attachment import Attachment
from riesz.hook.diagnostics import StepRecord

Log = Callable[[dict[str, float], int], object]
"""Called with values by name and the step they belong to."""


class LayerLog:
    """Logs |g|/|f| and cos(f, g) of every directed parameter; call it after each step of the optimizer.

    Values are named `riesz/ratio/PARAMETER` and `riesz/cosine/PARAMETER`. Those of one logged step are passed on at the
    next one, under the step they belong to. The first step is logged, then every multiple of `every`. While it is in
    use, it switches `attachment.recording` on and off.

    Args:
        attachment: what `riesz.attach` returned.
        log: called as `log(values, step)`; for Weights & Biases, whose steps only increase, put the step among the
            values.
        every: steps between two logged ones.

    Example:
        >>> import riesz, torch
        >>> conv = torch.nn.Conv2d(3, 8, 3)
        >>> optimizer = torch.optim.SGD(conv.parameters(), lr=0.1)
        >>> attachment = riesz.attach(optimizer, conv, metric=riesz.ReweightedL2())
        >>> log = riesz.LayerLog(attachment, lambda values, step: print(step, *values), every=100)
        >>> for step in range(3):
        ...     conv.weight.grad = torch.ones_like(conv.weight)
        ...     optimizer.step()
        ...     log(step)
        >>> log.flush()
        0 riesz/ratio/weight riesz/cosine/weight
    """

    def __init__(self, attachment: Attachment, log: Log, every: int = 100) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ValueError(f"every: expected an int of 1 or more, got {every!r}")
        self.attachment = attachment
        self.log = log
        self.every = every
        self._next = 0
        self._pending: tuple[int, StepRecord] | None = None
        self._latest: StepRecord | None = None
        attachment.recording = True

    def __call__(self, step: int) -> None:
        """Note that this step was taken."""
        record = self.attachment.recorded
        # A step that a gradient scaler skips leaves the record of the one before it.
        if record is not None and record is not self._latest:
            self.flush()
            self._pending, self._latest = (step, record), record
            self._next = (step // self.every + 1) * self.every
        self.attachment.recording = step + 1 >= self._next

    def flush(self) -> None:
        """Pass on what is recorded and not logged yet: at the end of training."""
        if self._pending is None:
            return
        (step, record), self._pending = self._pending, None
        values: dict[str, float] = {}
        for one in record.recorded_diagnoses():
            values |= {f"riesz/ratio/{one.name}": one.ratio, f"riesz/cosine/{one.name}": one.cosine}
        self.log(values, step)

    def close(self) -> None:
        """Log what is left and stop recording."""
        self.flush()
        self.attachment.recording = False
