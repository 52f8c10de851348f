"""Lists usual jobs of a node kind, of which a fit computes how much of their time it has learned."""

from __future__ import annotations

from opsk.calibration.learning.evidence import MeasuredJob
from opsk.hardware.spec import ClusterSpec
from opsk.workload.plan import Plan, Recompute, Sharding, Software
from opsk.workload.public_models.lookup import public_model

_MODELS = ("llama-2-7b", "llama-2-13b")
_NODES = (1, 4)
_TENSOR_PARALLEL = 2
_MEGATRON = frozenset({Software.MEGATRON, Software.MEGATRON_CORE})


def list_reference_jobs(cluster: ClusterSpec, software: Software) -> list[MeasuredJob]:
    """Return dense models on one and on four nodes, split as users of the framework do; they were not measured."""
    jobs = []
    for nodes in sorted({min(count, cluster.nodes) for count in _NODES}):
        for name in _MODELS:
            model = public_model(name)
            assert model is not None
            plan = _build_plan(nodes * cluster.node.gpus, software)
            jobs.append(MeasuredJob(id=f"{name} on {nodes}", model=model, plan=plan, cluster=cluster, step_s=1.0))
    return jobs


def _build_plan(gpus: int, software: Software) -> Plan:
    tp = _TENSOR_PARALLEL if software in _MEGATRON and gpus % _TENSOR_PARALLEL == 0 else 1
    dp = gpus // tp
    sharding = Sharding.NONE if dp == 1 else Sharding.ZERO1 if software in _MEGATRON else Sharding.ZERO3
    recompute = Recompute.SELECTIVE if software in _MEGATRON else Recompute.FULL
    return Plan(
        tp=tp, dp=dp, sequence_parallel=tp > 1, micro_batch=1, global_batch=8 * dp, software=software,
        sharding=sharding, recompute=recompute,
    )  # fmt: skip
