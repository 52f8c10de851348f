"""Converts plans to Megatron-LM flags, and checks which plans Megatron-LM can run.

Source: ``megatron/training/arguments.py``, ``megatron/core/transformer/transformer_config.py`` and
``megatron/core/optimizer/optimizer_config.py`` of core_v0.19.0 and of the development branch of August 2026 (0.20);
what of it older releases lack is in `opsk.frameworks.features`.
"""

from __future__ import annotations

from collections.abc import Iterator

from opsk.costmodel.rules import expert_tensor_size
from opsk.frameworks.layers import dense_layers, pattern, windowed_layers
from opsk.frameworks.limits import Check, Limits, apply_checks, is_partly_sharded
from opsk.frameworks.options import Option, Setting, Settings, flag, group
from opsk.frameworks.script import Program, UserVariable
from opsk.frameworks.settings.megatron_layout import (
    COUNTS_EMBEDDING,
    COUNTS_LOSS,
    FLAGS,
    LAYOUT,
    choose_stage_fields,
    has_uneven_chunks,
)
from opsk.workload.model import ModelShape
from opsk.workload.plan import (
    Loss,
    MoeDispatcher,
    MoeGemm,
    Offload,
    Optimizer,
    Plan,
    Precision,
    Recompute,
    Schedule,
    Sharding,
    Software,
    StateFormat,
    States,
)

VOCAB_DIVISOR = 128
"""Megatron's default of ``--make-vocab-size-divisible-by``."""
RELEASE = "Megatron Core 0.20"
LIMITS = Limits(
    name="megatron",
    software=Software.MEGATRON_CORE,
    shardings=frozenset(Sharding),
    pipelined_shardings=frozenset({Sharding.NONE, Sharding.ZERO1}),
    partial_shardings=frozenset({Sharding.ZERO1}),
    schedules=frozenset({Schedule.ONE_F_ONE_B}),
    optimizers=frozenset({Optimizer.ADAM, Optimizer.SGD, Optimizer.LION}),
    offloads=frozenset({Offload.NONE, Offload.OPTIMIZER, Offload.ACTIVATIONS}),
    states=frozenset({States.MIXED, States.MIXED_16BIT_GRADIENTS, States.AUTOCAST}),
    losses=frozenset({Loss.PLAIN, Loss.MEGATRON_FUSED}),
    precisions=frozenset(Precision) - {Precision.TF32, Precision.FP8_ROWWISE},
    sources={
        "pipelined_shardings": "docs/user-guide/features/megatron_fsdp.md combines FSDP with no pipeline",
        "partial_shardings": "megatron/training/arguments.py: --num-distributed-optimizer-instances",
        "schedules": "megatron/core/pipeline_parallel/schedules.py: 1F1B and interleaved 1F1B",
        "optimizers": "megatron/training/arguments.py: --optimizer",
        "offloads": "megatron/training/arguments.py: --optimizer-cpu-offload, --cpu-offloading-num-layers",
        "states": "megatron/core/optimizer/optimizer_config.py",
        "losses": "megatron/core/model_parallel_config.py: cross_entropy_fusion_impl",
        "precisions": "megatron/core/transformer/transformer_config.py: fp8_recipe, fp4_recipe",
    },
)
"""ZeRO-1 is ``--use-distributed-optimizer``; ZeRO-2 and ZeRO-3 are ``--use-megatron-fsdp``, over all replicas."""
_STRATEGIES = {Sharding.ZERO2: "optim_grads", Sharding.ZERO3: "optim_grads_params"}
_FP8_WEIGHTS = (Precision.FP8, Precision.FP8_CURRENT, Precision.FP8_BLOCK, Precision.MXFP8)
_RECIPES = {
    Precision.FP8: ("--fp8-format", "hybrid", "--fp8-recipe", "delayed"),
    Precision.FP8_CURRENT: ("--fp8-format", "hybrid", "--fp8-recipe", "tensorwise"),
    Precision.FP8_BLOCK: ("--fp8-format", "e4m3", "--fp8-recipe", "blockwise"),
    Precision.MXFP8: ("--fp8-format", "e4m3", "--fp8-recipe", "mxfp8"),
    Precision.NVFP4: ("--fp4-format", "e2m1", "--fp4-recipe", "nvfp4"),
}
PROGRAM = Program(
    places=(
        UserVariable(name="MEGATRON_PATH", what="a checkout of Megatron-LM"),
        UserVariable(name="DATA_PATH", what="the data's prefix, as preprocess_data.py wrote it"),
        UserVariable(name="TOKENIZER_MODEL", what="the tokenizer, a folder or a name of HuggingFace"),
        UserVariable(name="CHECKPOINTS", what="where checkpoints are kept", default="checkpoints"),
        UserVariable(name="TRAIN_ITERS", what="steps in all", default="1000"),
        UserVariable(name="LEARNING_RATE", what="its highest", default="3.0e-4"),
    ),
    setup=(
        "TRAIN_ARGS=(",
        '    --train-iters "$TRAIN_ITERS"',
        '    --lr "$LEARNING_RATE" --lr-decay-style cosine --lr-warmup-fraction 0.01',
        "    --weight-decay 0.1 --clip-grad 1.0",
        '    --data-path "$DATA_PATH" --split 99,1,0',
        '    --tokenizer-type HuggingFaceTokenizer --tokenizer-model "$TOKENIZER_MODEL"',
        '    --save "$CHECKPOINTS" --load "$CHECKPOINTS" --save-interval 500',
        "    --log-interval 1 --log-throughput --eval-iters 0",
        ")",
    ),
    command=(
        '"$MEGATRON_PATH/pretrain_gpt.py"',
        '"${MODEL_ARGS[@]}" "${PARALLEL_ARGS[@]}" "${MEMORY_ARGS[@]}" "${BATCH_ARGS[@]}" "${TRAIN_ARGS[@]}"',
    ),
)
"""``pretrain_gpt.py`` of Megatron-LM."""


def model_flags(model: ModelShape, *, tp: int) -> Iterator[Option]:
    """Yield the flags of a model's shape.

    Parameters
    ----------
    tp
        Ranks over which the embedding is split: its rows are padded to a multiple of them.
    """
    yield flag("--num-layers", model.layers)
    yield flag("--hidden-size", model.hidden)
    yield flag("--ffn-hidden-size", model.ffn)
    yield flag("--num-attention-heads", model.heads)
    yield from _attention(model)
    yield flag("--seq-length", model.seq)
    yield flag("--max-position-embeddings", max(model.seq, model.position_rows))
    yield flag("--vocab-size", model.vocab, "for the tokenizers that do not know it; others bring their own")
    if (divisor := vocab_divisor(model.vocab, tp)) != VOCAB_DIVISOR:
        yield flag("--make-vocab-size-divisible-by", divisor, f"{model.vocab} rows, not padded further")
    yield flag("--position-embedding-type", "learned_absolute" if model.learned_positions else "rope")
    yield flag("--normalization", "LayerNorm" if model.has("norm_bias") else "RMSNorm")
    if model.gated_mlp:
        yield flag("--swiglu")
    if not model.tied_embeddings:
        yield flag("--untie-embeddings-and-output-weights")
    yield from _biases(model)
    if not model.has("dropout"):
        yield flag("--attention-dropout", 0)
        yield flag("--hidden-dropout", 0)
    if model.mtp_layers:
        yield flag("--mtp-num-layers", model.mtp_layers)
    if model.experts:
        yield from _experts(model)


def missing_of_model(model: ModelShape) -> Iterator[str]:
    """Yield the features of the model that the flags of ``pretrain_gpt.py`` cannot express."""
    biases = model.has("qkv_bias"), model.has("output_bias"), model.has("mlp_bias")
    if biases not in ((True,) * 3, (False,) * 3, (True, False, False)):
        yield "biases of linear layers: all, none, or those into attention alone"
    details = {
        "an encoder": model.encoder_layers,
        "a table of relative positions of its own size": model.relative_positions,
        "a bias of the output head": model.head_bias,
        "norms as wide as all heads for queries and keys": model.qk_norm and model.qk_norm_whole,
        "a norm of the embedding": model.embedding_norm,
        f"{model.norms_per_layer} norms a layer": model.norms_per_layer != 2,
        f"layers of {model.mixer} (pretrain_mamba.py has Mamba-2)": model.mixer_layers,
        "layers that are an MLP alone (pretrain_mamba.py)": model.mlp_layers,
        "a gate of attention": model.attention_gate,
        "windows that are chunks": model.windowed_layers and model.chunked_windows,
        "sparse attention": model.index_top_k,
        "a frozen model beside it": model.frozen_parameters,
    }
    yield from (name for name, there in details.items() if there)


def vocab_divisor(vocab: int, tp: int) -> int:
    """Return the largest divisor up to Megatron's own by which the rows need no padding, its own if there is none."""
    return next(
        (
            divisor
            for divisor in (VOCAB_DIVISOR >> shift for shift in range(VOCAB_DIVISOR.bit_length()))
            if vocab % (divisor * tp) == 0
        ),
        VOCAB_DIVISOR,
    )


def _attention(model: ModelShape) -> Iterator[Option]:
    """Yield the flags of attention: heads, latent attention, windows and sinks."""
    if model.kv_lora_rank:
        yield flag("--multi-latent-attention")
        if model.q_lora_rank:
            yield flag("--q-lora-rank", model.q_lora_rank)
        yield flag("--kv-lora-rank", model.kv_lora_rank)
        yield flag("--qk-head-dim", model.head_dim - model.qk_rope_dim, "without its rotary part")
        yield flag("--qk-pos-emb-head-dim", model.qk_rope_dim)
        yield flag("--v-head-dim", model.v_head_dim)
    else:
        if model.kv_heads < model.heads:
            yield flag("--group-query-attention")
            yield flag("--num-query-groups", model.kv_heads)
        yield flag("--kv-channels", model.head_dim, "width of a head")
    if model.qk_norm:
        yield flag("--qk-layernorm")
    if model.attention_sinks:
        yield flag("--softmax-type", "learnable", "a learned sink a head")
    if model.attention_window and model.windowed_layers:
        yield flag("--window-size", f"{model.attention_window - 1},0", "tokens before, and after, its own")
        if model.windowed_layers < model.layers:
            yield flag("--window-attn-skip-freq", pattern(windowed_layers(model)), "1 has the window")
    if not model.flash_attention:
        yield flag("--attention-backend", "unfused", "stores the scores")


def _biases(model: ModelShape) -> Iterator[Option]:
    """Yield the flags of biases: one flag sets all but those of the norms."""
    if model.has("mlp_bias"):
        return
    yield flag("--disable-bias-linear")
    if model.has("qkv_bias"):
        yield flag("--add-qkv-bias")


def _experts(model: ModelShape) -> Iterator[Option]:
    """Yield the flags of a mixture of experts."""
    yield flag("--num-experts", model.experts)
    yield flag("--moe-router-topk", model.top_k)
    yield flag("--moe-ffn-hidden-size", model.expert_ffn)
    if model.dense_layers:
        marks = tuple(not dense for dense in dense_layers(model))
        yield flag("--moe-layer-freq", pattern(marks), "1 has experts, 0 the dense MLP")
    if shared := model.shared_ffn or model.shared_experts * model.expert_ffn:
        yield flag("--moe-shared-expert-intermediate-size", shared)
        if model.shared_gate:
            yield flag("--moe-shared-expert-gate", None, "since Core 0.16")
    if model.router_bias:
        yield flag("--moe-router-score-function", "sigmoid", "a bias of the router needs it")
        yield flag("--moe-router-enable-expert-bias")
    elif model.top_k == 1:
        yield flag("--moe-router-pre-softmax", None, "one expert a token needs it")
    if model.capacity_factor:
        yield flag("--moe-expert-capacity-factor", f"{model.capacity_factor:g}")
        yield flag("--moe-pad-expert-input-to-capacity")
        yield flag("--moe-router-load-balancing-type", "aux_loss")


def refusals(model: ModelShape, plan: Plan) -> tuple[str, ...]:
    """Return checks of Megatron-LM that the plan violates and that `LIMITS` cannot express."""
    return apply_checks(CHECKS, model, plan)


def build_settings(model: ModelShape, plan: Plan) -> Settings:
    """Return the flags of ``pretrain_gpt.py`` that express model and plan."""
    return Settings(
        framework=LIMITS.name,
        release=RELEASE,
        groups=(
            group("MODEL_ARGS", model_flags(model, tp=plan.tp)),
            group("PARALLEL_ARGS", _parallel(model, plan)),
            group("MEMORY_ARGS", _memory(model, plan)),
            group("BATCH_ARGS", _batch(model, plan)),
        ),
        env=_env(plan),
        notes=tuple(_notes(model, plan)),
        missing=(*missing_of_model(model), *_missing_of_plan(model, plan)),
    )


def is_fully_sharded(plan: Plan) -> bool:
    """Return whether the plan runs on Megatron FSDP."""
    return plan.sharding in _STRATEGIES


def _parallel(model: ModelShape, plan: Plan) -> Iterator[Option]:
    """Yield the flags of axes and stages."""
    yield flag("--tensor-model-parallel-size", plan.tp)
    yield flag("--pipeline-model-parallel-size", plan.pp)
    if plan.vpp > 1 and LAYOUT not in choose_stage_fields(model, plan):
        per_chunk = model.layers // (plan.pp * plan.vpp)
        yield flag(
            "--num-virtual-stages-per-pipeline-rank",
            plan.vpp,
            f"interleaved 1F1B; before 0.11, for even stages: --num-layers-per-virtual-pipeline-stage {per_chunk}",
        )
    yield from _uneven_stages(model, plan)
    yield flag("--context-parallel-size", plan.cp)
    if model.experts:
        yield flag("--expert-model-parallel-size", plan.ep)
        yield flag("--expert-tensor-parallel-size", expert_tensor_size(plan), "left out, it is tp")
        yield from _dispatch(plan)
    if plan.sequence_parallel and plan.tp > 1:
        yield flag("--sequence-parallel")
        if plan.tp_overlap:
            yield flag("--tp-comm-overlap")


def _uneven_stages(model: ModelShape, plan: Plan) -> Iterator[Option]:
    """Yield the flags of stages with fewer layers: their numbers, embedding and loss as layers, or a layout."""
    why = {
        LAYOUT: "E embedding, t a layer, m multi-token prediction, L loss, | the end of a chunk",
        COUNTS_EMBEDDING: f"{plan.first_stage_layers} layers in the first stage",
        COUNTS_LOSS: f"{plan.last_stage_layers} layers in the last stage",
    }
    for name, value in choose_stage_fields(model, plan).items():
        yield flag(FLAGS[name], None if value is True else value, why.get(name, ""))


def _dispatch(plan: Plan) -> Iterator[Option]:
    """Yield the flags of token dispatch to experts, and of its overlap."""
    if plan.moe_dispatcher in (MoeDispatcher.DEEPEP, MoeDispatcher.HYBRIDEP):
        yield flag("--moe-token-dispatcher-type", "flex")
        yield flag("--moe-flex-dispatcher-backend", plan.moe_dispatcher.value)
    else:
        yield flag("--moe-token-dispatcher-type", plan.moe_dispatcher.value)
    if plan.moe_permute_fusion:
        yield flag("--moe-permute-fusion", None, "needs Transformer Engine 2.1")
    if plan.ep_overlap:
        yield flag("--overlap-moe-expert-parallel-comm")


def _memory(model: ModelShape, plan: Plan) -> Iterator[Option]:
    """Yield the flags of the memory of each rank, and of the overlap of communication."""
    yield from _sharding(plan)
    if plan.recompute is Recompute.SELECTIVE:
        yield flag("--recompute-granularity", "selective")
        if plan.recompute_modules:
            yield from _list("--recompute-modules", plan.recompute_modules)
    elif plan.recompute is Recompute.FULL:
        yield flag("--recompute-granularity", "full")
        if plan.recompute_layers:
            yield flag("--recompute-method", "block")
            layers_per_chunk = -(-plan.recompute_layers // plan.vpp)
            yield flag("--recompute-num-layers", layers_per_chunk, "of each chunk" if plan.vpp > 1 else "of each stage")
        else:
            yield flag("--recompute-method", "uniform")
            yield flag("--recompute-num-layers", 1, "all layers, one by one")
    if plan.states is States.MIXED_16BIT_GRADIENTS and plan.gradient_format is StateFormat.AS_STATES:
        yield flag("--grad-reduce-in-bf16", None, "keeps gradients in 16 bits")
    if plan.offload is Offload.OPTIMIZER:
        yield flag("--optimizer-cpu-offload")
        if plan.offload_fraction < 1:
            yield flag("--optimizer-offload-fraction", plan.offload_fraction)
    if plan.offload is Offload.ACTIVATIONS:
        layers = plan.offload_layers or model.layers - 1
        yield flag("--cpu-offloading-num-layers", layers, "whose activations leave the GPU, fewer than all")
    if plan.loss is Loss.MEGATRON_FUSED:
        yield flag("--cross-entropy-loss-fusion")
    if plan.offload_modules:
        yield flag("--fine-grained-activation-offloading")
        yield from _list("--offload-modules", plan.offload_modules)
    formats = list(_formats(plan))
    if formats or plan.offload is Offload.OPTIMIZER:
        yield flag("--use-precision-aware-optimizer", None, "" if formats else "the offload needs it")
        yield from formats
    if _keeps_fp8(plan):
        yield flag("--fp8-param-gather", None, "keeps weights in FP8")
        if plan.precision is Precision.MXFP8:
            yield flag("--reuse-grad-buf-for-mxfp8-param-ag", None, "gathers weights in the gradients' buffer")


def _keeps_fp8(plan: Plan) -> bool:
    """Return whether weights can be stored in FP8: ``validate_args`` requires a distributed optimizer on the GPU."""
    is_on_gpu = plan.offload is not Offload.OPTIMIZER or plan.precision is Precision.FP8
    is_sharded = plan.sharding is not Sharding.NONE
    return plan.fp8_weights and plan.precision in _FP8_WEIGHTS and is_sharded and is_on_gpu


def _list(name: str, words: str) -> Iterator[Option]:
    """Yield a flag that takes several words."""
    first, *others = words.split()
    yield flag(name, first)
    yield from (Option(name=word) for word in others)


def _formats(plan: Plan) -> Iterator[Option]:
    """Yield the formats of the states of the precision-aware optimizer."""
    named = {
        "--main-grads-dtype": plan.gradient_format,
        "--main-params-dtype": plan.master_format,
        "--exp-avg-dtype": plan.moment_format,
        "--exp-avg-sq-dtype": plan.second_moment_format,
    }
    if plan.second_moment_format is StateFormat.AS_STATES:
        named["--exp-avg-sq-dtype"] = plan.moment_format
    for name, format_ in named.items():
        # a 16-bit master copy is the remainder of an fp32 one, which that optimizer stores by itself
        is_rest = name == "--main-params-dtype" and format_ is StateFormat.BF16
        if format_ is not StateFormat.AS_STATES:
            yield flag(name, "fp32" if is_rest else format_.value)


def _sharding(plan: Plan) -> Iterator[Option]:
    """Yield the flags of the data-parallel part."""
    if is_fully_sharded(plan):
        yield flag("--use-megatron-fsdp")
        yield flag("--data-parallel-sharding-strategy", _STRATEGIES[plan.sharding])
        yield flag("--ckpt-format", "fsdp_dtensor", "the only one that Megatron FSDP writes")
        yield flag("--no-gradient-accumulation-fusion", None, "needs a recent Transformer Engine with FSDP")
    if plan.sharding is not Sharding.NONE:
        yield flag("--use-distributed-optimizer")
    if is_partly_sharded(plan):
        copies = plan.dp * plan.cp // plan.shard_gpus
        yield flag("--num-distributed-optimizer-instances", copies, f"states over {plan.shard_gpus} GPUs each")
    if plan.overlap and plan.dp * plan.cp > 1:
        yield flag("--overlap-grad-reduce")
        if plan.sharding is not Sharding.NONE:
            yield flag("--overlap-param-gather")


def _batch(model: ModelShape, plan: Plan) -> Iterator[Option]:
    """Yield the flags of batch, number formats and optimizer."""
    yield flag("--micro-batch-size", plan.micro_batch)
    yield flag("--global-batch-size", plan.global_batch, f"{plan.micro_batches} micro-batches a replica")
    if plan.precision is Precision.FP16:
        yield flag("--fp16")
    elif plan.precision is not Precision.FP32:
        yield flag("--bf16")
        if recipe := _RECIPES.get(plan.precision):
            yield flag(recipe[0], recipe[1])
            yield flag(recipe[2], recipe[3])
        if model.experts and plan.moe_gemm is not MoeGemm.SEQUENTIAL:
            yield flag("--moe-grouped-gemm", None, "the experts of a rank in one product")
    yield flag("--optimizer", plan.optimizer.value)


def _env(plan: Plan) -> tuple[Setting, ...]:
    """Return the variables that the plan needs."""
    if is_fully_sharded(plan) or plan.tp * plan.cp == 1:
        return ()
    return (
        Setting(
            name="CUDA_DEVICE_MAX_CONNECTIONS",
            value="1",
            why="tensor and context parallelism launch communication before the product that hides it",
            source="megatron/training/arguments.py: asserted on GPUs before Blackwell",
        ),
    )


def _recomputed_chunks(model: ModelShape, plan: Plan) -> Iterator[str]:
    if plan.recompute_layers % plan.vpp:
        yield f"recompute_layers {plan.recompute_layers} is counted in each chunk: not a multiple of vpp {plan.vpp}"


def _offloaded_states(model: ModelShape, plan: Plan) -> Iterator[str]:
    if plan.offload is Offload.OPTIMIZER and plan.sharding is not Sharding.ZERO1:
        yield f"optimizer states in host memory need sharding zero1, not {plan.sharding}"
    if plan.offload is Offload.OPTIMIZER and plan.optimizer is not Optimizer.ADAM:
        yield f"optimizer states in host memory need Adam, not {plan.optimizer}"


def _offloaded_layers(model: ModelShape, plan: Plan) -> Iterator[str]:
    if plan.offload is Offload.ACTIVATIONS and plan.offload_layers >= model.layers:
        yield f"activations of {plan.offload_layers} layers in host memory: fewer than all {model.layers} can be"


def _state_formats(model: ModelShape, plan: Plan) -> Iterator[str]:
    formats = list(_formats(plan))
    if formats and plan.sharding is Sharding.NONE:
        yield "formats of states beside sharding none: --use-precision-aware-optimizer needs a distributed optimizer"
    if formats and plan.optimizer is not Optimizer.ADAM:
        yield f"formats of states need Adam, not {plan.optimizer}"


def _tensor_overlap(model: ModelShape, plan: Plan) -> Iterator[str]:
    if plan.tp_overlap and not (plan.sequence_parallel and plan.tp > 1):
        yield "tp_overlap needs sequence parallelism"


def _expert_biases(model: ModelShape, plan: Plan) -> Iterator[str]:
    if model.experts and model.has("mlp_bias") and expert_tensor_size(plan) > 1:
        yield f"experts with biases need etp 1, not {expert_tensor_size(plan)}"


def _expert_instances(model: ModelShape, plan: Plan) -> Iterator[str]:
    if model.experts and is_partly_sharded(plan):
        copies = plan.dp * plan.cp // plan.shard_gpus
        replicas = plan.tp * plan.dp * plan.cp // (expert_tensor_size(plan) * plan.ep)
        if replicas % copies:
            yield f"shard_gpus {plan.shard_gpus}: {copies} instances do not divide the {replicas} replicas of an expert"


_CONFIG = "megatron/core/transformer/transformer_config.py"
CHECKS = (
    Check(source=f"{_CONFIG}: recompute_num_layers", find=_recomputed_chunks),
    Check(source="megatron/training/arguments.py: --optimizer-cpu-offload", find=_offloaded_states),
    Check(source=f"{_CONFIG}: cpu_offloading_num_layers", find=_offloaded_layers),
    Check(source="megatron/core/optimizer/optimizer_config.py", find=_state_formats),
    Check(source="megatron/training/arguments.py: --tp-comm-overlap", find=_tensor_overlap),
    Check(source=f"{_CONFIG}: add_bias_linear", find=_expert_biases),
    Check(source="megatron/core/parallel_state.py: num_distributed_optimizer_instances", find=_expert_instances),
)
"""What ``validate_args`` and the configuration classes refuse beyond `LIMITS`."""


def _notes(model: ModelShape, plan: Plan) -> Iterator[str]:
    """Yield caveats."""
    if plan.fp8_weights and plan.precision in _FP8_WEIGHTS and not _keeps_fp8(plan):
        yield "--fp8-param-gather needs a distributed optimizer on the GPU: without it a weight takes 2 bytes more"
    if is_fully_sharded(plan):
        yield "Megatron FSDP wants CUDA_DEVICE_MAX_CONNECTIONS unset or above 1; before 0.14 it is --use-custom-fsdp"
        if plan.tp * plan.cp > 1:
            yield "Megatron warns that tp or cp beside FSDP want another CUDA_DEVICE_MAX_CONNECTIONS each"
    if not model.kv_lora_rank and model.kv_heads % plan.tp:
        yield f"kv_heads {model.kv_heads} below tp {plan.tp}: a multiple up to release 0.15, later ones repeat them"
    if model.vocab % plan.tp:
        yield f"the embedding is padded: {model.vocab} rows are not a multiple of tp {plan.tp}"
    if (plan.first_stage_layers or plan.last_stage_layers) and not has_uneven_chunks(plan):
        yield (
            "where the first and the last stage give one layer less each, --account-for-embedding-in-pipeline-split "
            "and --account-for-loss-in-pipeline-split say the same as the numbers of layers"
        )
    if model.windowed_layers and 0 < model.windowed_layers < model.layers:
        yield "which layers have the window is not known: they are spread evenly"


def _missing_of_plan(model: ModelShape, plan: Plan) -> Iterator[str]:
    """Yield the plan's features without a flag that change the training or its speed."""
    if plan.lora_rank or plan.frozen_fraction:
        yield "frozen weights and LoRA adapters: pretrain_gpt.py trains all"
    if plan.fused_moe and model.experts:
        yield "fused_moe: HybridEP with CUDA graphs is in Megatron-Bridge's containers"
