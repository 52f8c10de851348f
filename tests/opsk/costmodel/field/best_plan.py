"""The best plan of a GPT on H100 in HB domains of a given size, by enumeration, as the rail-only paper searches.

The paper (arXiv 2307.12169, section V) enumerates TP, PP and DP on the rates of a DGX GH200: NVLink 3.6 Tbit/s one way,
a NIC of 400 Gbit/s a GPU. It ignores latency and states neither precision, recomputation, interleaving nor overlap.
Here: no latency unless a case asks for it, bf16, fused attention, no interleaving, sequence parallelism, ZeRO-1,
micro-batches of 1 to 8, none or all recomputed, and only plans that fit into 80 GB.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, replace

import numpy as np

from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.predict import predict
from opsk.costmodel.rules import find_violations
from opsk.costmodel.table import PlanTable
from opsk.hardware import catalog
from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Recompute, Sharding
from tests.fakes.training_runs import gpt

GPT_1T = gpt(layers=128, hidden=25600, heads=160, flash=True)
GPT_146B = gpt(layers=80, hidden=12288, heads=96, flash=True)
"""Narayanan et al. 2021, table 1: the shapes that the rail-only paper names."""

NO_LATENCY = replace(DEFAULT, links=replace(DEFAULT.links, hb_hop_s=0.0, nic_hop_s=0.0))

_TP = (1, 2, 4, 8, 16, 32)
_PP = (1, 2, 4, 8, 16, 32, 64, 128)
_MICRO_BATCHES = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model, a number of GPUs, a batch and the network they have; rates are of one GPU, one way."""

    model: ModelShape
    gpus: int
    batch: int
    hb_domain_gpus: int
    hb_bytes_per_s: float = 450e9
    nic_bytes_per_s: float = 50e9
    has_latency: bool = False


def machine(case: Case) -> ClusterSpec:
    """Return a cluster of H100 with the case's network."""
    base = catalog.cluster("superpod-h100")
    gpu = replace(base.node.gpu, hb_bytes_per_s=case.hb_bytes_per_s)
    nic = replace(base.node.nic, bytes_per_s=case.nic_bytes_per_s)
    node = replace(base.node, gpu=gpu, nic=nic, hb_domain_gpus=case.hb_domain_gpus)
    return replace(base, node=node, nodes=case.gpus // node.gpus)


@functools.cache
def legal_plans(model: ModelShape, gpus: int, batch: int) -> PlanTable:
    """Return every plan of the grid that uses all GPUs and breaks no rule."""
    plans = []
    for tp, pp, micro_batch, recompute in itertools.product(_TP, _PP, _MICRO_BATCHES, (Recompute.NONE, Recompute.FULL)):
        dp = gpus // (tp * pp)
        if gpus % (tp * pp) or batch % (dp * micro_batch):
            continue
        plan = Plan(
            tp=tp,
            pp=pp,
            dp=dp,
            micro_batch=micro_batch,
            global_batch=batch,
            recompute=recompute,
            sharding=Sharding.ZERO1,
            sequence_parallel=tp > 1,
            tp_async=False,  # the paper's model shows all tensor-parallel communication
        )
        if not find_violations(model, plan):
            plans.append(plan)
    return PlanTable.of(plans)


@functools.cache
def best_step_s(case: Case) -> float:
    """Return the step time of the fastest plan that fits [s]."""
    table = legal_plans(case.model, case.gpus, case.batch)
    prediction = predict(case.model, table, machine(case), DEFAULT if case.has_latency else NO_LATENCY)
    memory = prediction.memory
    fits = memory.total_bytes.expected <= memory.capacity_bytes
    return float(np.where(fits, prediction.time.step_s.expected, np.inf).min())
