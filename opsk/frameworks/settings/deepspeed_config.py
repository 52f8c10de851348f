"""Lists the settings of DeepSpeed's configuration, and of GPT-NeoX, whose files hold them beside its own.

Sources: ``docs/_pages/config-json.md`` of DeepSpeed; ``configs/neox_arguments.md`` and
``megatron/neox_arguments/neox_args.py`` of GPT-NeoX 1 and 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from opsk.frameworks.settings.setting_names import SettingNames, Style, first_names
from opsk.workload.plan import Recompute, Sharding

STEPS = "gradient_accumulation_steps"
STAGE = "zero_optimization.stage"
STAGES: Mapping[Sharding, str] = MappingProxyType(
    {Sharding.NONE: "0", Sharding.ZERO1: "1", Sharding.ZERO2: "2", Sharding.ZERO3: "3"}
)
STAGE_WORDS: Mapping[str, object] = MappingProxyType({stage: kind.value for kind, stage in STAGES.items()})
"""The sharding that a stage states."""
ZERO = MappingProxyType({kind: ((STAGE, stage),) for kind, stage in STAGES.items()})
FILE = "the DeepSpeed configuration"
NUMBERS: Mapping[str, str] = MappingProxyType(
    {
        "train_micro_batch_size_per_gpu": "plan.micro_batch",
        "train_batch_size": "plan.global_batch",
        "tensor_parallel.autotp_size": "plan.tp",
        "sequence_parallel_size": "plan.cp",
    }
)
"""Numbers of the configuration, and the field that each states."""
MICRO_BATCH = first_names(NUMBERS, "micro_batch")["micro_batch"]
NAMES = SettingNames(
    style=Style.FILE,
    numbers={"micro_batch": MICRO_BATCH, "micro_batches": STEPS},
    sharding=ZERO,
    sharding_file=FILE,
    computes_batch=True,
)
NEOX_NUMBERS: Mapping[str, str] = MappingProxyType(
    {
        "num_layers": "model.layers",
        "hidden_size": "model.hidden",
        "num_attention_heads": "model.heads",
        "num_kv_heads": "model.kv_heads",
        "intermediate_size": "model.ffn",
        "seq_length": "model.seq",
        "padded_vocab_size": "model.vocab",
        "moe_top_k": "model.top_k",
        "model_parallel_size": "plan.tp",
        "context_parallel_size": "plan.cp",
        "moe_expert_parallel_size": "plan.ep",
        MICRO_BATCH: "plan.micro_batch",
        "train_batch_size": "plan.global_batch",
    }
)
"""Numbers of GPT-NeoX's files, and the field that each states; `NEOX_STAGES` may also be 0."""
NEOX_STAGES = "pipe_parallel_size"
NEOX_RECOMPUTE = "checkpoint_activations"
NEOX_SEQUENCE_PARALLEL = "sequence_parallel"
NEOX = SettingNames(
    style=Style.FILE,
    numbers={
        **first_names(NEOX_NUMBERS, "tp", "micro_batch"),
        "pp": NEOX_STAGES,
        "micro_batches": STEPS,
    },
    recompute={
        Recompute.NONE: ((NEOX_RECOMPUTE, "false"),),
        Recompute.FULL: ((NEOX_RECOMPUTE, "true"),),
    },
    sharding=ZERO,
    sequence_parallel=(NEOX_SEQUENCE_PARALLEL, "true"),
    computes_batch=True,
)
