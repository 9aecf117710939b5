"""What several processes must agree on, with the processes played by turns in one."""

from types import SimpleNamespace

import torch

from riesz_lab.config import Config
from riesz_lab.tasks import Context
from riesz_lab.tasks.meters import Meters
from riesz_lab.training import checkpoint, parallel, resume
from riesz_lab.training.session import State
from riesz_lab.training.shared_flags import MOST_STEPS, SharedFlags
from riesz_lab.training.update_recorder import UpdateRecorder
from riesz_lab.utils import randomness

CPU = torch.device("cpu")


def played(steps, flags_of_rank):
    """Run two processes' flags side by side; returns what each received at each step."""
    parties = [SharedFlags(rank, 2, lambda local: local, CPU) for rank in range(2)]
    received = ([], [])
    for step in range(1, steps + 1):
        meets = [step >= party.next for party in parties]
        assert meets[0] == meets[1], "they must meet at the same steps, or wait for each other for ever"
        flags = [[*map(float, flags_of_rank(rank, step)), 0.0] for rank in range(2)]
        flags[0][-1] = 7.0  # the first one's pace
        total = torch.tensor(flags).sum(0)
        for rank, party in enumerate(parties):
            party.add_up = lambda local, total=total: total
            received[rank].append(party.any(step, flags_of_rank(rank, step)))
    return received


def test_a_signal_to_one_process_is_received_by_all_at_one_step():
    received = played(30, lambda rank, step: [rank == 1 and step >= 10, False])
    assert received[0] == received[1]
    assert [True, False] in received[0]
    assert received[0].index([True, False]) == 14  # they met at steps 1, 8 and 15


def test_one_process_alone_always_hears_itself():
    alone = SharedFlags(0, 1, lambda local: local, CPU)
    assert alone.any(1, [True, False]) == [True, False]
    assert alone.any(2, [False, True]) == [False, True]


def test_the_pace_is_bounded_however_fast_the_steps_are():
    party = SharedFlags(0, 2, lambda local: local, CPU)
    party.any(1, [False])
    assert 1 < party.next <= 1 + MOST_STEPS


def test_meters_of_several_processes_are_saved_together_and_taken_up_once():
    ranks = [Meters(CPU), Meters(CPU)]
    for rank, meters in enumerate(ranks):
        meters.add("loss", torch.tensor(10.0 * (rank + 1)), 5)
    totals = {"sum": torch.tensor(30.0, dtype=torch.float64), "count": torch.tensor(10)}
    state = ranks[0].state(lambda local: totals["sum"] if local.is_floating_point() else totals["count"])
    resumed = [Meters(CPU), Meters(CPU)]
    for rank, meters in enumerate(resumed):
        meters.restore(state, first=rank == 0)
    assert [list(meters.sums) for meters in resumed] == [["loss"], ["loss"]]  # both take part in what follows
    assert sum(float(meters.sums["loss"]) for meters in resumed) == 30.0
    assert sum(meters.counts["loss"] for meters in resumed) == 10


def test_dropout_goes_on_in_every_process_as_it_would_have(tmp_path, monkeypatch):
    states = []
    for rank in range(2):
        randomness.seed_all(rank)
        states.append(randomness.state())
    monkeypatch.setattr(parallel, "gather_objects", lambda value, world: states)
    session = SimpleNamespace(
        context=Context(CPU, world=2), config=Config(), state=State(step=1), is_main=True, sharded=False,
        task=SimpleNamespace(meters=Meters(CPU), optimizers={}), models={"m": torch.nn.Linear(1, 1)},
        fabric=SimpleNamespace(strategy=SimpleNamespace(precision=torch.nn.Module())), recorder=UpdateRecorder({}, {}),
        trial=SimpleNamespace(checkpoints=tmp_path),
    )  # fmt: skip
    session.fabric.strategy.precision.load_state_dict = lambda state: None
    resume.save(session)
    (path,) = checkpoint.newest_first(tmp_path)
    for rank in range(3):
        randomness.seed_all(99)
        session.context, session.is_main = Context(CPU, rank=rank, world=3), rank == 0
        resume._restore(session, path, *checkpoint.load(path))
        drawn = torch.rand(1)
        randomness.seed_all(rank if rank < 2 else 99)  # a third process, which was not there, goes on as it began
        assert torch.equal(drawn, torch.rand(1)), rank
