"""Converts plans to DeepSpeed options, and checks which plans DeepSpeed can run.

Every plan is written for Megatron-DeepSpeed, whose ``pretrain_gpt.py`` has tensor, pipeline, expert and Ulysses
parallelism; the settings of DeepSpeed's own engine are in its JSON, which any other program can use where tp, pp and cp
are 1. Source: ``megatron/arguments.py``, ``megatron/core/parallel_state.py`` and ``pretrain_gpt.py`` of
Megatron-DeepSpeed (July 2025); ``deepspeed/runtime/config.py``, ``runtime/zero/config.py`` and
``docs/_pages/config-json.md`` of DeepSpeed (August 2026).
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from opsk.frameworks.layers import dense_layers
from opsk.frameworks.limits import Check, ExpertTensor, Limits, apply_checks
from opsk.frameworks.megatron import VOCAB_DIVISOR, vocab_divisor
from opsk.frameworks.options import File, Option, Setting, Settings, flag, group
from opsk.frameworks.script import Program, UserVariable
from opsk.frameworks.settings.deepspeed_config import STAGES
from opsk.workload.model import ModelShape
from opsk.workload.plan import (
    Loss,
    Offload,
    Optimizer,
    Plan,
    Precision,
    Recompute,
    Schedule,
    Sharding,
    Software,
    States,
)

RELEASE = "Megatron-DeepSpeed of July 2025"
CONFIG = "deepspeed.json"
LIMITS = Limits(
    name="deepspeed",
    software=Software.DEEPSPEED,
    shardings=frozenset(Sharding),
    pipelined_shardings=frozenset({Sharding.NONE, Sharding.ZERO1}),
    partial_sharding=False,
    partial_shardings=frozenset(),
    recompute_layers=False,
    schedules=frozenset({Schedule.ONE_F_ONE_B}),
    interleaved=False,
    uneven_stages=False,
    apart=frozenset({("cp", "tp"), ("cp", "pp"), ("ep", "pp")}),
    expert_tensors=frozenset({ExpertTensor.AS_TP}),
    expert_shardings=frozenset(Sharding) - {Sharding.ZERO3},
    precisions=frozenset({Precision.FP32, Precision.FP16, Precision.BF16}),
    states=frozenset({States.MIXED, States.MIXED_16BIT_GRADIENTS, States.AUTOCAST}),
    optimizers=frozenset({Optimizer.ADAM}),
    offloads=frozenset({Offload.NONE, Offload.OPTIMIZER, Offload.OPTIMIZER_AND_WEIGHTS}),
    losses=frozenset({Loss.PLAIN}),
    sources={
        "apart": "Megatron-DeepSpeed megatron/core/parallel_state.py; examples_deepspeed/MoE for experts",
        "pipelined_shardings": "deepspeed/runtime/pipe/engine.py asserts ZeRO below stage 2",
        "interleaved": "deepspeed/runtime/pipe/module.py",
        "uneven_stages": "deepspeed/runtime/pipe/module.py: partition_method",
        "schedules": "deepspeed/runtime/pipe/schedule.py; zero-bubble is not tested with sequence parallelism",
        "partial_shardings": "deepspeed.zero.MiCS_Init, under which pretrain_gpt.py builds no model",
        "expert_shardings": "deepspeed/runtime/engine.py: _validate_zero3_moe_compatibility",
        "expert_tensors": "Megatron-DeepSpeed megatron/arguments.py: --enable-expert-tensor-parallelism",
        "recompute_layers": "Megatron-DeepSpeed megatron/arguments.py: --deepspeed-activation-checkpointing",
        "precisions": "deepspeed/runtime/config.py: fp16, bf16",
        "optimizers": "Megatron-DeepSpeed megatron/optimizer/__init__.py",
        "offloads": "deepspeed/runtime/zero/offload_config.py",
        "states": "deepspeed/runtime/bf16_optimizer.py, fp16/fused_optimizer.py",
        "losses": "Megatron-DeepSpeed megatron/model/gpt_model.py",
    },
)
"""Ulysses asserts that tp and pp are 1 (parallel_state.py); no ZeRO-2 and ZeRO-3 with a pipeline, which has one chunk a
stage (runtime/pipe/engine.py); experts not with ZeRO-3 (``_validate_zero3_moe_compatibility`` of runtime/engine.py),
and with ``--no-pipeline-parallel`` (examples_deepspeed/MoE). MiCS (``mics_shard_size``) needs a model that was built
under ``deepspeed.zero.MiCS_Init``; ``pretrain_gpt.py`` builds it under ``deepspeed.zero.Init``: no partial sharding.
The zero-bubble schedule is left out: it is not tested with sequence parallelism (arguments.py).
"""


def refusals(model: ModelShape, plan: Plan) -> tuple[str, ...]:
    """Return checks of Megatron-DeepSpeed that the plan violates and that `LIMITS` cannot express."""
    return apply_checks(CHECKS, model, plan)


def build_settings(model: ModelShape, plan: Plan) -> Settings:
    """Return the flags of ``pretrain_gpt.py`` and the JSON that express model and plan."""
    content = build_config(plan)
    return Settings(
        framework=LIMITS.name,
        release=RELEASE,
        groups=(
            group("MODEL_ARGS", _model(model, plan)),
            group("PARALLEL_ARGS", _parallel(model, plan)),
            group("BATCH_ARGS", _batch(plan)),
        ),
        files=(File(name=CONFIG, text=json.dumps(content, indent=2), content=content, option="--deepspeed_config"),),
        env=_env(plan),
        notes=tuple(_notes(model, plan)),
        missing=tuple(_missing(model, plan)),
    )


def build_config(plan: Plan) -> dict[str, object]:
    """Return DeepSpeed's configuration."""
    stage = int(STAGES[plan.sharding])
    zero: dict[str, object] = {"stage": stage}
    if stage:
        zero |= {"overlap_comm": plan.overlap, "contiguous_gradients": True, "reduce_scatter": True}
    if plan.offload is not Offload.NONE:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if plan.offload is Offload.OPTIMIZER_AND_WEIGHTS:
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    config: dict[str, object] = {
        "train_batch_size": plan.global_batch,
        "train_micro_batch_size_per_gpu": plan.micro_batch,
        "gradient_accumulation_steps": plan.micro_batches,
        "steps_per_print": 1,
        "gradient_clipping": 1.0,
        "zero_optimization": zero,
    }
    if plan.precision in (Precision.BF16, Precision.FP16):
        precision = plan.precision.value
        config[precision] = {"enabled": True}
        config["data_types"] = {"grad_accum_dtype": "fp32" if plan.states is States.MIXED else precision}
    return config


PROGRAM = Program(
    places=(
        UserVariable(name="MEGATRON_PATH", what="a checkout of Megatron-DeepSpeed"),
        UserVariable(name="DATA_PATH", what="the prefix of the data that preprocess_data.py wrote"),
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
        '    --data-path "$DATA_PATH" --data-impl mmap --split 99,1,0',
        '    --tokenizer-type HFTokenizer --tokenizer-model "$TOKENIZER_MODEL"',
        '    --save "$CHECKPOINTS" --load "$CHECKPOINTS" --save-interval 500',
        "    --log-interval 1 --eval-iters 0",
        ")",
    ),
    command=(
        '"$MEGATRON_PATH/pretrain_gpt.py"',
        '"${MODEL_ARGS[@]}" "${PARALLEL_ARGS[@]}" "${BATCH_ARGS[@]}" "${TRAIN_ARGS[@]}"',
    ),
)
"""``pretrain_gpt.py`` of Megatron-DeepSpeed; ``torchrun`` starts it as well as DeepSpeed's own launcher would."""


def _model(model: ModelShape, plan: Plan) -> Iterator[Option]:
    """Yield the flags of a model's shape."""
    yield flag("--num-layers", model.layers)
    yield flag("--hidden-size", model.hidden)
    yield flag("--ffn-hidden-size", model.expert_ffn if model.experts else model.ffn)
    yield flag("--num-attention-heads", model.heads)
    if model.kv_heads < model.heads:
        yield flag("--num-key-value-heads", model.kv_heads)
    yield flag("--kv-channels", model.head_dim, "width of a head")
    yield flag("--seq-length", model.seq)
    yield flag("--max-position-embeddings", max(model.seq, model.position_rows))
    yield flag("--vocab-size", model.vocab, "for the tokenizers that do not know it; others bring their own")
    if (divisor := vocab_divisor(model.vocab, plan.tp)) != VOCAB_DIVISOR:
        yield flag("--make-vocab-size-divisible-by", divisor, f"{model.vocab} rows, not padded further")
    if not model.learned_positions:
        yield flag("--use-rotary-position-embeddings")
    yield flag("--normalization", "layernorm" if model.has("norm_bias") else "rmsnorm")
    if model.gated_mlp:
        yield flag("--swiglu")
    if not model.tied_embeddings:
        yield flag("--untie-embeddings-and-output-weights")
    if not model.has("mlp_bias"):
        yield flag("--disable-bias-linear")
    if not model.has("dropout"):
        yield flag("--attention-dropout", 0)
        yield flag("--hidden-dropout", 0)
    yield flag("--no-query-key-layer-scaling")
    if model.flash_attention:
        yield flag("--use-flash-attn-v2")
    if model.experts:
        yield from _experts(model)


def _experts(model: ModelShape) -> Iterator[Option]:
    """Yield the flags of a mixture of experts."""
    yield flag("--num-experts", model.experts)
    yield flag("--topk", model.top_k)
    yield flag("--expert-interval", _interval(model) or 1, "one layer in so many has experts")
    if model.capacity_factor:
        yield flag("--moe-train-capacity-factor", f"{model.capacity_factor:g}")
    else:
        yield flag("--disable-moe-token-dropping")


def _interval(model: ModelShape) -> int:
    """Return the interval of layers with experts; 0 where there is no such interval.

    Experts are in the layers whose number, counted from 1, is a multiple of it (``get_num_experts_per_layer``).
    """
    dense = dense_layers(model)
    intervals = (
        size
        for size in range(1, model.layers + 1)
        if all(dense[index] == bool((index + 1) % size) for index in range(model.layers))
    )
    return next(intervals, 0)


def _parallel(model: ModelShape, plan: Plan) -> Iterator[Option]:
    """Yield the flags of axes, sharding and recomputation."""
    yield flag("--tensor-model-parallel-size", plan.tp)
    yield flag("--pipeline-model-parallel-size", plan.pp)
    if plan.pp == 1:
        yield flag("--no-pipeline-parallel", None, "ZeRO-2 and ZeRO-3, Ulysses and experts are not for its pipeline")
    if plan.cp > 1:
        yield flag("--ds-sequence-parallel-size", plan.cp, "Ulysses")
    if model.experts:
        yield flag("--moe-expert-parallel-size", plan.ep)
        yield flag("--create-moe-param-group", None, "ZeRO needs it")
        if plan.tp > 1:
            yield flag("--enable-expert-tensor-parallelism")
    if plan.sequence_parallel and plan.tp > 1:
        yield flag("--sequence-parallel")
    yield flag("--deepspeed")
    yield flag("--zero-stage", STAGES[plan.sharding])
    if plan.recompute is Recompute.FULL:
        yield flag("--checkpoint-activations")
        yield flag("--deepspeed-activation-checkpointing")
    elif plan.recompute is Recompute.SELECTIVE:
        yield flag("--recompute-granularity", "selective")
    if plan.offload is not Offload.NONE:
        yield flag("--cpu-optimizer")
    if plan.offload is Offload.OPTIMIZER_AND_WEIGHTS:
        yield flag("--remote-device", "cpu")


def _batch(plan: Plan) -> Iterator[Option]:
    """Yield the flags of batch, number format and optimizer."""
    yield flag("--micro-batch-size", plan.micro_batch)
    yield flag("--global-batch-size", plan.global_batch, f"{plan.micro_batches} micro-batches a replica")
    if plan.precision is not Precision.FP32:
        yield flag(f"--{plan.precision.value}")
    yield flag("--optimizer", plan.optimizer.value)


def _env(plan: Plan) -> tuple[Setting, ...]:
    """Return the variables that the plan needs."""
    if not plan.sequence_parallel or plan.tp == 1:
        return ()
    return (
        Setting(
            name="CUDA_DEVICE_MAX_CONNECTIONS",
            value="1",
            why="sequence parallelism launches communication before the product that hides it",
            source="megatron/arguments.py of Megatron-DeepSpeed: asserted",
        ),
    )


def _split_heads(model: ModelShape, plan: Plan) -> Iterator[str]:
    if model.heads % plan.cp:
        yield f"Ulysses splits heads: {model.heads} is not a multiple of cp {plan.cp}"
    if plan.cp > 1 and plan.recompute is Recompute.SELECTIVE:
        yield "selective recomputation has no effect on Ulysses' attention"


def _split_groups(model: ModelShape, plan: Plan) -> Iterator[str]:
    if model.kv_heads % (plan.tp * plan.cp):
        yield f"kv_heads {model.kv_heads} is not a multiple of tp {plan.tp} x cp {plan.cp}"


def _spread_experts(model: ModelShape, plan: Plan) -> Iterator[str]:
    if model.experts and plan.dp % plan.ep:
        yield f"ep {plan.ep} does not divide dp {plan.dp}"


def _accumulate_fp32(model: ModelShape, plan: Plan) -> Iterator[str]:
    if plan.states is States.MIXED and plan.sharding is Sharding.NONE and plan.precision is not Precision.FP32:
        yield "gradients in fp32 beside 16-bit weights need sharding zero1 or more"


def _overlap_tensor(model: ModelShape, plan: Plan) -> Iterator[str]:
    if plan.overlap and plan.tp_overlap:
        yield "tp_overlap: Megatron-DeepSpeed does not pipeline tensor-parallel communication"


CHECKS = (
    Check(source="deepspeed/sequence/layer.py: DistributedAttention", find=_split_heads),
    Check(source="Megatron-DeepSpeed megatron/model/transformer.py: ParallelAttention", find=_split_groups),
    Check(source="deepspeed/utils/groups.py: expert-parallel groups are taken from dp", find=_spread_experts),
    Check(source="deepspeed/runtime/engine.py: grad_accum_dtype", find=_accumulate_fp32),
    Check(source="Megatron-DeepSpeed megatron/core/tensor_parallel/layers.py", find=_overlap_tensor),
)
"""What Megatron-DeepSpeed and DeepSpeed refuse beyond `LIMITS`."""


def _notes(model: ModelShape, plan: Plan) -> Iterator[str]:
    """Yield caveats."""
    if plan.tp * plan.pp * plan.cp == 1 and not model.experts:
        yield f"{CONFIG} is also right for any other program that DeepSpeed runs, HuggingFace's Trainer for one"
    if plan.cp > 1:
        yield "cp is Ulysses here, which exchanges heads for tokens, and not a ring"
    if model.top_k > 2:
        yield f"{model.top_k} experts a token need a DeepSpeed with topkgating (deepspeed/moe/sharded_moe.py)"
    if model.vocab % plan.tp:
        yield f"the embedding is padded: {model.vocab} rows are not a multiple of tp {plan.tp}"


def _missing(model: ModelShape, plan: Plan) -> Iterator[str]:
    """Yield the features without a flag that change the training or its speed."""
    biases = model.has("qkv_bias"), model.has("output_bias"), model.has("mlp_bias")
    details = {
        "biases of linear layers: all or none": biases not in ((True,) * 3, (False,) * 3),
        "an encoder": model.encoder_layers,
        "latent attention": model.kv_lora_rank,
        "a table of relative positions": model.relative_positions,
        "a bias of the output head": model.head_bias,
        "norms of queries and keys": model.qk_norm,
        "a norm of the embedding": model.embedding_norm,
        f"{model.norms_per_layer} norms a layer": model.norms_per_layer != 2,
        "attention sinks": model.attention_sinks,
        "windows of attention": model.attention_window and model.windowed_layers,
        f"layers of {model.mixer}": model.mixer_layers,
        "layers that are an MLP alone": model.mlp_layers,
        "a gate of attention": model.attention_gate,
        "sparse attention": model.index_top_k,
        "a frozen model beside it": model.frozen_parameters,
        "multi-token prediction": model.mtp_layers,
    }
    experts = {
        "shared experts": model.shared_experts or model.shared_ffn,
        "a bias of the router": model.router_bias,
        "this place of the layers without experts": not _interval(model),
        "dense layers of another width than the experts'": model.dense_layers and model.ffn != model.expert_ffn,
    }
    yield from (name for name, there in details.items() if there)
    if model.experts:
        yield from (name for name, there in experts.items() if there)
    if plan.lora_rank or plan.frozen_fraction:
        yield "frozen weights and LoRA adapters: pretrain_gpt.py trains all"
