"""Simulates the jobs of a site with hidden efficiencies: kinds, noise, faults, and owners who invent their times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from opsk.calibration.runs.run_writer import MeasuredInterval
from opsk.hardware.catalog import cluster as catalogue_cluster
from opsk.hardware.spec import ClusterSpec
from opsk.lab.hidden.site import HiddenSite
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Precision, Recompute, Sharding, Software, States
from opsk.workload.public_models.lookup import public_model

RUN_LOG_SIGMA = 0.02
"""Repeated runs of one plan differ by so much."""
INTERVAL_LOG_SIGMA = 0.008
INTERVALS, INTERVAL_STEPS = 8, 50
BAD_SHARE = 0.15
"""Share of the jobs that run badly."""
UNSEEN_STRAGGLERS = 0.3
"""Share of the stragglers that nothing points at: every rank waits, and no counter is read."""
OWNERS, INVENTING = 20, 2
"""Owners of jobs, and how many of them report step times that nothing measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    """One of the programs of a site, with what its users vary: nodes, micro-batches, micro-batches a step, lengths."""

    name: str
    cluster: str
    model: str
    plan: Mapping[str, Any]
    nodes: tuple[int, ...]
    micro_batches: tuple[int, ...] = (1, 2)
    accumulation: tuple[int, ...] = (4, 8)
    lengths: tuple[int, ...] = (4096,)


_MEGATRON: Mapping[str, Any] = {
    "software": Software.MEGATRON_CORE, "sharding": Sharding.ZERO1, "sequence_parallel": True, "tp": 2,
    "recompute": Recompute.SELECTIVE,
}  # fmt: skip
_FSDP: Mapping[str, Any] = {
    "software": Software.PYTORCH, "sharding": Sharding.ZERO3, "states": States.AUTOCAST, "recompute": Recompute.FULL,
}  # fmt: skip
_ZERO: Mapping[str, Any] = {
    "software": Software.DEEPSPEED, "sharding": Sharding.ZERO3, "states": States.MIXED_16BIT_GRADIENTS,
    "recompute": Recompute.FULL,
}  # fmt: skip
_HOPPER, _AMPERE = "superpod-h100", "superpod-a100"
KINDS: tuple[JobKind, ...] = (
    JobKind(name="small-megatron", cluster=_HOPPER, model="llama-3-8b", plan=_MEGATRON, nodes=(1, 2, 4)),
    JobKind(
        name="large-megatron", cluster=_HOPPER, model="llama-3-70b", plan={**_MEGATRON, "tp": 8, "pp": 4},
        nodes=(4, 8, 16, 32), accumulation=(16, 32), micro_batches=(1,),
    ),
    JobKind(
        name="experts-megatron", cluster=_HOPPER, model="mixtral-8x7b", plan={**_MEGATRON, "tp": 2, "ep": 8},
        nodes=(2, 4, 8),
    ),
    JobKind(
        name="fp8-megatron", cluster=_HOPPER, model="llama-3-8b", plan={**_MEGATRON, "precision": Precision.FP8},
        nodes=(1, 2, 4),
    ),
    JobKind(
        name="fsdp", cluster=_HOPPER, model="llama-3-8b", plan=_FSDP,
        nodes=(1, 2, 4, 8), accumulation=(1, 2), lengths=(4096, 8192),
    ),
    JobKind(
        name="large-fsdp", cluster=_HOPPER, model="qwen2.5-14b", plan=_FSDP,
        nodes=(4, 8, 16), accumulation=(1, 2),
    ),
    JobKind(
        name="adapters", cluster=_HOPPER, model="llama-3-8b", plan={**_FSDP, "lora_rank": 16},
        nodes=(1,), micro_batches=(2, 4), lengths=(2048, 4096),
    ),
    JobKind(
        name="zero", cluster=_HOPPER, model="qwen2.5-7b", plan=_ZERO, nodes=(1, 2, 4), micro_batches=(2, 4),
        accumulation=(1, 4),
    ),
    JobKind(
        name="old-fsdp", cluster=_AMPERE, model="llama-2-7b", plan=_FSDP,
        nodes=(1, 2, 4), accumulation=(1, 2), lengths=(2048, 4096),
    ),
    JobKind(
        name="old-adapters", cluster=_AMPERE, model="mistral-7b",
        plan={**_FSDP, "lora_rank": 16}, nodes=(1,), micro_batches=(2, 4),
        lengths=(2048, 4096),
    ),
    JobKind(
        name="old-megatron", cluster=_AMPERE, model="gpt-neox-20b", plan={**_MEGATRON, "tp": 8, "pp": 2},
        nodes=(2, 4, 8), accumulation=(16, 32), lengths=(2048,),
    ),
    JobKind(
        name="old-zero", cluster=_AMPERE, model="llama-2-13b", plan=_ZERO, nodes=(2, 4, 8), micro_batches=(2, 4),
        accumulation=(1, 4),
    ),
)  # fmt: skip
"""Twelve programs on two node kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedJob:
    """What a site records of a job, and what only the simulation knows.

    Parameters
    ----------
    intervals
        Measured intervals, as the recorder stores them.
    has_failure
        Whether the recorder has a failure of the job.
    held_up_by
        The cause of lost time that ``opsk losses`` names; empty is none.
    true_step_s
        Step of the same plan where it runs well, with this run's noise [s]. Not recorded.
    fault
        Why it runs badly, or ``invented``; empty where it runs well. Not recorded.
    """

    id: str
    owner: str
    kind: str
    model: ModelShape
    plan: Plan
    cluster: ClusterSpec
    intervals: tuple[MeasuredInterval, ...]
    has_failure: bool
    held_up_by: str
    true_step_s: float
    fault: str


def simulate_jobs(site: HiddenSite, count: int, *, kinds: Sequence[JobKind] = KINDS) -> list[SimulatedJob]:
    """Return jobs of a site in the order in which they ended; kinds and owners are mixed."""
    random = Random(f"jobs/{site.seed}")
    return [_simulate(site, random, number, random.choice(kinds)) for number in range(count)]


def list_clusters(kinds: Sequence[JobKind] = KINDS) -> tuple[ClusterSpec, ...]:
    """Return the partitions on which the kinds run."""
    return tuple(catalogue_cluster(name) for name in dict.fromkeys(kind.cluster for kind in kinds))


def _simulate(site: HiddenSite, random: Random, number: int, kind: JobKind) -> SimulatedJob:
    cluster = catalogue_cluster(kind.cluster)
    model, plan = _vary(random, kind, cluster)
    true_s = site.step_s(model, plan, cluster) * math.exp(random.gauss(0.0, RUN_LOG_SIGMA))
    owner = random.randrange(OWNERS)
    fault = _draw_fault(random)
    if owner < INVENTING:
        fault = "invented"
    is_unseen = fault == "straggler" and random.random() < UNSEEN_STRAGGLERS
    return SimulatedJob(
        id=f"lab-{number:03}",
        owner=f"owner{owner:02}",
        kind=kind.name,
        model=model,
        plan=plan,
        cluster=cluster,
        intervals=_measure(random, true_s, fault),
        has_failure=fault == "sick GPU",
        held_up_by=fault if fault in ("straggler", "data stall") and not is_unseen else "",
        true_step_s=true_s,
        fault=fault,
    )


def _draw_fault(random: Random) -> str:
    if random.random() >= BAD_SHARE:
        return ""
    return random.choice(("straggler", "sick GPU", "data stall"))


def _measure(random: Random, true_s: float, fault: str) -> tuple[MeasuredInterval, ...]:
    """Return what the recorder measures of a job: a straggler slows all of it, stalls come and go."""
    slow = {"straggler": random.uniform(1.15, 1.6), "sick GPU": random.uniform(1.3, 2.5)}.get(fault, 1.0)
    if fault == "invented":
        slow = random.uniform(0.1, 0.5)
    stalled = [fault == "data stall" and random.random() < 0.5 for _ in range(INTERVALS)]
    return tuple(
        MeasuredInterval(
            steps=INTERVAL_STEPS,
            step_s=true_s
            * slow
            * (random.uniform(1.2, 3.0) if is_stalled else 1.0)
            * math.exp(random.gauss(0.0, INTERVAL_LOG_SIGMA)),
        )
        for is_stalled in stalled
    )


def _vary(random: Random, kind: JobKind, cluster: ClusterSpec) -> tuple[ModelShape, Plan]:
    """Return a model and a plan as some user starts this kind of job."""
    gpus = random.choice(kind.nodes) * cluster.node.gpus
    model, micro_batch = public_model(kind.model), random.choice(kind.micro_batches)
    assert model is not None, kind.model
    dp = max(gpus // (kind.plan.get("tp", 1) * kind.plan.get("pp", 1)), 1)
    batch = dp * micro_batch * random.choice(kind.accumulation)
    plan = Plan(**kind.plan, dp=dp, micro_batch=micro_batch, global_batch=batch)
    return replace(model, seq=random.choice(kind.lengths)), plan
