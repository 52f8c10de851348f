"""Enumerates the plans that agree with what a row states, and chooses the likeliest: one that fits, simplest first.

Tensor and pipeline sizes: the smallest product that fits in memory, tensor parallelism within a node first; experts as
wide as a node, then wider. Recomputation: the least that fits. Micro-batch: the fastest that fits. The cost model
itself predicts what fits and what is fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from opsk.calibration.runs.software import RunSoftware
from opsk.costmodel.predict import predict
from opsk.costmodel.table import PlanTable
from opsk.errors import PlanInfeasibleError
from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Recompute, Sharding, Software

FITS_FROM = 0.5
"""A plan is assumed to fit from this probability on."""
PLAIN_RECOMPUTE_UNTIL = 2021
"""Selective recomputation is of 2022 (Korthikanti et al., arXiv 2205.05198)."""
_MICRO_BATCHES = (1, 2, 4, 8, 16, 32)
_BATCH_TOKENS = 1 << 21
"""Tokens of a step whose batch is not known, where software accumulates gradients: 2 M, somewhat below GPT-3's 3.2 M.

Benchmarks of fully sharded training run one micro-batch a replica in a step unless stated otherwise.
"""
_EXPERT_PARALLELS = (1, 2, 4, 8, 16, 32, 64)
_MAX_CANDIDATES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanConstraints:
    """The known values of a plan before the search; ``None`` is open. ``fixed`` are the fields without a choice."""

    gpus: int | None
    tp: int | None
    pp: int | None
    vpp: int | None
    micro_batch: int | None
    global_batch: int | None
    model_parallel: int | None
    recompute: Recompute | None
    cp: int
    ep: int | None
    fixed: dict[str, Any]


def _axes(stated: PlanConstraints, model: ModelShape, cluster: ClusterSpec) -> list[tuple[int, int]]:
    """Return the tensor and pipeline sizes that may have been used, smallest product first."""
    per_node = min(cluster.node.gpus, 8)
    sizes = [tp for tp in (1, 2, 4, 8) if tp <= per_node and model.heads % tp == 0]
    if stated.tp is not None and stated.pp is not None:
        return [(stated.tp, stated.pp)]
    if stated.model_parallel is not None:
        tp = stated.tp or max((size for size in sizes if stated.model_parallel % size == 0), default=1)
        return [(tp, max(stated.model_parallel // tp, 1))]
    if stated.tp is not None:
        sizes = [stated.tp]
    stages = (
        [stated.pp]
        if stated.pp is not None
        else [pp for pp in range(1, min(model.layers, 128) + 1) if model.layers % pp == 0]
    )
    widest = max(sizes)
    pairs = [(tp, pp) for tp in sizes for pp in stages if stated.pp is not None or pp == 1 or tp == widest]
    return sorted(pairs, key=lambda pair: (pair[0] * pair[1], pair[1]))


def enumerate_plans(
    stated: PlanConstraints, model: ModelShape, cluster: ClusterSpec, software: RunSoftware
) -> list[Plan]:
    """Return the plans that agree with what is stated, simplest first."""
    plans: list[Plan] = []
    for tp, pp in _axes(stated, model, cluster):
        ranks = tp * pp * stated.cp
        if stated.gpus is not None and stated.gpus % ranks:
            continue
        for recompute in _recomputes(stated, model, software):
            for micro_batch, dp, batch in _batches(stated, model, cluster, ranks, pp):
                for ep in _expert_parallels(stated, model, cluster, tp * dp * stated.cp):
                    sizes = {"tp": tp, "pp": pp, "dp": dp, "ep": ep, "micro_batch": micro_batch, "global_batch": batch}
                    plan = _plan(stated, recompute, sizes)
                    if plan is not None:
                        plans.append(plan)
                if len(plans) >= _MAX_CANDIDATES:
                    return plans
    return plans


def _recomputes(stated: PlanConstraints, model: ModelShape, software: RunSoftware) -> Sequence[Recompute]:
    """Return what may have been recomputed, least first; recipes of Megatron Core recompute modules, not layers."""
    if stated.recompute is not None:
        return (stated.recompute,)
    if model.flash_attention and software.family is Software.MEGATRON_CORE:
        return (Recompute.NONE, Recompute.SELECTIVE)
    if model.flash_attention or software.year <= PLAIN_RECOMPUTE_UNTIL:
        return (Recompute.NONE, Recompute.FULL)
    return (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)


def _batches(
    stated: PlanConstraints, model: ModelShape, cluster: ClusterSpec, ranks: int, pp: int
) -> Iterator[tuple[int, int, int]]:
    """Yield micro-batch, data-parallel size and global batch."""
    dp = max(2, cluster.node.gpus // ranks) if stated.gpus is None else stated.gpus // ranks
    global_batch, software = stated.global_batch, stated.fixed["software"]
    accumulates = software is not Software.PYTORCH and stated.fixed["sharding"] is not Sharding.ZERO3
    fills = accumulates and (pp > 1 or ranks * dp > cluster.node.gpus)
    sizes = _MICRO_BATCHES if stated.micro_batch is None else (stated.micro_batch,)
    dividing = [size for size in sizes if global_batch is None or global_batch % (size * dp) == 0]
    for size in dividing or sizes[:1]:
        target = global_batch if global_batch is not None else _BATCH_TOKENS / model.seq if fills else 1
        batch = max(round(target / (size * dp)), 1) * size * dp
        yield size, dp, batch


def _plan(stated: PlanConstraints, recompute: Recompute, sizes: Mapping[str, Any]) -> Plan | None:
    """Return one candidate, ``None`` where its sizes are invalid."""
    fixed = dict(stated.fixed)
    if fixed["sequence_parallel"] is None:
        fixed["sequence_parallel"] = sizes["tp"] > 1
    vpp = stated.vpp if stated.vpp is not None and sizes["pp"] > 1 else 1
    try:
        return Plan(vpp=vpp, cp=stated.cp, recompute=recompute, **sizes, **fixed)
    except PlanInfeasibleError:
        return None


def _expert_parallels(stated: PlanConstraints, model: ModelShape, cluster: ClusterSpec, ranks: int) -> Sequence[int]:
    """Return the expert parallelism that may have been used: a node's width first, then wider, where all divides."""
    if stated.ep is not None:
        return (stated.ep if model.experts else 1,)
    if not model.experts:
        return (1,)
    fitting = [ep for ep in _EXPERT_PARALLELS if model.experts % ep == 0 and ranks % ep == 0]
    node_wide = [ep for ep in fitting if ep >= min(cluster.node.gpus, 8)]
    return tuple(node_wide or fitting[-1:])


def choose_likeliest_plan(candidates: Sequence[Plan], model: ModelShape, cluster: ClusterSpec) -> Plan:
    """Return the first that fits by model-parallel product and recomputation, then the fastest of its micro-batches."""
    table = predict(model, PlanTable.of(candidates), cluster)
    fits = np.broadcast_to(table.memory.fit_probability, len(candidates)) >= FITS_FROM
    memory = np.broadcast_to(table.memory.total_bytes.expected, len(candidates))
    rate = np.broadcast_to(table.time.tokens_per_s_per_gpu.expected, len(candidates))
    order = {kind: rank for rank, kind in enumerate(Recompute)}
    if not fits.any():
        return candidates[int(np.argmin(memory))]

    def preference(index: int) -> tuple[float, ...]:
        plan = candidates[index]
        return (plan.tp * plan.pp, plan.pp, plan.ep, order[plan.recompute], -float(rate[index]))

    return candidates[min((int(index) for index in np.flatnonzero(fits)), key=preference)]
