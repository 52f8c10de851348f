"""Checks the CPUs, the host memory and the time that a job requests."""

from __future__ import annotations

from opsk.costmodel.sizes.parameters import total_parameters
from opsk.text import format_bytes, format_duration
from opsk.workload.defaults import ON_DEEPSPEED
from opsk.workload.plan import Offload, Sharding
from opsk_jobcheck.cluster_state.node_constraints import HostMemoryRequest
from opsk_jobcheck.preflight.facts import JobFacts, PreflightFinding, report
from opsk_jobcheck.scripts.run_facts import CPUS, LOADS_WHOLE, PROCESSES, STEPS, TIME_LIMIT, WORKERS

WEIGHT_BYTES = 2
"""Bytes of a parameter that a checkpoint is loaded with, at least."""
MIN_FIT = 0.5
"""Jobs that fit with a smaller probability are not checked."""
SURE = 1.1
"""The shortest predicted time has to exceed the limit by this factor."""


def check_cpus(facts: JobFacts) -> PreflightFinding | None:
    """Return that the data loaders of a node start more workers than the job has CPUs on it."""
    entry, workers, cpus = facts.stated.get(WORKERS), facts.find_count(WORKERS), facts.find_count(CPUS)
    if entry is None or workers is None or cpus is None or workers <= cpus or facts.is_exclusive:
        return None
    requested = facts.stated[CPUS].text
    what = f"data loaders start {workers} workers on a node ({entry.text}), and {requested} gives it {cpus} CPUs"
    return report(entry, what, "ask for more CPUs, or start fewer workers")


def check_host_memory(facts: JobFacts) -> PreflightFinding | None:
    """Return that the processes of a node load more than the job requests of its memory.

    Each loads the whole model, at 2 bytes a parameter or more, where nothing shards it from the start.
    """
    entry, request = facts.stated.get(LOADS_WHOLE), facts.memory or _find_default_memory(facts)
    model, plan = (facts.completion.model, facts.completion.plan) if facts.completion is not None else (None, None)
    gpus = facts.workload.plan.gpus_per_node
    if entry is None or request is None or model is None or plan is None or not gpus or PROCESSES in facts.stated:
        return None
    is_sharded = plan.sharding is Sharding.ZERO3 or (plan.sharding is not Sharding.NONE and not _is_deepspeed(facts))
    if is_sharded or plan.tp * plan.pp > 1 or plan.base_bits < WEIGHT_BYTES * 8 or plan.offload is not Offload.NONE:
        return None
    max_bytes = request.per_node_bytes(gpus_per_node=gpus, cpus_per_node=facts.cpus_per_node)
    needed_bytes = total_parameters(model) * WEIGHT_BYTES * gpus
    if max_bytes is None or needed_bytes <= max_bytes:
        return None
    loading = "one process of a node loads" if gpus == 1 else f"{gpus} processes of a node load"
    allowed = f"{request.words} allows {format_bytes(max_bytes)}"
    what = f"{loading} the whole model each: {format_bytes(needed_bytes)} or more; {allowed}"
    return report(entry, what, "ask for more, or for all that a node has: --mem=0")


def check_time_limit(facts: JobFacts) -> PreflightFinding | None:
    """Return that the time limit ends the job long before its last step, where no later job goes on with it."""
    entry, steps, limit = facts.stated.get(STEPS), facts.find_count(STEPS), facts.stated.get(TIME_LIMIT)
    prediction = facts.prediction
    if entry is None or steps is None or limit is None or prediction is None:
        return None
    limit_s, step_s = float(str(limit.value)), float(prediction.time.step_s.low)
    # a job that will run out of memory has to change, and its steps with it
    if steps * step_s <= SURE * limit_s or float(prediction.memory.fit_probability) < MIN_FIT:
        return None
    needed, given = format_duration(steps * step_s), format_duration(limit_s)
    if not limit.text.startswith("--time"):
        given = f"{given} ({limit.text})"
    what = (
        f"{steps:,} steps take {needed} or more, and the time limit is {given}: step {int(limit_s / step_s):,} at best"
    )
    return report(entry, what, "ask for more time, or save checkpoints and resume")


def _find_default_memory(facts: JobFacts) -> HostMemoryRequest | None:
    """Return the memory that the partition gives a job that requests none."""
    partition = facts.partition
    if partition is None or not facts.leaves_memory or not partition.default_memory_bytes:
        return None
    names = {"node": "DefMemPerNode", "cpu": "DefMemPerCPU", "gpu": "DefMemPerGPU"}
    size = format_bytes(partition.default_memory_bytes)
    return HostMemoryRequest(
        size_bytes=partition.default_memory_bytes,
        each=partition.default_memory_each,
        words=f"{names[partition.default_memory_each]} ({size}) of partition {partition.name}",
    )


def _is_deepspeed(facts: JobFacts) -> bool:
    """Return whether DeepSpeed shards the states: below stage 3, after each process has loaded the model."""
    options = dict(facts.workload.options)
    return options.get("deepspeed") == "true" or facts.workload.framework in ON_DEEPSPEED
