"""Measures how long a site's refit takes: ``python -m benchmarks.learning.learn``, 2,000 jobs of ten kinds on one core.

The jobs are invented: what the cost model predicts of ten kinds of training on two GPU generations with three families
of software, times a factor of each kind and noise. The fit includes the errors of all jobs left out one by one.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace

import numpy as np

from benchmarks.found import Found, arguments, run
from benchmarks.process_use import time_call
from opsk.calibration.learning.evidence import MeasuredJob
from opsk.calibration.learning.memory_fit import predict_peaks
from opsk.calibration.learning.site_fit import learn_site, predict_times
from opsk.costmodel.efficiency.default import DEFAULT
from opsk.hardware.catalog import cluster
from opsk.workload.plan import Plan, Recompute, Sharding, Software
from opsk.workload.public_models.lookup import public_model

JOBS, SHORT_JOBS, OWNERS = 2000, 20, 40
NOISE = 0.03
FSDP = {"sharding": Sharding.ZERO3, "recompute": Recompute.FULL}
KINDS = (
    ("llama-3-8b", Software.PYTORCH, "superpod-h100", {"dp": 16, **FSDP}),
    ("llama-3-8b", Software.MEGATRON_CORE, "superpod-h100", {"tp": 4, "dp": 8}),
    ("llama-2-13b", Software.MEGATRON_CORE, "superpod-a100", {"tp": 8, "dp": 4}),
    ("llama-3-70b", Software.MEGATRON_CORE, "superpod-h100", {"tp": 8, "pp": 4, "dp": 4}),
    ("llama-2-7b", Software.DEEPSPEED, "superpod-a100", {"dp": 16, **FSDP}),
    ("llama-2-70b", Software.MEGATRON_CORE, "superpod-a100", {"tp": 8, "pp": 8, "dp": 4}),
    ("mistral-7b", Software.PYTORCH, "superpod-a100", {"dp": 32, **FSDP}),
    ("llama-2-13b", Software.DEEPSPEED, "superpod-h100", {"dp": 32, **FSDP}),
    ("mixtral-8x7b", Software.MEGATRON_CORE, "superpod-h100", {"tp": 2, "pp": 4, "ep": 8, "dp": 8}),
    ("llama-2-7b", Software.PYTORCH, "superpod-h100", {"dp": 64, **FSDP}),
)


def build_jobs(count: int) -> list[MeasuredJob]:
    """Return jobs of all kinds in turn, measured with errors of their kind and noise."""
    generator = np.random.default_rng(11)
    clusters = {name: cluster(name) for _, _, name, _ in KINDS}
    jobs = []
    for number in range(count):
        name, software, place, axes = KINDS[number % len(KINDS)]
        model = public_model(name)
        assert model is not None
        batch = {"micro_batch": 1 + number // len(KINDS) % 2, "global_batch": 256 * (1 + number // 20 % 3)}
        plan = Plan(software=software, **{**axes, **batch})  # type: ignore[arg-type]
        jobs.append(
            MeasuredJob(id=str(number), owner=f"user{number % OWNERS}", model=model, plan=plan, cluster=clusters[place])
        )
    factors = generator.uniform(0.7, 1.4, len(KINDS))[np.arange(count) % len(KINDS)]
    noise = np.exp(generator.normal(0.0, NOISE, (2, count)))
    times, peaks = predict_times(jobs, DEFAULT) * factors * noise[0], predict_peaks(jobs, DEFAULT) * 1.1 * noise[1]
    return [
        replace(job, step_s=float(step_s), peak_bytes=float(peak_bytes))
        for job, step_s, peak_bytes in zip(jobs, times, peaks, strict=True)
    ]


def measure(asked: argparse.Namespace) -> Found:
    """Print and return how long a refit takes on one core, and how near it comes."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    jobs = build_jobs(SHORT_JOBS if asked.short else JOBS)
    fit, wall_s, _ = time_call(lambda: learn_site(DEFAULT, jobs))
    assert fit.time.before is not None
    assert fit.time.after is not None
    print(f"{wall_s:8.2f} s   refit of {len(jobs)} jobs, times and memory, each job left out once")
    print(f"median error {fit.time.before.median:.1%} before, {fit.time.after.median:.1%} left out")
    return Found(figures={"refit_s": wall_s, "median_left_out_ratio": fit.time.after.median})


if __name__ == "__main__":
    run(measure, arguments(__doc__))
