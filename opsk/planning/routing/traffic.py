"""Computes the bytes that ranks and HCAs send in one step, by communication axis.

Collectives are modelled as flat rings, which NCCL uses for large messages: every rank sends (n - 1) / n of the array to
the next rank. Logit reductions, gradient-norm scalars, checkpoints and data loading are not modelled. The bytes of a
rank include traffic inside an HB domain, since its placement is not known yet; those of an HCA do not.

Between HCAs, rings run through the HB domains of a group in the order of its ranks. The traffic of a ring between two
domains is split evenly over channels, one for each GPU of the group there; NCCL pairs channels that are on one leaf, or
else on one rail, where it can. Pipeline messages, ring attention and all-to-alls go directly from GPU to GPU.
Forwarding through a GPU near the receiver's rail (PXN) is not modelled.

Several placements of the same job are evaluated at once, one per row, because a search compares thousands of them.
The messages can be limited to the groups of a few ranks, for placements in which only these ranks moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from opsk.costmodel.sizes.parameters import count_parameters
from opsk.costmodel.sizes.pipeline import build_stages
from opsk.costmodel.sizes.shape import build_shape
from opsk.costmodel.sizes.shares import compute_shares
from opsk.costmodel.table import FloatColumn, PlanTable
from opsk.costmodel.time import volumes
from opsk.planning.ranks import RankGrid
from opsk.planning.routing.hca_ports import Index, Ports
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

_FIRST, _MIDDLE, _LAST = range(3)

AXES = ("tp", "cp", "ep", "dp", "pp")
"""The axes of communication; ``dp`` includes experts and tied embeddings."""
Touched = npt.NDArray[np.bool_]
"""Ranks whose groups are included; ``None`` for all."""
_PAIRS_AT_ONCE = 1 << 22
"""Channel pairs compared at once: bounds memory to some tens of MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBytes:
    """Bytes that one rank sends in one step; columns have one entry a pipeline stage.

    Parameters
    ----------
    tp, cp, dp, expert_dp
        To the next rank of the ring of its group; ``dp`` are the dense parameters over dp x cp.
    ep
        To all other ranks of its expert-parallel group together, the same to each.
    pp_forward
        From a stage to the next one; the gradients that come back are as many.
    pp_wrap
        From the last stage to the first and back, with interleaving.
    embedding
        Between first and last stage, each way, for a tied embedding.
    """

    tp: FloatColumn
    cp: FloatColumn
    ep: FloatColumn
    dp: FloatColumn
    expert_dp: FloatColumn
    pp_forward: float
    pp_wrap: float
    embedding: float


def step_bytes(model: ModelShape, plan: Plan) -> StepBytes:
    """Return the bytes that one rank of each stage sends in one step [bytes].

    Examples
    --------
    A dense layer with s b h = 8192 x 1 x 8192 elements of two bytes, tp 4: two all-reduces of 128 MiB a pass, each rank
    sends 2 x 3/4 of them, forward and backward: 2 x 2 x 1.5 x 128 MiB = 768 MiB a layer and micro-batch.
    """
    return bytes_of_plans(model, PlanTable.of([plan])).row(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesTable:
    """The step bytes of many plans: columns of the candidate stages, shape (3, plans), or of one entry a plan.

    The fields are described at `StepBytes`; ``pp`` are the pipeline stages of each plan.
    """

    tp: FloatColumn
    cp: FloatColumn
    ep: FloatColumn
    dp: FloatColumn
    expert_dp: FloatColumn
    pp_forward: FloatColumn
    pp_wrap: FloatColumn
    embedding: FloatColumn
    pp: FloatColumn

    def row(self, number: int) -> StepBytes:
        """Return one plan, stage by stage."""
        rows = _candidate_rows(int(self.pp[number]))
        return StepBytes(
            tp=self.tp[rows, number],
            cp=self.cp[rows, number],
            ep=self.ep[rows, number],
            dp=self.dp[rows, number],
            expert_dp=self.expert_dp[rows, number],
            pp_forward=float(self.pp_forward[number]),
            pp_wrap=float(self.pp_wrap[number]),
            embedding=float(self.embedding[number]),
        )


def bytes_of_plans(model: ModelShape, plans: PlanTable) -> BytesTable:
    """Return the bytes that one rank of each candidate stage of every plan sends in one step [bytes]."""
    shape = build_shape(model)
    shares = compute_shares(shape, plans)
    stages = build_stages(shape, shares)
    parameters = count_parameters(shape, shares, stages)
    each_layer = stages.layers * shares.micro_batches
    passes = volumes.passes(shares)
    replicated = volumes.data_parallel_bytes_per_element(shares) * volumes.data_parallel_calls(shares)
    message = volumes.pipeline_bytes(shape, shares) * shares.micro_batches * (plans.pp > 1)
    sent = volumes.ring_share
    columns = {
        "tp": each_layer * passes * 2.0 * sent(shares.tp) * volumes.tensor_parallel_bytes(shape, shares),
        "cp": each_layer * (passes + 1.0) * sent(shares.cp) * volumes.context_parallel_bytes(shares),
        "ep": each_layer * passes * 2.0 * sent(shares.ep) * volumes.expert_parallel_bytes(shape, shares),
        "dp": parameters.dense * replicated * sent(shares.replicas),
        "expert_dp": parameters.experts * replicated * sent(shares.expert_replicas),
    }
    return BytesTable(
        **{name: np.broadcast_to(column, (3, len(plans))) for name, column in columns.items()},
        pp_forward=message * plans.vpp,
        pp_wrap=message * (plans.vpp - 1),
        embedding=np.broadcast_to(volumes.tied_embedding_bytes(shape, shares), (len(plans),)),
        pp=shares.pp,
    )


def _candidate_rows(stages: int) -> list[int]:
    """Return for each stage the row of the cost model's three candidate stages that stands for it."""
    rows = [_MIDDLE] * stages
    rows[0] = _FIRST
    rows[-1] = _LAST if stages > 1 else _FIRST
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlacement:
    """The slot of every rank, shape (rows, ranks): ``node`` and ``gpu`` index, ``domain`` (HB), ``port`` of `Ports`."""

    node: Index
    gpu: Index
    domain: Index
    port: Index

    @property
    def rows(self) -> int:
        """Return the number of placements."""
        return int(self.node.shape[0])

    def row(self, number: int) -> RankPlacement:
        """Return one of the placements."""
        rows = slice(number, number + 1)
        return RankPlacement(node=self.node[rows], gpu=self.gpu[rows], domain=self.domain[rows], port=self.port[rows])


@dataclass(frozen=True, slots=True, kw_only=True)
class Flows:
    """Messages of one axis: ``size_bytes`` of one step from port ``source`` to port ``target`` in placement ``row``."""

    row: Index
    source: Index
    target: Index
    size_bytes: FloatColumn

    @classmethod
    def concatenate(cls, parts: Iterator[Flows]) -> Flows:
        """Return all messages of several lists."""
        all_parts = list(parts)
        if not all_parts:
            nothing = np.empty(0, dtype=np.int64)
            return cls(row=nothing, source=nothing, target=nothing, size_bytes=np.empty(0))
        return cls(
            row=np.concatenate([part.row for part in all_parts]),
            source=np.concatenate([part.source for part in all_parts]),
            target=np.concatenate([part.target for part in all_parts]),
            size_bytes=np.concatenate([part.size_bytes for part in all_parts]),
        )


def step_flows(
    grid: RankGrid, sent: StepBytes, rank_placement: RankPlacement, ports: Ports, *, touched: Touched | None = None
) -> dict[str, Flows]:
    """Return the messages of one step by axis (``AXES``); axes without any between HB domains are empty.

    Parameters
    ----------
    touched
        Include only the groups with one of these ranks; shape (ranks,).
    """
    stages, dp, cp, tp = grid.ranks.shape
    grid_ranks = grid.ranks
    parts: dict[str, Iterator[Flows]] = {
        "tp": _yield_ring_flows(
            *_select_touched(grid_ranks.reshape(-1, tp), np.repeat(sent.tp, dp * cp), touched), rank_placement, ports
        ),
        "cp": _send_to_next(
            *_select_touched(grid_ranks.transpose(0, 1, 3, 2).reshape(-1, cp), np.repeat(sent.cp, dp * tp), touched),
            rank_placement,
        ),
        "ep": _yield_expert_flows(grid, sent, rank_placement, touched),
        "dp": _yield_replica_flows(grid, sent, rank_placement, ports, touched),
        "pp": _yield_pipeline_flows(grid_ranks, sent, rank_placement, touched) if stages > 1 else iter(()),
    }
    return {axis: Flows.concatenate(parts[axis]) for axis in AXES}


def _select_touched(groups: Index, sent: FloatColumn, touched: Touched | None) -> tuple[Index, FloatColumn]:
    """Return the groups that contain a touched rank, and the bytes that they send."""
    if touched is None:
        return groups, sent
    is_touched = touched[groups].any(axis=1)
    return groups[is_touched], sent[is_touched]


def _yield_expert_flows(
    grid: RankGrid, sent: StepBytes, rank_placement: RankPlacement, touched: Touched | None
) -> Iterator[Flows]:
    """Yield the dispatch and combine of tokens."""
    if sent.ep.any():
        size = np.repeat(sent.ep, grid.experts.shape[1])
        yield from _yield_all_to_all_flows(
            *_select_touched(grid.experts.reshape(-1, grid.ep), size, touched), rank_placement
        )


def _yield_replica_flows(
    grid: RankGrid, sent: StepBytes, rank_placement: RankPlacement, ports: Ports, touched: Touched | None
) -> Iterator[Flows]:
    """Yield the gradients and weights of dense parameters, of experts, and of a tied embedding."""
    stages, dp, cp, tp = grid.ranks.shape
    if sent.dp.any():
        yield from _yield_ring_flows(
            *_select_touched(grid.data.reshape(-1, dp * cp), np.repeat(sent.dp, tp), touched), rank_placement, ports
        )
    if sent.expert_dp.any():
        replicas = grid.expert_data
        size = np.repeat(sent.expert_dp, replicas.shape[1])
        yield from _yield_ring_flows(
            *_select_touched(replicas.reshape(-1, replicas.shape[2]), size, touched), rank_placement, ports
        )
    if stages > 1 and sent.embedding:
        yield from _send_both_directions(grid.ranks[-1], grid.ranks[0], sent.embedding, rank_placement, touched)


def _yield_pipeline_flows(
    ranks: Index, sent: StepBytes, rank_placement: RankPlacement, touched: Touched | None
) -> Iterator[Flows]:
    """Yield the messages between stages, and from the last to the first with interleaving."""
    if sent.pp_forward:
        yield from _send_both_directions(ranks[:-1], ranks[1:], sent.pp_forward, rank_placement, touched)
    if sent.pp_wrap:
        yield from _send_both_directions(ranks[-1], ranks[0], sent.pp_wrap, rank_placement, touched)


def _send_both_directions(
    source: Index, target: Index, size: float, rank_placement: RankPlacement, touched: Touched | None
) -> Iterator[Flows]:
    """Yield the same message from every rank of ``source`` to its counterpart in ``target``, and back."""
    pairs, sizes = _select_touched(
        np.stack([source.ravel(), target.ravel()], axis=1), np.full(source.size, size), touched
    )
    yield _send_direct(pairs[:, 0], pairs[:, 1], sizes, rank_placement)
    yield _send_direct(pairs[:, 1], pairs[:, 0], sizes, rank_placement)


def _send_to_next(groups: Index, sent: FloatColumn, rank_placement: RankPlacement) -> Iterator[Flows]:
    """Yield the messages of every rank to the next one of its group."""
    if groups.shape[1] > 1 and sent.any():
        size = np.repeat(sent, groups.shape[1])
        yield _send_direct(groups.ravel(), np.roll(groups, -1, axis=1).ravel(), size, rank_placement)


def _yield_all_to_all_flows(groups: Index, sent: FloatColumn, rank_placement: RankPlacement) -> Iterator[Flows]:
    """Yield the messages of every rank to all others of its group, equal in size."""
    members = groups.shape[1]
    for distance in range(1, members):
        size = np.repeat(sent / (members - 1), members)
        yield _send_direct(groups.ravel(), np.roll(groups, -distance, axis=1).ravel(), size, rank_placement)


def _send_direct(source: Index, target: Index, size: FloatColumn, rank_placement: RankPlacement) -> Flows:
    """Return the messages from rank to rank, without those inside an HB domain."""
    row, message = np.nonzero(rank_placement.domain[:, source] != rank_placement.domain[:, target])
    return Flows(
        row=row,
        source=rank_placement.port[row, source[message]],
        target=rank_placement.port[row, target[message]],
        size_bytes=size[message],
    )


def _yield_ring_flows(groups: Index, sent: FloatColumn, rank_placement: RankPlacement, ports: Ports) -> Iterator[Flows]:
    """Yield the rings through the HB domains of each group; ``sent`` passes every link of the ring of its group."""
    count, members = groups.shape
    if members < 2 or not sent.any():
        return
    domain = rank_placement.domain[:, groups].reshape(-1, members)
    order = np.argsort(domain, axis=1, kind="stable")
    domain = np.take_along_axis(domain, order, axis=1)
    port = np.take_along_axis(rank_placement.port[:, groups].reshape(-1, members), order, axis=1).ravel()
    starts_here = np.ones(domain.shape, dtype=np.bool_)
    starts_here[:, 1:] = domain[:, 1:] != domain[:, :-1]
    start = np.flatnonzero(starts_here)
    group = start // members
    held = np.diff(np.append(start, domain.size))
    following = np.arange(1, start.size + 1)
    first = np.flatnonzero(np.diff(group, prepend=-1))
    last = np.append(first[1:], start.size) - 1
    following[last] = first
    linked = following != np.arange(start.size)
    if not linked.any():
        return
    channels_of = np.maximum.reduceat(held, first)[group]
    for channels in np.unique(channels_of[linked]).tolist():
        link = np.flatnonzero(linked & (channels_of == channels))
        turn = np.arange(channels)
        source = port[start[link, None] + turn % held[link, None]]
        target = port[start[following[link], None] + turn % held[following[link], None]]
        yield Flows(
            row=np.repeat(group[link] // count, channels),
            source=source.ravel(),
            target=_pair_channels(source, target, ports).ravel(),
            size_bytes=np.repeat(sent[group[link] % count] / channels, channels),
        )


def _pair_channels(source: Index, target: Index, ports: Ports) -> Index:
    """Return ``target`` with each row in the order in which its channels meet those of ``source``."""
    links, channels = source.shape
    if channels == 1:
        return target
    step = max(_PAIRS_AT_ONCE // (channels * channels), 1)
    parts = [
        _pair_rows(source[begin : begin + step], target[begin : begin + step], ports) for begin in range(0, links, step)
    ]
    return np.concatenate(parts) if parts else target


def _pair_rows(source: Index, target: Index, ports: Ports) -> Index:
    """Pair channels on one leaf, then those left on one rail, then those left in order."""
    partner, taken = _match_keys(ports.leaf[source], ports.leaf[target])
    free = partner < 0
    by_rail, also = _match_keys(np.where(free, ports.rail[source], -1), np.where(taken, -1, ports.rail[target]))
    partner = np.where(free, by_rail, partner)
    taken |= also
    free = partner < 0
    left_over = np.argsort(taken, axis=1, kind="stable")
    rest = np.take_along_axis(left_over, np.maximum(np.cumsum(free, axis=1) - 1, 0), axis=1)
    return np.take_along_axis(target, np.where(free, rest, partner), axis=1)


def _match_keys(source: Index, target: Index) -> tuple[Index, npt.NDArray[np.bool_]]:
    """Return for each source channel the target channel of the same key (-1 for none), and which targets are taken.

    Keys below 0 match nothing; the k-th channel with a key meets the k-th one there.
    """
    same = source[:, :, None] == target[:, None, :]
    same &= _count_earlier(source)[:, :, None] == _count_earlier(target)[:, None, :]
    same &= (source >= 0)[:, :, None]
    return np.where(same.any(axis=2), same.argmax(axis=2), -1), same.any(axis=1)


def _count_earlier(keys: Index) -> Index:
    """Return how often each key came before in its row."""
    earlier = np.tril(np.ones((keys.shape[1], keys.shape[1]), dtype=np.bool_), k=-1)
    counted: Index = ((keys[:, :, None] == keys[:, None, :]) & earlier).sum(axis=2)
    return counted
