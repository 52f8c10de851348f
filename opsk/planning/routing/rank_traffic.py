"""Computes the bytes that each rank sends in one step, by communication axis.

Collectives are modelled as flat rings, which NCCL uses for large messages: every rank sends (n - 1) / n of the array to
the next rank. Traffic inside an HB domain is included, since the rank placement is not known yet. Logit reductions,
gradient-norm scalars, checkpoints and data loading are not modelled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opsk.costmodel.sizes.parameters import count_parameters
from opsk.costmodel.sizes.pipeline import build_stages
from opsk.costmodel.sizes.shape import build_shape
from opsk.costmodel.sizes.shares import compute_shares
from opsk.costmodel.table import FloatColumn, PlanTable
from opsk.costmodel.time import volumes
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

_FIRST, _MIDDLE, _LAST = range(3)

AXES = ("tp", "cp", "ep", "dp", "pp")
"""The axes of communication; ``dp`` includes experts and tied embeddings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBytes:
    """Bytes that one rank sends in one step; columns have one entry a pipeline stage.

    Parameters
    ----------
    tp, cp, dp, expert_dp
        To the next rank of the ring of its group; ``dp`` are the dense parameters over dp x cp.
    ep
        To all other ranks of its expert-parallel group together, the same to each.
    pp_forward
        From a stage to the next one; the gradients that come back are as many.
    pp_wrap
        From the last stage to the first and back, with interleaving.
    embedding
        Between first and last stage, each way, for a tied embedding.
    """

    tp: FloatColumn
    cp: FloatColumn
    ep: FloatColumn
    dp: FloatColumn
    expert_dp: FloatColumn
    pp_forward: float
    pp_wrap: float
    embedding: float


def step_bytes(model: ModelShape, plan: Plan) -> StepBytes:
    """Return the bytes that one rank of each stage sends in one step [bytes].

    Examples
    --------
    A dense layer with s b h = 8192 x 1 x 8192 elements of two bytes, tp 4: two all-reduces of 128 MiB a pass, each rank
    sends 2 x 3/4 of them, forward and backward: 2 x 2 x 1.5 x 128 MiB = 768 MiB a layer and micro-batch.
    """
    return bytes_of_plans(model, PlanTable.of([plan])).row(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesTable:
    """The step bytes of many plans: columns of the candidate stages, shape (3, plans), or of one entry a plan.

    The fields are described at `StepBytes`; ``pp`` are the pipeline stages of each plan.
    """

    tp: FloatColumn
    cp: FloatColumn
    ep: FloatColumn
    dp: FloatColumn
    expert_dp: FloatColumn
    pp_forward: FloatColumn
    pp_wrap: FloatColumn
    embedding: FloatColumn
    pp: FloatColumn

    def row(self, number: int) -> StepBytes:
        """Return one plan, stage by stage."""
        rows = _candidate_rows(int(self.pp[number]))
        return StepBytes(
            tp=self.tp[rows, number],
            cp=self.cp[rows, number],
            ep=self.ep[rows, number],
            dp=self.dp[rows, number],
            expert_dp=self.expert_dp[rows, number],
            pp_forward=float(self.pp_forward[number]),
            pp_wrap=float(self.pp_wrap[number]),
            embedding=float(self.embedding[number]),
        )


def bytes_of_plans(model: ModelShape, plans: PlanTable) -> BytesTable:
    """Return the bytes that one rank of each candidate stage of every plan sends in one step [bytes]."""
    shape = build_shape(model)
    shares = compute_shares(shape, plans)
    stages = build_stages(shape, shares)
    parameters = count_parameters(shape, shares, stages)
    each_layer = stages.layers * shares.micro_batches
    passes = volumes.passes(shares)
    replicated = volumes.data_parallel_bytes_per_element(shares) * volumes.data_parallel_calls(shares)
    message = volumes.pipeline_bytes(shape, shares) * shares.micro_batches * (plans.pp > 1)
    sent = volumes.ring_share
    columns = {
        "tp": each_layer * passes * 2.0 * sent(shares.tp) * volumes.tensor_parallel_bytes(shape, shares),
        "cp": each_layer * (passes + 1.0) * sent(shares.cp) * volumes.context_parallel_bytes(shares),
        "ep": each_layer * passes * 2.0 * sent(shares.ep) * volumes.expert_parallel_bytes(shape, shares),
        "dp": parameters.dense * replicated * sent(shares.replicas),
        "expert_dp": parameters.experts * replicated * sent(shares.expert_replicas),
    }
    return BytesTable(
        **{name: np.broadcast_to(column, (3, len(plans))) for name, column in columns.items()},
        pp_forward=message * plans.vpp,
        pp_wrap=message * (plans.vpp - 1),
        embedding=np.broadcast_to(volumes.tied_embedding_bytes(shape, shares), (len(plans),)),
        pp=shares.pp,
    )


def _candidate_rows(stages: int) -> list[int]:
    """Return for each stage the row of the cost model's three candidate stages that stands for it."""
    rows = [_MIDDLE] * stages
    rows[0] = _FIRST
    rows[-1] = _LAST if stages > 1 else _FIRST
    return rows
