"""Defines the efficiency parameters: the shares of the machine's peak that training software reaches.

A parameter stands for a property of a chip generation, of the links, or of a family of software; none stands for a
model, a run or a source. The shipped values are fitted to published runs by ``opsk calibrate`` and are in
``efficiency.toml`` in this folder, with the runs that each was fitted to; a site writes a file of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import numpy as np

from opsk.costmodel.efficiency.cases import Case, SoftwareOffset
from opsk.costmodel.elementwise import logical_not, lookup, when, where
from opsk.costmodel.table import SOFTWARE, FloatColumn, PlanTable
from opsk.workload.plan import Software


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuEfficiency:
    """What kernels reach on one chip generation; fractions are of the catalogue's peaks, 0 to 1.

    Parameters
    ----------
    matmul_fraction, fp8_fraction, fp4_fraction
        Arithmetic peak that a large matrix product reaches, in 16 bits (and fp32), FP8 and FP4, on the usual GPU of the
        generation; others have as much more or less as `GpuSpec.sustained_share` says. Quantising is not counted here.
    matmul_size
        Size of a dimension of a product at which it reaches half of that because of that dimension alone [elements].
    attention_factor
        Rate of fused attention over that of benchmarks of its kernel (`opsk.costmodel.time.layer_time`).
    hbm_fraction
        Memory bandwidth that reads and writes reach.
    """

    matmul_fraction: float = 0.75
    fp8_fraction: float = 0.65
    fp4_fraction: float = 0.5
    matmul_size: float = 80.0
    attention_factor: float = 1.0
    hbm_fraction: float = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftwareEfficiency:
    """What a family of training software costs beside its matrix products, and what it hides.

    Parameters
    ----------
    elementwise_factor
        Memory traffic of norms, activation, dropout, residual, loss over that of the fused kernels counted here.
    kernel_gap_s
        Time lost at the start of each kernel [s].
    step_overhead_s
        Time of one step that no other term explains: data, loss scaling, gradient norm, logging [s].
    dp_overlap, fsdp_overlap, tp_overlap, ep_overlap, cp_overlap
        Share of the computation beside which communication of that axis can hide, that of TP and EP where the plan says
        so; 0 hides nothing.
    pp_overlap
        Share of the messages between stages that hides beside computation.
    straggler_fraction
        Growth of the step with each doubling of the nodes: the slowest of more ranks is slower [ratio].
    compiled_fraction
        Memory traffic of compiled norms and activations over that of the software's own modules.
    trainer_fraction
        What PyTorch's trainers and frameworks add to the computation, in modules that they wrap, hooks, collators and
        logs, over a program's own loop of a few calls [ratio].
    """

    elementwise_factor: float = 1.0
    kernel_gap_s: float = 5e-6
    step_overhead_s: float = 0.02
    dp_overlap: float = 0.0
    fsdp_overlap: float = 0.8
    tp_overlap: float = 0.0
    ep_overlap: float = 0.0
    cp_overlap: float = 0.8
    pp_overlap: float = 0.0
    straggler_fraction: float = 0.0
    compiled_fraction: float = 0.7
    trainer_fraction: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkEfficiency:
    """What collectives reach on links.

    Parameters
    ----------
    hb_fraction, nic_fraction
        Data rate that large messages reach inside a high-bandwidth domain, and through NICs.
    hb_hop_s, nic_hop_s
        Latency of one step of a ring inside a high-bandwidth domain, and through NICs [s].
    """

    hb_fraction: float = 0.75
    nic_fraction: float = 0.85
    hb_hop_s: float = 3e-6
    nic_hop_s: float = 8e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEfficiency:
    """What memory holds beyond the tensors that can be counted.

    Parameters
    ----------
    context_bytes
        CUDA context, loaded kernels, cuBLAS workspace of one process [bytes].
    workspace_bytes
        Workspaces of cuBLAS and Transformer Engine, allocated through PyTorch [bytes].
    channel_bytes
        NCCL's buffers of one channel of one communicator, all peers, directions and protocols [bytes]: 700 MB for a
        communicator of 24 channels on measured A100 runs.
    slack_fraction
        What the caching allocator keeps of freed blocks, as a share of the temporary memory.
    fragmentation_fraction
        What lies unusable between live blocks, as a share of the temporary memory; up to 0.3 is reported. Measured runs
        tell the sum of the two, not their parts: they are taken as halves.
    """

    context_bytes: float = 900e6
    workspace_bytes: float = 100e6
    channel_bytes: float = 29.2e6
    slack_fraction: float = 0.05
    fragmentation_fraction: float = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How far measurements lie from predictions, as standard deviations of ln(measured / predicted).

    Parameters
    ----------
    time_log_sigma, memory_log_sigma
        Of runs whose every input is stated and that are near to others that were measured.
    time_assumed_log_sigma, memory_assumed_log_sigma
        Of runs some of whose inputs are assumed.
    time_new_gpu_log_sigma, memory_new_gpu_log_sigma
        What is added where no run on that chip generation was measured.
    time_new_software_log_sigma, memory_new_software_log_sigma
        What is added where that family of software was not measured there.
    time_new_kind_log_sigma, memory_new_kind_log_sigma
        What is added where no model of that kind (dense, of experts, hybrid, with adapters) was.
    time_new_precision_log_sigma, memory_new_precision_log_sigma
        What is added where that number format was not measured on that chip generation.
    time_new_axes_log_sigma, memory_new_axes_log_sigma
        What is added where that family of software was not measured with these axes (tp, pp, cp, ep) together.
    time_offset_log_sigma, memory_offset_log_sigma
        The part of the first that sources and software have in common: what a site learns of itself takes it away.
    memory_fit_log_sigma
        What the chance to fit adds to that: a published peak is that of a few steps of one rank; fragmentation,
        uneven ranks and later steps come on top, and a run that died of them published no peak.
    """

    time_log_sigma: float = 0.15
    time_assumed_log_sigma: float = 0.25
    time_new_gpu_log_sigma: float = 0.15
    time_new_software_log_sigma: float = 0.15
    time_new_kind_log_sigma: float = 0.1
    time_new_precision_log_sigma: float = 0.1
    time_new_axes_log_sigma: float = 0.0
    time_offset_log_sigma: float = 0.0
    memory_log_sigma: float = 0.06
    memory_assumed_log_sigma: float = 0.2
    memory_new_gpu_log_sigma: float = 0.0
    memory_new_software_log_sigma: float = 0.1
    memory_new_kind_log_sigma: float = 0.1
    memory_new_precision_log_sigma: float = 0.05
    memory_new_axes_log_sigma: float = 0.0
    memory_offset_log_sigma: float = 0.0
    memory_fit_log_sigma: float = 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """All efficiency parameters; ``gpu`` by architecture (``""`` is any other), ``software`` by family.

    ``offset`` is the offset of software families, by name. ``fit`` describes the runs that the values were fitted to,
    ``fitted`` and ``fitted_memory`` are the cases whose times and peaks of memory were measured; empty is "not
    known". ``widths`` are the standard deviations of fitted values, by their name, on the scale of their prior.
    """

    gpu: Mapping[str, GpuEfficiency] = field(default_factory=lambda: {"": GpuEfficiency()})
    software: Mapping[Software, SoftwareEfficiency] = field(default_factory=dict)
    links: LinkEfficiency = LinkEfficiency()
    memory: MemoryEfficiency = MemoryEfficiency()
    spread: Spread = Spread()
    fit: str = "chosen by hand"
    fitted: frozenset[Case] = frozenset()
    fitted_memory: frozenset[Case] = frozenset()
    widths: Mapping[str, float] = field(default_factory=dict)
    offset: Mapping[str, SoftwareOffset] = field(default_factory=dict)

    def for_gpu(self, architecture: str) -> GpuEfficiency:
        """Return the parameters of a chip generation; the default ones where it was never fitted."""
        return self.gpu.get(architecture) or self.gpu[""]

    def knows(self, architecture: str, software: Software) -> bool:
        """Return whether runs of this software on this chip generation were measured; true where that is not known."""
        key = (architecture, software.value)
        return not self.fitted or any((case.architecture, case.software) == key for case in self.fitted)

    def for_software(self, plans: PlanTable) -> SoftwareColumns:
        """Return the parameters of every plan's software; overlaps that the plan disables are 0."""
        table = _build_software_table(self.software)
        rows = lookup(table, slice(None), plans.software)
        columns: dict[str, FloatColumn] = dict(zip(_SOFTWARE_FIELDS, rows, strict=True))
        for name in _OVERLAPS:
            requested = {"tp_overlap": plans.tp_overlap, "ep_overlap": plans.ep_overlap}.get(name, True)
            is_enabled = plans.overlap & requested
            columns[name] = when(is_enabled, columns[name])
        columns["tp_async_share"] = tp_async_share(plans)
        compiled = where(plans.compiled, columns["compiled_fraction"], 1.0)
        columns["elementwise_factor"] = columns["elementwise_factor"] * compiled
        has_trainer = (plans.software == _PYTORCH) & logical_not(plans.bare_loop)
        columns["trainer_fraction"] = when(has_trainer, columns["trainer_fraction"])
        return SoftwareColumns(**columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftwareColumns:
    """The fields of `SoftwareEfficiency`, one entry a plan, and `tp_async_share`."""

    elementwise_factor: FloatColumn
    kernel_gap_s: FloatColumn
    step_overhead_s: FloatColumn
    dp_overlap: FloatColumn
    fsdp_overlap: FloatColumn
    tp_overlap: FloatColumn
    ep_overlap: FloatColumn
    cp_overlap: FloatColumn
    pp_overlap: FloatColumn
    straggler_fraction: FloatColumn
    compiled_fraction: FloatColumn
    trainer_fraction: FloatColumn
    tp_async_share: FloatColumn


def tp_async_share(plans: PlanTable) -> FloatColumn:
    """Return the share of a backward's tensor-parallel communication that runs beside weight gradients [ratio].

    Megatron's column-parallel layers start the all-reduce of their input's gradient and compute the weight's meanwhile
    (``linear_with_grad_accumulation_and_async_allreduce``, megatron/core/tensor_parallel/layers.py; so does Transformer
    Engine). With sequence parallelism that is a reduce-scatter, half as much; the all-gather before the row-parallel
    layers' products overlaps nothing, and that of inputs overlaps a product, and is not counted.
    """
    is_async = plans.overlap & plans.tp_async & lookup(_IS_MEGATRON, plans.software)
    result: FloatColumn = when(is_async, where(plans.sequence_parallel, 0.5, 1.0))
    return result


def _build_software_table(software: Mapping[Software, SoftwareEfficiency]) -> FloatColumn:
    """Return the fields of software families, shape (fields, families), cached by mapping.

    Identity is the key, as mappings cannot be hashed; the mapping is stored, so that its identity is not reused.
    """
    cached = _TABLES.get(id(software))
    if cached is None:
        if len(_TABLES) >= MAX_TABLES:
            _TABLES.clear()
        families = [software.get(member, _PLAIN) for member in SOFTWARE]
        table = np.array([[getattr(family, name) for name in _SOFTWARE_FIELDS] for family in families]).T
        cached = _TABLES[id(software)] = (table, software)
    return cached[0]


MAX_TABLES = 64
_TABLES: dict[int, tuple[FloatColumn, Mapping[Software, SoftwareEfficiency]]] = {}


_PLAIN = SoftwareEfficiency()
_PYTORCH = SOFTWARE.index(Software.PYTORCH)
_IS_MEGATRON = np.array([name in (Software.MEGATRON, Software.MEGATRON_CORE) for name in SOFTWARE])
_OVERLAPS = ("dp_overlap", "fsdp_overlap", "tp_overlap", "ep_overlap", "cp_overlap", "pp_overlap")
_SOFTWARE_FIELDS = tuple(item.name for item in fields(SoftwareEfficiency))
