"""How many bytes does each rank send in one step, by axis?

Collectives are taken as flat rings, which is what NCCL does with large messages: every rank sends (n - 1) / n of the
array to the next one. Data that stays inside an HB domain is counted here too; who is where is not known yet.
Left out: the logits' reductions, gradient-norm scalars, checkpoints and data loading.
"""

from __future__ import annotations

from dataclasses import dataclass

from opsk.costmodel import volumes
from opsk.costmodel.parameters import count_parameters
from opsk.costmodel.pipeline import stages_of
from opsk.costmodel.shape import ShapeColumns, shape_of
from opsk.costmodel.shares import Shares, shares_of
from opsk.costmodel.table import FloatColumn, PlanTable
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

_FIRST, _MIDDLE, _LAST = range(3)

AXES = ("tp", "cp", "ep", "dp", "pp")
"""Kinds of communication whose bytes and times are told apart; ``dp`` has experts and tied embeddings in it."""


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
    table = PlanTable.of([plan])
    shape = shape_of(model)
    shares = shares_of(shape, table)
    stages = stages_of(shape, shares)
    parameters = count_parameters(shape, shares, stages)
    rows = _candidate_rows(plan.pp)
    layers = stages.layers[rows, 0]
    each_layer = layers * shares.micro_batches[0]
    passes = volumes.passes(shares)[0]
    replicated = volumes.data_parallel_bytes_per_element(shares)[0] * volumes.data_parallel_calls(shares)[0]
    message = float((volumes.pipeline_bytes(shape, shares) * shares.micro_batches)[0])
    return StepBytes(
        tp=each_layer * passes * 2.0 * _sent(shares.tp) * volumes.tensor_parallel_bytes(shape, shares)[0],
        cp=each_layer * (passes + 1.0) * _sent(shares.cp) * volumes.context_parallel_bytes(shares)[0],
        ep=each_layer * passes * 2.0 * _sent(shares.ep) * volumes.expert_parallel_bytes(shape, shares)[0],
        dp=parameters.dense[rows, 0] * replicated * _sent(shares.replicas),
        expert_dp=parameters.experts[rows, 0] * replicated * _sent(shares.expert_replicas),
        pp_forward=message * plan.vpp * (plan.pp > 1),
        pp_wrap=message * (plan.vpp - 1) * (plan.pp > 1),
        embedding=_embedding(shape, shares),
    )


def _sent(ranks: FloatColumn) -> float:
    """Return the part of the array that a rank of a ring of ``ranks`` sends in an all-gather."""
    return float(volumes.ring_share(ranks)[0])


def _embedding(shape: ShapeColumns, shares: Shares) -> float:
    """Return the bytes of the tied embedding that each of its two holders sends: 2 (n - 1) / n = 1 of the array."""
    return float(volumes.tied_embedding_bytes(shape, shares)[0])


def _candidate_rows(stages: int) -> list[int]:
    """Return for each stage the row of the cost model's three candidate stages that stands for it."""
    rows = [_MIDDLE] * stages
    rows[0] = _FIRST
    rows[-1] = _LAST if stages > 1 else _FIRST
    return rows
