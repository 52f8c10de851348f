"""Converts plans to PyTorch FSDP options, and checks which plans FSDP can run.

The options are for HuggingFace: ``accelerate launch`` with FSDP version 2 starts ``run_clm.py`` of transformers, whose
Trainer uses accelerate's settings. Source: ``src/accelerate/commands/launch.py``,
``src/accelerate/parallelism_config.py`` and ``src/accelerate/utils/dataclasses.py`` of accelerate 1.14;
``examples/pytorch/language-modeling/run_clm.py`` and ``src/transformers/training_args.py`` of transformers 4.57.
"""

from __future__ import annotations

from collections.abc import Iterator

from opsk.frameworks.hf_config import HfConfig, hf_config
from opsk.frameworks.limits import Check, Limits, SequenceParallel, apply_checks, is_partly_sharded
from opsk.frameworks.options import File, Option, Settings, flag, group
from opsk.frameworks.script import ACCELERATE, Program, UserVariable
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

RELEASE = "accelerate 1.10 and transformers 4.57 or later"
CONFIG = "config.json"
_SHARDED = frozenset({Sharding.ZERO2, Sharding.ZERO3})
LIMITS = Limits(
    name="fsdp",
    software=Software.PYTORCH,
    shardings=_SHARDED | {Sharding.NONE},
    pipelined_shardings=frozenset(),
    partial_shardings=_SHARDED,
    replicated_alone=True,
    sequence_parallel=SequenceParallel.NEVER,
    recomputes=frozenset({Recompute.NONE, Recompute.FULL}),
    recompute_layers=False,
    schedules=frozenset({Schedule.ONE_F_ONE_B}),
    interleaved=False,
    uneven_stages=False,
    largest_tp=1,
    largest_pp=1,
    largest_ep=1,
    precisions=frozenset({Precision.FP32, Precision.FP16, Precision.BF16}),
    states=frozenset({States.AUTOCAST}),
    optimizers=frozenset({Optimizer.ADAM, Optimizer.SGD, Optimizer.ADAFACTOR}),
    offloads=frozenset({Offload.NONE, Offload.OPTIMIZER_AND_WEIGHTS}),
    losses=frozenset({Loss.PLAIN, Loss.FUSED}),
    sources={
        "shardings": "accelerate/utils/dataclasses.py: FullyShardedDataParallelPlugin",
        "pipelined_shardings": "accelerate has no pipeline for training",
        "replicated_alone": "accelerate/utils/dataclasses.py: ParallelismConfig; DDP excludes cp",
        "partial_shardings": "accelerate/utils/dataclasses.py: ParallelismConfig.dp_replicate_size",
        "sequence_parallel": "accelerate/utils/dataclasses.py: ParallelismConfig",
        "recomputes": "accelerate/utils/dataclasses.py: fsdp_activation_checkpointing, of whole layers",
        "recompute_layers": "accelerate/utils/dataclasses.py: fsdp_activation_checkpointing, of all layers",
        "schedules": "accelerate has no pipeline for training",
        "interleaved": "accelerate has no pipeline for training",
        "uneven_stages": "accelerate has no pipeline for training",
        "largest_tp": "transformers: tp_plan of from_pretrained splits a model that is loaded",
        "largest_pp": "accelerate has no pipeline for training",
        "largest_ep": "accelerate/utils/dataclasses.py: ParallelismConfig",
        "precisions": "accelerate/utils/dataclasses.py: MixedPrecisionPolicy",
        "states": "accelerate/accelerator.py: FSDP casts fp32 weights",
        "optimizers": "transformers/training_args.py: OptimizerNames",
        "offloads": "torch/distributed/fsdp: CPUOffloadPolicy",
        "losses": "transformers/training_args.py: use_liger_kernel",
    },
)
"""Its axes are dp_replicate, dp_shard, cp and tp, all with FSDP version 2 (``ParallelismConfig``). tp is left out:
transformers splits a model that it loads (``tp_plan`` of ``from_pretrained``), not one that is trained from its
configuration. There are no pipelines, and no expert parallelism. ZeRO-2 is ``reshard_after_forward`` false; no sharding
is plain DDP, which excludes cp. Recomputation is of whole layers (``fsdp_activation_checkpointing``); weights are in
fp32 and cast by FSDP.
"""

_OPTIMIZERS = {Optimizer.ADAM: "adamw_torch_fused", Optimizer.SGD: "sgd", Optimizer.ADAFACTOR: "adafactor"}


def refusals(model: ModelShape, plan: Plan) -> tuple[str, ...]:
    """Return checks of accelerate that the plan violates and that `LIMITS` cannot express."""
    return apply_checks(CHECKS, model, plan)


def build_settings(model: ModelShape, plan: Plan) -> Settings:
    """Return the flags of ``accelerate launch`` and of the Trainer, and the model's ``config.json``."""
    config = hf_config(model)
    return Settings(
        framework=LIMITS.name,
        release=RELEASE,
        groups=(group("LAUNCH_ARGS", _launch(plan, config)), group("TRAINER_ARGS", _trainer(model, plan))),
        files=(File(name=CONFIG, text=config.text, content=config.content, option="--config_name"),),
        notes=tuple(_notes(model, plan)),
        missing=(*config.missing, *_missing_of_plan(plan)),
    )


PROGRAM = Program(
    places=(
        UserVariable(name="RUN_CLM", what="examples/pytorch/language-modeling/run_clm.py of transformers"),
        UserVariable(name="TRAIN_FILE", what="the training data, a .txt, .json or .csv of texts"),
        UserVariable(name="TOKENIZER", what="the tokenizer, a folder or a name of HuggingFace"),
        UserVariable(name="OUTPUT_DIR", what="where checkpoints are kept", default="checkpoints"),
        UserVariable(name="TRAIN_STEPS", what="steps in all", default="1000"),
        UserVariable(name="LEARNING_RATE", what="its highest", default="3.0e-4"),
    ),
    command=(
        '"${LAUNCH_ARGS[@]}" "$RUN_CLM"',
        '--tokenizer_name "$TOKENIZER" --train_file "$TRAIN_FILE"',
        '"${TRAINER_ARGS[@]}" --do_train --max_steps "$TRAIN_STEPS" --learning_rate "$LEARNING_RATE"',
        '--output_dir "$OUTPUT_DIR" --save_steps 500 --logging_steps 1 --report_to none',
    ),
    launcher=ACCELERATE,
)


def _launch(plan: Plan, config: HfConfig) -> Iterator[Option]:
    """Yield the flags of ``accelerate launch``."""
    low = plan.precision in (Precision.BF16, Precision.FP16)
    yield flag("--mixed_precision", plan.precision.value if low else "no")
    if plan.sharding is Sharding.NONE:
        if plan.gpus > 1:
            yield flag("--multi_gpu", None, "plain DDP: every GPU keeps all states")
        return
    yield flag("--use_fsdp")
    yield flag("--fsdp_version", 2)
    resharded = plan.sharding is Sharding.ZERO3
    yield flag(
        "--fsdp_reshard_after_forward", str(resharded).lower(), "ZeRO-3" if resharded else "ZeRO-2: weights stay"
    )
    yield flag("--fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP")
    yield flag("--fsdp_transformer_layer_cls_to_wrap", config.layer)
    yield flag("--fsdp_state_dict_type", "SHARDED_STATE_DICT")
    if plan.recompute is Recompute.FULL:
        yield flag("--fsdp_activation_checkpointing", "true")
    if plan.offload is Offload.OPTIMIZER_AND_WEIGHTS:
        yield flag("--fsdp_offload_params", "true")
    if plan.cp > 1 or is_partly_sharded(plan):
        yield from _mesh(plan)


def _mesh(plan: Plan) -> Iterator[Option]:
    """Yield the sizes of the axes; states are sharded over dp_shard x cp."""
    copies = plan.dp * plan.cp // plan.shard_gpus if is_partly_sharded(plan) else 1
    yield flag("--use_parallelism_config")
    yield flag("--parallelism_config_dp_replicate_size", copies)
    yield flag("--parallelism_config_dp_shard_size", plan.dp // copies)
    yield flag("--parallelism_config_cp_size", plan.cp)
    if plan.cp > 1:
        yield flag("--parallelism_config_cp_comm_strategy", "allgather")


def _trainer(model: ModelShape, plan: Plan) -> Iterator[Option]:
    """Yield the flags of ``run_clm.py`` and its Trainer."""
    yield flag("--block_size", model.seq, "tokens of a sequence")
    yield flag("--per_device_train_batch_size", plan.micro_batch)
    yield flag("--gradient_accumulation_steps", plan.micro_batches, f"global batch {plan.global_batch}")
    if plan.precision in (Precision.BF16, Precision.FP16):
        yield flag(f"--{plan.precision.value}")
    yield flag("--optim", _OPTIMIZERS.get(plan.optimizer, plan.optimizer.value))
    if plan.recompute is Recompute.FULL and plan.sharding is Sharding.NONE:
        yield flag("--gradient_checkpointing")
    if plan.compiled:
        yield flag("--torch_compile")
    if plan.loss is Loss.FUSED:
        yield flag("--use_liger_kernel")


def _shard_groups(model: ModelShape, plan: Plan) -> Iterator[str]:
    if is_partly_sharded(plan) and plan.shard_gpus % plan.cp:
        yield f"FSDP shards over cp as a whole: shard_gpus {plan.shard_gpus} is not a multiple of cp {plan.cp}"
    if is_partly_sharded(plan) and plan.shard_gpus == plan.cp:
        yield f"shard_gpus {plan.shard_gpus} leaves dp_shard 1, which accelerate does not combine with dp_replicate"


def _list_offload_options(model: ModelShape, plan: Plan) -> Iterator[str]:
    if plan.offload is not Offload.NONE and plan.sharding is not Sharding.ZERO3:
        yield f"offload {plan.offload} needs sharding zero3, not {plan.sharding}"


CHECKS = (
    Check(source="accelerate/utils/dataclasses.py: ParallelismConfig", find=_shard_groups),
    Check(source="torch/distributed/fsdp: CPUOffloadPolicy of fully_shard", find=_list_offload_options),
)
"""What accelerate refuses beyond `LIMITS`."""


def _notes(model: ModelShape, plan: Plan) -> Iterator[str]:
    """Yield caveats."""
    if plan.sharding is Sharding.NONE and plan.gpus > 1:
        yield "nothing is sharded: this is DDP"
    if plan.cp > 1:
        yield "context parallelism is PyTorch's ring, in accelerate since 1.10; it wants SDPA attention"
    if model.seq > 1024:
        yield "run_clm.py cuts block_size down to the longest sequence that the tokenizer says: raise model_max_length"


def _missing_of_plan(plan: Plan) -> Iterator[str]:
    """Yield the plan's features without a flag that change the training or its speed."""
    if plan.lora_rank or plan.frozen_fraction:
        yield "frozen weights and LoRA adapters: run_clm.py trains all"
