"""Answers for a job that only generates: whether model and KV cache fit, how much context, and with which TP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from opsk.costmodel.memory.serving import EngineMemory, engine_memory
from opsk.costmodel.roles import compute_chance
from opsk.costmodel.uncertainty.verdict import compute_verdict
from opsk.hardware.spec import ClusterSpec
from opsk.units import as_gib
from opsk.workload.advice_record import Verdict
from opsk.workload.model import ModelShape
from opsk.workload.serving import Serving
from opsk_jobcheck.advice.layout import Line, Weight, continuation

MAX_TP = 64
_FLAGS = {"vllm": "--tensor-parallel-size", "sglang": "--tp-size"}
_MARKS = {Verdict.FITS: "✓", Verdict.TIGHT: "!", Verdict.OOM: "✗"}
_ENDINGS = {
    Verdict.FITS: "fits",
    Verdict.TIGHT: "tight, may not start",
    Verdict.OOM: "will not start",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingAdvice:
    """The answer on an engine.

    Parameters
    ----------
    serving
        What the job serves.
    memory
        What one GPU holds.
    capacity_bytes
        Memory of a GPU.
    verdict, chance
        Whether the engine starts, and the chance of it.
    better_tp
        The smallest tensor parallelism with which it starts for sure, where it may not; 0 where there is none.
    """

    serving: Serving
    memory: EngineMemory
    capacity_bytes: float
    verdict: Verdict
    chance: float
    better_tp: int = 0


def advise_serving(serving: Serving, shape: ModelShape, cluster: ClusterSpec, *, gpus_per_node: int) -> ServingAdvice:
    """Return the answer on an engine on one cluster's GPUs."""
    capacity = float(cluster.node.gpu.capacity_bytes)
    memory, chance = _try(serving, shape, capacity, serving.tp)
    verdict = compute_verdict(chance)
    better = 0
    if verdict is not Verdict.FITS:
        sizes = [tp for tp in (2, 4, 8, 16, 32, MAX_TP) if serving.tp < tp <= gpus_per_node and not shape.heads % tp]
        better = next((tp for tp in sizes if compute_verdict(_try(serving, shape, capacity, tp)[1]) is Verdict.FITS), 0)
    return ServingAdvice(
        serving=serving, memory=memory, capacity_bytes=capacity, verdict=verdict, chance=chance, better_tp=better
    )


def _try(serving: Serving, shape: ModelShape, capacity: float, tp: int) -> tuple[EngineMemory, float]:
    """Return the memory with this tensor parallelism, and the chance that the engine starts."""
    memory = engine_memory(
        shape,
        capacity_bytes=capacity,
        memory_share=serving.memory_share,
        tp=tp,
        pp=serving.pp,
        weight_bytes=serving.weight_bytes,
        length=serving.length,
        cache_element_bytes=serving.cache_bytes,
    )
    return memory, compute_chance(memory.sequence, memory.budget)


def render_serving(advice: ServingAdvice) -> Iterator[Line]:
    """Yield the lines on weights, cache and context, and on a tensor parallelism that fits."""
    memory, serving = advice.memory, advice.serving
    head = f"{_MARKS[advice.verdict]} weights {as_gib(memory.weights):.1f} GiB + KV cache "
    cache = max(memory.cache.expected, 0.0)
    text = f"{head}{as_gib(cache):.1f} GiB of {as_gib(memory.budget):.1f} GiB per GPU: {_ENDINGS[advice.verdict]}"
    yield Line(label="memory", text=text, brief=text, weight=Weight.MEMORY, topic="memory")
    if memory.context_tokens:
        sequences = f", {memory.context_tokens // serving.length} of {serving.length} tokens" if serving.length else ""
        context = f"the cache holds {memory.context_tokens:,} tokens of all sequences together{sequences}"
        yield Line(label="context", text=context, brief=context, weight=Weight.VERDICT, topic="context")
    if advice.better_tp:
        flag = f"→ {_FLAGS.get(serving.engine, 'tensor parallelism')} {advice.better_tp}: starts"
        yield continuation(flag, Weight.WAY_OUT, brief=flag, topic="change")
    note = "an estimate from formulas: no engine was measured"
    yield Line(label="", text=note, brief=note, weight=Weight.OTHER, topic="how sure")


def serving_document(advice: ServingAdvice) -> dict[str, Any]:
    """Return the answer as ``opsk check --json`` has it."""
    memory, serving = advice.memory, advice.serving
    return {
        "engine": serving.engine,
        "model": serving.model,
        "tp": serving.tp,
        "pp": serving.pp,
        "memory_share": serving.memory_share,
        "length": serving.length or None,
        "verdict": advice.verdict,
        "fit_probability": advice.chance,
        "capacity_bytes": advice.capacity_bytes,
        "weight_bytes": memory.weights,
        "cache_bytes": max(memory.cache.expected, 0.0),
        "context_tokens": memory.context_tokens,
        "better_tp": advice.better_tp or None,
    }
