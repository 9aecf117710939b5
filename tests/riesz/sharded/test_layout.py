"""The arithmetic of sharding, without processes: which rows each rank holds, low-rank factors, bytes."""

from __future__ import annotations

import hypothesis
import pytest
import torch
from hypothesis import strategies as st
from torch.distributed.tensor import Shard
from torch.distributed.tensor.placement_types import _StridedShard

import riesz
from cases import METRICS
from riesz.backends.reference import dense
from riesz.metrics.low_rank import RowSpan, SpanTables, low_rank
from riesz.sharded.columns import ColumnBatch, ExchangedColumns
from riesz.sharded.layout import RowPartition, check_torch, held_by_rank, partition
from riesz.sharded.sums import GatheredSums


def rows_by_torch(length, places, sizes, coordinate):
    index = torch.arange(length)
    for place, size, own in zip(places, sizes, coordinate, strict=True):
        index = place._split_tensor(index, size, with_padding=False)[0][own]
    return index.tolist()


@hypothesis.given(
    length=st.integers(0, 60),
    cuts=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5)), min_size=1, max_size=3),
)
def test_every_rank_holds_the_rows_that_torch_gives_it(length, cuts):
    places = [_StridedShard(0, split_factor=pieces) if pieces > 1 else Shard(0) for pieces, _ in cuts]
    sizes = [parts for _, parts in cuts]
    coordinates = tuple(
        tuple(coordinate) for coordinate in torch.cartesian_prod(*map(torch.arange, sizes)).view(-1, len(cuts)).tolist()
    )
    for coordinate, spans in zip(coordinates, held_by_rank(length, tuple(cuts), coordinates), strict=True):
        held = [row for span in spans for row in range(span.start, span.stop)]
        assert held == rows_by_torch(length, places, sizes, coordinate)


def test_a_torch_that_cuts_strided_shards_differently_is_refused():
    check_torch("2.10.0a0+git1234", "parameter 'weight'")
    check_torch(torch.__version__, "parameter 'weight'")
    with pytest.raises(RuntimeError, match=r"'weight': expected torch 2\.10 or newer, .* got torch 2\.9\.1\+cu128"):
        check_torch("2.9.1+cu128", "parameter 'weight'")


def test_rows_that_do_not_add_up_are_refused():
    with pytest.raises(ValueError, match="add up to whole columns of 5"):
        RowPartition(5, ((RowSpan(0, 2),), (RowSpan(3, 2),)))


def test_groups_that_fall_on_ranks_as_wholes_need_no_other_rank():
    coordinates = ((0,), (1,))
    assert partition(4, 1, held_by_rank(16, ((1, 2),), coordinates)).slots == 0
    straddling = partition(5, 1, held_by_rank(15, ((1, 2),), coordinates))
    assert straddling.spans == ((RowSpan(0, 5), RowSpan(5, 3)), (RowSpan(8, 2), RowSpan(10, 5)))
    assert straddling.partners(RowSpan(5, 3)) == [(0, 0, RowSpan(5, 3)), (1, 0, RowSpan(8, 2))]


@pytest.mark.parametrize("metric", [*METRICS, riesz.Sobolev(1e4), riesz.SobolevTilde(1e4, blend=0.0)], ids=str)
@pytest.mark.parametrize("lengths", [(1, 1), (2, 3, 1), (5, 5), (16, 7, 9), (33, 31, 1, 200)], ids=str)
def test_shards_and_a_few_sums_make_up_the_whole_operator(metric, lengths):
    n = sum(lengths)
    form = low_rank(metric, n)
    if form is None:
        return
    edges = [sum(lengths[:i]) for i in range(len(lengths))]
    spans = tuple(RowSpan(start, length) for start, length in zip(edges, lengths, strict=True))
    tables = [SpanTables.of(metric, n, span, spans, torch.float64, torch.device("cpu")) for span in spans]
    sums = torch.block_diag(*(own.sums_KL for own in tables))
    built = torch.zeros(n, n, dtype=torch.float64)
    for span, own in zip(spans, tables, strict=True):
        rows = slice(span.start, span.stop)
        built[rows, rows] += dense(own.alone, span.length)
        built[rows] += metric.scale * own.basis_LK @ own.coupling_KR @ sums
    wanted = dense(metric, n)
    assert (built - wanted).abs().max() <= 1e-13 * wanted.abs().max()


@pytest.mark.parametrize("n", [64, 256, 257, 512, 1024])
def test_what_is_rounded_on_the_way_does_not_show_at_high_frequencies(n):
    """Without blend, SobolevTilde damps such columns by about n^2: what the terms lose is that much more of them."""
    metric = riesz.SobolevTilde(blend=0.0)
    form, spans = low_rank(metric, n), (RowSpan(0, n // 3), RowSpan(n // 3, n - n // 3))
    tables = [SpanTables.of(metric, n, span, spans, torch.float64, torch.device("cpu")) for span in spans]
    angle_N1 = 2 * torch.pi * torch.arange(n, dtype=torch.float64)[:, None] / n
    columns_NC = torch.cat([torch.cos((n // 2 - k) * angle_N1 + 0.7) for k in range(4)], dim=1)
    columns = [columns_NC[span.start : span.stop] for span in spans]
    sums = [own.sums_KL @ own_LC for own, own_LC in zip(tables, columns, strict=True)]
    sent = torch.cat([part for own in sums for part in (own[: form.exact], own[form.exact :].float().double())])
    built = [
        dense(own.alone, len(own_LC)) @ own_LC + metric.scale * own.basis_LK @ (own.coupling_KR @ sent)
        for own, own_LC in zip(tables, columns, strict=True)
    ]
    wanted = dense(metric, n) @ columns_NC
    assert ((torch.cat(built) - wanted).abs().amax(0) / wanted.abs().amax(0)).max() <= 4e-6


@pytest.mark.parametrize("metric", [riesz.SobolevTilde(), riesz.Sobolev()], ids=str)
def test_sums_are_fewer_bytes_up_to_about_the_root_of_half_or_a_third_of_the_length(metric):
    def cheaper(n, ranks):
        rows = partition(n, 1, held_by_rank(n, ((1, ranks),), tuple((rank,) for rank in range(ranks))))
        batch = ColumnBatch(None, rows, metric, torch.float32, torch.device("cpu"), columns=64 * ranks)
        return GatheredSums.bytes(batch) <= ExchangedColumns.bytes(batch)

    for n in (64, 512, 2048):
        edge = (8 * n / (24 if isinstance(metric, riesz.SobolevTilde) and n > 256 else 16)) ** 0.5
        assert cheaper(n, int(edge * 0.9))
        assert not cheaper(n, int(edge * 1.2) + 1)
