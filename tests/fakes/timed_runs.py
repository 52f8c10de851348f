"""Runs whose times the cost model itself made from known efficiencies, with noise: what a fit should find is known."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from opsk.calibration.fitting.fit import TimedRun
from opsk.costmodel.efficiency.efficiency import Efficiency, GpuEfficiency, LinkEfficiency, SoftwareEfficiency
from opsk.costmodel.predict import predict_rows
from opsk.costmodel.table import PlanTable
from opsk.hardware.spec import ClusterSpec
from opsk.workload.plan import Plan, Precision, Recompute, Sharding, Software
from tests.fakes.training_runs import a100_cluster, gpt

TRUTH = Efficiency(
    gpu={"": GpuEfficiency(), "ampere": GpuEfficiency(matmul_fraction=0.66, attention_factor=0.85)},
    software={
        Software.MEGATRON: SoftwareEfficiency(kernel_gap_s=1.2e-5),
        Software.PYTORCH: SoftwareEfficiency(kernel_gap_s=3e-5),
    },
    links=LinkEfficiency(nic_fraction=0.6),
)
"""Efficiencies away from the priors, as far as such numbers may be."""


def ampere_cluster() -> ClusterSpec:
    """Return nodes of eight A100 that the fit knows as one chip generation."""
    cluster = a100_cluster()
    gpu = replace(cluster.node.gpu, architecture="ampere")
    return replace(cluster, node=replace(cluster.node, gpu=gpu))


def made_runs(
    truth: Efficiency = TRUTH, *, noise: float = 0.02, seed: int = 7, sources: Sequence[str] = ("a", "b", "c")
) -> list[TimedRun]:
    """Return 96 runs of two families of software, dealt to the sources in turn, their times off by log-normal noise."""
    cluster = ampere_cluster()
    shapes = [(24, 2048, 16, 2048), (48, 6144, 64, 2048), (32, 4096, 32, 8192), (96, 12288, 96, 2048)]
    models = [
        gpt(layers=layers, hidden=hidden, heads=heads, seq=seq, flash=seq > 2048)
        for layers, hidden, heads, seq in shapes
    ]
    axes = [(8, 1, 1), (8, 4, 1), (4, 2, 8), (1, 1, 64), (8, 1, 16), (2, 1, 8)]
    cases = list(itertools.product(models, axes, (1, 4), (Software.MEGATRON, Software.PYTORCH)))
    plans = [
        Plan(
            tp=tp,
            pp=pp,
            dp=dp,
            sharding=Sharding.ZERO1,
            recompute=Recompute.SELECTIVE,
            precision=Precision.FP16,
            micro_batch=micro_batch,
            global_batch=micro_batch * dp * 8,
            software=software,
            tp_async=False,  # what hides tells nothing of the links
        )
        for _, (tp, pp, dp), micro_batch, software in cases
    ]
    shaped = [model for model, *_ in cases]
    expected = predict_rows(shaped, PlanTable.of(plans), [cluster] * len(plans), truth).time.step_s.expected
    times = expected * np.exp(np.random.default_rng(seed).normal(0.0, noise, len(plans)))
    return [
        TimedRun(
            id=f"{sources[place % len(sources)]}-{place:03}",
            source=sources[place % len(sources)],
            model=shaped[place],
            plan=plan,
            cluster=cluster,
            step_s=float(times[place]),
        )
        for place, plan in enumerate(plans)
    ]
