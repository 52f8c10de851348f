"""Defines the setting names of frameworks whose settings are names with values, one table per framework.

Sources: ``training_args.py`` of transformers 4.57 (TRL, LLaMA-Factory and axolotl pass its names on); ``docs/_pages/
config-json.md`` of DeepSpeed; NeMo's ``examples/nlp/language_modeling/conf/megatron_gpt_config.yaml`` (1.x) and
``nemo/lightning/pytorch/strategies/megatron_strategy.py`` (2.x); ``src/nanotron/config`` of nanotron 0.4; picotron's
``create_config.py``; ``megatron/neox_arguments/neox_args.py`` of GPT-NeoX 2.0; the YAML of llm-foundry's
``scripts/train``; ``configs/training.py`` of llama-cookbook; ``fms_fsdp/config/training.py``;
torchtune's recipes; ``litgpt/args.py``; ``olmo/config.py`` of OLMo; ``train_esm2.py`` of BioNeMo 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from opsk.workload.plan import Recompute, Sharding


class Style(StrEnum):
    """The syntax of a setting with a value: ``--name value``, ``name=value``, or a line of a file."""

    FLAG = "flag"
    OVERRIDE = "override"
    FILE = "file"


Settings = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names of one framework's settings.

    Parameters
    ----------
    numbers
        Name by field of the plan; ``micro_batches`` is the number of steps of gradient accumulation.
    recompute, sharding
        Names and values by mode.
    sequence_parallel
        Name and value of "on".
    sharding_file
        The file of the ``sharding`` settings, where it is a separate one.
    computes_batch
        Whether the framework computes the global batch from accumulation, which then has to follow a change of
        replicas.
    """

    style: Style
    numbers: Mapping[str, str]
    recompute: Mapping[Recompute, Settings] = field(default_factory=dict)
    sharding: Mapping[Sharding, Settings] = field(default_factory=dict)
    sequence_parallel: tuple[str, str] | None = None
    sharding_file: str = ""
    computes_batch: bool = False


STAGES = {Sharding.NONE: "0", Sharding.ZERO1: "1", Sharding.ZERO2: "2", Sharding.ZERO3: "3"}
_ZERO = {kind: (("zero_optimization.stage", stage),) for kind, stage in STAGES.items()}
_HF_NUMBERS = {"micro_batch": "per_device_train_batch_size", "micro_batches": "gradient_accumulation_steps"}
_HF_RECOMPUTE = {
    Recompute.FULL: (("gradient_checkpointing", "true"),),
    Recompute.NONE: (("gradient_checkpointing", "false"),),
}
HF = Names(
    style=Style.FLAG,
    numbers=_HF_NUMBERS,
    recompute=_HF_RECOMPUTE,
    sharding={
        Sharding.ZERO2: (("fsdp", "'shard_grad_op auto_wrap'"),),
        Sharding.ZERO3: (("fsdp", "'full_shard auto_wrap'"),),
    },
    computes_batch=True,
)
HF_DEEPSPEED = Names(
    style=Style.FLAG,
    numbers=_HF_NUMBERS,
    recompute=_HF_RECOMPUTE,
    sharding=_ZERO,
    sharding_file="the DeepSpeed configuration",
    computes_batch=True,
)
AXOLOTL = Names(
    style=Style.FILE,
    numbers={"micro_batch": "micro_batch_size", "micro_batches": "gradient_accumulation_steps"},
    recompute=_HF_RECOMPUTE,
    sharding=_ZERO,
    sharding_file="the DeepSpeed configuration",
    computes_batch=True,
)
LLAMA_FACTORY = Names(
    style=Style.FILE,
    numbers=_HF_NUMBERS,
    recompute={
        Recompute.FULL: (("disable_gradient_checkpointing", "false"),),
        Recompute.NONE: (("disable_gradient_checkpointing", "true"),),
    },
    sharding=_ZERO,
    sharding_file="the DeepSpeed configuration",
    computes_batch=True,
)
NEMO_1 = Names(
    style=Style.OVERRIDE,
    numbers={
        "tp": "model.tensor_model_parallel_size",
        "pp": "model.pipeline_model_parallel_size",
        "vpp": "model.virtual_pipeline_model_parallel_size",
        "cp": "model.context_parallel_size",
        "ep": "model.expert_model_parallel_size",
        "micro_batch": "model.micro_batch_size",
    },
    recompute={
        Recompute.NONE: (("model.activations_checkpoint_granularity", "null"),),
        Recompute.SELECTIVE: (("model.activations_checkpoint_granularity", "selective"),),
        Recompute.FULL: (
            ("model.activations_checkpoint_granularity", "full"),
            ("model.activations_checkpoint_method", "uniform"),
            ("model.activations_checkpoint_num_layers", "1"),
        ),
    },
    sharding={Sharding.ZERO1: (("model.optim.name", "distributed_fused_adam"),)},
    sequence_parallel=("model.sequence_parallel", "true"),
)
NEMO_2 = Names(
    style=Style.OVERRIDE,
    numbers={
        "tp": "trainer.strategy.tensor_model_parallel_size",
        "pp": "trainer.strategy.pipeline_model_parallel_size",
        "vpp": "trainer.strategy.virtual_pipeline_model_parallel_size",
        "cp": "trainer.strategy.context_parallel_size",
        "ep": "trainer.strategy.expert_model_parallel_size",
        "micro_batch": "data.micro_batch_size",
    },
    recompute={
        Recompute.NONE: (("model.config.recompute_granularity", "null"),),
        Recompute.SELECTIVE: (("model.config.recompute_granularity", "selective"),),
        Recompute.FULL: (
            ("model.config.recompute_granularity", "full"),
            ("model.config.recompute_method", "uniform"),
            ("model.config.recompute_num_layers", "1"),
        ),
    },
    sharding={Sharding.ZERO1: (("optim.config.use_distributed_optimizer", "true"),)},
    sequence_parallel=("trainer.strategy.sequence_parallel", "true"),
)
NANOTRON = Names(
    style=Style.FILE,
    numbers={
        "tp": "parallelism.tp",
        "pp": "parallelism.pp",
        "dp": "parallelism.dp",
        "ep": "parallelism.expert_parallel_size",
        "micro_batch": "tokens.micro_batch_size",
        "micro_batches": "tokens.batch_accumulation_per_replica",
    },
    recompute={
        Recompute.NONE: (("parallelism.recompute_layer", "false"),),
        Recompute.FULL: (("parallelism.recompute_layer", "true"),),
    },
    sharding={kind: (("optimizer.zero_stage", STAGES[kind]),) for kind in (Sharding.NONE, Sharding.ZERO1)},
    sequence_parallel=("parallelism.tp_mode", "REDUCE_SCATTER"),
    computes_batch=True,
)
PICOTRON = Names(
    style=Style.FILE,
    numbers={
        "tp": "distributed.tp_size",
        "pp": "distributed.pp_size",
        "cp": "distributed.cp_size",
        "dp": "distributed.dp_size",
        "micro_batch": "training.micro_batch_size",
        "micro_batches": "training.gradient_accumulation_steps",
    },
    computes_batch=True,
)
GPT_NEOX = Names(
    style=Style.FILE,
    numbers={
        "tp": "model_parallel_size",
        "pp": "pipe_parallel_size",
        "micro_batch": "train_micro_batch_size_per_gpu",
        "micro_batches": "gradient_accumulation_steps",
    },
    recompute={
        Recompute.NONE: (("checkpoint_activations", "false"),),
        Recompute.FULL: (("checkpoint_activations", "true"),),
    },
    sharding=_ZERO,
    sequence_parallel=("sequence_parallel", "true"),
    computes_batch=True,
)
COMPOSER = Names(
    style=Style.FILE,
    numbers={"micro_batch": "device_train_microbatch_size"},
    recompute={
        Recompute.NONE: (("fsdp_config.activation_checkpointing", "false"),),
        Recompute.FULL: (("fsdp_config.activation_checkpointing", "true"),),
    },
    sharding={
        Sharding.NONE: (("fsdp_config.sharding_strategy", "NO_SHARD"),),
        Sharding.ZERO2: (("fsdp_config.sharding_strategy", "SHARD_GRAD_OP"),),
        Sharding.ZERO3: (("fsdp_config.sharding_strategy", "FULL_SHARD"),),
    },
)
LLAMA_COOKBOOK = Names(
    style=Style.FLAG,
    numbers={"micro_batch": "batch_size_training", "micro_batches": "gradient_accumulation_steps"},
    recompute={
        Recompute.NONE: (("fsdp_config.fsdp_activation_checkpointing", "False"),),
        Recompute.FULL: (("fsdp_config.fsdp_activation_checkpointing", "True"),),
    },
    sharding={
        Sharding.NONE: (("fsdp_config.sharding_strategy", "NO_SHARD"),),
        Sharding.ZERO2: (("fsdp_config.sharding_strategy", "SHARD_GRAD_OP"),),
        Sharding.ZERO3: (("fsdp_config.sharding_strategy", "FULL_SHARD"),),
    },
    computes_batch=True,
)
FMS_FSDP = Names(
    style=Style.FLAG,
    numbers={"micro_batch": "batch_size"},
    recompute={
        Recompute.NONE: (("fsdp_activation_checkpointing", "False"),),
        Recompute.FULL: (("fsdp_activation_checkpointing", "True"), ("selective_checkpointing", "1")),
    },
    sharding={
        Sharding.NONE: (("sharding_strategy", "ddp"),),
        Sharding.ZERO3: (("sharding_strategy", "fsdp"),),
    },
)
TORCHTUNE = Names(
    style=Style.OVERRIDE,
    numbers={"micro_batch": "batch_size", "micro_batches": "gradient_accumulation_steps"},
    recompute={
        Recompute.NONE: (("enable_activation_checkpointing", "False"),),
        Recompute.FULL: (("enable_activation_checkpointing", "True"),),
    },
    computes_batch=True,
)
OLMO = Names(
    style=Style.FILE,
    numbers={"micro_batch": "device_train_microbatch_size"},
    recompute={
        Recompute.NONE: (("activation_checkpointing", "null"),),
        Recompute.FULL: (("activation_checkpointing", "whole_layer"),),
    },
    sharding={
        Sharding.NONE: (("fsdp.sharding_strategy", "NO_SHARD"),),
        Sharding.ZERO2: (("fsdp.sharding_strategy", "SHARD_GRAD_OP"),),
        Sharding.ZERO3: (("fsdp.sharding_strategy", "FULL_SHARD"),),
    },
)
DEEPSPEED = Names(
    style=Style.FILE,
    numbers={"micro_batch": "train_micro_batch_size_per_gpu", "micro_batches": "gradient_accumulation_steps"},
    sharding=_ZERO,
    sharding_file="the DeepSpeed configuration",
    computes_batch=True,
)
BIONEMO = Names(
    style=Style.FLAG,
    numbers={
        "tp": "tensor-model-parallel-size",
        "pp": "pipeline-model-parallel-size",
        "micro_batch": "micro-batch-size",
        "micro_batches": "accumulate-grad-batches",
    },
    computes_batch=True,
)
LITGPT = Names(style=Style.FLAG, numbers={"micro_batch": "train.micro_batch_size"})
NAMES: Mapping[str, Names] = MappingProxyType(
    {
        "hf-trainer": HF,
        "hf-trainer+deepspeed": HF_DEEPSPEED,
        "trl": HF,
        "accelerate": HF,
        "axolotl": AXOLOTL,
        "llama-factory": LLAMA_FACTORY,
        "nemo": NEMO_1,
        "nanotron": NANOTRON,
        "picotron": PICOTRON,
        "gpt-neox": GPT_NEOX,
        "composer": COMPOSER,
        "llama-cookbook": LLAMA_COOKBOOK,
        "fms-fsdp": FMS_FSDP,
        "torchtune": TORCHTUNE,
        "litgpt": LITGPT,
        "olmo": OLMO,
        "deepspeed": DEEPSPEED,
        "bionemo": BIONEMO,
    }
)
NO_NAMES = Names(style=Style.FLAG, numbers={})
