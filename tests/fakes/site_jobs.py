"""Jobs of an invented site, whose times and peaks are those of the cost model times known factors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from opsk.calibration.learning.evidence import MeasuredJob
from opsk.calibration.learning.memory_fit import predict_peaks
from opsk.calibration.learning.site_fit import predict_times
from opsk.costmodel.efficiency.default import DEFAULT
from opsk.hardware.catalog import cluster
from opsk.workload.plan import Plan, Recompute, Sharding, Software
from opsk.workload.public_models.lookup import public_model

H100, A100 = cluster("superpod-h100"), cluster("superpod-a100")
KINDS = (
    ("llama-3-8b", H100, Plan(
        software=Software.PYTORCH, dp=16, sharding=Sharding.ZERO3, recompute=Recompute.FULL, micro_batch=1,
        global_batch=64,
    )),
    ("llama-2-13b", H100, Plan(software=Software.MEGATRON_CORE, tp=4, dp=4, micro_batch=1, global_batch=64)),
    ("llama-3-70b", H100, Plan(software=Software.MEGATRON_CORE, tp=8, pp=4, dp=2, micro_batch=1, global_batch=64)),
    ("llama-2-7b", A100, Plan(
        software=Software.DEEPSPEED, dp=16, sharding=Sharding.ZERO3, recompute=Recompute.FULL, micro_batch=2,
        global_batch=64,
    )),
)  # fmt: skip
"""Four kinds of jobs: model, cluster and plan."""


def site_jobs(
    count: int,
    *,
    factors: Sequence[float] = (1.0,),
    noise: float = 0.02,
    seed: int = 1,
    owners: int = 4,
    memory_factor: float = 1.0,
) -> list[MeasuredJob]:
    """Return jobs of all kinds in turn; the k-th kind takes ``factors[k]`` (in turn) of what opsk predicts of it."""
    generator = np.random.default_rng(seed)
    jobs = []
    for index in range(count):
        name, spec, plan = KINDS[index % len(KINDS)]
        model = public_model(name)
        assert model is not None
        jobs.append(
            MeasuredJob(
                id=f"job-{index}", owner=f"user-{index // len(KINDS) % owners}", model=model, cluster=spec,
                plan=replace(plan, global_batch=plan.global_batch * (1 + index // len(KINDS) % 2)),
            )
        )  # fmt: skip
    times, peaks = predict_times(jobs, DEFAULT), predict_peaks(jobs, DEFAULT)
    errors = np.exp(generator.normal(0.0, noise, (2, count)))
    return [
        replace(
            job,
            step_s=float(times[index] * factors[index % len(KINDS) % len(factors)] * errors[0, index]),
            peak_bytes=float(peaks[index] * memory_factor * errors[1, index]),
        )
        for index, job in enumerate(jobs)
    ]
