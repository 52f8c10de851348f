"""Computes the time of one optimizer step, and its components."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

from opsk.costmodel.collectives.hierarchical import CollectiveTime
from opsk.costmodel.efficiency.efficiency import SoftwareColumns, Spread
from opsk.costmodel.elementwise import (
    all_of,
    any_of,
    full_like,
    log2,
    logical_not,
    maximum,
    minimum,
    to_float,
    when,
    where,
)
from opsk.costmodel.machine import Machine
from opsk.costmodel.memory.activations import layer_bytes, stored_layer_bytes
from opsk.costmodel.memory.modules import moves_activations
from opsk.costmodel.sizes.flops import expanding_weights, step_flop
from opsk.costmodel.sizes.parameters import ParameterCount
from opsk.costmodel.sizes.pipeline import Extreme, Stages, bubble_s
from opsk.costmodel.sizes.shape import ShapeColumns
from opsk.costmodel.sizes.shares import Shares
from opsk.costmodel.table import OFFLOADS, RECOMPUTE_BITS, SOFTWARE, FloatColumn, PlanTable, Range, TimeTable
from opsk.costmodel.time.communication import (
    LayerCommunication,
    Traffic,
    data_parallel,
    layer_communication,
    pipeline,
    tied_embedding,
)
from opsk.costmodel.time.layer_time import LayerTime, layer_time
from opsk.costmodel.time.optimizer_time import host_link_bytes_per_s, optimizer_s, trained_parameters
from opsk.units import TERA
from opsk.workload.plan import Offload, RecomputeModule, Software


def share_links(axes: Mapping[str, Traffic], compute_s: FloatColumn) -> dict[str, Traffic]:
    """Return the communication of each axis in one step, with the part of its window that the others leave.

    Parameters
    ----------
    axes
        Communication of one step, by axis, each without the others; messages between stages (``pp``) overlap any
        computation.
    compute_s
        Computation of the step, recomputation included [s].
    """
    alone = dict(axes)
    hidden = {name: axis.total - axis.exposed for name, axis in alone.items()}
    widest = reduce(maximum, (where(hidden[name] > 0, _window_s(alone, name, compute_s), 0.0) for name in alone))
    window = minimum(widest, compute_s)
    on_hb = {name: minimum(hidden[name], axis.hb) for name, axis in alone.items()}
    on_nic = {name: minimum(hidden[name], axis.nic) for name, axis in alone.items()}
    of_hb, of_nic = (reduce(_add, link.values()) for link in (on_hb, on_nic))
    beyond = maximum(maximum(of_hb, of_nic) - window, 0.0)
    if not any_of(beyond):
        return alone
    is_nic = of_nic >= of_hb
    carried = maximum(where(is_nic, of_nic, of_hb), 1e-300)
    shared = {}
    for name, axis in alone.items():
        exposed = axis.exposed + beyond * (where(is_nic, on_nic[name], on_hb[name]) / carried)
        is_less = (beyond > 0) & (hidden[name] > 0)
        shared[name] = replace(axis, exposed=exposed, window=where(is_less, axis.total - exposed, axis.window))
    return shared


def _window_s(axes: Mapping[str, Traffic], name: str, compute_s: FloatColumn) -> FloatColumn:
    """Return the computation that an axis can overlap [s]."""
    return compute_s if name == "pp" else axes[name].window


def _add(first: FloatColumn, second: FloatColumn) -> FloatColumn:
    return first + second


SELECTED_OPERATIONS = 0.5
"""Share of a layer's products that PyTorch's selective checkpointing by operations repeats (torchtitan)."""
BARE_LOOP_S = 0.01
"""Time between steps of a program that no trainer runs, whose weights are plain tensors: the host's time of a fused or
foreach optimizer step on these is 6, 10.2 and 15.6 ms, on FSDP2's distributed tensors 30 to 187 ms
(`benchmarks/published/host.md`)."""
NORM_PASSES = 2.0
"""A norm reads its input and writes its output."""
_PYTORCH = SOFTWARE.index(Software.PYTORCH)
_CORE = RECOMPUTE_BITS[RecomputeModule.CORE_ATTN]


def compute_recompute_s(
    model: ShapeColumns, shares: Shares, times: LayerTime, machine: Machine, software: SoftwareColumns
) -> FloatColumn:
    """Return what recomputation repeats of the average layer for one micro-batch [s].

    Full recomputation repeats the requested share of layers; selective one the modules that are named, the
    attention core in Megatron where none is. PyTorch's by operations (torchtitan's default) stores the attention and
    every second product, and repeats the rest.
    """
    forward = times.average.forward
    by_operation = SELECTED_OPERATIONS * (forward - times.attention)
    selective = where((shares.software == _PYTORCH) & (shares.repeated_modules == 0), by_operation, times.attention)
    named = (shares.repeated_modules & ~_CORE) | where(shares.software == _PYTORCH, shares.repeated_modules, 0)
    if any_of(named):
        modules = _modules_s(model, shares, times, machine, software)
        selective = where(shares.repeated_modules > 0, modules, selective)
    return shares.recomputed_share * forward + when(shares.selective_recompute, selective)


def _modules_s(
    model: ShapeColumns, shares: Shares, times: LayerTime, machine: Machine, software: SoftwareColumns
) -> FloatColumn:
    """Return the forward of all modules that are repeated, of the average layer [s]."""
    moe = model.moe_layers / model.layers
    slow = software.elementwise_factor / machine.hbm_bytes_per_s * shares.activation_bytes
    norm = NORM_PASSES * shares.plain_tokens * model.hidden * slow
    activation = (2.0 + model.gated_mlp) * shares.expert_tokens * shares.expert_width * slow
    experts = shares.repeats(RecomputeModule.MOE)
    inside = shares.repeats(RecomputeModule.MOE_ACT) * activation
    inside = inside + shares.repeats(RecomputeModule.SHARED_EXPERTS) * times.shared_experts
    return (
        shares.repeats(RecomputeModule.CORE_ATTN) * times.attention
        + shares.repeats(RecomputeModule.LAYERNORM) * (model.is_latent + moe) * norm
        + shares.repeats(RecomputeModule.MLA_UP_PROJ) * _expanded_s(model, shares, machine, slow)
        + shares.repeats(RecomputeModule.MLP) * (1.0 - moe) * times.mlp
        + moe * where(experts > 0, times.experts + times.shared_experts, inside)
    )


def _expanded_s(model: ShapeColumns, shares: Shares, machine: Machine, slow: FloatColumn) -> FloatColumn:
    """Return the products that expand latents to heads, and rotary positions [s]; nothing without latents."""
    tokens, weights = shares.tokens, expanding_weights(model, shares)
    arithmetic = 2.0 * tokens * weights / machine.matmul_flop_per_s
    rotated = 2.0 * tokens * (shares.query_width + shares.kv_width) * slow
    return model.is_latent * (arithmetic + rotated)


_ACTIVATIONS = OFFLOADS.index(Offload.ACTIVATIONS)

CONFIDENCE_SIGMAS = 1.645
"""A range holds 90 % of a normal distribution."""
_NOTHING = to_float(0.0)


def step_time(
    model: ShapeColumns,
    plans: PlanTable,
    shares: Shares,
    stages: Stages,
    parameters: ParameterCount,
    machine: Machine,
    software: SoftwareColumns,
    spread: Spread,
) -> TimeTable:
    """Return the time of one step and its rates."""
    times = layer_time(model, plans, shares, machine, software)
    layer = layer_communication(model, shares, times, machine, software)
    components, traffic, windows = step_parts(model, plans, shares, stages, parameters, machine, software, times, layer)
    expected = total_s(components)
    factor = math.exp(CONFIDENCE_SIGMAS * spread.time_log_sigma)
    step_s = Range(low=expected / factor, expected=expected, high=expected * factor)
    useful, hardware = step_flop(model, shares)
    gpus = shares.gpus
    return TimeTable(
        step_s=step_s,
        tokens_per_s_per_gpu=_rate(model.seq * shares.global_batch / gpus, step_s),
        tflops_per_gpu=_rate(useful / gpus / TERA, step_s),
        mfu=_rate(useful / (gpus * machine.peak_flop_per_s), step_s),
        hfu=_rate(hardware / (gpus * machine.peak_flop_per_s), step_s),
        model_flop=useful,
        hardware_flop=hardware,
        components=components,
        communication=traffic,
        windows=windows,
    )


def step_seconds(
    model: ShapeColumns,
    plans: PlanTable,
    shares: Shares,
    stages: Stages,
    parameters: ParameterCount,
    machine: Machine,
    software: SoftwareColumns,
) -> FloatColumn:
    """Return the expected time of one step, without its rates and parts [s]."""
    times = layer_time(model, plans, shares, machine, software)
    layer = layer_communication(model, shares, times, machine, software)
    components, _, _ = step_parts(model, plans, shares, stages, parameters, machine, software, times, layer)
    return total_s(components)


def total_s(parts: Mapping[str, FloatColumn]) -> FloatColumn:
    """Return the sum of the parts of a step, some of which may be the same for all plans [s]."""
    first, *others = parts.values()
    return sum(others, first)


def _rate(work: FloatColumn, step_s: Range) -> Range:
    """Return work over time; the slowest step gives the lowest rate."""
    return Range(low=work / step_s.high, expected=work / step_s.expected, high=work / step_s.low)


def step_parts(
    model: ShapeColumns,
    plans: PlanTable,
    shares: Shares,
    stages: Stages,
    parameters: ParameterCount,
    machine: Machine,
    software: SoftwareColumns,
    times: LayerTime,
    layer: LayerCommunication,
    *,
    alone: bool = False,
) -> tuple[dict[str, FloatColumn], dict[str, FloatColumn], dict[str, FloatColumn]]:
    """Return the parts of the step, the whole communication of each axis, hidden or not, and what can hide it [s].

    The slowest stage sets the pace for all micro-batches; the pipeline fills and drains at the average stage's pace.

    Parameters
    ----------
    times, layer
        Of `layer_time` and `layer_communication` for the same columns.
    alone
        Ignore that other axes use the same links, which is never slower.
    """
    work = stage_work(model, shares, stages, times)
    exposed_s = layer.tp.exposed + layer.cp.exposed + layer.ep.exposed
    again_s = compute_recompute_s(model, shares, times, machine, software) + _waiting_for_host(
        model, plans, shares, times, machine
    )
    stage_s = work + stages.layers * (exposed_s + again_s)
    slowest = Extreme.of(stage_s)
    layers = slowest.take(stages.layers)
    count = shares.micro_batches
    per_layer = count * layers
    messages = pipeline(model, shares, machine, software)
    trained = trained_parameters(shares, parameters)
    synchronised = data_parallel(
        model, plans, shares, parameters, trained, machine, software, work + stages.layers * again_s, work * (2.0 / 3.0)
    )
    compute_s, recompute_s = count * slowest.take(work), per_layer * again_s
    axes = {
        "tp": layer.tp.times(per_layer),
        "cp": layer.cp.times(per_layer),
        "ep": layer.ep.times(per_layer),
        "pp": messages.times(count),
        "dp": synchronised.of_slowest() + _expose(tied_embedding(model, shares, machine)),
    }
    if not alone:
        axes = share_links(axes, compute_s + recompute_s)
    components = {
        "compute": compute_s,
        "recompute": recompute_s,
        **{name: axes[name].exposed for name in ("tp", "cp", "ep", "pp")},
        "bubble": _bubble(model, shares, times, again_s + exposed_s, messages.exposed),
        "dp": axes["dp"].exposed,
        "optimizer": optimizer_s(plans, shares, trained, machine),
        "overhead": _between_steps_s(plans, shares, software) + software.trainer_fraction * (compute_s + recompute_s),
    }
    components["straggler"] = compute_straggler_share(shares, machine, software) * total_s(components)
    traffic = {name: axis.total for name, axis in axes.items()}
    used = {"tp": shares.tp > 1, "cp": shares.cp > 1, "ep": shares.ep > 1, "dp": shares.replicas > 1}
    windows = {name: when(used[name], axis.window) if name in used else axis.window for name, axis in axes.items()}
    return components, traffic, windows


def _expose(carried: CollectiveTime) -> Traffic:
    """Return the traffic of a collective that nothing hides."""
    return Traffic(total=carried.total, exposed=carried.total, window=_NOTHING, hb=carried.hb, nic=carried.nic)


def stage_work(model: ShapeColumns, shares: Shares, stages: Stages, times: LayerTime) -> FloatColumn:
    """Return forward and backward of one micro-batch on each candidate stage, shape (3, plans) [s]."""
    work = stages.plain_layers * times.plain.total
    if model.has_experts:
        work = work + stages.moe_layers * times.sparse.total
    return work + stages.is_last * (times.head + times.mtp) + stages.is_first * times.embedding


def _waiting_for_host(
    model: ShapeColumns, plans: PlanTable, shares: Shares, times: LayerTime, machine: Machine
) -> FloatColumn:
    """Return how long the average layer waits for offloaded activations, each micro-batch [s].

    Its activations are copied out over PCIe during its forward and back during its backward; the excess is
    exposed. Not modelled: GPUs that share a PCIe switch.
    """
    is_offloaded = moves_activations(plans, _ACTIVATIONS)
    if not any_of(is_offloaded):
        return _NOTHING
    layer, moe = layer_bytes(model, plans, shares), model.moe_layers / model.layers
    plain, sparse = stored_layer_bytes(model, plans, shares, layer)
    if any_of(plans.offload_layers):
        staged = model.layers / shares.pp
        share = where(plans.offload_layers > 0, minimum(plans.offload_layers / staged, 1.0), 1.0)
        plain, sparse = share * plain, share * sparse
    if layer.moved is not None:
        by_module = plans.offload_modules > 0
        plain = where(by_module, layer.moved.plain_offloaded, plain)
        sparse = where(by_module, layer.moved.sparse_offloaded, sparse)
    copied_s = ((1.0 - moe) * plain + moe * sparse) / host_link_bytes_per_s(machine)
    forward = times.average.forward * plans.overlap
    backward = (times.average.total - times.average.forward) * plans.overlap
    waiting = maximum(copied_s - forward, 0.0) + maximum(copied_s - backward, 0.0)
    return where(is_offloaded, waiting, 0.0)


def _between_steps_s(plans: PlanTable, shares: Shares, software: SoftwareColumns) -> FloatColumn:
    """Return the time between two steps [s]."""
    overhead_s = software.step_overhead_s
    if not any_of(plans.bare_loop):
        return overhead_s
    is_bare = plans.bare_loop & (plans.software == _PYTORCH) & logical_not(shares.shards_weights)
    return where(is_bare, minimum(overhead_s, BARE_LOOP_S), overhead_s)


def _bubble(
    model: ShapeColumns, shares: Shares, times: LayerTime, extra_s: FloatColumn, message_s: FloatColumn
) -> FloatColumn:
    """Return how long a stage waits in one step [s]: the pipeline fills and drains at the average stage's pace.

    ``extra_s`` is recomputation and exposed communication of a layer, most of it in the backward; head, embedding
    and prediction layers belong to the average stage too.
    """
    if all_of(shares.pp == 1):
        return full_like(shares.pp, 0.0)
    return bubble_s(shares, *average_stage(model, shares, times, extra_s, message_s))


def average_stage(
    model: ShapeColumns, shares: Shares, times: LayerTime, extra_s: FloatColumn, message_s: FloatColumn | float
) -> tuple[FloatColumn, FloatColumn, FloatColumn]:
    """Return how long a micro-batch is on the average stage: forward, and backward by input and by weight [s].

    Parameters
    ----------
    extra_s
        Recomputation and exposed communication of a layer, most of it in the backward.
    message_s
        Exposed messages of a stage for one micro-batch, half of them before the forward.
    """
    layers = model.layers / shares.pp
    ends = (times.head + times.embedding + times.mtp) / shares.pp
    average = times.average
    return (
        layers * average.forward + ends / 3.0 + message_s / 2.0,
        layers * (average.by_input + extra_s) + ends / 3.0 + message_s / 2.0,
        layers * average.by_weight + ends / 3.0,
    )


def compute_straggler_share(shares: Shares, machine: Machine, software: SoftwareColumns) -> FloatColumn:
    """Return the relative delay by the slowest node: a constant for each doubling of the nodes.

    The maximum of n equal times grows with the logarithm of n where their tails are exponential.
    """
    return software.straggler_fraction * log2(maximum(shares.gpus / machine.node_gpus, 1.0))
