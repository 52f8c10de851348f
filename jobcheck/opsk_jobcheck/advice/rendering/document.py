"""Renders advice as JSON. The keys are a contract: keys may be added, existing ones never change."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from opsk.app.interference.document import build_result_document
from opsk.costmodel.predict import prediction_document
from opsk.costmodel.table import Range
from opsk.errors import InputError
from opsk.hostlist import fold
from opsk.text import to_json_values
from opsk.workload.advice_record import AdviceRecord, Verdict
from opsk.workload.counted_parameters import COUNTED, ParameterRange
from opsk_jobcheck.advice.advice import Advice, find_kind
from opsk_jobcheck.advice.placement import PlacementAdvice
from opsk_jobcheck.advice.roles import changes_document, roles_document
from opsk_jobcheck.advice.search import Waste
from opsk_jobcheck.advice.serving import serving_document
from opsk_jobcheck.advice.suggestions import BestPlan, Suggestion
from opsk_jobcheck.preflight.facts import PreflightFinding

NOT_ASKED = "Slurm was not asked for running jobs (--live; the advisor does so by itself)"
_NO_MEMORY = {"capacity_bytes": None, "total_bytes": None, "components": None, "fit_probability": None}
_NO_TIME = {"step_s": None, "tokens_per_s_per_gpu": None, "tflops_per_gpu": None, "mfu": None, "components": None}


def document(advice: Advice) -> dict[str, Any]:
    """Return the JSON document of ``opsk check``."""
    workload = advice.workload
    predicted = prediction_document(advice.prediction, 0) if advice.prediction else {"memory": None, "time": None}
    memory = predicted["memory"] or dict(_NO_MEMORY)
    is_known = advice.cluster is not None and advice.is_gpu_known
    has_time = advice.roles is None and not advice.is_limit
    if advice.cluster is not None and is_known and memory["capacity_bytes"] is None:
        memory["capacity_bytes"] = advice.cluster.node.gpu.memory_bytes
    if advice.roles is not None:
        memory["roles"] = roles_document(advice.roles)
        memory["role_changes"] = changes_document(advice.role_changes)
    serving = {"serving": serving_document(advice.serving)} if advice.serving is not None else {}
    runs = {"runs": advice.runs} if advice.runs is not None else {}
    counted = ParameterRange.parse(dict(workload.options).get(COUNTED, ""))
    return (
        serving
        | runs
        | {
            "verdict": advice.verdict,
            "why_unknown": advice.why_unknown,
            "cluster": {
                "name": advice.cluster.name if advice.cluster else None,
                "gpu": advice.cluster.node.gpu.name if advice.cluster and is_known else None,
                "from": advice.cluster_from,
            },
            "workload": {
                "framework": workload.framework,
                "launcher": workload.launcher,
                "job_name": workload.job_name,
                "is_training": workload.is_training,
                "opted_out": workload.opted_out,
                "model": workload.model,
                "plan": workload.plan,
                "evidence": workload.evidence,
                "unknown": workload.unknown,
            }
            | ({"counted_parameters": counted} if counted is not None else {}),
            "memory": memory
            | {"is_limit": advice.is_limit}
            | ({"room": advice.room} if advice.room else {})
            | ({"over_range": advice.over_range} if advice.over_range else {}),
            "time": predicted["time"] if has_time and predicted["time"] else dict(_NO_TIME),
            "placement": placement_document(advice),
            "interference": interference_document(advice),
            "suggestions": [_suggestion(entry) for entry in advice.suggestions],
            "best_plan": _best(advice.best),
            "waste": [_waste(entry) for entry in advice.waste],
            "assumed": advice.assumed,
            "problems": advice.problems,
            "preflight": [_preflight(entry) for entry in advice.preflight],
        }
    )


def render_stored_document(advice: Advice) -> str:
    """Return what is stored with the advice, as one line of JSON: cluster, model, plan, and the predicted ranges."""
    workload, cluster = advice.workload, advice.cluster
    content: dict[str, Any] = {
        "cluster": {
            "name": cluster.name if cluster else None,
            "gpu": cluster.node.gpu.name if cluster and advice.is_gpu_known else None,
            "from": advice.cluster_from,
        },
        "workload": {"framework": workload.framework, "model": workload.model, "plan": workload.plan},
    }
    if advice.prediction is not None and not advice.is_limit:
        content["prediction"] = {"kind": find_kind(advice)}
        content["memory"] = {"total_bytes": _render_range(advice.prediction.memory.total_bytes)}
        if advice.roles is None:
            content["time"] = {"step_s": _render_range(advice.prediction.time.step_s)}
    return json.dumps(to_json_values(content), separators=(",", ":"))


def _render_range(value: Range) -> dict[str, float]:
    """Return a predicted value of one plan with its range."""
    return {"low": float(value.low), "expected": float(value.expected), "high": float(value.high)}


def record(advice: Advice, *, script_hash: str | None = None) -> AdviceRecord:
    """Return the compact record for the job's comment."""
    if advice.prediction is None or advice.completion.plan is None:
        return AdviceRecord(verdict=Verdict.UNKNOWN, hash=script_hash)
    if advice.is_limit:
        return AdviceRecord(verdict=advice.verdict, hash=script_hash)
    if advice.roles is not None:
        return _record_memory(advice, script_hash)
    memory, time, plan = advice.prediction.memory, advice.prediction.time, advice.completion.plan
    return AdviceRecord(
        verdict=advice.verdict,
        fit=float(memory.fit_probability),
        mem_bytes=float(memory.total_bytes.expected),
        capacity_bytes=float(memory.capacity_bytes),
        step_s=float(time.step_s.expected),
        tokens_per_s_per_gpu=float(time.tokens_per_s_per_gpu.expected),
        tflops=float(time.tflops_per_gpu.expected),
        mfu=float(time.mfu.expected),
        tp=plan.tp,
        pp=plan.pp,
        dp=plan.dp,
        cp=plan.cp,
        ep=plan.ep,
        hash=script_hash,
    )


def _record_memory(advice: Advice, script_hash: str | None) -> AdviceRecord:
    """Return the record of a job of several models: no time of its steps was predicted."""
    if advice.prediction is None:
        return AdviceRecord(verdict=advice.verdict, hash=script_hash)
    memory = advice.prediction.memory
    return AdviceRecord(
        verdict=advice.verdict,
        fit=float(memory.fit_probability),
        mem_bytes=float(memory.total_bytes.expected),
        capacity_bytes=float(memory.capacity_bytes),
        hash=script_hash,
    )


def placement_document(advice: Advice) -> dict[str, Any] | None:
    """Return the placement without its ranks (``opsk place`` lists them), or the reason why there is none."""
    placed = advice.placement
    if placed.placement is None:
        return {"why_not": placed.why_not} if placed.why_not else None
    traffic, default = placed.placement.traffic, placed.placement.default_traffic
    sharing = placed.sharing
    return {
        "fabric": placed.fabric_from or None,
        "nodes": placed.placement.nodes,
        "hostlist": _fold_nodes(placed.placement.nodes),
        "leaf_groups": placed.leaf_groups,
        "rails": placed.rails,
        "slurm_flags": placed.slurm_flags,
        "rail_local_fraction": traffic.rail_local_fraction,
        "leaf_local_fraction": traffic.leaf_local_fraction,
        "max_link_load": traffic.max_link_load,
        "inter_node_bytes": traffic.inter_node_bytes,
        "versus_default": {
            "rail_local_fraction": default.rail_local_fraction,
            "leaf_local_fraction": default.leaf_local_fraction,
            "max_link_load": default.max_link_load,
        },
        "step_s": traffic.step_s,
        "compact_step_s": sharing.compact_step_s if sharing is not None else None,
        "asked_nodes": placed.asked_nodes or None,
        "is_free": placed.is_free,
        "free": _render_free_nodes(placed),
    }


def _fold_nodes(nodes: Sequence[str]) -> str | None:
    """Return a host list; ``None`` for names of a dump that are no valid Slurm node names."""
    try:
        return fold(nodes)
    except InputError:
        return None


def _render_free_nodes(placed: PlacementAdvice) -> dict[str, Any] | None:
    """Return the free nodes; ``None`` where Slurm was not asked."""
    live = placed.live
    if live is None:
        return None
    return {
        "nodes": placed.free_nodes,
        "why_not": placed.live_why_not or None,
        "age_s": live.age_s,
        "source": live.source,
        "topology": live.topology,
        "running_jobs": live.running,
        "hidden_nodes": live.hidden_nodes,
    }


def interference_document(advice: Advice) -> dict[str, Any]:
    """Return the keys of ``opsk place``, with a range of slow-downs; without running jobs only ``why``."""
    placed = advice.placement
    live, sharing = placed.live, placed.sharing
    if live is None:
        return {"jobs": [], "why": NOT_ASKED}
    if sharing is None:
        return {
            "jobs": [],
            "why": placed.live_why_not or "there are too few free nodes to say on which links it will be",
        }
    if live.wire is None:
        return {"jobs": [], "why": "what the running jobs send is still being worked out"}
    low, high = sharing.slowdowns
    document = build_result_document(
        sharing.interference,
        sharing.choice,
        sharing.shape,
        sharing.fabric,
        sharing.fabric_links,
        live.wire,
        len(sharing.free),
    )
    return {**document, "slowdown": {"low": low, "high": high}, "age_s": live.age_s, "why": None}


def _preflight(entry: PreflightFinding) -> dict[str, Any]:
    """Return one finding of the checks before the start."""
    return {
        "check": entry.check,
        "what": entry.what,
        "advice": entry.advice,
        "file": entry.file,
        "line": entry.line,
    }


def _suggestion(entry: Suggestion) -> dict[str, Any]:
    """Return one change with its prediction."""
    return {
        "what": entry.what,
        "flags": entry.flags,
        "plan": entry.plan,
        "verdict": entry.verdict,
        "memory_bytes": entry.memory_bytes,
        "memory_ratio": entry.memory_ratio,
        "fit_probability": entry.fit_probability,
        "step_s": entry.step_s,
        "step_ratio": entry.step_ratio,
        "tflops_per_gpu": entry.tflops_per_gpu,
    }


def _best(best: BestPlan | None) -> dict[str, Any] | None:
    """Return the best plan on the same GPUs, with the number of plans it was chosen from."""
    return {**_suggestion(best.suggestion), "considered": best.considered} if best else None


def _waste(entry: Waste) -> dict[str, Any]:
    """Return one finding with its cost and the change that was predicted for it."""
    return {
        "kind": entry.kind,
        "what": entry.what,
        "cost_share": entry.cost_share,
        "advice": entry.advice or None,
        "change": _suggestion(entry.change) if entry.change else None,
    }
