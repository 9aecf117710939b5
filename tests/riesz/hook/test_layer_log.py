"""LayerLog: which steps are recorded and read, and that the values are those of `diagnostics`."""

from __future__ import annotations

import pytest
import torch

import riesz
from training import backward, network

METRIC = riesz.SobolevTilde(0.3)


class Loop:
    """A plain loop with a log, that notes at which step each value is passed on."""

    def __init__(self, every, metric=METRIC):
        self.model = network()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.attachment = riesz.attach(self.optimizer, self.model, metric=metric)
        self.logged, self.recorded, self.now = {}, [], -1
        self.read_at = {}
        self.log = riesz.LayerLog(self.attachment, self._keep, every)

    def _keep(self, values, step):
        self.logged[step] = values
        self.read_at[step] = self.now

    def run(self, steps, skipped=()):
        for step in steps:
            self.now = step
            self.optimizer.zero_grad()
            backward(self.model, step)
            if self.attachment.recording:
                self.recorded.append(step)
            if step not in skipped:
                self.optimizer.step()
            self.log(step)


def test_the_first_step_and_every_multiple_are_recorded_and_read_at_the_next():
    loop = Loop(every=4)
    loop.run(range(10))
    assert loop.recorded == [0, 4, 8]
    assert loop.read_at == {0: 4, 4: 8}
    loop.log.close()
    assert sorted(loop.logged) == [0, 4, 8]
    assert not loop.attachment.recording


def test_values_are_those_of_diagnostics():
    loop = Loop(every=5)
    loop.run([0])
    wanted = loop.attachment.diagnostics()
    loop.log.flush()
    assert len(wanted) == 2
    for one in wanted:
        assert loop.logged[0][f"riesz/ratio/{one.name}"] == one.ratio
        assert loop.logged[0][f"riesz/cosine/{one.name}"] == one.cosine
    assert len(loop.logged[0]) == 4


def test_logging_leaves_training_as_it_is():
    logged, plain = Loop(every=2), Loop(every=2)
    logged.run(range(6))
    plain.log = lambda step: None
    plain.attachment.recording = False
    plain.run(range(6))
    assert all(map(torch.equal, logged.model.parameters(), plain.model.parameters()))


def test_a_skipped_step_is_made_up_for_by_the_next():
    loop = Loop(every=3)
    loop.run(range(8), skipped=(3,))
    loop.log.close()
    assert sorted(loop.logged) == [0, 4, 6]


def test_a_skipped_step_is_not_logged_with_the_values_of_another():
    loop = Loop(every=1)
    loop.run(range(4), skipped=(1, 2))
    loop.log.close()
    assert sorted(loop.logged) == [0, 3]


def test_steps_that_count_by_two_are_logged_too():
    loop = Loop(every=5)
    loop.run(range(1, 30, 2))
    loop.log.close()
    assert sorted(loop.logged) == [1, 7, 11, 17, 21, 27]


def test_a_disabled_attachment_logs_nothing_and_catches_up():
    loop = Loop(every=3)
    loop.attachment.enabled = False
    loop.run(range(5))
    loop.attachment.enabled = True
    loop.run(range(5, 7))
    loop.log.close()
    assert sorted(loop.logged) == [5, 6]


@pytest.mark.parametrize("bad", [0, -3, 1.5, True])
def test_every_is_checked(bad):
    with pytest.raises(ValueError, match=f"every: expected an int of 1 or more, got {bad}"):
        Loop(every=bad)
