"""Converts plans to Megatron-LM flags, and checks which plans Megatron-LM can run.

Source: ``megatron/training/arguments.py``, ``megatron/core/transformer/transformer_config.py`` and
``megatron/core/optimizer/optimizer_config.py`` of core_v0.15.0; its flags are also those of 0.14 and of the development
branch of August 2026, those of 0.12 and 0.13 with ``--use-custom-fsdp`` for ``--use-megatron-fsdp``.
"""

from __future__ import annotations

from collections.abc import Iterator

from opsk.costmodel.rules import expert_tensor_size
from opsk.frameworks.expression import is_partly_sharded
from opsk.frameworks.limits import Limits
from opsk.frameworks.megatron_model import missing_of_model, model_flags
from opsk.frameworks.options import Option, Settings, flag, group
from opsk.frameworks.script import Place, Program
from opsk.frameworks.setting import Setting
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

RELEASE = "Megatron Core 0.15"
LIMITS = Limits(
    name="megatron",
    software=Software.MEGATRON_CORE,
    shardings=frozenset(Sharding),
    pipelined_shardings=frozenset({Sharding.NONE, Sharding.ZERO1}),
    partial_shardings=frozenset({Sharding.ZERO1}),
    schedules=frozenset({Schedule.ONE_F_ONE_B}),
    optimizers=frozenset({Optimizer.ADAM, Optimizer.SGD}),
    offloads=frozenset({Offload.NONE, Offload.OPTIMIZER}),
    states=frozenset({States.MIXED, States.MIXED_16BIT_GRADIENTS, States.AUTOCAST}),
    losses=frozenset({Loss.PLAIN, Loss.MEGATRON_FUSED}),
)
"""ZeRO-1 is ``--use-distributed-optimizer``, partly sharded with ``--num-distributed-optimizer-instances``; ZeRO-2 and
ZeRO-3 are ``--use-megatron-fsdp``, which is taken without a pipeline and over all replicas: its documentation (``docs/
source/api-guide/custom_fsdp.md``) combines it with neither. ``megatron/core/pipeline_parallel/schedules.py`` has 1F1B
and interleaved 1F1B. Activations cannot be stored in host memory by a flag (``cpu_offloading`` of the configuration has
none).
"""

_STRATEGIES = {Sharding.ZERO2: "optim_grads", Sharding.ZERO3: "optim_grads_params"}
_FP8_WEIGHTS = (Precision.FP8, Precision.FP8_CURRENT, Precision.FP8_BLOCK, Precision.MXFP8)
_RECIPES = {
    Precision.FP8: ("--fp8-format", "hybrid", "--fp8-recipe", "delayed"),
    Precision.FP8_CURRENT: ("--fp8-format", "hybrid", "--fp8-recipe", "tensorwise"),
    Precision.FP8_BLOCK: ("--fp8-format", "e4m3", "--fp8-recipe", "blockwise"),
    Precision.MXFP8: ("--fp8-format", "e4m3", "--fp8-recipe", "mxfp8"),
    Precision.NVFP4: ("--fp4-format", "e2m1", "--fp4-recipe", "nvfp4"),
}


def refusals(model: ModelShape, plan: Plan) -> tuple[str, ...]:
    """Return checks of Megatron-LM that the plan violates and that `LIMITS` cannot express."""
    return tuple(_refusals(model, plan))


def build_settings(model: ModelShape, plan: Plan) -> Settings:
    """Return the flags of ``pretrain_gpt.py`` that express model and plan."""
    return Settings(
        framework=LIMITS.name,
        release=RELEASE,
        groups=(
            group("MODEL_ARGS", model_flags(model, tp=plan.tp)),
            group("PARALLEL_ARGS", _parallel(model, plan)),
            group("MEMORY_ARGS", _memory(plan)),
            group("BATCH_ARGS", _batch(model, plan)),
        ),
        env=_env(plan),
        notes=tuple(_notes(model, plan)),
        missing=(*missing_of_model(model), *_missing_of_plan(model, plan)),
    )


PROGRAM = Program(
    places=(
        Place(name="MEGATRON_PATH", what="a checkout of Megatron-LM"),
        Place(name="DATA_PATH", what="the data's prefix, as preprocess_data.py wrote it"),
        Place(name="TOKENIZER_MODEL", what="the tokenizer, a folder or a name of HuggingFace"),
        Place(name="CHECKPOINTS", what="where checkpoints are kept", default="checkpoints"),
        Place(name="TRAIN_ITERS", what="steps in all", default="1000"),
        Place(name="LEARNING_RATE", what="its highest", default="3.0e-4"),
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


def is_fully_sharded(plan: Plan) -> bool:
    """Return whether the plan runs on Megatron FSDP."""
    return plan.sharding in _STRATEGIES


def _parallel(model: ModelShape, plan: Plan) -> Iterator[Option]:
    """Yield the flags of axes and stages."""
    yield flag("--tensor-model-parallel-size", plan.tp)
    yield flag("--pipeline-model-parallel-size", plan.pp)
    if plan.vpp > 1:
        per_chunk = model.layers // (plan.pp * plan.vpp)
        yield flag(
            "--num-virtual-stages-per-pipeline-rank",
            plan.vpp,
            f"interleaved 1F1B; before 0.11, for even stages: --num-layers-per-virtual-pipeline-stage {per_chunk}",
        )
    if plan.first_stage_layers:
        yield flag("--decoder-first-pipeline-num-layers", plan.first_stage_layers)
    if plan.last_stage_layers:
        yield flag("--decoder-last-pipeline-num-layers", plan.last_stage_layers)
    yield flag("--context-parallel-size", plan.cp)
    if model.experts:
        yield flag("--expert-model-parallel-size", plan.ep)
        yield flag("--expert-tensor-parallel-size", expert_tensor_size(plan), "left out, it is tp")
        yield from _dispatch(plan)
    if plan.sequence_parallel and plan.tp > 1:
        yield flag("--sequence-parallel")
        if plan.tp_overlap:
            yield flag("--tp-comm-overlap")


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


def _memory(plan: Plan) -> Iterator[Option]:
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


def _refusals(model: ModelShape, plan: Plan) -> Iterator[str]:
    """Yield the checks that the plan breaks."""
    if plan.recompute_layers % plan.vpp:
        yield f"recompute_layers {plan.recompute_layers} is counted in each chunk: not a multiple of vpp {plan.vpp}"
    if plan.offload is Offload.OPTIMIZER and plan.sharding is not Sharding.ZERO1:
        yield f"optimizer states in host memory need sharding zero1, not {plan.sharding}"
    if plan.offload is Offload.OPTIMIZER and plan.optimizer is not Optimizer.ADAM:
        yield f"optimizer states in host memory need Adam, not {plan.optimizer}"
    formats = list(_formats(plan))
    if formats and plan.sharding is Sharding.NONE:
        yield "formats of states beside sharding none: --use-precision-aware-optimizer needs a distributed optimizer"
    if formats and plan.optimizer is not Optimizer.ADAM:
        yield f"formats of states need Adam, not {plan.optimizer}"
    if plan.precision is Precision.FP16 and plan.ep > 1:
        yield f"fp16 cannot be combined with ep {plan.ep}"
    if plan.tp_overlap and not (plan.sequence_parallel and plan.tp > 1):
        yield "tp_overlap needs sequence parallelism"
    if model.experts and model.has("mlp_bias") and expert_tensor_size(plan) > 1:
        yield f"experts with biases need etp 1, not {expert_tensor_size(plan)}"
    if model.experts and is_partly_sharded(plan):
        copies = plan.dp * plan.cp // plan.shard_gpus
        replicas = plan.tp * plan.dp * plan.cp // (expert_tensor_size(plan) * plan.ep)
        if replicas % copies:
            yield f"shard_gpus {plan.shard_gpus}: {copies} instances do not divide the {replicas} replicas of an expert"


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
    if plan.first_stage_layers or plan.last_stage_layers:
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
