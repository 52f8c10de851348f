"""Computes the layers of each pipeline stage, the micro-batches in flight there, and the length of the bubble.

p stages, m micro-batches, v chunks a stage; F, B and W are the seconds of forward, gradient of the input (with what is
recomputed for it) and gradient of the weights of one micro-batch on all layers of one stage. Sources of the schedules:
GPipe: Huang et al. 2019 (arXiv 1811.06965); 1F1B and interleaved: Narayanan et al. 2021 (arXiv 2104.04473), section
2.2, and Korthikanti et al. 2022 (arXiv 2205.05198), section 4.2.3; ZB-H1, ZB-H2, ZB-V: Qi et al. 2023 (arXiv
2401.10241); DualPipe: DeepSeek-V3 report (arXiv 2412.19437), table 2. What the papers give for many micro-batches and
F = B = W is extended here to few micro-batches and F <= B, W <= F, and agrees with simulations of the schedules.

Only three stages can have the peak of memory or time: the first (embedding, most micro-batches in flight), the second
(a layer more than the first where layers do not divide evenly) and the last (head, logits, loss). Their columns have
shape (3, plans). The layers of an encoder are split over the stages together with the decoder's: a stage with n of all
N is taken to hold n / N of either, and its layers are counted in those of the decoder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from opsk.costmodel.elementwise import any_of, ceil, floor, maximum, minimum, select, to_float, where
from opsk.costmodel.sizes.shape import ShapeColumns
from opsk.costmodel.sizes.shares import Shares
from opsk.costmodel.table import SCHEDULES, BoolColumn, FloatColumn, IntColumn
from opsk.workload.plan import Schedule

_GPIPE, _H1, _H2, _V, _DUALPIPE = (
    SCHEDULES.index(schedule)
    for schedule in (
        Schedule.GPIPE,
        Schedule.ZERO_BUBBLE,
        Schedule.ZERO_BUBBLE_2,
        Schedule.ZERO_BUBBLE_V,
        Schedule.DUALPIPE,
    )
)
# 1F1B, the schedule of nearly all plans, has index 0: where no entry of the column is set, all others are left out
_ONE_COPY = to_float(1.0)
"""Forward and both halves of the backward, where they are equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """The three candidate stages of every plan, shape (3, plans) each.

    Parameters
    ----------
    index
        Stage, from 0.
    layers
        Layers that a micro-batch passes there, ``moe_layers`` with experts and ``plain_layers`` without together.
    in_flight
        Micro-batches whose activations are stored at the peak, in micro-batches of all ``layers``.
    deferred
        How many of ``in_flight`` only wait for the gradient of their weights: recomputation does not shrink them.
    is_first, is_last
        Whether the embedding, and whether final norm, head and loss are there, as 0.0 or 1.0.
    weight_copies
        2 where the GPU also holds the mirrored stage (DualPipe), else 1, shape (plans,): its layers count twice in
        memory, but not in time, since each copy works on half of the micro-batches.
    """

    index: FloatColumn
    layers: FloatColumn
    moe_layers: FloatColumn
    plain_layers: FloatColumn
    in_flight: FloatColumn
    deferred: FloatColumn
    is_first: FloatColumn
    is_last: FloatColumn
    weight_copies: FloatColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class Extreme:
    """The candidate stage of every plan with the greatest value: ``indices`` into columns of shape (3, plans)."""

    indices: Any
    dimensions: int

    @classmethod
    def of(cls, column: FloatColumn) -> Extreme:
        """Return the stages with the greatest entry of a column of shape (3, plans), the first of several."""
        stage = column.argmax(axis=0)
        indices = (stage, np.arange(stage.shape[0])) if column.ndim > 1 else int(stage)
        return cls(indices=indices, dimensions=column.ndim)

    def take(self, column: FloatColumn) -> FloatColumn:
        """Return the entries of a column of shape (3, plans) at these stages; other columns hold for all stages."""
        if not isinstance(column, np.ndarray) or column.ndim < self.dimensions:
            return column
        entries: Any = column
        result: FloatColumn = entries[self.indices] if self.dimensions > 1 else entries.item(self.indices)
        return result


class Scheduled(Protocol):
    """What the length of a bubble depends on beside the passes: a `Pipelining`, or the whole of `Shares`."""

    @property
    def pp(self) -> FloatColumn:
        """Stages."""
        ...

    @property
    def vpp(self) -> FloatColumn:
        """Chunks of a stage."""
        ...

    @property
    def micro_batches(self) -> FloatColumn:
        """Micro-batches of one replica in one step."""
        ...

    @property
    def schedule(self) -> IntColumn:
        """Index into ``SCHEDULES``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipelining:
    """Stages, chunks a stage, micro-batches and schedule of every plan, as in `Shares`."""

    pp: FloatColumn
    vpp: FloatColumn
    micro_batches: FloatColumn
    schedule: IntColumn


def build_stages(model: ShapeColumns, shares: Shares) -> Stages:
    """Return the candidate stages of every plan.

    Arrays without dimensions (one model) and columns (a model a plan) of ``model`` broadcast alike.
    """
    pp, last = shares.pp, shares.pp - 1
    index = np.zeros((3, *pp.shape) if isinstance(pp, np.ndarray) else 3)
    index[1], index[2] = minimum(1.0, last), last
    is_first, is_last = index == 0, index == last
    nothing = np.zeros(index.shape)
    layers = nothing + _layers(model, shares, is_first, is_last)
    moe_layers = _moe_layers(model, shares, layers, index) if model.has_experts else nothing
    in_flight, deferred = _in_flight(shares, index)
    holds_head, weight_copies = is_last, _ONE_COPY
    if any_of(shares.schedule):
        holds_head = where(shares.schedule == _V, is_first, is_last)
        weight_copies = where((shares.schedule == _DUALPIPE) & (pp > 1), 2.0, 1.0)
    return Stages(
        index=index,
        layers=layers,
        moe_layers=moe_layers,
        plain_layers=layers - moe_layers,
        in_flight=in_flight,
        deferred=deferred,
        is_first=to_float(is_first),
        is_last=to_float(holds_head),
        weight_copies=weight_copies,
    )


def _layers(model: ShapeColumns, shares: Shares, is_first: BoolColumn, is_last: BoolColumn) -> FloatColumn:
    """Return the layers of the candidate stages, shape (3, plans).

    What does not divide evenly goes to the middle stages first, as Megatron-LM and DeepSpeed do when embedding and head
    count as layers of the split: 70 layers on 12 stages are 5, ten times 6, and 5 (BLOOM).
    """
    pp, last, stack = shares.pp, shares.pp - 1, model.layers + model.encoder_layers
    first_layers, last_layers = shares.first_stage_layers, shares.last_stage_layers
    by_hand = minimum(first_layers, 1.0) + minimum(last_layers, 1.0)
    shared = stack - first_layers - last_layers
    even = floor(shared / maximum(pp - by_hand, 1.0))
    rest = shared - even * (pp - by_hand)
    layers = even + (where(is_first, rest == last, ~is_last) & (rest > 0))
    if model.has_dense_layers or model.has_mtp:
        layers = where(by_hand == 0, _layers_with_light_end(model, shares, layers, is_last), layers)
    if any_of(by_hand):
        layers = where(is_first & (first_layers > 0), first_layers, layers)
        layers = where(is_last & (last_layers > 0), last_layers, layers)
    return where(pp > 1, layers * (model.layers / stack), model.layers)


def _layers_with_light_end(
    model: ShapeColumns, shares: Shares, layers: FloatColumn, is_last: BoolColumn
) -> FloatColumn:
    """Return the layers where the last stage balances dense layers at the start and multi-token prediction.

    That is where they do not divide with embedding and head counted either: 61 layers on 16 stages are 15 times 4, and
    1 (Megatron Bridge's layouts of DeepSeek-V3 and Kimi K2).
    """
    chunks, stack = shares.pp * shares.vpp, model.layers + model.encoder_layers
    full = ceil(stack / chunks) * shares.vpp
    light = stack - full * (shares.pp - 1)
    has_ends = model.dense_layers * (1 - model.dense_interleaved) + model.mtp_layers > 0
    is_odd = has_ends & (light > 0) & (-stack % chunks > 2)
    return where(is_odd, where(is_last, light, full), layers)


def _moe_layers(model: ShapeColumns, shares: Shares, layers: FloatColumn, index: FloatColumn) -> FloatColumn:
    """Return the layers with experts of the candidate stages, shape (3, plans).

    The dense ones come first (DeepSeek) or alternate evenly with the others (Llama 4). The first ones fill the chunks
    of all stages in turn, round by round.
    """
    if not model.has_dense_layers:
        return layers * model.is_moe
    chunk, chunks_of_round = layers / shares.vpp, model.layers / shares.vpp
    before = where(index == shares.pp - 1, chunks_of_round - chunk, index * chunk[0])
    rounds = floor(model.dense_layers / chunks_of_round)
    first = rounds * chunk + minimum(maximum(model.dense_layers - rounds * chunks_of_round - before, 0.0), chunk)
    between = layers * (model.dense_layers / model.layers)
    return (layers - where(model.dense_interleaved > 0, between, first)) * model.is_moe


def _in_flight(shares: Shares, index: FloatColumn) -> tuple[FloatColumn, FloatColumn]:
    """Return the micro-batches that a stage stores at its peak, and those of them that wait for weight gradients.

    1F1B stores min(m, p - i); interleaving in groups of g micro-batches stores 2(p - i - 1) + (v - 1) g + 1 chunks of
    1/v of the layers, which with g = p is p (1 + (p - 1) / (p v)) on the first stage. GPipe stores all m. Zero-bubble
    schedules use what 1F1B leaves free on later stages: ZB-H1 and ZB-V store min(m, p) on every stage, ZB-H2 min(m, 2p
    - 1). DualPipe stores p + 1.
    """
    pp, vpp, count, schedule = shares.pp, shares.vpp, shares.micro_batches, shares.schedule
    following = pp - index
    # groups of p micro-batches, larger where these are no multiple of p (PyTorch; Megatron Core where asked to)
    group = count / maximum(floor(count / pp), 1.0)
    stored = minimum(count, following)
    if any_of(vpp > 1):
        chunks = minimum(count * vpp, 2.0 * following - 1.0 + (vpp - 1) * group)
        stored = where(vpp > 1, chunks / vpp, stored)
    if not any_of(schedule):
        return stored, np.zeros(stored.shape)
    twice = minimum(count, 2.0 * pp - 1.0)
    once = minimum(count, pp)
    waiting = (schedule == _H1) * (once - minimum(count, following))
    waiting = waiting + (schedule == _H2) * (twice - minimum(count, 2.0 * following - 1.0))
    others = [count, once, twice, once, minimum(count, pp + 1.0)]
    masks = [schedule == code for code in (_GPIPE, _H1, _H2, _V, _DUALPIPE)]
    return where(pp > 1, select(masks, others, stored), 1.0), where(pp > 1, waiting, 0.0)


def bubble_s(
    shares: Scheduled,
    forward_s: FloatColumn,
    backward_input_s: FloatColumn,
    backward_weight_s: FloatColumn,
    *,
    optimizer_waits: bool = True,
) -> FloatColumn:
    """Return how long a stage waits in one step if all stages have the same work [s].

    GPipe, 1F1B: (p - 1)(F + B + W) / v, and with interleaving (p - m)(v - 1) / v more where m < p. ZB-H1:
    (p - 1)(F + B - W), ZB-H2: (p - 1)(F + B - 2 W), ZB-V: (p - 1)(B - W), never below 0. DualPipe:
    (p / 2 - 1)(F + 2 B - W), which is (p / 2 - 1)(F&B + B' - 3 W) where F&B overlaps nothing and B' is B + W.

    Parameters
    ----------
    forward_s, backward_input_s, backward_weight_s
        F, B and W of one micro-batch on one stage [s]; recomputation belongs to B.
    optimizer_waits
        Whether the optimizer step of every stage waits for all stages, as a norm of all gradients makes it do: then
        the zero-bubble schedules wait for the first micro-batch to come through, (p - 1) F, at least (ZB-V: (p - 1) / 2
        of F or B). False is the papers' number, which needs the optimizer to step first and correct itself later.
    """
    ahead, count, vpp = shares.pp - 1, shares.micro_batches, shares.vpp
    late = maximum(shares.pp - count, 0.0) * (vpp - 1)
    plain = (ahead + late) / vpp * (forward_s + backward_input_s + backward_weight_s)
    if not any_of(shares.schedule):
        return plain
    return _split_backward_s(shares, plain, forward_s, backward_input_s, backward_weight_s, optimizer_waits)


def _split_backward_s(
    shares: Scheduled,
    plain_s: FloatColumn,
    forward_s: FloatColumn,
    backward_input_s: FloatColumn,
    backward_weight_s: FloatColumn,
    optimizer_waits: bool,
) -> FloatColumn:
    """Return the bubble where some schedules split the backward: weight gradients fill it as far as there are any."""
    ahead, further, schedule = shares.pp - 1, shares.micro_batches - 1, shares.schedule
    both = ahead * (forward_s + backward_input_s)
    once, twice = minimum(ahead, further), minimum(2.0 * ahead, further)
    h1 = both - once * backward_weight_s
    h2 = both - twice * backward_weight_s
    folded = both - once * forward_s - (twice - once) * backward_weight_s
    if optimizer_waits:
        start = ahead * forward_s
        h1, h2 = maximum(h1, start), maximum(h2, start)
        folded = maximum(folded, 0.5 * maximum(start, ahead * backward_input_s))
    dual = (shares.pp / 2.0 - 1.0) * (forward_s + 2.0 * backward_input_s - backward_weight_s)
    masks = [schedule == code for code in (_H1, _H2, _V, _DUALPIPE)]
    return select(masks, [maximum(entry, 0.0) for entry in (h1, h2, folded, dual)], plain_s)


def messages_per_micro_batch(shares: Shares) -> FloatColumn:
    """Return how often a stage in the middle sends for one micro-batch: activations on, gradients back, each chunk."""
    chunks = where(shares.schedule == _V, 2.0, shares.vpp)
    return where(shares.pp > 1, 2.0 * chunks, 0.0)
