"""Lists torchtitan's settings with the names that they had in former releases.

Source: ``torchtitan/config_manager.py``, ``config/job_config.py`` and ``train_configs`` (2024 to January 2026).
Sections and names moved from release to release (``[training]`` to ``[parallelism]``, ``batch_size`` to
``local_batch_size``), and torchtitan refuses a flag of another release. The first name of a setting is that of 0.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

NUMBERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "plan.tp": ("parallelism.tensor_parallel_degree", "training.tensor_parallel_degree"),
        "plan.pp": (
            *("parallelism.pipeline_parallel_degree", "experimental.pipeline_parallel_degree"),
            "training.pipeline_parallel_degree",
        ),
        "plan.cp": ("parallelism.context_parallel_degree", "experimental.context_parallel_degree"),
        "plan.ep": ("parallelism.expert_parallel_degree", "experimental.expert_parallel_degree"),
        "model.seq": ("training.seq_len",),
    }
)
"""Names of the number that states a field."""
LOCAL_BATCH = ("training.local_batch_size", "training.batch_size")
RESHARDS = "parallelism.fsdp_reshard_after_forward"
"""Whether weights are gathered anew for the backward: ZeRO-3 where they are, ZeRO-2 where not."""
GLOBAL_BATCH = "training.global_batch_size"
SHARDS = (
    *("parallelism.data_parallel_shard_degree", "training.data_parallel_shard_degree"),
    "training.data_parallel_degree",
)
COPIES = ("parallelism.data_parallel_replicate_degree", "training.data_parallel_replicate_degree")
SCHEDULE = ("parallelism.pipeline_parallel_schedule", "experimental.pipeline_parallel_schedule")
FORMER_NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {names[0]: names[1:] for names in (*NUMBERS.values(), LOCAL_BATCH, SHARDS, COPIES, SCHEDULE)}
)
"""The former names of a setting, which a job may use."""
PLAN_SECTIONS = ("parallelism", "training", "activation_checkpoint")
"""Sections that hold the settings of a plan."""
