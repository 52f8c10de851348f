"""Finds the best plan where a pipeline's bubble is (p - 1)/(v m) of the step, however few the micro-batches are.

Interleaving divides the bubble by the v chunks of a stage only where there are at least as many micro-batches m as
stages p: else a stage waits in every round for the chunks of the others. Early releases of Calculon (Isaev et al.
2023), on which the rail-only paper's model is patterned, count p - 1 chunks whatever m is. Plans of one paper's space
are few, so all of them are evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.predict import predict
from opsk.costmodel.table import PlanTable
from opsk.errors import InputError
from opsk.hardware.spec import ClusterSpec
from opsk.network_design.plans import ModelRequest
from opsk.workload.plan import Plan, Recompute, Sharding

_MICRO_BATCHES = (1, 2, 4, 8)
_RUNNING = ("compute", "recompute", "tp", "pp")
"""Parts of a step that a bubble is a share of."""
_FITS = 0.95
"""Probability from which on a plan surely fits into memory."""


def compute_best(
    request: ModelRequest, cluster: ClusterSpec, *, gpus: int, global_batch: int, efficiency: Efficiency = DEFAULT
) -> tuple[Plan, float]:
    """Return the fastest plan of tensor, pipeline and data parallelism that surely fits, and its step [s].

    Raises
    ------
    InputError
        No such plan fits into memory.
    """
    plans = list(_list_plans(request, gpus, global_batch))
    table = PlanTable.of(plans)
    predicted = predict(request.model, table, cluster, efficiency)
    parts = predicted.time.components
    running_s = sum((parts[name] for name in _RUNNING), start=np.zeros(len(plans)))
    micro_batches = np.array([plan.global_batch // (plan.dp * plan.micro_batch) for plan in plans], dtype=np.float64)
    chunks = np.array([plan.vpp for plan in plans]) * micro_batches
    short_s = (np.array([plan.pp for plan in plans]) - 1) / chunks * running_s
    step_s = predicted.time.step_s.expected - np.maximum(parts["bubble"] - short_s, 0.0)
    step_s = np.where(predicted.memory.fit_probability >= _FITS, step_s, np.inf)
    best = int(np.argmin(step_s))
    if not np.isfinite(step_s[best]):
        raise InputError(f"no plan fits into the memory of {gpus} GPUs", hint="more GPUs, or another model")
    return plans[best], float(step_s[best])


def _list_plans(request: ModelRequest, gpus: int, global_batch: int) -> Iterator[Plan]:
    """Yield the plans of the paper's space; the optimizer is sharded over replicas where there are several."""
    model = request.model
    for tp, pp in product(_list_divisors(model.heads), _list_divisors(model.layers)):
        dp = gpus // (tp * pp)
        if gpus % (tp * pp) or global_batch % dp:
            continue
        chunks = _list_divisors(model.layers // pp) if pp > 1 else (1,)
        sizes = [size for size in _MICRO_BATCHES if global_batch // dp % size == 0]
        for vpp, micro_batch, recompute in product(chunks, sizes, Recompute):
            yield replace(
                request.template, tp=tp, pp=pp, vpp=vpp, dp=dp, micro_batch=micro_batch, global_batch=global_batch,
                sharding=Sharding.ZERO1 if dp > 1 else Sharding.NONE, sequence_parallel=tp > 1, recompute=recompute,
            )  # fmt: skip


def _list_divisors(number: int) -> tuple[int, ...]:
    return tuple(size for size in range(1, number + 1) if number % size == 0)
