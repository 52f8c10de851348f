"""Defines the reference jobs that stand for an unspecified job on a set of nodes.

The two jobs have different traffic: a dense model whose gradients go through rings on their rails, and a mixture of
experts whose tokens go from every GPU to every other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.hardware.spec import ClusterSpec
from opsk.planning.placement.step_model import StepModel, step_model
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Precision, Recompute, Sharding

DENSE = ModelShape(
    name="llama3-70b", layers=80, hidden=8192, ffn=28672, heads=64, kv_heads=8, head_dim=128, vocab=128256, seq=8192,
    gated_mlp=True, tied_embeddings=False,
)  # fmt: skip
"""Llama 3 70B (its config.json)."""
SPARSE = ModelShape(
    name="qwen3-235b-a22b", layers=94, hidden=4096, ffn=12288, heads=64, kv_heads=4, head_dim=128, vocab=151936,
    seq=4096, gated_mlp=True, tied_embeddings=False, experts=128, top_k=8, expert_ffn=1536,
)  # fmt: skip
"""Qwen3 235B A22B (its config.json)."""

_SEQUENCES_A_REPLICA = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceJob:
    """A job to judge a fabric by; ``label`` is for people."""

    label: str
    model: ModelShape
    plan: Plan
    step: StepModel


def reference_jobs(
    cluster: ClusterSpec, nodes: int, gpus_per_node: int, efficiency: Efficiency = DEFAULT
) -> tuple[ReferenceJob, ...]:
    """Return the dense and the sparse job for this many nodes of a cluster, one replica as small as a node."""
    gpus = nodes * gpus_per_node
    peaks = cluster.node.gpu.peak_flop_per_s
    precision = next((number for number in (Precision.BF16, Precision.FP16) if number.value in peaks), Precision.FP32)
    tp = max(size for size in (1, 2, 4, 8) if gpus_per_node % size == 0)
    dense = Plan(
        tp=tp,
        dp=gpus // tp,
        sharding=Sharding.ZERO1,
        sequence_parallel=tp > 1,
        recompute=Recompute.SELECTIVE,
        precision=precision,
        global_batch=gpus // tp * _SEQUENCES_A_REPLICA,
    )
    ep = max(size for size in (1, 2, 4, 8, 16, 32, 64) if gpus % size == 0)
    sparse = Plan(
        dp=gpus, ep=ep, sharding=Sharding.ZERO1, recompute=Recompute.SELECTIVE, precision=precision,
        global_batch=gpus * _SEQUENCES_A_REPLICA,
    )  # fmt: skip
    plans: Sequence[tuple[ModelShape, Plan]] = ((DENSE, dense), (SPARSE, sparse))
    return tuple(
        ReferenceJob(
            label=f"{model.name} on {nodes} nodes", model=model, plan=plan,
            step=step_model(model, plan, cluster, efficiency),
        )
        for model, plan in plans
    )  # fmt: skip
