"""Computes the communication of one step by axis, and how much of it computation does not hide.

Groups are placed as Megatron-LM numbers ranks: tp innermost, then cp, then dp, pp outermost; experts are spread over
consecutive ranks of a stage.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from opsk.costmodel.collectives.hierarchical import (
    CollectiveTime,
    Forwarding,
    all_gather,
    all_reduce,
    all_to_all,
    build_group,
    point_to_point,
)
from opsk.costmodel.efficiency.efficiency import SoftwareColumns
from opsk.costmodel.elementwise import (
    all_of,
    any_of,
    full_like,
    logical_not,
    max_over_stages,
    maximum,
    min_over_stages,
    minimum,
    to_float,
    when,
    where,
)
from opsk.costmodel.machine import Machine
from opsk.costmodel.sizes.parameters import ParameterCount
from opsk.costmodel.sizes.pipeline import messages_per_micro_batch
from opsk.costmodel.sizes.shape import ShapeColumns
from opsk.costmodel.sizes.shares import Shares
from opsk.costmodel.table import DISPATCHERS, OFFLOADS, SOFTWARE, BoolColumn, FloatColumn, PlanTable
from opsk.costmodel.time import volumes
from opsk.costmodel.time.layer_time import LayerTime
from opsk.costmodel.time.optimizer_time import Trained, host_link_bytes_per_s
from opsk.workload.plan import MoeDispatcher, Offload, Software

SCATTERED_FRACTION = 0.83
"""NVLink rate of messages to all ranks at once over that of rings: nccl-tests of 512 MiB on 8 GPUs, 315 of 372
GB/s (H100), 563 of 680 (B200); ``benchmarks/published/links.csv``."""
DEEPEP_CALL_S = 4e-5
"""Time of a dispatch or combine of DeepEP for 256 tokens on 8 GPUs of a node (42 to 55 us on H100, 50 to 63 on B200:
aiconfigurator's tables of SGLang 0.5.12, 24 SMs)."""

NIC_OVERLAP_FRACTION = 0.85
"""Share of another micro-batch's computation that goes on while dispatch and combine wait for NICs.

Their kernels occupy 20 (``moe_deepep_num_sms`` of Megatron Core's ``TransformerConfig``) of 132 to 148 multiprocessors.
"""
_ALLGATHER = DISPATCHERS.index(MoeDispatcher.ALLGATHER)
_SHORTEST_S = 1e-12
"""Keeps a quotient defined where no NIC is used."""


def exchange(model: ShapeColumns, shares: Shares, machine: Machine) -> CollectiveTime:
    """Return dispatch and combine of one layer in one pass of a micro-batch."""
    group = build_group(machine, stride=shares.etp, size=shares.ep, ranks=shares.gpus)
    size_bytes = 2.0 * volumes.expert_parallel_bytes(model, shares)
    copies = all_to_all(machine, group, size_bytes, 2.0, hb_share=SCATTERED_FRACTION)
    if any_of(machine.is_rail_only):
        forwarded = all_to_all(machine, group, size_bytes, 2.0, Forwarding.RAIL_ONLY, hb_share=SCATTERED_FRACTION)
        copies = forwarded.otherwise(machine.is_rail_only > 0, copies)
    once = shares.moe_dispatcher > _ALLGATHER
    if any_of(once):
        picks = maximum(model.top_k, 1.0)
        nodes, ranks = (_distinct(count, picks) / picks for count in (group.across, group.size))
        across, inside = group.across, group.inside
        nic = size_bytes * nodes * (across - 1.0) / across / machine.nic_bytes_per_s
        hb = size_bytes * ranks * (inside - 1.0) / inside / (SCATTERED_FRACTION * machine.hb_bytes_per_s)
        calls_s = where(shares.ep > 1, 2.0 * DEEPEP_CALL_S, 0.0)
        copies = CollectiveTime(total=maximum(nic, hb) + calls_s, hb=hb, nic=nic).otherwise(once, copies)
    gathers = shares.moe_dispatcher == _ALLGATHER
    if any_of(gathers):
        tokens_bytes = shares.plain_tokens * model.hidden * shares.activation_bytes
        everything = all_gather(machine, group, 2.0 * shares.ep * tokens_bytes, 2.0)
        copies = everything.otherwise(gathers, copies)
    return copies


def _distinct(count: FloatColumn, picks: FloatColumn) -> FloatColumn:
    """Return the expected number of distinct ones of ``count`` in so many random picks."""
    result: FloatColumn = count * (1.0 - (1.0 - 1.0 / count) ** picks)
    return result


_DEEPSPEED = SOFTWARE.index(Software.DEEPSPEED)
_WEIGHTS_ON_HOST = OFFLOADS.index(Offload.OPTIMIZER_AND_WEIGHTS)
LAYER_TENSORS = 12.0
"""Parameter tensors of a GPT layer: DeepSpeed's ZeRO-3 gathers and reduces each separately, FSDP a layer at a time."""
GATHERS = 3.0
"""Collectives of ZeRO-3 for each layer and micro-batch: gather forward, gather backward, reduce-scatter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Time of the communication of one axis, one entry a plan [s]: ``total``, and ``exposed``, which nothing hides.

    ``window`` is the computation that it can overlap, which hides as much of it as long as no other axis uses the
    same links; ``hb`` and ``nic`` are the times that NVLink and the NIC of a GPU are busy with it.
    """

    total: FloatColumn
    exposed: FloatColumn
    window: FloatColumn
    hb: FloatColumn
    nic: FloatColumn

    def __add__(self, other: Traffic) -> Traffic:
        """Return the sum of both, one after the other."""
        return Traffic(
            total=self.total + other.total,
            exposed=self.exposed + other.exposed,
            window=self.window + other.window,
            hb=self.hb + other.hb,
            nic=self.nic + other.nic,
        )

    def times(self, count: FloatColumn) -> Traffic:
        """Return the traffic times ``count``."""
        return Traffic(
            total=self.total * count,
            exposed=self.exposed * count,
            window=self.window * count,
            hb=self.hb * count,
            nic=self.nic * count,
        )

    def of_slowest(self) -> Traffic:
        """Return the most of the candidate stages, shape (3, plans), with the narrowest window."""
        return Traffic(
            total=max_over_stages(self.total),
            exposed=max_over_stages(self.exposed),
            window=min_over_stages(self.window),
            hb=max_over_stages(self.hb),
            nic=max_over_stages(self.nic),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCommunication:
    """Communication of one layer for one micro-batch, by axis."""

    tp: Traffic
    cp: Traffic
    ep: Traffic


def layer_communication(
    model: ShapeColumns, shares: Shares, times: LayerTime, machine: Machine, software: SoftwareColumns
) -> LayerCommunication:
    """Return the communication of one layer, forward, backward and recomputation [s]."""
    passes = volumes.passes(shares)
    of_tensors = passes + volumes.tensor_parallel_again(model, shares)
    of_experts = passes + volumes.expert_parallel_again(shares)
    return LayerCommunication(
        tp=_tensor_parallel(model, shares, times, machine, software, of_tensors),
        cp=_context_parallel(model, shares, times, machine, software, passes),
        ep=_expert_parallel(model, shares, times, machine, software, of_experts),
    )


def _hide(collective: CollectiveTime, window: FloatColumn) -> Traffic:
    """Return traffic that ``window`` seconds of computation hide as far as possible."""
    exposed = maximum(collective.total - window, 0.0)
    return Traffic(total=collective.total, exposed=exposed, window=window, hb=collective.hb, nic=collective.nic)


def _reduces_in_network(machine: Machine) -> BoolColumn | bool:
    """Return where the fabric's switches reduce; False where none do."""
    return machine.reduces_in_network > 0 if any_of(machine.reduces_in_network) else False


def _no_traffic(shares: Shares) -> Traffic:
    """Return no traffic."""
    zeros = full_like(shares.tp, 0.0)
    return Traffic(total=zeros, exposed=zeros, window=zeros, hb=zeros, nic=zeros)


def _tensor_parallel(
    model: ShapeColumns,
    shares: Shares,
    times: LayerTime,
    machine: Machine,
    software: SoftwareColumns,
    passes: FloatColumn,
) -> Traffic:
    """Two all-reduces a pass, or as many reduce-scatters and all-gathers of the same volume.

    What the software starts before weight gradients overlaps these, for column-parallel layers only.
    """
    if all_of(shares.tp == 1):
        return _no_traffic(shares)
    group = build_group(machine, stride=1.0, size=shares.tp, ranks=shares.gpus)
    one_pass = all_reduce(
        machine, group, volumes.tensor_parallel_bytes(model, shares), 2.0, in_network=_reduces_in_network(machine)
    )
    window = software.tp_overlap * times.average.total
    if any_of(software.tp_async_share):
        weight_gradient_s = times.average.by_weight * _column_share(model, shares)
        window = maximum(window, minimum(software.tp_async_share * one_pass.total, weight_gradient_s))
    return _hide(one_pass.times(passes), window)


def _column_share(model: ShapeColumns, shares: Shares) -> FloatColumn:
    """Return the share of column-parallel weights in a layer: queries, keys, values, and the MLP's first matrices."""
    query, kv, inner = shares.query_width, shares.kv_width, shares.ffn_width
    first = query + 2.0 * kv + (1.0 + model.gated_mlp) * inner
    return first / (first + query + inner)


def _context_parallel(
    model: ShapeColumns,
    shares: Shares,
    times: LayerTime,
    machine: Machine,
    software: SoftwareColumns,
    passes: FloatColumn,
) -> Traffic:
    """Ring attention: keys and values of one rank pass all others, and their gradients return.

    Mixers change from tokens to heads and back, an all-to-all each (Megatron Core, ssm/mamba_context_parallel.py).
    """
    if all_of(shares.cp == 1):
        return _no_traffic(shares)
    group = build_group(machine, stride=shares.tp, size=shares.cp, ranks=shares.gpus)
    ring = all_gather(machine, group, volumes.context_parallel_bytes(shares), 1.0).times(passes + 1.0)
    window = software.cp_overlap * times.attention * (passes + 1.0)
    if not model.has_mixers:
        return _hide(ring, window)
    changes = all_to_all(machine, group, volumes.mixer_context_bytes(model, shares), 2.0).times(passes)
    return _hide(ring.times(model.attention_share), window) + _hide(changes.times(model.mixer_share), to_float(0.0))


def _expert_parallel(
    model: ShapeColumns,
    shares: Shares,
    times: LayerTime,
    machine: Machine,
    software: SoftwareColumns,
    passes: FloatColumn,
) -> Traffic:
    """Dispatch and combine of every routed token in the layers that have experts."""
    if not model.has_experts:
        return _no_traffic(shares)
    share = model.moe_layers / model.layers
    sent = share * model.mlp_share if model.has_mixers else share
    one_pass = exchange(model, shares, machine)
    hidden = hiding_fraction(one_pass, software.ep_overlap)
    return _hide(one_pass.times(sent * passes), share * hidden * times.sparse.total)


def hiding_fraction(exchanged: CollectiveTime, overlap: FloatColumn) -> FloatColumn:
    """Return the share of the computation that hides dispatch and combine: ``overlap``, and more while NICs limit them.

    0 where the plan runs nothing beside them.
    """
    if not any_of(overlap):
        return overlap
    waits_for_nic = maximum(1.0 - exchanged.hb / maximum(exchanged.nic, _SHORTEST_S), 0.0)
    more = maximum(NIC_OVERLAP_FRACTION - overlap, 0.0) * waits_for_nic
    return overlap + when(overlap > 0, more)


def pipeline(model: ShapeColumns, shares: Shares, machine: Machine, software: SoftwareColumns) -> Traffic:
    """Return the time that one stage spends on messages for one micro-batch [s].

    One activation in and one gradient in for each of its chunks.
    """
    if all_of(shares.pp == 1):
        return _no_traffic(shares)
    sent = point_to_point(
        machine,
        stride=shares.tp * shares.cp * shares.dp,
        size_bytes=volumes.pipeline_bytes(model, shares),
        calls=messages_per_micro_batch(shares),
        ranks=shares.pp,
    )
    hidden = sent.total * software.pp_overlap
    return Traffic(total=sent.total, exposed=sent.total - hidden, window=hidden, hb=sent.hb, nic=sent.nic)


def data_parallel(
    model: ShapeColumns,
    plans: PlanTable,
    shares: Shares,
    parameters: ParameterCount,
    trained: Trained,
    machine: Machine,
    software: SoftwareColumns,
    compute_s: FloatColumn,
    backward_s: FloatColumn,
) -> Traffic:
    """Return the data-parallel communication of one step on each candidate stage, shape (3, plans) [s].

    Gradients are all-reduced once a step (reduce-scattered and weights gathered when the optimizer is sharded, the same
    volume in a ring); with ZeRO-3 weights are gathered twice and gradients reduce-scattered for every micro-batch, but
    once a step in pipeline stages of PyTorch. Where states are sharded over part of the replicas only (HSDP), gradients
    are all-reduced over the rest too. What is frozen has no gradients, but ZeRO-3 gathers it. Weights in host memory
    come over PCIe before they are gathered, each rank's share over its own link (ZeRO-Infinity, arXiv 2104.07857,
    section 6.1).

    Parameters
    ----------
    compute_s, backward_s
        Computation, and its backward part, of one micro-batch on each candidate stage [s].
    """
    replicated = _Replicas(
        machine=machine, shares=shares, stride=shares.tp, group=shares.shard_group, all=shares.replicas
    )
    total = replicated.step(parameters.dense, trained.dense, model.layers / shares.pp)
    if model.has_experts:
        experts = _Replicas(
            machine=machine,
            shares=shares,
            stride=shares.etp * shares.ep,
            group=shares.expert_shard_group,
            all=shares.expert_replicas,
        )
        of_experts = experts.step(parameters.experts, trained.experts, model.moe_layers / shares.pp)
        total = total + of_experts.times(model.is_moe)
    if any_of(plans.offload == _WEIGHTS_ON_HOST):
        copied_s = when(plans.offload == _WEIGHTS_ON_HOST, _from_host_s(shares, parameters, machine))
        total = replace(total, total=total.total + copied_s)
    hidden = where(shares.shards_optimizer, compute_s, backward_s) * software.dp_overlap
    window = where(shares.gathers_each, software.fsdp_overlap * compute_s, hidden)
    times = volumes.data_parallel_calls(shares)
    return _hide(total.times(times), window * times)


def _from_host_s(shares: Shares, parameters: ParameterCount, machine: Machine) -> FloatColumn:
    """Return the time to copy a rank's share of the weights up, for forward and for backward of one micro-batch [s]."""
    held = parameters.dense / shares.shard_group + parameters.experts / shares.expert_shard_group
    return 2.0 * held * shares.activation_bytes / host_link_bytes_per_s(machine)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replicas:
    """Ranks that hold the same parameters: ``all`` of them ``stride`` apart, ``group`` of which share the states."""

    machine: Machine
    shares: Shares
    stride: FloatColumn
    group: FloatColumn
    all: FloatColumn

    def step(self, parameters: FloatColumn, trained: FloatColumn, layers: FloatColumn) -> CollectiveTime:
        """Return the time to synchronise ``parameters`` of ``layers`` layers, once, or for one micro-batch [s].

        Only ``trained`` parameters have gradients, and change.
        """
        shares, machine = self.shares, self.machine
        whole = build_group(machine, stride=self.stride, size=self.all, ranks=shares.gpus)
        reduced, weight_bytes = shares.reduced_bytes, shares.gathered_bytes
        if not any_of(shares.gathers_each) and all_of(self.group == self.all):
            if all_of(shares.shards_optimizer):
                return all_gather(machine, whole, trained * (reduced + weight_bytes), 2.0)
            apart = all_gather(machine, whole, trained * (reduced + weight_bytes), 2.0)
            together = all_reduce(machine, whole, trained * reduced, 1.0, in_network=_reduces_in_network(machine))
            return apart.otherwise(shares.shards_optimizer, together)
        sharded = build_group(machine, stride=self.stride, size=self.group, ranks=shares.gpus)
        is_partial = self.group < self.all
        tensors = where(shares.software == _DEEPSPEED, LAYER_TENSORS, 1.0)
        gathered = all_gather(
            machine, sharded, parameters * (2.0 * weight_bytes) + trained * reduced, GATHERS * tensors * layers
        )
        apart = all_gather(machine, whole, trained * (reduced + weight_bytes), 2.0)
        together = all_reduce(machine, whole, trained * reduced, 1.0, in_network=_reduces_in_network(machine))
        per_step = apart.otherwise(shares.shards_optimizer & logical_not(is_partial), together)
        if not any_of(is_partial):
            return gathered.otherwise(shares.gathers_each, per_step)
        rest = build_group(machine, stride=self.stride * self.group, size=self.all / self.group, ranks=shares.gpus)
        again = all_reduce(
            machine, rest, trained * reduced / self.group, layers, in_network=_reduces_in_network(machine)
        )
        weights_gathered = all_gather(machine, sharded, trained * weight_bytes, 1.0).when(
            is_partial & shares.shards_optimizer
        )
        per_micro_batch = gathered + again.when(is_partial).times(1.0 / shares.micro_batches)
        return per_micro_batch.otherwise(shares.gathers_each, per_step + weights_gathered)


def tied_embedding(model: ShapeColumns, shares: Shares, machine: Machine) -> CollectiveTime:
    """Return the time to all-reduce the gradient of a tied embedding between first and last stage [s]."""
    size_bytes = volumes.tied_embedding_bytes(model, shares)
    stride = shares.tp * shares.cp * shares.dp * maximum(shares.pp - 1, 1.0)
    return point_to_point(machine, stride=stride, size_bytes=size_bytes, calls=where(size_bytes > 0, 1.0, 0.0))
