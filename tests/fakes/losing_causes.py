"""What can be done to a simulated job so that it loses time: each function hurts it by a random amount, and says it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.fakes.losing_jobs import GPUS_PER_NODE, Injected, Job, Simulated, kinds

LEAST, MOST = 0.06, 0.35
"""Injected causes take at least and at most this of a sound step."""


def straggler(job: Job) -> None:
    """Slow one GPU or a whole node: by a low clock, by slow memory, or by a host that launches late."""
    node, gpu = job.place()
    at = (node, slice(None)) if job.rng.random() < 0.3 else (node, gpu)
    excess = job.rng.uniform(LEAST, MOST) * job.expected * job.truth_factor / job.computing_s
    how = job.rng.choice(["clock", "memory", "host"])
    if how == "clock":
        job.machine.clock[at] /= 1.0 + excess
        job.machine.reasons["sw_power_cap"][at] = 0.0
    elif how == "memory":
        job.machine.work[at] *= 1.0 + excess
    else:
        job.machine.starved_s[at] += excess * job.computing_s
    part = -1 if isinstance(at[1], slice) else gpu
    job.truth.append(Injected(cause="straggler", node=node, part=part, seconds=excess * job.computing_s))


def thermal_cap(job: Job) -> None:
    """Heat up a GPU or a node until it slows down for a part of the time."""
    node, gpu = job.place()
    at = (node, slice(None)) if job.rng.random() < 0.5 else (node, gpu)
    excess = job.rng.uniform(LEAST, MOST) * job.expected * job.truth_factor / job.computing_s
    job.machine.clock[at] /= 1.0 + excess
    below = 1.0 - 1.0 / (1.0 + excess)
    share = below / job.rng.uniform(max(0.35, below), max(0.7, below))
    job.machine.reasons["sw_thermal_slowdown"][at] = min(share, 1.0)
    job.machine.temperature_c[at] = job.rng.uniform(84, 90)
    part = -1 if isinstance(at[1], slice) else gpu
    job.truth.append(Injected(cause="thermal_cap", node=node, part=part, seconds=excess * job.computing_s))


def power_cap(job: Job) -> None:
    """Lower the power limit of a GPU, a node or the whole job; clocks follow with some exponent."""
    node, gpu = job.place()
    whole = job.rng.random()
    at = (slice(None), slice(None)) if whole < 0.3 else (node, slice(None)) if whole < 0.7 else (node, gpu)
    excess = job.rng.uniform(LEAST, MOST) * job.expected * job.truth_factor / job.computing_s
    limit = 700.0 * (1.0 + excess) ** -job.rng.uniform(2.2, 2.8)
    job.machine.clock[at] /= 1.0 + excess
    job.machine.limit_w[at] = limit
    job.machine.reasons["sw_power_cap"][at] = job.rng.uniform(0.85, 1.0)
    everywhere = whole < 0.3
    part = gpu if whole >= 0.7 else -1
    where = -1 if everywhere else node
    job.truth.append(Injected(cause="power_cap", node=where, part=part, seconds=excess * job.computing_s))


def congested_link(job: Job) -> None:
    """Let ports wait for credit, or train a link down, until the step is clearly longer."""
    before = job.network_s()
    node, port = job.place()
    kind = job.rng.choice(["port", "leaf", "rate"])
    at = (slice(None), port) if kind == "leaf" else (node, port)
    if kind == "rate":
        job.machine.rate[at] = job.rng.choice([0.25, 0.5])
    else:
        job.machine.congestion[at] = 0.0
        for share in np.linspace(0.25, 0.95, 29):
            job.machine.congestion[at] = share
            if job.network_s() - before > job.rng.uniform(LEAST, MOST) * job.expected:
                break
        if kind == "leaf":
            job.machine.congestion[at] -= job.rng.uniform(0, 0.02, job.nodes)
    where = -1 if kind == "leaf" else node
    job.truth.append(Injected(cause="congested_link", node=where, part=port, seconds=job.network_s() - before))


def data_loading(job: Job) -> None:
    """Keep all GPUs waiting for input in each step, because hosts lack processors or storage."""
    mean = job.rng.uniform(LEAST, MOST) * job.expected
    job.machine.input_s[:] = job.rng.gamma(4.0, mean / 4.0, job.machine.input_s.shape)
    if job.rng.random() < 0.5:
        job.machine.host["cpu_busy"][:] = job.rng.uniform(0.93, 1.0, job.nodes)
        job.machine.host["cpu_stalled"][:] = job.rng.uniform(0.4, 0.9, job.nodes)
    else:
        job.machine.host["io_stalled"][:] = job.rng.uniform(0.2, 0.8, job.nodes)
        job.machine.host["iowait"][:] = job.rng.uniform(0.05, 0.3, job.nodes)
    job.truth.append(Injected(cause="data_loading", seconds=mean))


def checkpointing(job: Job) -> None:
    """Stop the job for a checkpoint every so many steps."""
    every = int(job.rng.integers(8, 30))
    at = range(int(job.rng.integers(1, every)), len(job.machine.input_s), every)
    share = job.rng.uniform(LEAST, MOST)
    for step in at:
        job.machine.between[step] = share * job.expected * every * job.rng.normal(1.0, 0.05)
    if job.rng.random() < 0.5:
        job.machine.checkpoints += list(at)
    total = sum(job.machine.between.values()) / len(job.machine.input_s)
    job.truth.append(Injected(cause="checkpointing", seconds=total))


def recompute(job: Job) -> None:
    """Tell that the same plan with less recomputation fits."""
    saved = job.rng.uniform(LEAST, 0.25) * job.expected
    job.others.append(("recompute full → none", job.expected - saved, 0.97, True))
    job.truth.append(Injected(cause="recompute", seconds=saved))


def wrong_plan(job: Job) -> None:
    """Tell of a plan that is faster by more than the error of the prediction."""
    saved = job.rng.uniform(0.22, 0.5) * job.expected
    job.others.append(("TP 8 → 2, PP 1 → 4", job.expected - saved, 0.98, False))
    job.truth.append(Injected(cause="wrong_plan", seconds=saved))


HURT: dict[str, Callable[[Job], None]] = {
    "straggler": straggler,
    "thermal_cap": thermal_cap,
    "power_cap": power_cap,
    "congested_link": congested_link,
    "data_loading": data_loading,
    "checkpointing": checkpointing,
    "recompute": recompute,
    "wrong_plan": wrong_plan,
}


def sound_oddities(job: Job) -> None:
    """Put in what looks odd and costs nothing to speak of: rare stalls, short checkpoints, some congestion."""
    rng, steps = job.rng, len(job.machine.input_s)
    draw = rng.random()
    if draw < 0.25:
        for step in rng.integers(0, steps, 2):
            job.machine.between[int(step)] = rng.uniform(0.2, 0.8) * job.expected
    elif draw < 0.5:
        for step in range(10, steps, 40):
            job.machine.between[step] = rng.uniform(0.1, 0.4) * job.expected
            job.machine.checkpoints.append(step)
    elif draw < 0.75:
        job.machine.host["cpu_stalled"][:] = rng.uniform(0.2, 0.4, job.nodes)
    else:
        node, gpu = job.place()
        job.machine.temperature_c[node, gpu] = 83.0
        job.machine.congestion[node, gpu] = rng.uniform(0.1, 0.14)


def simulated(seed: int, *causes: str) -> Simulated:
    """Return a job with some causes, none for a sound one; the kind is one that the causes can hurt."""
    rng = np.random.default_rng(seed)
    known = kinds()
    names = ["data-parallel"] if "congested_link" in causes else sorted(known)
    job = Job(known[names[int(rng.integers(len(names)))]], seed)
    for cause in causes:
        HURT[cause](job)
    if not causes:
        sound_oddities(job)
    return job.play()


__all__ = ["GPUS_PER_NODE", "HURT", "simulated"]
