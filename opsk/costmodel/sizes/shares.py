"""Computes the share of the model, the batch and the states that one GPU holds under each plan.

Every other module of the cost model starts from these columns. They are floating point throughout: token and FLOP
counts of large runs pass 2**63. Fields of the model enter only through arithmetic (`opsk.costmodel.sizes.shape`).

Megatron's precision-aware optimizer stores moments in 8 or 16 bits, and of the fp32 master weight only what the 16-bit
weight lacks (``--exp-avg-dtype``, ``--exp-avg-sq-dtype``, ``--main-params-dtype``, ``store_param_remainders``:
``megatron/core/optimizer/optimizer_config.py``); it reads 16-bit gradients as they are, where others copy them to fp32.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opsk.costmodel.elementwise import any_of, ceil, logical_not, lookup, maximum, minimum, to_float, when, where
from opsk.costmodel.sizes.shape import ShapeColumns, attended_tokens
from opsk.costmodel.table import (
    DISPATCHERS,
    IS_WIDE,
    PRECISIONS,
    RECOMPUTE_BITS,
    RECOMPUTES,
    SHARDINGS,
    SOFTWARE,
    STATE_FORMATS,
    STATES,
    BoolColumn,
    FloatColumn,
    IntColumn,
    PlanTable,
)
from opsk.workload.plan import (
    MoeDispatcher,
    Precision,
    Recompute,
    RecomputeModule,
    Sharding,
    Software,
    StateFormat,
    States,
)

FORMAT_BYTES = {StateFormat.FP32: 4.0, StateFormat.BF16: 2.0, StateFormat.FP16: 2.0, StateFormat.FP8: 1.0}
_BYTES = np.array([FORMAT_BYTES.get(name, 0.0) for name in STATE_FORMATS])
VOCAB_MULTIPLE = 128
"""Rows of the embedding are padded to a multiple of this times tp (Megatron-LM, --make-vocab-size-divisible-by)."""
_FULL = RECOMPUTES.index(Recompute.FULL)
_SELECTIVE = RECOMPUTES.index(Recompute.SELECTIVE)
_ALLGATHER, _HYBRIDEP = DISPATCHERS.index(MoeDispatcher.ALLGATHER), DISPATCHERS.index(MoeDispatcher.HYBRIDEP)
_PYTORCH = SOFTWARE.index(Software.PYTORCH)
_ZERO = {stage: SHARDINGS.index(stage) for stage in Sharding}
_FP16 = PRECISIONS.index(Precision.FP16)
_MEGATRON_CORE = SOFTWARE.index(Software.MEGATRON_CORE)
_GATHERED_IN_FP8 = np.array(
    [name in (Precision.FP8, Precision.FP8_CURRENT, Precision.FP8_BLOCK) for name in PRECISIONS]
)
_IS_16BIT = np.array([states in (States.MIXED_16BIT_GRADIENTS, States.PURE_16BIT) for states in STATES])


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Per-plan columns; sizes count elements, tokens are those of one micro-batch on one GPU.

    Parameters
    ----------
    tokens
        Tokens of one micro-batch that one GPU processes inside the tensor-parallel regions: seq x micro_batch / cp.
    plain_tokens
        The same outside of them (norms, dropout, residual): divided by tp when sequence parallelism is on.
    micro_batches
        Micro-batches of one data-parallel rank in one step.
    replicas, expert_replicas
        GPUs over which the states of dense and of expert parameters are replicated, and may be sharded.
    query_width, kv_width, ffn_width
        Width of the query, the key (or value) and the MLP's inner projection on one GPU.
    expert_width, shared_width
        Inner width of one routed expert, and of all shared experts together, on one GPU.
    expert_tokens
        Tokens (times experts a token) of one micro-batch for one GPU's routed experts, on the busiest GPU.
    attended
        Tokens that a token attends to, averaged over the layers (``seq``, less with sliding windows): a full square.
    vocab
        Rows of the padded embedding on one GPU.
    activation_bytes
        Bytes of one activation element.
    reduced_bytes
        Bytes of a gradient element on the wire: fp32 where gradients are stored so and the plan does not request
        16 bits, else that of the weights. Megatron-LM
        accumulates and reduces bf16 gradients in fp32, fp16 as they are.
    gathered_bytes
        Bytes of a weight on the wire: one where weights are stored in FP8. MXFP8 weights are gathered in 16 bits, and
        quantised then (``reuse_grad_buf_for_mxfp8_param_ag``, megatron/core/optimizer/distrib_optimizer.py).
    schedule
        Index into ``SCHEDULES``.
    first_stage_layers, last_stage_layers, recompute_layers, lora_rank
        As in `Plan`; 0 is even, all layers, and no adapters.
    lora_targets
        Index into ``LORA_TARGETS``.
    runs_unfused
        1.0 where norms, rotary positions and gates are written in Python and run operation by operation: Llama-like
        models in PyTorch that are not compiled. Megatron fuses them, and PyTorch has LayerNorm and GELU as one kernel.
    fuses_norms
        Whether norms are one kernel all the same.
    moe_dispatcher, moe_gemm
        Indices into ``DISPATCHERS`` and ``MOE_GEMMS``; fused routing has HybridEP's dispatcher.
    fuses_permutation, leaves_host_out
        Whether tokens are permuted by fused kernels, and whether the experts never wait for the host.
    trained_share
        Share of the weights that get a gradient: 0 with LoRA, whose own weights are negligible here.
    repeated_modules
        Modules that selective recomputation passes forward twice, the sum of their ``RECOMPUTE_BITS``; 0 without, and
        where PyTorch selects operations.
    recomputed_share
        Share of a stage's layers that full recomputation passes forward twice; 0 without.
    shards_optimizer, shards_gradients, shards_weights
        Whether the states are split over ``shard_group`` (``expert_shard_group`` for routed experts) of the replicas.
    gathers_each
        Whether weights are gathered, and gradients scattered, for every micro-batch: wherever they are sharded, except
        for pipeline stages of PyTorch, which hold both whole for a step (torchtitan's ``fsdp_reshard_after_forward``).
    """

    tp: FloatColumn
    pp: FloatColumn
    vpp: FloatColumn
    cp: FloatColumn
    ep: FloatColumn
    dp: FloatColumn
    etp: FloatColumn
    tokens: FloatColumn
    plain_tokens: FloatColumn
    micro_batches: FloatColumn
    global_batch: FloatColumn
    replicas: FloatColumn
    expert_replicas: FloatColumn
    shard_group: FloatColumn
    expert_shard_group: FloatColumn
    query_width: FloatColumn
    kv_width: FloatColumn
    ffn_width: FloatColumn
    expert_width: FloatColumn
    shared_width: FloatColumn
    expert_tokens: FloatColumn
    attended: FloatColumn
    vocab: FloatColumn
    activation_bytes: FloatColumn
    reduced_bytes: FloatColumn
    gathered_bytes: FloatColumn
    software: IntColumn
    precision: IntColumn
    schedule: IntColumn
    first_stage_layers: FloatColumn
    last_stage_layers: FloatColumn
    recompute_layers: FloatColumn
    lora_rank: FloatColumn
    lora_targets: IntColumn
    runs_unfused: FloatColumn
    fuses_norms: BoolColumn
    moe_dispatcher: IntColumn
    moe_gemm: IntColumn
    fuses_permutation: BoolColumn
    leaves_host_out: BoolColumn
    trained_share: FloatColumn
    repeated_modules: IntColumn
    recomputed_share: FloatColumn
    full_recompute: BoolColumn
    selective_recompute: BoolColumn
    shards_optimizer: BoolColumn
    shards_gradients: BoolColumn
    shards_weights: BoolColumn
    gathers_each: BoolColumn

    @property
    def gpus(self) -> FloatColumn:
        """GPUs of the plan."""
        return self.tp * self.pp * self.cp * self.dp

    def repeats(self, module: RecomputeModule) -> FloatColumn:
        """Return 1.0 where selective recomputation passes a module forward twice."""
        return to_float((self.repeated_modules & RECOMPUTE_BITS[module]) > 0)


def compute_shares(model: ShapeColumns, plans: PlanTable) -> Shares:
    """Return the columns that all parts of the cost model share.

    Key and value heads are copied, not split, where tp exceeds them (Megatron-LM, Transformer Engine). Latent attention
    has keys and values for every head; ``kv_width`` is then the mean of a key's and a value's width.
    """
    tp, cp, ep, dp = to_float(plans.tp), to_float(plans.cp), to_float(plans.ep), to_float(plans.dp)
    micro_batch = to_float(plans.micro_batch)
    tokens = model.seq * micro_batch / cp
    replicas = dp * cp
    etp = where(plans.etp > 0, to_float(plans.etp), where(replicas % ep == 0, tp, 1.0))
    expert_replicas = maximum(replicas * tp / (etp * ep), 1.0)
    shard_group = where(plans.shard_gpus > 0, minimum(to_float(plans.shard_gpus), replicas), replicas)
    kv_heads = where(model.is_latent > 0, model.heads, model.kv_heads)
    kv_head_width = (model.head_dim + model.v_head_dim) / 2
    expert_tokens = tokens * model.top_k * etp / tp * expert_load(model, ep)
    return Shares(
        tp=tp,
        pp=to_float(plans.pp),
        vpp=to_float(plans.vpp),
        cp=cp,
        ep=ep,
        dp=dp,
        etp=etp,
        tokens=tokens,
        plain_tokens=where(plans.sequence_parallel, tokens / tp, tokens),
        micro_batches=plans.global_batch / (micro_batch * dp),
        global_batch=to_float(plans.global_batch),
        replicas=replicas,
        expert_replicas=expert_replicas,
        shard_group=shard_group,
        expert_shard_group=minimum(maximum(shard_group * tp / (etp * ep), 1.0), expert_replicas),
        query_width=model.heads * model.head_dim / tp,
        kv_width=kv_heads * kv_head_width / minimum(tp, kv_heads),
        ffn_width=model.ffn / tp,
        expert_width=model.expert_ffn / etp,
        shared_width=model.shared_ffn / tp,
        expert_tokens=expert_tokens,
        attended=attended_tokens(model),
        vocab=padded_vocab(model.vocab, plans) / tp,
        activation_bytes=where(lookup(IS_WIDE, plans.precision), 4.0, 2.0),
        reduced_bytes=_reduced_bytes(plans),
        gathered_bytes=_gathered_bytes(plans),
        software=plans.software,
        precision=plans.precision,
        schedule=plans.schedule,
        first_stage_layers=to_float(plans.first_stage_layers),
        last_stage_layers=to_float(plans.last_stage_layers),
        recompute_layers=to_float(plans.recompute_layers),
        lora_rank=to_float(plans.lora_rank),
        lora_targets=plans.lora_targets,
        fuses_norms=plans.fused_norms,
        runs_unfused=when(
            (plans.software == _PYTORCH) & logical_not(plans.compiled), model.gated_mlp * (1.0 - model.norm_bias)
        ),
        moe_dispatcher=where(plans.fused_moe & (plans.moe_dispatcher <= _ALLGATHER), _HYBRIDEP, plans.moe_dispatcher),
        moe_gemm=plans.moe_gemm,
        fuses_permutation=plans.moe_permute_fusion | plans.fused_moe,
        leaves_host_out=plans.fused_moe,
        trained_share=where(plans.lora_rank > 0, 0.0, 1.0 - plans.frozen_fraction),
        repeated_modules=_repeated_modules(plans),
        recomputed_share=when(plans.recompute == _FULL, _recomputed_share(model, plans)),
        full_recompute=plans.recompute == _FULL,
        selective_recompute=plans.recompute == _SELECTIVE,
        shards_optimizer=plans.sharding >= _ZERO[Sharding.ZERO1],
        shards_gradients=plans.sharding >= _ZERO[Sharding.ZERO2],
        shards_weights=plans.sharding >= _ZERO[Sharding.ZERO3],
        gathers_each=(plans.sharding >= _ZERO[Sharding.ZERO3])
        & logical_not((plans.software == _PYTORCH) & (plans.pp > 1)),
    )


def _reduced_bytes(plans: PlanTable) -> FloatColumn:
    """Return the bytes of a gradient element on the wire."""
    low = (plans.precision == _FP16) | lookup(_IS_16BIT, plans.states)
    low = has_low_gradients(plans, low) if any_of(plans.gradient_format) else low
    return where((low | plans.reduces_16bit) & logical_not(plans.reduces_fp32), 2.0, 4.0)


def _gathered_bytes(plans: PlanTable) -> FloatColumn:
    """Return the bytes of a weight element on the wire."""
    in_fp8 = lookup(_GATHERED_IN_FP8, plans.precision) & plans.fp8_weights & (plans.software == _MEGATRON_CORE)
    return where(in_fp8, 1.0, where(lookup(IS_WIDE, plans.precision) | plans.gathers_fp32, 4.0, 2.0))


def _repeated_modules(plans: PlanTable) -> IntColumn:
    """Return which modules are passed forward twice: those that are named, else the attention core."""
    default = where(plans.software == _PYTORCH, 0, RECOMPUTE_BITS[RecomputeModule.CORE_ATTN])
    named: IntColumn = where(plans.recompute_modules > 0, plans.recompute_modules, default)
    result: IntColumn = where(plans.recompute == _SELECTIVE, named, 0)
    return result


def _recomputed_share(model: ShapeColumns, plans: PlanTable) -> FloatColumn:
    """Return the share of a stage's layers to recompute; ``recompute_layers`` 0 means all."""
    requested = plans.recompute_layers * plans.pp / (model.layers + model.encoder_layers)
    return where(plans.recompute_layers > 0, minimum(requested, 1.0), 1.0)


def expert_load(model: ShapeColumns, ep: FloatColumn) -> FloatColumn:
    """Return the work of the busiest rank over the mean: its capacity where tokens are dropped, else the imbalance.

    A rank with all experts has all tokens, however uneven the routing.
    """
    uneven = where(ep > 1, model.expert_imbalance, 1.0)
    return where(model.capacity_factor > 0, model.capacity_factor, uneven)


def padded_vocab(vocab: FloatColumn, plans: PlanTable) -> FloatColumn:
    """Return the rows of the whole embedding: a multiple of 128 x tp in Megatron-LM, of tp in PyTorch's frameworks."""
    multiple = where(plans.software == _PYTORCH, 1.0, VOCAB_MULTIPLE) * plans.tp
    return ceil(vocab / multiple) * multiple


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSizes:
    """Bytes of a parameter's gradient, master copy, and of its ``moment``, the mean of Adam's two."""

    gradient: FloatColumn
    master: FloatColumn
    moment: FloatColumn


def names_formats(plans: PlanTable) -> bool:
    """Return whether any plan names a format of its own."""
    return bool(
        any_of(plans.gradient_format)
        or any_of(plans.master_format)
        or any_of(plans.moment_format)
        or any_of(plans.second_moment_format)
    )


def state_sizes(plans: PlanTable, gradient: FloatColumn, master: FloatColumn, moment: FloatColumn) -> StateSizes:
    """Return the sizes that a plan names, and those given where it names none."""
    first = _size(plans.moment_format, moment)
    both: FloatColumn = first + _size(plans.second_moment_format, first)
    return StateSizes(
        gradient=_size(plans.gradient_format, gradient),
        master=_size(plans.master_format, master),
        moment=0.5 * both,
    )


def _size(named: IntColumn, otherwise: FloatColumn) -> FloatColumn:
    """Return the bytes of a format, or those without one."""
    return where(named > 0, lookup(_BYTES, named), otherwise)


def has_low_gradients(plans: PlanTable, otherwise: BoolColumn) -> BoolColumn:
    """Return whether gradients are stored in less than fp32; ``otherwise`` where no format is named."""
    result: BoolColumn = where(plans.gradient_format > 0, lookup(_BYTES, plans.gradient_format) < 4.0, otherwise)
    return result


def reads_low_gradients(plans: PlanTable) -> BoolColumn:
    """Return whether the optimizer reads 16-bit gradients directly: one with 16-bit master weights.

    With fp32 masters Megatron's distributed optimizer copies them (``_copy_model_grads_to_main_grads``).
    """
    result: BoolColumn = where(plans.master_format > 0, lookup(_BYTES, plans.master_format) < 4.0, False)
    return result
