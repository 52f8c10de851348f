"""Defines the tables that the cost model takes and returns: one row a plan, one numpy array a column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from opsk.errors import InputError
from opsk.workload.plan import (
    AdapterFormat,
    Attention,
    LoraTargets,
    Loss,
    MoeDispatcher,
    MoeGemm,
    Offload,
    OffloadModule,
    Optimizer,
    OptimizerStep,
    Plan,
    Precision,
    QkvLayout,
    Recompute,
    RecomputeModule,
    Schedule,
    Sharding,
    Software,
    StateFormat,
    States,
)

IntColumn = npt.NDArray[np.int64]
FloatColumn = npt.NDArray[np.float64]
BoolColumn = npt.NDArray[np.bool_]

SHARDINGS = tuple(Sharding)
RECOMPUTES = tuple(Recompute)
PRECISIONS = tuple(Precision)
IS_WIDE = np.array([precision.is_wide for precision in PRECISIONS])
"""Formats in which all tensors are in fp32."""
SCHEDULES = tuple(Schedule)
STATES = tuple(States)
OPTIMIZERS = tuple(Optimizer)
OPTIMIZER_STEPS = tuple(OptimizerStep)
OFFLOADS = tuple(Offload)
SOFTWARE = tuple(Software)
LOSSES = tuple(Loss)
ATTENTIONS = tuple(Attention)
DISPATCHERS = tuple(MoeDispatcher)
MOE_GEMMS = tuple(MoeGemm)
STATE_FORMATS = tuple(StateFormat)
RECOMPUTE_BITS = {module: 1 << place for place, module in enumerate(RecomputeModule)}
OFFLOAD_BITS = {module: 1 << place for place, module in enumerate(OffloadModule)}
"""A list of modules is a column of whole numbers, with a bit for each module."""
LORA_TARGETS = tuple(LoraTargets)
ADAPTER_FORMATS = tuple(AdapterFormat)
QKV_LAYOUTS = tuple(QkvLayout)

_CODES: Mapping[str, tuple[Any, ...]] = {
    "sharding": SHARDINGS,
    "recompute": RECOMPUTES,
    "precision": PRECISIONS,
    "schedule": SCHEDULES,
    "states": STATES,
    "optimizer": OPTIMIZERS,
    "optimizer_step": OPTIMIZER_STEPS,
    "offload": OFFLOADS,
    "software": SOFTWARE,
    "loss": LOSSES,
    "attention": ATTENTIONS,
    "moe_dispatcher": DISPATCHERS,
    "moe_gemm": MOE_GEMMS,
    "lora_targets": LORA_TARGETS,
    "adapter_format": ADAPTER_FORMATS,
    "qkv_layout": QKV_LAYOUTS,
    **dict.fromkeys(("gradient_format", "master_format", "moment_format", "second_moment_format"), STATE_FORMATS),
}
_BITS: Mapping[str, Mapping[Any, int]] = {"recompute_modules": RECOMPUTE_BITS, "offload_modules": OFFLOAD_BITS}
_YES_OR_NO = (
    *("sequence_parallel", "overlap", "tp_overlap", "compiled", "fused_moe", "moe_permute_fusion", "ep_overlap"),
    *("tp_async", "cuda_graphs", "fp8_weights", "upcast_base", "expandable_segments"),
    *("quantised_head", "lora_dropout", "keeps_base_inputs"),
    *("reentrant", "keeps_gathered", "reduces_16bit", "fused_norms", "varied_lengths"),
    *("gathers_fp32", "keeps_kv_cache", "accumulates_unsharded", "flat_adapters"),
    *("gathers_logits", "bare_loop", "distributed_tensors", "reduces_fp32"),
)
_RATIOS = ("frozen_fraction", "offload_fraction")
_SIZED = ("tp", "pp", "vpp", "cp", "ep", "dp", "micro_batch", "global_batch")
"""Columns that always have one entry a plan: they define the number of rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTable:
    """Plans as columns of equal length, named as the fields of `Plan`.

    Columns of enums hold the index into ``SHARDINGS``, ``RECOMPUTES``, ``PRECISIONS`` and so on, those of lists of
    modules the sum of ``RECOMPUTE_BITS`` and ``OFFLOAD_BITS``.
    """

    tp: IntColumn
    pp: IntColumn
    vpp: IntColumn
    cp: IntColumn
    ep: IntColumn
    dp: IntColumn
    sharding: IntColumn
    sequence_parallel: BoolColumn
    recompute: IntColumn
    precision: IntColumn
    micro_batch: IntColumn
    global_batch: IntColumn
    etp: IntColumn
    shard_gpus: IntColumn
    recompute_layers: IntColumn
    first_stage_layers: IntColumn
    last_stage_layers: IntColumn
    schedule: IntColumn
    states: IntColumn
    optimizer: IntColumn
    optimizer_step: IntColumn
    offload: IntColumn
    software: IntColumn
    overlap: BoolColumn
    tp_overlap: BoolColumn
    tp_async: BoolColumn
    compiled: BoolColumn
    fused_moe: BoolColumn
    cuda_graphs: BoolColumn
    moe_dispatcher: IntColumn
    moe_gemm: IntColumn
    moe_permute_fusion: BoolColumn
    ep_overlap: BoolColumn
    loss: IntColumn
    attention: IntColumn
    frozen_fraction: FloatColumn
    lora_rank: IntColumn
    base_bits: IntColumn
    recompute_modules: IntColumn
    offload_modules: IntColumn
    offload_layers: IntColumn
    offload_fraction: FloatColumn
    gradient_format: IntColumn
    master_format: IntColumn
    moment_format: IntColumn
    second_moment_format: IntColumn
    fp8_weights: BoolColumn
    lora_targets: IntColumn
    adapter_format: IntColumn
    upcast_base: BoolColumn
    quantised_head: BoolColumn
    lora_dropout: BoolColumn
    keeps_base_inputs: BoolColumn
    qkv_layout: IntColumn
    reentrant: BoolColumn
    keeps_gathered: BoolColumn
    gathers_fp32: BoolColumn
    accumulates_unsharded: BoolColumn
    flat_adapters: BoolColumn
    keeps_kv_cache: BoolColumn
    gathers_logits: BoolColumn
    bare_loop: BoolColumn
    distributed_tensors: BoolColumn
    reduces_16bit: BoolColumn
    reduces_fp32: BoolColumn
    fused_norms: BoolColumn
    varied_lengths: BoolColumn
    expandable_segments: BoolColumn

    @classmethod
    def of(cls, plans: Sequence[Plan]) -> PlanTable:
        """Return the table whose rows are ``plans``, in order.

        Raises
        ------
        InputError
            A size does not fit into 64 bits.
        """
        return cls(**{item.name: _column(item.name, plans) for item in fields(cls)})

    @classmethod
    def single(cls, plan: Plan) -> PlanTable:
        """Return the columns of a single plan as plain Python numbers, on which formulas are fastest.

        Raises
        ------
        InputError
            A size does not fit into 64 bits, as in a table.
        """
        plain = _get_plain(plan)
        if max(map(abs, plain)) > _MAX_INT:
            raise InputError("a size of the plan is too large for any machine", hint="check the number")
        coded: dict[str, Any] = {
            name: codes[value] for (name, codes), value in zip(_CODE_OF.items(), _get_coded(plan), strict=True)
        }
        listed: dict[str, Any] = {name: _bits(name, getattr(plan, name)) for name in _BITS}
        return cls(**dict(zip(_UNCODED, plain, strict=True)), **coded, **listed)

    @classmethod
    def repeat_with(cls, plan: Plan, rows: int, **columns: IntColumn | BoolColumn) -> PlanTable:
        """Return ``rows`` copies of ``plan`` except for the given columns, which hold codes for enums.

        Columns that are the same for all plans have one entry, which numpy broadcasts: work on them is done once.
        """
        named = {*columns, *_SIZED}
        constant = {item.name: _column(item.name, (plan,)) for item in fields(cls) if item.name not in columns}
        whole = {name: np.broadcast_to(column, (rows,)) for name, column in constant.items() if name in named}
        return cls(**{**constant, **whole, **columns})

    def __len__(self) -> int:
        """Return the number of plans."""
        return int(np.size(self.tp))

    def row(self, index: int) -> Plan:
        """Return row ``index`` as a `Plan`."""
        return Plan(**{name: read(_entry(getattr(self, name), index)) for name, read in _READ.items()})


def _entry(column: Any, index: int) -> Any:
    """Return one entry of a column, or the entry that all plans share."""
    return column[index if column.shape[0] > 1 else 0] if isinstance(column, np.ndarray) else column


def _column(name: str, plans: Sequence[Plan]) -> Any:
    """Return one field of all plans as an array."""
    values = [getattr(plan, name) for plan in plans]
    if name in _CODES:
        return np.array([_CODES[name].index(value) for value in values], dtype=np.int64)
    if name in _BITS:
        return np.array([_bits(name, value) for value in values], dtype=np.int64)
    if name in _YES_OR_NO:
        return np.array(values, dtype=np.bool_)
    if name in _RATIOS:
        return np.array(values, dtype=np.float64)
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError as error:
        raise InputError(f"{name} of a plan is too large for any machine", hint="check the number") from error


def _bits(name: str, words: str) -> int:
    """Return the bits of a list of modules."""
    return sum(_BITS[name][word] for word in words.split()) if words else 0


_MAX_INT = np.iinfo(np.int64).max
_CODE_OF = {name: {member: code for code, member in enumerate(members)} for name, members in _CODES.items()}
_UNCODED = tuple(item.name for item in fields(PlanTable) if item.name not in {*_CODES, *_BITS})
_get_plain, _get_coded = attrgetter(*_UNCODED), attrgetter(*_CODE_OF)


def _reader(name: str) -> Callable[[Any], Any]:
    """Return the function from an entry of a column to the value of that field of a `Plan`."""
    if name in _CODES:
        members = _CODES[name]
        return lambda entry: members[int(entry)]
    if name in _BITS:
        bits = _BITS[name]
        return lambda entry: " ".join(module for module, bit in bits.items() if int(entry) & bit)
    return bool if name in _YES_OR_NO else float if name in _RATIOS else int


_READ = {item.name: _reader(item.name) for item in fields(PlanTable)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A predicted quantity: one entry a plan in each of ``low``, ``expected``, ``high``."""

    low: FloatColumn
    expected: FloatColumn
    high: FloatColumn


MOMENTS = ("loss", "backward", "last backward", "optimizer step")
"""Moments of a step at which memory can peak; ``MemoryTable.moment`` holds the index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Memory of one GPU of each candidate stage, shape (3, plans): first, second and last stage [bytes].

    ``allocated``, ``reserved`` and ``device`` are explained at `MemoryTable`.
    """

    allocated: FloatColumn
    reserved: FloatColumn
    device: FloatColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTable:
    """Memory of one GPU of the fullest pipeline stage at its fullest moment, one entry a plan [bytes].

    Parameters
    ----------
    capacity_bytes
        Memory of the GPU that is available to processes.
    total_bytes, device_bytes
        What the device reports (nvidia-smi), as a range and as its expected value.
    allocated_bytes, reserved_bytes
        Peaks of what PyTorch's tensors occupy, and of what its caching allocator holds.
    components
        What ``total_bytes.expected`` is made of: ``weights``, ``gradients``, ``optimizer``, ``activations``,
        ``logits``, ``buffers`` (gathered weights, buckets, what the optimizer step needs for a moment) and
        ``workspace`` add up to ``allocated_bytes``; with ``slack`` (cached blocks) and ``fragmentation`` to
        ``reserved_bytes``; with ``communication`` (NCCL's buffers) and ``context`` to the total.
    needed_bytes
        ``total_bytes`` without ``slack`` and ``fragmentation``, which the allocator gives back or avoids before it
        fails: what ``fit_probability`` compares with the capacity.
    stage, moment
        The stage (from 0) and the moment of the peak, an index into ``MOMENTS``.
    by_stage
        The same three quantities for the candidate stages.
    fit_probability
        The chance that a GPU with ``capacity_bytes`` holds it.
    """

    capacity_bytes: FloatColumn
    total_bytes: Range
    components: Mapping[str, FloatColumn]
    stage: IntColumn
    moment: IntColumn
    allocated_bytes: FloatColumn
    reserved_bytes: FloatColumn
    device_bytes: FloatColumn
    needed_bytes: Range
    by_stage: StageMemory
    fit_probability: FloatColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeTable:
    """Time of one optimizer step, one entry a plan.

    ``components`` [s] keys: ``compute``, ``recompute``, ``tp``, ``cp``, ``ep``, ``pp``, ``bubble``, ``dp``,
    ``optimizer``, ``overhead``, ``straggler``; they add up to ``step_s.expected``, with exposed communication
    only; ``recompute`` includes waiting for offloaded activations, ``optimizer`` the copies of offloaded
    states; ``communication`` [s] has all of it, keys ``tp``, ``cp``, ``ep``, ``pp``, ``dp``.
    ``windows`` [s] has the computation that each axis's communication can overlap: what exceeds it is exposed.
    ``mfu`` and ``hfu`` are ratios of the dense peak; ``flop`` are the model FLOP of one step.
    """

    step_s: Range
    tokens_per_s_per_gpu: Range
    tflops_per_gpu: Range
    mfu: Range
    hfu: Range
    model_flop: FloatColumn
    hardware_flop: FloatColumn
    components: Mapping[str, FloatColumn]
    communication: Mapping[str, FloatColumn]
    windows: Mapping[str, FloatColumn]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyTable:
    """Energy of a plan's job, one entry a plan: ``step_j`` of a step and ``j_per_token`` [J].

    ``gpu_w`` is the mean power of one GPU, ``host_w`` and ``network_w`` that of its share of host and network, of shape
    () where all plans have one machine; ``job_w`` is that of the whole job [W]. ``components`` [J] keys:
    ``computing``, ``memory_bound``, ``communicating``, ``waiting``, ``idle`` (states of the GPUs), ``host``,
    ``network``, ``facility`` (what the building takes beyond its equipment); they add up to ``step_j.expected``.
    """

    step_j: Range
    j_per_token: Range
    gpu_w: FloatColumn
    host_w: FloatColumn
    network_w: FloatColumn
    job_w: FloatColumn
    components: Mapping[str, FloatColumn]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionTable:
    """The prediction for each row of a `PlanTable`."""

    memory: MemoryTable
    time: TimeTable
    energy: EnergyTable


def take_first_row(table: PredictionTable) -> PredictionTable:
    """Return the first row of a table in the form of `predict_one`: plain numbers, and columns of candidate stages."""
    result: PredictionTable = _take_first_row(table)
    return result


def _take_first_row(part: Any) -> Any:
    """Return the first row of one part of a table."""
    if isinstance(part, np.ndarray):
        return part[:, 0] if part.ndim > 1 else part.item(0)
    if isinstance(part, Mapping):
        return {name: _take_first_row(entry) for name, entry in part.items()}
    if is_dataclass(part) and not isinstance(part, type):
        return replace(part, **{item.name: _take_first_row(getattr(part, item.name)) for item in fields(part)})
    return part
