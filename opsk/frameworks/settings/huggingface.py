"""Lists the settings of HuggingFace's Trainer, and of axolotl and LLaMA-Factory, which pass them on.

Source: ``training_args.py`` of transformers 4.57, whose names TRL, LLaMA-Factory and axolotl take.
"""

from __future__ import annotations

from dataclasses import replace

from opsk.frameworks.settings import deepspeed_config
from opsk.frameworks.settings.setting_names import SettingNames, Style
from opsk.workload.plan import Recompute, Sharding

MICRO = ("per_device_train_batch_size", "per_gpu_train_batch_size")
"""The micro-batch; the first name is today's."""
STEPS = "gradient_accumulation_steps"
RECOMPUTE = "gradient_checkpointing"
FSDP = "fsdp"
TRAINER = SettingNames(
    style=Style.FLAG,
    numbers={"micro_batch": MICRO[0], "micro_batches": STEPS},
    recompute={
        Recompute.FULL: ((RECOMPUTE, "true"),),
        Recompute.NONE: ((RECOMPUTE, "false"),),
    },
    sharding={
        Sharding.ZERO2: ((FSDP, "'shard_grad_op auto_wrap'"),),
        Sharding.ZERO3: ((FSDP, "'full_shard auto_wrap'"),),
    },
    computes_batch=True,
)
ON_DEEPSPEED = replace(TRAINER, sharding=deepspeed_config.ZERO, sharding_file=deepspeed_config.FILE)
"""The Trainer on DeepSpeed's engine."""
AXOLOTL_MICRO = "micro_batch_size"
AXOLOTL = replace(ON_DEEPSPEED, style=Style.FILE, numbers={"micro_batch": AXOLOTL_MICRO, "micro_batches": STEPS})
FACTORY_NO_RECOMPUTE = "disable_gradient_checkpointing"
LLAMA_FACTORY = replace(
    ON_DEEPSPEED,
    style=Style.FILE,
    recompute={
        Recompute.FULL: ((FACTORY_NO_RECOMPUTE, "false"),),
        Recompute.NONE: ((FACTORY_NO_RECOMPUTE, "true"),),
    },
)
