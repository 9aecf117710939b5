"""The three ways of directing columns whose rows are on several ranks.

Shape suffixes: L the rows of this rank, N all rows, C columns, K terms, W ranks, S slots for runs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from riesz.backends import direct_
from riesz.control import permutation
from riesz.layout.axis import ColumnView
from riesz.metrics import Metric, ReweightedL2
from riesz.sharded import collectives as wire
from riesz.sharded.batching import Stack
from riesz.sharded.cost import low_word
from riesz.sharded.groups import Team
from riesz.sharded.low_rank import LowRank, couplings, low_rank, tables


def by_reduction(team: Team, stacks: Sequence[Stack], backend: str) -> None:
    """ReweightedL2: the mean is a sum over all ranks."""
    sums = []
    for stack in stacks:
        columns_LC = stack.read(torch.float64)
        sums_GC = columns_LC.new_zeros(len(stack.rows.shared), stack.columns)
        for run, start in stack.runs():
            if run.length < stack.rows.n:
                sums_GC[stack.rows.shared[stack.rows.group(run)]] += columns_LC[start : start + run.length].sum(0)
        sums.append(sums_GC)
    totals = wire.all_reduce(team, _token(stacks), sums, _telling(stacks))
    for stack, totals_GC in zip(stacks, totals, strict=True):
        metric = stack.metric
        assert isinstance(metric, ReweightedL2)
        columns_LC = stack.read(torch.float64)
        weight = float(metric.scale * metric.lam) / stack.rows.n
        for run, start in stack.runs():
            own_LC, number = columns_LC[start : start + run.length], stack.rows.shared.get(stack.rows.group(run))
            total_C = own_LC.sum(0) if number is None else totals_GC[number]
            own_LC.mul_(float(metric.scale + metric.blend)).add_(total_C * weight)
        stack.write(columns_LC)


def by_sums(team: Team, stacks: Sequence[Stack], backend: str) -> None:
    """Metrics of low rank off the diagonal: each rank solves its own runs and hears a few sums of all others."""
    factors = [_factors(stack) for stack in stacks]
    sent: list[Tensor] = []
    for stack, its in zip(stacks, factors, strict=True):
        sums_SKC = _sums(stack, its)
        sent += [sums_SKC[:, : its.exact], sums_SKC[:, its.exact :].to(low_word(stack.dtype))]
    heard = wire.all_gather(team, _token(stacks), sent, _telling(stacks))
    for index, (stack, its) in enumerate(zip(stacks, factors, strict=True)):
        sums_WSKC = torch.cat([part.double() for part in heard[2 * index : 2 * index + 2]], dim=2)
        stack.write(_corrected(stack, its, sums_WSKC, backend))


def _sums(stack: Stack, factors: LowRank) -> Tensor:
    columns_LC = stack.read(torch.float64)
    sums_SKC = columns_LC.new_zeros(stack.rows.slots, factors.terms, stack.columns)
    divided = [(run, start) for run, start in stack.runs() if run.length < stack.rows.n]
    for slot, (run, start) in enumerate(divided):
        sums_KL, _ = tables(factors, run.length)
        sums_SKC[slot] = sums_KL.to(stack.device) @ columns_LC[start : start + run.length]
    return sums_SKC


def _corrected(stack: Stack, factors: LowRank, sums_WSKC: Tensor, backend: str) -> Tensor:
    columns_LC = stack.read(torch.float64)
    for run, start in stack.runs():
        own_LC = columns_LC[start : start + run.length]
        whole = run.length == stack.rows.n
        metric = stack.metric if whole else factors.alone(stack.metric, run.length)
        _direct_rows_(own_LC, run.length, metric, backend)
        if whole:
            continue
        partners = stack.rows.partners(run)
        ranks, slots = [rank for rank, _, _ in partners], [slot for _, slot, _ in partners]
        coupling_KR = couplings(factors, run, tuple(other for _, _, other in partners)).to(stack.device)
        _, basis_LK = tables(factors, run.length)
        terms_KC = coupling_KR @ sums_WSKC[ranks, slots].flatten(0, 1)
        own_LC.addmm_(basis_LK.to(stack.device), terms_KC, alpha=float(stack.metric.scale))
    return columns_LC


def by_transposing(team: Team, stacks: Sequence[Stack], backend: str, permuted: bool = False) -> None:
    """Any metric: every rank gets some of the columns as wholes, directs them and sends them back."""
    token, told = _token(stacks), _telling(stacks)
    shares = [-(-stack.columns // team.size) for stack in stacks]
    sends = zip(*(_by_rank(stack, share) for stack, share in zip(stacks, shares, strict=True)), strict=True)
    heights = [[stack.rows.counts[rank] for stack in stacks] for rank in range(team.size)]
    shapes = [[torch.Size(pair) for pair in zip(row, shares, strict=True)] for row in heights]
    arrived = wire.all_to_all(team, token, list(sends), shapes, told)
    returned: list[tuple[Tensor, ...]] = []
    for index, stack in enumerate(stacks):
        # Rank by rank, in the order of their own rows; then sorted into the order of the axis, and back.
        places_N = _places(stack)
        columns_NC = torch.cat([row[index] for row in arrived])
        whole_NC = torch.empty_like(columns_NC).index_copy_(0, places_N, columns_NC)
        if permuted:
            _direct_permuted_(whole_NC, stack, shares[index], backend)
        else:
            _direct_rows_(whole_NC, stack.rows.n, stack.metric, backend)
        returned.append(torch.split(whole_NC.index_select(0, places_N), list(stack.rows.counts)))
    own = [torch.Size((stack.height, share)) for stack, share in zip(stacks, shares, strict=True)]
    home = wire.all_to_all(team, token, list(zip(*returned, strict=True)), [own] * team.size, told)
    for index, stack in enumerate(stacks):
        stack.write(torch.cat([row[index] for row in home], dim=1)[:, : stack.columns])


def _by_rank(stack: Stack, share: int) -> tuple[Tensor, ...]:
    """This rank's rows, cut into the columns that each rank will direct."""
    columns_LC = stack.read(stack.dtype)
    missing = share * stack.team.size - stack.columns
    return torch.split(torch.nn.functional.pad(columns_LC, (0, missing)), share, dim=1)


def _places(stack: Stack) -> Tensor:
    """Where on the axis the rows of all ranks belong, rank by rank."""
    runs = [torch.arange(run.start, run.stop) for held in stack.rows.runs for run in held]
    return torch.cat(runs).to(stack.device)


def _direct_rows_(columns_NC: Tensor, length: int, metric: Metric, backend: str) -> None:
    rows, columns = columns_NC.shape
    groups = rows // length
    direct_([ColumnView(columns_NC.view(groups, length, columns), groups, length, columns, groups)], metric, backend)


def _direct_permuted_(columns_NC: Tensor, stack: Stack, share: int, backend: str) -> None:
    """Each gradient has an order of its own, so each column has that of the gradient it belongs to."""
    n, first = stack.rows.n, share * stack.team.place
    orders_NP = torch.stack([permutation(member.name, n, stack.device) for member in stack.members], dim=1)
    owners = torch.repeat_interleave(torch.tensor([member.columns for member in stack.members]))
    # What fills up the last shares belongs to nobody and may follow anyone.
    mine = torch.nn.functional.pad(owners, (0, share * stack.team.size - len(owners)))[first : first + share]
    order_GNC = orders_NP[:, mine.to(stack.device)].expand(stack.rows.groups, n, share)
    columns_GNC = columns_NC.view(stack.rows.groups, n, share)
    shuffled_GNC = columns_GNC.gather(1, order_GNC)
    _direct_rows_(shuffled_GNC.view(-1, share), n, stack.metric, backend)
    columns_GNC.scatter_(1, order_GNC, shuffled_GNC)


def _factors(stack: Stack) -> LowRank:
    factors = low_rank(stack.metric, stack.rows.n)
    assert factors is not None
    return factors


def _token(stacks: Sequence[Stack]) -> int:
    return wire.digest(
        [
            (
                type(stack.metric).__name__,
                [float(getattr(stack.metric, name)) for name in stack.metric.tunable_fields],
                stack.rows.n,
                stack.rows.groups,
                str(stack.dtype),
                [(member.columns, member.present) for member in stack.members],
            )
            for stack in stacks
        ]
    )


def _telling(stacks: Sequence[Stack]) -> wire.Told:
    def told() -> str:
        absent = {member.name for stack in stacks for member in stack.members if not member.present}
        metrics = sorted({str(stack.metric) for stack in stacks})
        return f"{', '.join(metrics)}; without a gradient: {', '.join(sorted(absent)) or 'none'}"

    return told
