"""How ranks agree: the arithmetic in an all-reduce, exact for every number of ranks and every token, and the store."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.distributed as dist

from riesz.sharded import agreement
from riesz.sharded.agreement import agreement_header, digest, totals_agree

MAX_RANKS = 4096
TOKENS = [0, 1, 2**63 - 1, 2**62, 0x5555555555555555, *(random.Random(0).getrandbits(63) for _ in range(4))]


def reduced(tokens, ranks):
    """What an all-reduce in float64 makes of the headers, in two orders of adding."""
    headers_W3 = torch.tensor([agreement_header(token, ranks) for token in tokens], dtype=torch.float64)
    forward, backward = headers_W3.cumsum(0)[-1], headers_W3.flip(0).sum(0)
    assert torch.equal(forward, backward)
    return forward.tolist()


@pytest.mark.parametrize("first", range(1, MAX_RANKS + 1, 512))
def test_equal_tokens_agree_on_every_number_of_ranks(first):
    for ranks in range(first, first + 512):
        for token in TOKENS:
            header = agreement_header(token, ranks)
            assert max(header) * ranks < 2**53  # so every partial sum is an exact float64
            assert totals_agree([float(ranks * number) for number in header], ranks), (ranks, token)


@pytest.mark.parametrize("first", range(2, MAX_RANKS + 1, 512))
def test_one_rank_that_differs_is_seen_on_every_number_of_ranks(first):
    for ranks in range(first, min(first + 512, MAX_RANKS + 1)):
        token = TOKENS[ranks % len(TOKENS)]
        other = token ^ (1 << ranks % 38)
        own, odd = agreement_header(token, ranks), agreement_header(other, ranks)
        totals = [float((ranks - 1) * a + b) for a, b in zip(own, odd, strict=True)]
        assert not totals_agree(totals, ranks), (ranks, token, other)


@pytest.mark.parametrize("ranks", [2, 3, 127, 1000, 1024, 4096])
def test_sums_in_float64_are_exact_in_any_order(ranks):
    generator = random.Random(ranks)
    for _ in range(20):
        token = generator.getrandbits(63)
        assert totals_agree(reduced([token] * ranks, ranks), ranks)
        tokens = [token] * ranks
        tokens[generator.randrange(ranks)] ^= 1 << generator.randrange(38)
        assert not totals_agree(reduced(tokens, ranks), ranks)


def test_a_rank_at_the_mean_of_the_others_does_not_hide_that_they_differ():
    assert not totals_agree(reduced([4, 6, 5], 3), 3)
    assert not totals_agree(reduced([4, 6], 2), 2)
    assert not totals_agree(reduced([1 << 30, 3 << 30, 2 << 30, 2 << 30], 4), 4)


def test_headers_stay_exact_beyond_any_cluster():
    for bits in range(13, 25):
        ranks = 2**bits
        for token in TOKENS:
            header = agreement_header(token, ranks)
            assert max(header) * ranks <= 2**53
            assert totals_agree([float(ranks * number) for number in header], ranks)


class Ranks:
    """The detectors of some ranks, one thread each, on a store that outlives their worlds."""

    def __init__(self, monkeypatch, count):
        self.store, self._count = dist.HashStore(), count
        monkeypatch.setattr(agreement, "default_store", lambda: self.store)
        monkeypatch.setattr(dist, "get_backend", lambda: "gloo")
        monkeypatch.setattr(dist, "get_rank", lambda: 0)
        monkeypatch.setattr(agreement, "TIMEOUT_S", 0.05)

    def run(self, work):
        """`work(detector, rank)` on new detectors; which ranks raised."""

        def raises(rank):
            try:
                work(agreement.DeadlockDetector("mesh", self._count), rank)
            except agreement.DisagreementError:
                return True
            return False

        with ThreadPoolExecutor(self._count) as pool:
            return list(pool.map(raises, range(self._count)))


def test_a_store_that_outlives_its_process_groups_keeps_nothing_of_them(monkeypatch):
    """As that of torchrun does: process groups may be destroyed and made again, and work may differ then."""
    ranks = Ranks(monkeypatch, 3)
    before = ranks.store.num_keys()

    class LateCollective:
        def wait(self, timeout=None):
            time.sleep(timeout.total_seconds())
            if time.monotonic() < self.ends:
                raise RuntimeError("timed out")

        def is_completed(self):
            return False

    def world(detector, rank, work):
        for _ in range(2):
            detector.agree(work, str)
        detector.begin(work)
        pending = LateCollective()
        pending.ends = time.monotonic() + 0.1 + 0.1 * rank
        detector.wait(pending, str)
        detector.end()

    for work in (1, 2, 3):
        assert ranks.run(lambda detector, rank, work=work: world(detector, rank, work)) == [False] * 3
        assert ranks.store.num_keys() == before


def test_ranks_that_differ_at_an_agreement_all_raise(monkeypatch):
    ranks = Ranks(monkeypatch, 3)
    assert ranks.run(lambda detector, rank: detector.agree(int(rank == 1), str)) == [True] * 3


def test_digests_differ_where_work_does():
    assert digest(("sobolev", 1.0)) != digest(("sobolev", 1.0 + 2**-52))
    assert 0 <= digest("work") < 2**63
