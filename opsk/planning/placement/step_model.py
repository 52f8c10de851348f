"""Predicts the step time when the fabric gives an axis less bandwidth than the cost model assumes.

The cost model describes a cluster by numbers (bandwidth per GPU), without cables. Its communication time of an axis
holds where the busiest link of a placement needs no longer; where it needs longer, that link sets the time, and what
the computation does not hide is added to the step. Axes that share a link at the same moment are not modelled.

Two reference jobs stand for an unspecified job. Their traffic differs: a dense model whose gradients go through rings
on their rails, and a mixture of experts whose tokens go from every GPU to every other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.predict import predict
from opsk.costmodel.table import FloatColumn, IntColumn, PlanTable, TimeTable
from opsk.fabric.rails import Rails
from opsk.hardware.spec import ClusterSpec
from opsk.lru_cache import LruCache
from opsk.planning.routing.traffic import AXES
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Precision, Recompute, Sharding

_CABLED_NICS: LruCache[tuple[Rails, tuple[int, float]]] = LruCache(2)
"""HCAs of the nodes of the most recent fabrics, by identity: a service uses one fabric repeatedly."""
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
class StepModel:
    """The parts of a step's time that depend on links, by axis in the order of ``AXES``.

    Parameters
    ----------
    other_s
        Time that does not depend on links [s].
    total_s, window_s
        Communication of each axis as the cost model has it, and the computation that can hide it [s].
    weight
        Seconds of step for each second of communication that shows: stages wait for it in the bubble too.
    latency_s
        Latency of hops between domains for an axis that the cost model has inside an HB domain, where it leaves one
        [s]: tensor-parallel collectives, which are many and short.
    straggler
        Factor of the whole step for the slowest of many nodes.
    nic_fraction
        Part of a link's rate that large messages reach.
    is_whole
        False without a cost model, where the "step" is its communication alone.
    """

    other_s: float
    total_s: FloatColumn
    window_s: FloatColumn
    weight: FloatColumn
    latency_s: FloatColumn
    straggler: float
    nic_fraction: float
    is_whole: bool = True

    def step_s(self, fabric_s: FloatColumn) -> FloatColumn:
        """Return the time of a step [s] for the busiest links of the axes, shape (..., axes) [s at full rate]."""
        return _step_s(self, fabric_s)

    @property
    def least_s(self) -> float:
        """Return the time of a step that no placement can be faster than: no link slower than assumed [s]."""
        return float(self.step_s(np.zeros(len(AXES))))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepModels:
    """The same of many plans: ``other_s`` and ``straggler`` of shape (plans,), the axes' columns (plans, axes).

    ``nic_fraction`` has shape (plans, 1).
    """

    other_s: FloatColumn
    total_s: FloatColumn
    window_s: FloatColumn
    weight: FloatColumn
    latency_s: FloatColumn
    straggler: FloatColumn
    nic_fraction: FloatColumn

    def step_s(self, fabric_s: FloatColumn) -> FloatColumn:
        """Return the time of every plan's step [s] for its busiest links, shape (..., plans, axes)."""
        return _step_s(self, fabric_s)

    def only(self, rows: IntColumn) -> StepModels:
        """Return the models of some plans."""
        columns = ("other_s", "total_s", "window_s", "weight", "latency_s", "straggler", "nic_fraction")
        return replace(self, **{name: getattr(self, name)[rows] for name in columns})

    def row(self, number: int) -> StepModel:
        """Return the model of one plan."""
        return StepModel(
            other_s=float(self.other_s[number]),
            total_s=self.total_s[number],
            window_s=self.window_s[number],
            weight=self.weight[number],
            latency_s=self.latency_s[number],
            straggler=float(self.straggler[number]),
            nic_fraction=float(self.nic_fraction[number, 0]),
        )


def stack_models(models: Sequence[StepModel]) -> StepModels:
    """Return the models of several plans as one, with or without cost models."""
    return StepModels(
        other_s=np.array([model.other_s for model in models]),
        total_s=np.array([model.total_s for model in models]),
        window_s=np.array([model.window_s for model in models]),
        weight=np.array([model.weight for model in models]),
        latency_s=np.array([model.latency_s for model in models]),
        straggler=np.array([model.straggler for model in models]),
        nic_fraction=np.array([[model.nic_fraction] for model in models]),
    )


def _step_s(model: StepModel | StepModels, fabric_s: FloatColumn) -> FloatColumn:
    """Return the time of a step where links are as busy as that [s]."""
    step_s: FloatColumn = model.straggler * (
        model.other_s + (model.weight * compute_shown_s(model, fabric_s)).sum(axis=-1)
    )
    return step_s


def compute_shown_s(model: StepModel | StepModels, fabric_s: FloatColumn) -> FloatColumn:
    """Return the communication of each axis that no computation hides, for links that are as busy as that [s]."""
    leaves = fabric_s > 0
    needed = np.maximum(model.total_s, leaves * model.latency_s + fabric_s / model.nic_fraction)
    shown: FloatColumn = np.maximum(needed - model.window_s, 0.0)
    return shown


COMMUNICATION_ONLY = StepModel(
    other_s=0.0,
    total_s=np.zeros(len(AXES)),
    window_s=np.zeros(len(AXES)),
    weight=np.ones(len(AXES)),
    latency_s=np.zeros(len(AXES)),
    straggler=1.0,
    nic_fraction=1.0,
    is_whole=False,
)
"""Where the cluster's GPUs are not known: placements are compared by how long their links are busy."""


def step_model(model: ModelShape, plan: Plan, cluster: ClusterSpec, efficiency: Efficiency = DEFAULT) -> StepModel:
    """Return the step model of a plan: its prediction split by what depends on the fabric.

    Raises
    ------
    InputError
        The cluster's GPU has no peak for the plan's number format.
    """
    table = PlanTable.of([plan])
    return step_models(model, table, predict(model, table, cluster, efficiency).time, cluster, efficiency).row(0)


def step_models(
    model: ModelShape, plans: PlanTable, time: TimeTable, cluster: ClusterSpec, efficiency: Efficiency = DEFAULT
) -> StepModels:
    """Return the step models of every plan of a table, whose times are predicted already."""
    rows = (len(plans),)
    parts = {name: np.broadcast_to(column, rows) for name, column in time.components.items()}
    total = np.stack([np.broadcast_to(time.communication[axis], rows) for axis in AXES], axis=1)
    window = np.stack([np.broadcast_to(time.windows[axis], rows) for axis in AXES], axis=1)
    expected = np.broadcast_to(time.step_s.expected, rows)
    running = np.sum([parts[name] for name in ("compute", "recompute", "tp", "cp", "ep", "pp")], axis=0)
    in_bubble = 1.0 + np.divide(parts["bubble"], running, out=np.zeros(rows), where=running > 0)
    weight = np.stack([np.ones(rows) if axis == "dp" else in_bubble for axis in AXES], axis=1)
    straggler = expected / (expected - parts["straggler"])
    latency = np.zeros((*rows, len(AXES)))
    latency[:, AXES.index("tp")] = _tensor_latency_s(model, plans, cluster, efficiency)
    shown = (weight * np.maximum(total - window, 0.0)).sum(axis=1)
    return StepModels(
        other_s=expected / straggler - shown,
        total_s=total,
        window_s=window,
        weight=weight,
        latency_s=latency,
        straggler=straggler,
        nic_fraction=np.full((*rows, 1), efficiency.links.nic_fraction),
    )


def _tensor_latency_s(model: ModelShape, plans: PlanTable, cluster: ClusterSpec, efficiency: Efficiency) -> FloatColumn:
    """Return the hops of a step's tensor-parallel collectives if each crosses between two HB domains once [s].

    Two all-reduces a layer and pass, two passes a micro-batch, there and back. Where tp is larger than a domain the
    cost model has them across domains already.
    """
    micro_batches = plans.global_batch // (plans.dp * plans.micro_batch)
    hops_s = 2.0 * 2.0 * 2.0 * micro_batches * model.layers / plans.pp * efficiency.links.nic_hop_s
    latency_s: FloatColumn = np.where(plans.tp > cluster.node.hb_domain_gpus, 0.0, hops_s)
    return latency_s


def as_cabled(cluster: ClusterSpec, rails: Rails) -> ClusterSpec:
    """Return a cluster with the HCAs that most nodes of the fabric have, and no oversubscription of its own.

    Routes on the graph include oversubscription; it must not be counted twice.
    """
    nics, rate = _CABLED_NICS.get(id(rails), lambda: (rails, _count_nics(rails)))[1]
    if not rate:
        return replace(cluster, oversubscription=1.0)
    nic = replace(cluster.node.nic, bytes_per_s=rate)
    return replace(cluster, oversubscription=1.0, node=replace(cluster.node, nic=nic, nics=nics))


def _count_nics(rails: Rails) -> tuple[int, float]:
    """Return the usual number of HCAs of a node, and their rate [bytes/s]; zeros where no rate is known."""
    nodes = [row for row in rails.attachments.values() if row]
    rates = [hca.bytes_per_s for row in nodes for hca in row if hca.bytes_per_s > 0]
    return (round(median(len(row) for row in nodes)), float(median(rates))) if rates else (0, 0.0)


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
