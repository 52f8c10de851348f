"""Writes a job of one's own as a row of a table of runs, for `opsk calibrate`.

The row is read back before it is written: a job that the columns cannot describe is rejected. A job whose advice was
stored becomes such a row where an interval shows its speed: one that is long, whose parts agree, and in which nothing
of the job failed. Whether it was as fast as predicted does not count, or every prediction would be right.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median
from typing import Any

from opsk.calibration.runs.model import MIXER_COLUMNS
from opsk.calibration.runs.runs import Run, parse_runs
from opsk.errors import InputError
from opsk.hardware.spec import ClusterSpec
from opsk.units import GB, as_gbit_per_s
from opsk.workload.model import ModelShape
from opsk.workload.plan import (
    Loss,
    MoeGemm,
    Offload,
    Optimizer,
    Plan,
    QkvLayout,
    Schedule,
    Sharding,
    Software,
    StateFormat,
    States,
)

COLUMNS = (
    *("id", "source", "software", "source_date", "attention_kernel", "model", "arch", "layers", "hidden", "heads"),
    *("kv_heads", "head_dim", "ffn_hidden", "vocab", "seq_len", "gated_mlp", "experts", "topk", "shared_experts"),
    *(
        "dense_layers",
        "dense_ffn",
        "q_lora_rank",
        "kv_lora_rank",
        "qk_nope_dim",
        "qk_rope_dim",
        "v_head_dim",
        "gpu",
        "gpu_mem_gb",
        "gpus",
        "gpus_per_node",
        "intra_node_gbps",
        "nic_gbps",
    ),
    *("nics_per_node", "tp", "pp", "vpp", "cp", "ep", "dp", "sharding", "sequence_parallel", "recompute", "precision"),
    *(
        "moe_dispatcher",
        "moe_gemm",
        "moe_permute_fusion",
        "ep_comm_overlap",
        "cuda_graphs",
        "param_dtype",
        "grad_dtype",
        "master_dtype",
        "moment_dtype",
        "optimizer",
        "optimizer_impl",
        "loss_kernel",
        "torch_compile",
    ),
    *("schedule", "offload", "finetuning", "lora_rank", "lora_targets", "adapter_format", "base_bits"),
    *("reentrant", "keeps_gathered", "fused_norms", "expandable_segments", "upcast_base", "reduce_dtype", "packed"),
    *("quantised_head", "lora_dropout", "keeps_base_inputs", "qkv_layout", "gathers_fp32", "keeps_kv_cache"),
    *("accumulates_unsharded", "flat_adapters", "gathers_logits", "bare_loop", "distributed_tensors"),
    *("micro_batch", "global_batch", "iter_time_s"),
    *("recompute_modules", "recompute_method", "recompute_layers", "offload_modules", "fp8_params", "moe_balanced"),
)
_TRUE_ONLY_FLAGS = (
    "accumulates_unsharded",
    "flat_adapters",
    "quantised_head",
    "lora_dropout",
    "keeps_base_inputs",
    "gathers_fp32",
    "keeps_kv_cache",
    "bare_loop",
)
"""Flags that are written only where they are true."""
_NEWER = frozenset(
    {
        "recompute_modules",
        "recompute_method",
        "recompute_layers",
        "offload_modules",
        "fp8_params",
        "qkv_layout",
        "moe_balanced",
        "gathers_logits",
        "distributed_tensors",
        *_TRUE_ONLY_FLAGS,
    }
)
"""Columns that tables of 0.1.0 lack: required where a row has a value in them."""
_NAMES = {
    Software.MEGATRON: "megatron-lm",
    Software.MEGATRON_CORE: "megatron-core",
    Software.DEEPSPEED: "deepspeed",
    Software.PYTORCH: "pytorch-fsdp",
}
"""A framework of each family, whose defaults are the family's."""
_OLD = "2022"
"""Year in which Megatron-LM was that of `Software.MEGATRON`."""
_OPTIMIZERS = {
    Optimizer.ADAM: "adamw",
    Optimizer.ADAM_8BIT: "adam8bit",
    Optimizer.ADAM_4BIT: "adam4bit",
    Optimizer.PAGED_ADAM_8BIT: "paged-adam8bit",
}
_GEMMS = {MoeGemm.GROUPED: "torch_mm"}
"""One kernel for all experts; ``grouped`` depends on the release of the software."""
_OFFLOADS = {Offload.OPTIMIZER_AND_WEIGHTS: "params+optimizer"}
_STATES = {
    States.MIXED: ("fp32", "fp32", "fp32"),
    States.MIXED_16BIT_GRADIENTS: ("bf16", "fp32", "fp32"),
    States.AUTOCAST: ("fp32", "fp32", "fp32"),
    States.PURE_16BIT: ("bf16", "none", "bf16"),
}
"""Gradients, master weights and moments by the formats of the states; weights that layers compute with are in bf16."""
_LOSSES = {Loss.FUSED: "liger", Loss.MEGATRON_FUSED: "fused", Loss.CHUNKED: "stored-chunks"}
_FLAGS = ("reentrant", "keeps_gathered", "fused_norms", "expandable_segments", "upcast_base", "distributed_tensors")
_MOMENTS = {Optimizer.ADAM_8BIT: "int8", Optimizer.PAGED_ADAM_8BIT: "int8", Optimizer.ADAM_4BIT: "int4"}
_SCHEDULES = {
    Schedule.GPIPE: "gpipe",
    Schedule.ZERO_BUBBLE: "zero-bubble",
    Schedule.ZERO_BUBBLE_V: "zbv",
    Schedule.DUALPIPE: "dualpipe",
}
_MODEL_FIELDS = (
    *("layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab", "seq", "gated_mlp", "experts", "top_k"),
    *(
        "expert_ffn",
        "shared_experts",
        "dense_layers",
        "flash_attention",
        "attention_gate",
        "mixer_norm",
        "mixer_beside",
    ),
    *("index_top_k", "mixer", *MIXER_COLUMNS),
    *("q_lora_rank", "kv_lora_rank", "qk_rope_dim", "v_head_dim"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """A successful job: its model, plan and cluster, and the median time of its steady steps [s]."""

    name: str
    model: ModelShape
    plan: Plan
    cluster: ClusterSpec
    step_s: float


def build_run_row(job: JobRun) -> dict[str, str]:
    """Return the row of a job, by column.

    Raises
    ------
    InputError
        Lists everything that is read back differently because a table has no column for it.
    """
    values = _build_cells(job)
    columns = _columns_for(job.model)
    row = {name: str(values.get(name, "")) for name in columns}
    read = parse_runs(_format_csv([row], columns, header=True), origin=job.name)
    if not read.runs:
        why = read.unpredictable[0].why if read.unpredictable else "no row"
        raise InputError(f"{job.name}: no row of a table of runs: {why}", hint="opsk calibrate could not read it")
    lost_fields = _find_lost_fields(job, read.runs[0])
    if lost_fields:
        raise InputError(
            f"{job.name}: a table of runs has no column for {', '.join(lost_fields)}",
            hint="leave this job out, or fit by hand",
        )
    return row


def append_run(path: Path, job: JobRun) -> None:
    """Append the row of a job to a table, which is created if needed.

    Raises
    ------
    InputError
        The row cannot be written, or does not describe the job completely.
    """
    row = build_run_row(job)
    try:
        columns, is_open = _read_columns(path, row)
        with path.open("a", encoding="utf-8", newline="") as stream:
            stream.write(("\n" if is_open else "") + _format_csv([row], columns or tuple(row), header=not columns))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "no UTF-8 text"
        raise InputError(f"{path}: {reason}", hint="name a CSV that you may write") from error


def _columns_for(model: ModelShape) -> tuple[str, ...]:
    """Return the columns of a row; those of mixers where the model has any."""
    return (*COLUMNS, "mixer", *MIXER_COLUMNS) if model.mixer_layers or model.mlp_layers else COLUMNS


def _read_columns(path: Path, row: Mapping[str, str]) -> tuple[tuple[str, ...], bool]:
    """Return the columns of an existing table, and whether its last line lacks a newline.

    Raises
    ------
    InputError
        The table lacks columns that the row needs.
    """
    if not path.exists() or not path.stat().st_size:
        return (), False
    text = path.read_text(encoding="utf-8-sig")
    columns = tuple(next(csv.reader(io.StringIO(text)), ()))
    missing = [name for name in row if name not in columns and (row[name] or name not in _NEWER)]
    if missing:
        raise InputError(f"{path}: has no column {', '.join(missing)}", hint="name a table of runs, or a new file")
    return columns, not text.endswith("\n")


def _format_csv(rows: list[dict[str, str]], columns: tuple[str, ...], *, header: bool) -> str:
    """Return rows as CSV."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fieldnames=columns, restval="", extrasaction="ignore", lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def _build_cells(job: JobRun) -> dict[str, object]:
    """Return the cells."""
    model, plan, node = job.model, job.plan, job.cluster.node
    return {
        "id": job.name,
        "source": "own run",
        "software": _NAMES[plan.software],
        "source_date": _OLD if plan.software is Software.MEGATRON else "",
        "attention_kernel": plan.attention.value if model.flash_attention else "unfused",
        "cuda_graphs": "yes" if plan.cuda_graphs else "no",
        "model": model.name,
        "arch": "moe" if model.experts else "llama" if model.gated_mlp else "gpt",
        "layers": model.layers,
        "hidden": model.hidden,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "gated_mlp": "yes" if model.gated_mlp else "no",
        "ffn_hidden": model.expert_ffn if model.experts else model.ffn,
        "vocab": model.vocab,
        "seq_len": model.seq,
        "experts": model.experts or "",
        "topk": model.top_k or "",
        **_latent(model),
        "mixer": model.mixer.value if model.mixer_layers else "",
        **{name: getattr(model, name) or "" for name in MIXER_COLUMNS},
        "shared_experts": model.shared_experts if model.experts else "",
        "dense_layers": model.dense_layers if model.experts else "",
        "dense_ffn": model.ffn if model.experts else "",
        "gpu": node.gpu.name,
        "gpu_mem_gb": f"{node.gpu.memory_bytes / GB:.6g}",
        "gpus": plan.gpus,
        "gpus_per_node": node.gpus,
        "intra_node_gbps": f"{as_gbit_per_s(node.gpu.hb_bytes_per_s):.6g}",
        "nic_gbps": f"{as_gbit_per_s(node.nic_bytes_per_s_per_gpu):.6g}",
        "nics_per_node": node.nics,
        **{axis: getattr(plan, axis) for axis in ("tp", "pp", "vpp", "cp", "ep", "dp")},
        "sharding": "zero3/fsdp" if plan.sharding is Sharding.ZERO3 else plan.sharding.value,
        "sequence_parallel": "yes" if plan.sequence_parallel else "no",
        "recompute": plan.recompute.value,
        "recompute_modules": plan.recompute_modules,
        "recompute_method": "block" if plan.recompute_layers else "",
        "recompute_layers": plan.recompute_layers or "",
        "offload_modules": plan.offload_modules,
        "fp8_params": ("yes" if plan.fp8_weights else "no") if plan.precision.is_low else "",
        "precision": plan.precision.value,
        **_formats(plan),
        "loss_kernel": _LOSSES.get(plan.loss, plan.loss.value),
        "torch_compile": "yes" if plan.compiled else "no",
        **_experts(model, plan),
        "schedule": _SCHEDULES.get(plan.schedule, "") if plan.pp > 1 else "",
        "optimizer_impl": plan.optimizer_step.value,
        "optimizer": _OPTIMIZERS.get(plan.optimizer, plan.optimizer.value),
        "offload": _OFFLOADS.get(plan.offload, plan.offload.value),
        "finetuning": ("qlora" if plan.base_bits < 16 else "lora") if plan.lora_rank else "",
        "lora_rank": plan.lora_rank or "",
        "lora_targets": plan.lora_targets.value if plan.lora_rank else "",
        "adapter_format": plan.adapter_format.value if plan.lora_rank else "",
        "base_bits": plan.base_bits if plan.lora_rank else "",
        **{name: "yes" if getattr(plan, name) else "no" for name in _FLAGS},
        **{name: "yes" if getattr(plan, name) else "" for name in _TRUE_ONLY_FLAGS},
        "gathers_logits": _logits(plan),
        "qkv_layout": "" if plan.qkv_layout is QkvLayout.SEPARATE else plan.qkv_layout.value,
        "reduce_dtype": "fp32" if plan.reduces_fp32 else "bf16" if plan.reduces_16bit else "",
        "packed": "no" if plan.varied_lengths else "yes",
        "micro_batch": plan.micro_batch,
        "global_batch": plan.global_batch,
        "iter_time_s": f"{job.step_s:.6g}",
    }


def _logits(plan: Plan) -> str:
    """Return whether logits are gathered, where a table's reader would take the other."""
    if plan.gathers_logits:
        return "yes"
    return "no" if plan.tp > 1 and plan.software is Software.PYTORCH else ""


def _experts(model: ModelShape, plan: Plan) -> dict[str, str]:
    """Return the cells of dispatch and products of experts."""
    if not model.experts:
        return {}
    return {
        "moe_dispatcher": plan.moe_dispatcher.value,
        "moe_gemm": _GEMMS.get(plan.moe_gemm, plan.moe_gemm.value),
        "moe_permute_fusion": "yes" if plan.moe_permute_fusion else "no",
        "ep_comm_overlap": "yes" if plan.ep_overlap else "no",
        "cuda_graphs": "yes" if plan.fused_moe else "no",
        "moe_balanced": ("yes" if model.expert_imbalance == 1 else "no") if plan.ep > 1 else "",
    }


def _formats(plan: Plan) -> dict[str, str]:
    """Return the cells of the formats of the states."""
    if plan.precision.is_wide:
        return {}
    named = (plan.gradient_format, plan.master_format, plan.moment_format)
    grad, master, moment = (
        usual if stated is StateFormat.AS_STATES else stated.value
        for stated, usual in zip(named, _STATES[plan.states], strict=True)
    )
    moment = _MOMENTS.get(plan.optimizer, moment)
    # under autocast replicas hold fp32 weights; FSDP shards these, and gathers them in 16 bits
    keeps_fp32 = plan.states is States.AUTOCAST and plan.sharding is not Sharding.ZERO3
    weights = "fp32" if keeps_fp32 else "bf16"
    return {"param_dtype": weights, "grad_dtype": grad, "master_dtype": master, "moment_dtype": moment}


def _latent(model: ModelShape) -> dict[str, int]:
    """Return the cells of latent attention; none for a model without."""
    if not model.kv_lora_rank:
        return {}
    widths = {name: getattr(model, name) for name in ("q_lora_rank", "kv_lora_rank", "qk_rope_dim", "v_head_dim")}
    return {**widths, "qk_nope_dim": model.head_dim - model.qk_rope_dim}


def _find_lost_fields(job: JobRun, run: Run) -> list[str]:
    """Return the fields that differ after reading back."""
    plan = [
        f"plan.{item.name}" for item in fields(Plan) if getattr(job.plan, item.name) != getattr(run.plan, item.name)
    ]
    model = [f"model.{name}" for name in _MODEL_FIELDS if getattr(job.model, name) != getattr(run.model, name)]
    return [*plan, *model]


MIN_STEPS = 100
MIN_INTERVALS = 3
MAX_SPREAD = 0.05
"""Maximum deviation of an interval's step time from the median of all, for four in five of them [ratio]."""
_STEADY = 0.8
_MODEL = {
    "name": "model",
    "layers": "layers",
    "hidden": "hidden",
    "heads": "heads",
    "kv_heads": "kv_heads",
    "vocab": "vocab",
    "seq": "seq_len",
    "experts": "experts",
    "top_k": "topk",
}
_PLAN = (
    *("tp", "pp", "vpp", "cp", "ep", "dp", "gpus", "gpus_per_node", "sharding", "recompute", "precision"),
    *("micro_batch", "global_batch"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredInterval:
    """One measured interval of a job: how many steps, and the median time of one [s]."""

    steps: int
    step_s: float


def compute_steady_step_s(intervals: Sequence[MeasuredInterval]) -> float | None:
    """Return the step time of a steady job; ``None`` where it was not steady, or not for long enough.

    The first interval includes the warm-up and is excluded.
    """
    usable = [item for item in intervals if item.step_s > 0 and item.steps > 0][1:]
    if len(usable) < MIN_INTERVALS or sum(item.steps for item in usable) < MIN_STEPS:
        return None
    usual = median(item.step_s for item in usable)
    close = [item for item in usable if abs(item.step_s - usual) <= MAX_SPREAD * usual]
    return usual if len(close) >= _STEADY * len(usable) else None


def build_row_from_advice(
    document: Mapping[str, Any], cluster: ClusterSpec, *, name: str, step_s: float | None, gpus: int | None = None
) -> dict[str, str]:
    """Return the row of a job from its stored advice, as ``opsk check --json`` prints it; empty is "not stated"."""
    workload = _get_table(document, "workload")
    model, plan = _get_table(workload, "model"), _get_table(workload, "plan")
    node = cluster.node
    row: dict[str, Any] = {
        "id": name,
        "source": "own run",
        "software": workload.get("framework"),
        "arch": "moe" if model.get("experts") else "llama" if model.get("gated_mlp") else "gpt",
        "gpu": node.gpu.name,
        "gpu_mem_gb": f"{node.gpu.memory_bytes / GB:.6g}",
        "gpus_per_node": node.gpus,
        "intra_node_gbps": f"{as_gbit_per_s(node.gpu.hb_bytes_per_s):.6g}",
        "nic_gbps": f"{as_gbit_per_s(node.nic_bytes_per_s_per_gpu):.6g}",
        "nics_per_node": node.nics,
        "gpus": gpus,
        "iter_time_s": "" if step_s is None else f"{step_s:.6g}",
        "ffn_hidden": model.get("expert_ffn") if model.get("experts") else model.get("ffn"),
        **{column: model.get(field) for field, column in _MODEL.items()},
        **{field: value for field in _PLAN if (value := plan.get(field)) is not None},
    }
    if isinstance(plan.get("sequence_parallel"), bool):
        row["sequence_parallel"] = "yes" if plan["sequence_parallel"] else "no"
    if model.get("gated_mlp") is None and not model.get("experts"):
        del row["arch"]
    row |= _read_kinds(model)
    return {column: str(row[column]) for column in COLUMNS if row.get(column) not in (None, "")}


def _read_kinds(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known details of the layers, by column."""
    columns = {name: model[name] for name in ("head_dim", "shared_experts", "kv_lora_rank") if model.get(name)}
    if isinstance(fused := model.get("flash_attention"), bool):
        columns["attention_kernel"] = "flash" if fused else "unfused"
    if isinstance(gated := model.get("gated_mlp"), bool):
        columns["gated_mlp"] = "yes" if gated else "no"
    return columns


def _get_table(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a table of a document; an empty one where it is not a table."""
    table = document.get(name)
    return table if isinstance(table, Mapping) else {}
