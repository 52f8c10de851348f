"""How does a job whose advice was kept become a row of a table of runs? What its script states goes in.

A stored interval has no evidence of what held a job up. So an interval counts when it is long and its parts agree, and
nothing of the job failed in it; whether it was as fast as predicted does not count, or every prediction would be right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from opsk.calibration.runs.written_runs import COLUMNS
from opsk.hardware.spec import ClusterSpec
from opsk.units import GB, as_gbit_per_s

FEWEST_STEPS = 100
FEWEST_INTERVALS = 3
MOST_SPREAD = 0.05
"""Most that an interval's step time differs from the median of all, of four in five of them [ratio]."""
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
class Stretch:
    """One measured interval of a job: how many steps, and the median time of one [s]."""

    steps: int
    step_s: float


def steady_step_s(stretches: Sequence[Stretch]) -> float | None:
    """Return the step time of a job that was steady; ``None`` where it was not, or not for long enough.

    The first interval holds the warm-up and is left out.
    """
    kept = [each for each in stretches if each.step_s > 0 and each.steps > 0][1:]
    if len(kept) < FEWEST_INTERVALS or sum(each.steps for each in kept) < FEWEST_STEPS:
        return None
    usual = median(each.step_s for each in kept)
    near = [each for each in kept if abs(each.step_s - usual) <= MOST_SPREAD * usual]
    return usual if len(near) >= _STEADY * len(kept) else None


def advised_row(
    document: Mapping[str, Any], cluster: ClusterSpec, *, name: str, step_s: float, gpus: int | None = None
) -> dict[str, str]:
    """Return the row of a job whose advice, as ``opsk check --json`` prints it, was kept; empty is "not stated"."""
    workload = _table(document, "workload")
    model, plan = _table(workload, "model"), _table(workload, "plan")
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
    row |= _kinds(model)
    return {column: str(row[column]) for column in COLUMNS if row.get(column) not in (None, "")}


def _kinds(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known of the kind of the layers, by column."""
    found = {name: model[name] for name in ("head_dim", "shared_experts", "kv_lora_rank") if model.get(name)}
    if isinstance(fused := model.get("flash_attention"), bool):
        found["attention_kernel"] = "flash" if fused else "unfused"
    if isinstance(gated := model.get("gated_mlp"), bool):
        found["gated_mlp"] = "yes" if gated else "no"
    return found


def _table(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a table of a document; an empty one where it is none."""
    found = document.get(name)
    return found if isinstance(found, Mapping) else {}
