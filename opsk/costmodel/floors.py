"""Computes lower bounds of time, memory and energy for families of plans; a search prunes with them.

A *family* is all plans that share a row's layout, micro-batch and sequence parallelism, whatever their recomputation,
schedule and interleaving; `node_floors` leaves the sharding open too. Each bound omits what a family may choose
(bubble, messages between stages, recomputation) or takes it at its best (data-parallel communication that overlaps
a whole recomputed forward, sharding over all replicas). So a family whose floor is above what is known to be possible
holds nothing better. What costs little to compute is asked first: of families their memory, of schedules the bubble
that they add (`schedule_floors`), then their memory (`order_bytes`), and the whole time of those few that are left.

Proof. With e exposed communication and r repeated work of a layer, every plan's stages take ``work + layers (e + r)``
for a micro-batch: e grows with the passes through a layer, and r is not negative. The head is on the last stage or,
with ZB-V, on the first: the better of the two counts. Memory: what a stage holds at the optimizer step and at the end
of the backward does not depend on the open choices; before it, it holds at least one micro-batch's checkpoints. The
stage that decides is the one whose device memory is largest, and device memory is at most
``1 + slack + fragmentation`` times what is needed, plus what the optimizer step needs temporarily.

Where the first d of L layers are dense and the others have experts, interleaving redistributes them. The i-th layer of
every round of chunks goes to the first stage before the last, so whatever the number of rounds, of n layers the first
stage has at least ``n d / L`` dense ones, and the last at most so many. Work and parameters of a stage are linear in
its number of layers with experts, so they are bounded by those at both ends of its range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np

from opsk.costmodel.efficiency.efficiency import Efficiency, SoftwareColumns
from opsk.costmodel.elementwise import any_of, to_float
from opsk.costmodel.machine import STATE_FRACTIONS, Machine, build_machine
from opsk.costmodel.memory.activations import layer_bytes
from opsk.costmodel.memory.modules import moves_activations
from opsk.costmodel.memory.peak import PLAIN_MODULES_FRAGMENTATION, compute_buffers, compute_peaks, nccl_bytes
from opsk.costmodel.memory.states import state_bytes
from opsk.costmodel.sizes.flops import step_flop
from opsk.costmodel.sizes.parameters import ParameterCount, count_parameters
from opsk.costmodel.sizes.pipeline import Pipelining, Stages, bubble_s, build_stages
from opsk.costmodel.sizes.shape import ShapeColumns, build_shape
from opsk.costmodel.sizes.shares import Shares, compute_shares
from opsk.costmodel.table import OFFLOADS, RECOMPUTES, FloatColumn, IntColumn, PlanTable
from opsk.costmodel.time.communication import LayerCommunication, data_parallel, layer_communication, tied_embedding
from opsk.costmodel.time.layer_time import LayerTime, layer_time
from opsk.costmodel.time.optimizer_time import optimizer_s, trained_parameters
from opsk.costmodel.time.step_time import average_stage, compute_straggler_share, stage_work, step_parts
from opsk.costmodel.uncertainty.offset import compute_offset_factor
from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import Offload, Recompute

_NONE, _FULL = RECOMPUTES.index(Recompute.NONE), RECOMPUTES.index(Recompute.FULL)
_ANY_RECOMPUTE = tuple(range(len(RECOMPUTES)))
_NO_OFFLOAD, _OFFLOADED = OFFLOADS.index(Offload.NONE), OFFLOADS.index(Offload.ACTIVATIONS)
_PASSES = ("forward_s", "backward_input_s", "backward_weight_s")
_ROUNDING = 1.0 - 1e-12
"""Sums in another order differ in the last digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Floors:
    """Lower bounds for all plans of the family of each row: time, memory and energy [s, bytes, J].

    ``needed_bytes`` bounds `MemoryTable.needed_bytes`, which decides whether a plan fits. ``recompute_s`` is the
    least time that a whole recomputation adds, a share of it for a share of the layers; 0 where it is not known.
    """

    step_s: FloatColumn
    needed_bytes: FloatColumn
    step_j: FloatColumn
    recompute_s: FloatColumn

    def only(self, rows: IntColumn) -> Self:
        """Return the floors of some rows."""
        return type(self)(**{item.name: getattr(self, item.name)[rows] for item in fields(self)})

    def recomputing(self, share: FloatColumn) -> Self:
        """Return the floors of plans that recompute a share of their layers, one entry a row."""
        return replace(self, step_s=self.step_s + share * self.recompute_s)

    @classmethod
    def concatenate(cls, parts: Sequence[Floors]) -> Self:
        """Concatenate the floors of all parts."""
        return cls(
            **{
                item.name: np.concatenate([getattr(part, item.name) for part in parts] or [np.zeros(0)])
                for item in fields(cls)
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyFloors(Floors):
    """Lower bounds for families whose schedule is open, with what a schedule adds.

    Parameters
    ----------
    working_s
        The part of ``step_s`` that a bubble comes on top of: all but the bound of the links [s].
    forward_s, backward_input_s, backward_weight_s
        The passes of one micro-batch through an average stage, at the pace at which ``working_s`` counts them [s].
    """

    working_s: FloatColumn
    forward_s: FloatColumn
    backward_input_s: FloatColumn
    backward_weight_s: FloatColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    """The inputs of the bounds of memory.

    ``extremes`` are the stages with the fewest and with the most layers with experts that interleaving can give them;
    one entry where both are equal.
    """

    model: ShapeColumns
    plans: PlanTable
    shares: Shares
    extremes: tuple[Stages, ...]
    machine: Machine
    efficiency: Efficiency

    @property
    def stages(self) -> Stages:
        """The stages; their layers with experts are one of the extremes."""
        return self.extremes[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class _TimedFamily(_Family):
    """The inputs of all bounds."""

    software: SoftwareColumns
    times: LayerTime
    layer: LayerCommunication


def node_floors(model: ModelShape, plans: PlanTable, cluster: ClusterSpec, efficiency: Efficiency) -> Floors:
    """Return the floors of families with any sharding; rows must have the widest sharding that is open to them.

    Recomputation, schedule and interleaving of the rows must be none, 1F1B and 1.
    """
    family = _time_family(_build_family(model, plans, cluster, efficiency))
    parameters = _min_parameters(family)
    states_s = optimizer_s(plans, family.shares, trained_parameters(family.shares, parameters), family.machine)
    step_s = _step_s(family, np.maximum(_layers_s(family), _links_s(family)) + states_s)
    return Floors(
        step_s=step_s,
        step_j=_step_j(family, step_s),
        needed_bytes=_needed_bytes(family, parameters, gathers=False),
        recompute_s=np.zeros(len(plans)),
    )


def family_bytes(model: ModelShape, plans: PlanTable, cluster: ClusterSpec, efficiency: Efficiency) -> FloatColumn:
    """Return the least memory that plans of families with the sharding of the row need [bytes].

    Recomputation, schedule and interleaving of the rows must be none, 1F1B and 1.
    """
    family = _build_family(model, plans, cluster, efficiency)
    return _needed_bytes(family, _min_parameters(family), gathers=True)


def family_floors(
    model: ModelShape, plans: PlanTable, cluster: ClusterSpec, efficiency: Efficiency, needed_bytes: FloatColumn
) -> FamilyFloors:
    """Return the floors of the families of `family_bytes`, which gives ``needed_bytes``."""
    family = _time_family(_build_family(model, plans, cluster, efficiency))
    shares = family.shares
    parameters = _min_parameters(family)
    states_s = optimizer_s(plans, shares, trained_parameters(shares, parameters), family.machine)
    working_s = _step_s(family, _layers_s(family) + _replicas_s(family, parameters) + states_s)
    step_s = np.maximum(working_s, _step_s(family, _links_s(family, parameters) + states_s))
    passes_s = average_stage(family.model, shares, family.times, _exposed_s(family), 0.0)
    pace = _slowdown(family)
    return FamilyFloors(
        step_s=step_s,
        step_j=_step_j(family, step_s),
        needed_bytes=needed_bytes,
        recompute_s=np.zeros(len(plans)),
        working_s=working_s,
        **{name: pace * pass_s for name, pass_s in zip(_PASSES, passes_s, strict=True)},
    )


def schedule_floors(families: FamilyFloors, plans: PlanTable) -> Floors:
    """Return the floors of families with the schedule and the interleaving of the row: the bubble comes on top.

    Messages between stages would only lengthen it.
    """
    pipelining = Pipelining(
        pp=to_float(plans.pp),
        vpp=to_float(plans.vpp),
        micro_batches=plans.global_batch / to_float(plans.micro_batch * plans.dp),
        schedule=plans.schedule,
    )
    waiting_s = bubble_s(pipelining, *(getattr(families, name) for name in _PASSES))
    return Floors(
        step_s=np.maximum(families.step_s, families.working_s + waiting_s),
        step_j=families.step_j,
        needed_bytes=families.needed_bytes,
        recompute_s=families.recompute_s,
    )


def order_bytes(model: ModelShape, plans: PlanTable, cluster: ClusterSpec, efficiency: Efficiency) -> FloatColumn:
    """Return the least memory that plans with the sharding, the schedule and the interleaving of the row need [bytes].

    Only the recomputation is open.
    """
    family = _build_order(model, plans, cluster, efficiency)
    device_bytes, step_bytes = _min_device_bytes(family)
    result: FloatColumn = (
        (device_bytes - step_bytes) / _max_overhead(efficiency) * _offset(family, "memory") * _ROUNDING
    )
    return result


def order_floors(
    model: ModelShape, plans: PlanTable, cluster: ClusterSpec, efficiency: Efficiency, needed_bytes: FloatColumn
) -> Floors:
    """Return the floors of the families of `order_bytes`, which gives ``needed_bytes``.

    The time is computed without recomputation, and without waits for offloaded activations.
    """
    family = _time_family(_build_order(model, plans, cluster, efficiency))
    shape, shares, machine, stages = family.model, family.shares, family.machine, family.stages
    parameters = count_parameters(shape, shares, stages)
    offload = np.where(plans.offload == _OFFLOADED, _NO_OFFLOAD, plans.offload)
    unmoved = replace(family.plans, offload=offload, offload_modules=np.zeros(1, dtype=np.int64))
    parts, _, _ = step_parts(
        shape, unmoved, shares, stages, parameters, machine, family.software, family.times, family.layer, alone=True
    )
    other_s = sum(column for name, column in parts.items() if name not in ("dp", "straggler", "overhead"))
    forward_s = shares.micro_batches * stages.layers.min(axis=0) * family.times.average.forward
    step_s = _step_s(family, other_s + _replicas_s(family, parameters))
    return Floors(
        step_s=step_s,
        step_j=_step_j(family, step_s),
        needed_bytes=needed_bytes,
        recompute_s=forward_s * _slowdown(family),
    )


def _build_order(model: ModelShape, plans: PlanTable, cluster: ClusterSpec, efficiency: Efficiency) -> _Family:
    """Return the columns of families whose recomputation alone is open: one with nothing recomputed."""
    family = _build_family(model, replace(plans, recompute=np.full(len(plans), _NONE)), cluster, efficiency)
    return replace(family, extremes=(build_stages(family.model, family.shares),))


def _min_device_bytes(family: _Family) -> tuple[FloatColumn, FloatColumn]:
    """Return the device memory of the fullest stage, and what the optimizer step needs temporarily [bytes].

    Recomputation is the best for each stage. That is the full one: ``n`` stored layers of ``c`` bytes each and one that
    is restored, ``n c + (S - c)``, are the least where ``c`` is. Not so where most of what is stored is in host memory,
    where little else than the input is stored of a layer, or where a stage has less than one layer of a kind: of a
    decoder next to an encoder's, or with experts where these alternate with dense ones. Recomputing some layers is
    between all and none.
    """
    parameters = count_parameters(family.model, family.shares, family.stages)
    layer = layer_bytes(family.model, family.plans, family.shares)
    rest = np.minimum(layer.plain, layer.sparse) - layer.attention_core
    moe_layers = family.stages.moe_layers
    has_layers = (family.stages.layers >= 1.0).all() and ((moe_layers >= 1.0) | (moe_layers == 0.0)).all()
    is_moved = moves_activations(family.plans, _OFFLOADED).any() or any_of(family.plans.recompute_modules)
    is_plain = has_layers and (rest >= layer.checkpoint).all() and not is_moved
    peaks = [
        compute_peaks(
            family.model,
            plans,
            compute_shares(family.model, plans),
            family.stages,
            parameters,
            family.machine.nccl_channels,
            family.efficiency,
        )
        for code in ((_FULL,) if is_plain else _ANY_RECOMPUTE)
        for plans in (replace(family.plans, recompute=np.full(len(family.plans), code)),)
    ]
    device_bytes = np.minimum.reduce([peak.device for peak in peaks]).max(axis=0)
    return device_bytes, peaks[0].states.step.max(axis=0)


def _max_overhead(efficiency: Efficiency) -> float:
    """Return the largest ratio of allocated to needed memory of a stage, without the optimizer step."""
    fragmentation = max(efficiency.memory.fragmentation_fraction, PLAIN_MODULES_FRAGMENTATION)
    return 1.0 + efficiency.memory.slack_fraction + fragmentation


def _build_family(model: ModelShape, plans: PlanTable, cluster: ClusterSpec, efficiency: Efficiency) -> _Family:
    """Return the columns that all bounds of some rows share."""
    shape = build_shape(model)
    shares = compute_shares(shape, plans)
    return _Family(
        model=shape,
        plans=plans,
        shares=shares,
        extremes=_find_extremes(shape, shares),
        machine=build_machine(cluster, plans.precision, efficiency),
        efficiency=efficiency,
    )


def _time_family(family: _Family) -> _TimedFamily:
    """Return the columns with those of the bounds of time."""
    model, shares, machine = family.model, family.shares, family.machine
    software = family.efficiency.for_software(family.plans)
    times = layer_time(model, family.plans, shares, machine, software)
    return _TimedFamily(
        **{item.name: getattr(family, item.name) for item in fields(family)},
        software=software,
        times=times,
        layer=layer_communication(model, shares, times, machine, software),
    )


def _find_extremes(model: ShapeColumns, shares: Shares) -> tuple[Stages, ...]:
    """Return the stages with the fewest and the most layers with experts that interleaving can give them."""
    stages = build_stages(model, shares)
    if not any_of(model.is_moe * model.dense_layers * (1.0 - model.dense_interleaved)):
        return (stages,)
    mean = stages.layers * (model.moe_layers / model.layers)
    minimum = np.where(stages.index == shares.pp - 1, mean, np.maximum(stages.layers - model.dense_layers, 0.0))
    maximum = np.where(stages.index == 0, mean, np.minimum(stages.layers, model.moe_layers))
    return tuple(
        replace(stages, moe_layers=layers, plain_layers=stages.layers - layers)
        for layers in (np.where(shares.pp > 1, bound, stages.moe_layers) for bound in (minimum, maximum))
    )


def _min_parameters(family: _Family) -> ParameterCount:
    """Return the fewest parameters of every stage, without the head: schedules may place it elsewhere."""
    pp = family.shares.pp
    counts = [
        count_parameters(family.model, family.shares, replace(stages, is_last=np.where(pp > 1, 0.0, stages.is_last)))
        for stages in family.extremes
    ]
    if len(counts) == 1:
        return counts[0]
    return ParameterCount(
        **{item.name: np.minimum(*(getattr(count, item.name) for count in counts)) for item in fields(ParameterCount)}
    )


def _step_s(family: _TimedFamily, parts_s: FloatColumn) -> FloatColumn:
    """Return the time of a step including the overhead of the software and the wait for the slowest node [s]."""
    total_s = (
        parts_s + family.software.step_overhead_s + tied_embedding(family.model, family.shares, family.machine).total
    )
    result: FloatColumn = total_s * _slowdown(family)
    return result


def _slowdown(family: _TimedFamily) -> FloatColumn:
    """Return what multiplies the work of a step: the wait for the slowest node, and the site's offset."""
    slowdown = 1.0 + compute_straggler_share(family.shares, family.machine, family.software)
    result: FloatColumn = slowdown * _offset(family, "time") * _ROUNDING
    return result


def _offset(family: _Family, quantity: str) -> FloatColumn:
    """Return what multiplies the time or the memory of every plan of the family."""
    factor = compute_offset_factor(family.efficiency.offset, family.plans, quantity)
    return np.ones(len(family.plans)) if factor is None else factor


def _step_j(family: _TimedFamily, step_s: FloatColumn) -> FloatColumn:
    """Return the least energy of a step: products as long as they must run, idle for the rest of its floor [J].

    Products run for their FLOP at the full rate, or as long as the lightest stage computes if that is less.
    """
    model, shares, machine = family.model, family.shares, family.machine
    useful_flop, _ = step_flop(model, shares)
    works = [
        stage_work(model, shares, replace(stages, is_last=np.where(shares.pp > 1, 0.0, stages.is_last)), family.times)
        for stages in family.extremes
    ]
    work_s = shares.micro_batches * np.minimum.reduce(works).min(axis=0)
    dense_s = np.minimum(useful_flop / (shares.gpus * machine.matmul_flop_per_s), work_s) * _ROUNDING
    dense_s = dense_s * np.minimum(_offset(family, "time"), 1.0)
    state = STATE_FRACTIONS
    gpu_j = machine.tdp_w * (state.idle * step_s + (state.computing - state.idle) * dense_s)
    result: FloatColumn = shares.gpus * (gpu_j + (machine.host_w + machine.network_w) * step_s)
    return result


def _layers_s(family: _TimedFamily) -> FloatColumn:
    """Return the time of all micro-batches on the slowest stage with nothing recomputed [s].

    Where stages are equal, a head on the first one, next to the embedding, is never better.
    """
    shares, exposed_s = family.shares, _exposed_s(family)
    slowest_s = _slowest_s(family, exposed_s, family.stages.is_last)
    if len(family.extremes) > 1 or (shares.first_stage_layers + shares.last_stage_layers).any():
        slowest_s = np.minimum(slowest_s, _slowest_s(family, exposed_s, family.stages.is_first))
    result: FloatColumn = shares.micro_batches * slowest_s
    return result


def _exposed_s(family: _TimedFamily) -> FloatColumn:
    """Return the communication of a layer that nothing hides [s]."""
    result: FloatColumn = family.layer.tp.exposed + family.layer.cp.exposed + family.layer.ep.exposed
    return result


def _slowest_s(family: _TimedFamily, exposed_s: FloatColumn, is_last: FloatColumn) -> FloatColumn:
    """Return the least time of the slowest stage for a micro-batch, with the head on the stage ``is_last`` [s]."""
    works = [
        stage_work(family.model, family.shares, replace(stages, is_last=is_last), family.times)
        for stages in family.extremes
    ]
    slowest: FloatColumn = (np.minimum.reduce(works) + family.stages.layers * exposed_s).max(axis=0)
    return slowest


def _replicas_s(family: _TimedFamily, parameters: ParameterCount) -> FloatColumn:
    """Return the data-parallel communication that nothing can hide, shape (plans,) [s].

    The widest window is a stage that also holds embedding and head and repeats a whole forward. Where activations are
    offloaded the window has no bound, and so the communication no floor.
    """
    plans, shares, times = family.plans, family.shares, family.times
    is_offloaded = moves_activations(plans, _OFFLOADED)
    if is_offloaded.all():
        return np.zeros(shares.tp.shape)
    trained = trained_parameters(shares, parameters)
    ends_s = (shares.pp > 1) * (times.head + times.mtp + times.embedding)
    works = [stage_work(family.model, shares, stages, times) for stages in family.extremes]
    work_s = np.maximum.reduce(works) + ends_s
    repeated_s = family.stages.layers * np.maximum(times.average.forward, times.attention)
    exposed = data_parallel(
        family.model,
        plans,
        shares,
        parameters,
        trained,
        family.machine,
        family.software,
        work_s + repeated_s,
        work_s,
    ).exposed
    return np.where(is_offloaded, 0.0, exposed.max(axis=0))


def _links_s(family: _TimedFamily, parameters: ParameterCount | None = None) -> FloatColumn:
    """Return the time that the busier of NVLink and NIC needs for what every plan of the family sends [s].

    No plan's computation and communication take less (`opsk.costmodel.time.step_time`). Without ``parameters`` the
    data-parallel communication is omitted.
    """
    shares, machine, layer = family.shares, family.machine, family.layer
    layers = shares.micro_batches * family.stages.layers.min(axis=0)
    busy = [
        layers * (getattr(layer.tp, link) + getattr(layer.cp, link) + getattr(layer.ep, link)) for link in ("hb", "nic")
    ]
    if parameters is not None:
        trained = trained_parameters(shares, parameters)
        nothing = np.zeros(family.stages.layers.shape)
        replicas = data_parallel(
            family.model, family.plans, shares, parameters, trained, machine, family.software, nothing, nothing
        ).of_slowest()
        busy = [carried + getattr(replicas, link) for carried, link in zip(busy, ("hb", "nic"), strict=True)]
    result: FloatColumn = np.maximum(*busy)
    return result


def _needed_bytes(family: _Family, parameters: ParameterCount, *, gathers: bool) -> FloatColumn:
    """Return the least memory that a plan of the family needs on its deciding stage [bytes]."""
    model, plans, shares, memory = family.model, family.plans, family.shares, family.efficiency.memory
    states = state_bytes(plans, shares, parameters)
    layer = layer_bytes(model, plans, shares)
    permanent = states.weights + states.optimizer + memory.workspace_bytes
    checkpoints = np.minimum(np.minimum(layer.plain, layer.sparse) - layer.attention_core, layer.checkpoint)
    is_moved = moves_activations(plans, _OFFLOADED) | (plans.recompute_modules > 0)
    checkpoint_bytes = family.stages.layers * np.where(is_moved, 0.0, np.maximum(checkpoints, 0.0))
    before = permanent + states.gradients_at_start + checkpoint_bytes + layer.working
    after = permanent + states.gradients
    ending = after + np.minimum(layer.plain, layer.sparse) + layer.working
    if gathers:
        buffers = compute_buffers(model, plans, shares, parameters)
        before = before + buffers.gathered
        ending = ending + buffers.gathered
    fullest = np.maximum(np.maximum(before, ending), after + states.step)
    outside_allocator = (
        nccl_bytes(model, plans, shares, family.machine.nccl_channels, family.efficiency) + memory.context_bytes
    )
    # a step's own buffers would count with the head that is omitted here: then the largest stage is no bound
    largest = (fullest + outside_allocator).max(axis=0) / _max_overhead(family.efficiency)
    of_largest = np.where(states.step.max(axis=0) == 0.0, largest, 0.0)
    minimum = np.maximum((fullest + outside_allocator).min(axis=0), of_largest)
    result: FloatColumn = minimum * _offset(family, "memory") * _ROUNDING
    return result
