"""Builds a row of a table of runs from a job whose advice was stored.

A stored interval has no evidence of what delayed a job. So an interval counts when it is long and its parts agree, and
nothing of the job failed in it; whether it was as fast as predicted does not count, or every prediction would be
right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from opsk.calibration.runs.run_writer import COLUMNS
from opsk.hardware.spec import ClusterSpec
from opsk.units import GB, as_gbit_per_s

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


def build_advised_row(
    document: Mapping[str, Any], cluster: ClusterSpec, *, name: str, step_s: float, gpus: int | None = None
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
        "iter_time_s": f"{step_s:.6g}",
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
