"""What share of the model, the batch and the states does one GPU hold under each plan?

Every other file of the cost model starts from these columns. They are floating point throughout: token and FLOP
counts of large runs pass 2**63. Fields of the model enter only through arithmetic, so that they may become columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opsk.costmodel.table import PRECISIONS, RECOMPUTES, SHARDINGS, BoolColumn, FloatColumn, IntColumn, PlanTable
from opsk.workload.model import ModelShape
from opsk.workload.plan import Precision, Recompute, Sharding

VOCAB_MULTIPLE = 128
"""Rows of the embedding are padded to a multiple of this times tp (Megatron-LM, --make-vocab-size-divisible-by)."""

_FULL = RECOMPUTES.index(Recompute.FULL)
_SELECTIVE = RECOMPUTES.index(Recompute.SELECTIVE)
_FP32 = PRECISIONS.index(Precision.FP32)
_ZERO = {stage: SHARDINGS.index(stage) for stage in Sharding}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Per-plan columns; sizes count elements, tokens are those of one micro-batch on one GPU.

    Parameters
    ----------
    tokens
        Tokens of one micro-batch that one GPU sees inside the tensor-parallel regions: seq x micro_batch / cp.
    plain_tokens
        The same outside of them (norms, dropout, residual): divided by tp when sequence parallelism is on.
    micro_batches
        Micro-batches of one data-parallel rank in one step.
    replicas, expert_replicas
        GPUs over which the states of dense and of expert parameters are replicated, and may be sharded.
    query_width, kv_width, ffn_width
        Width of the query, the key (or value) and the MLP's inner projection on one GPU.
    expert_width
        Summed inner width of the experts that one token passes on one GPU: (top_k + shared) experts / tp.
    vocab
        Rows of the padded embedding on one GPU.
    activation_bytes
        Bytes of one activation element.
    shards_optimizer, shards_gradients, shards_weights
        1.0 where the states are split over ``replicas``.
    """

    tp: FloatColumn
    pp: FloatColumn
    vpp: FloatColumn
    cp: FloatColumn
    ep: FloatColumn
    dp: FloatColumn
    tokens: FloatColumn
    plain_tokens: FloatColumn
    micro_batches: FloatColumn
    global_batch: FloatColumn
    replicas: FloatColumn
    expert_replicas: FloatColumn
    query_width: FloatColumn
    kv_width: FloatColumn
    ffn_width: FloatColumn
    expert_width: FloatColumn
    vocab: FloatColumn
    activation_bytes: FloatColumn
    precision: IntColumn
    full_recompute: BoolColumn
    selective_recompute: BoolColumn
    shards_optimizer: BoolColumn
    shards_gradients: BoolColumn
    shards_weights: BoolColumn

    @property
    def gpus(self) -> FloatColumn:
        """GPUs of the plan."""
        return self.tp * self.pp * self.cp * self.dp


def shares_of(model: ModelShape, plans: PlanTable) -> Shares:
    """Return the columns that all parts of the cost model share.

    Key and value heads are copied, not split, where tp exceeds them (Megatron-LM, Transformer Engine). The expert's
    MLP is split over tp as the dense one is.
    """
    tp, cp, ep, dp = (column.astype(np.float64) for column in (plans.tp, plans.cp, plans.ep, plans.dp))
    micro_batch = plans.micro_batch.astype(np.float64)
    tokens = model.seq * micro_batch / cp
    return Shares(
        tp=tp,
        pp=plans.pp.astype(np.float64),
        vpp=plans.vpp.astype(np.float64),
        cp=cp,
        ep=ep,
        dp=dp,
        tokens=tokens,
        plain_tokens=np.where(plans.sequence_parallel, tokens / tp, tokens),
        micro_batches=plans.global_batch / (micro_batch * dp),
        global_batch=plans.global_batch.astype(np.float64),
        replicas=dp * cp,
        expert_replicas=np.maximum(dp * cp / ep, 1.0),
        query_width=model.heads * model.head_dim / tp,
        kv_width=model.kv_heads * model.head_dim / np.minimum(tp, model.kv_heads),
        ffn_width=model.ffn / tp,
        expert_width=(model.top_k + model.shared_experts) * model.expert_ffn / tp,
        vocab=padded_vocab(model.vocab, tp) / tp,
        activation_bytes=np.where(plans.precision == _FP32, 4.0, 2.0),
        precision=plans.precision,
        full_recompute=plans.recompute == _FULL,
        selective_recompute=plans.recompute == _SELECTIVE,
        shards_optimizer=plans.sharding >= _ZERO[Sharding.ZERO1],
        shards_gradients=plans.sharding >= _ZERO[Sharding.ZERO2],
        shards_weights=plans.sharding >= _ZERO[Sharding.ZERO3],
    )


def padded_vocab(vocab: int, tp: FloatColumn) -> FloatColumn:
    """Return the rows of the whole embedding after Megatron-LM's padding to a multiple of 128 x tp."""
    multiple = VOCAB_MULTIPLE * tp
    return np.ceil(vocab / multiple) * multiple
