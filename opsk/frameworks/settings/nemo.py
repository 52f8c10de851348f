"""Lists the settings of NVIDIA NeMo 1 (Hydra) and NeMo 2 (recipes).

Sources: NeMo's ``examples/nlp/language_modeling/conf/megatron_gpt_config.yaml`` (1.x) and
``nemo/lightning/pytorch/strategies/megatron_strategy.py`` (2.x).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from opsk.frameworks.settings.megatron_flags import CORE_CONFIG, END_STAGES, SECTIONS
from opsk.frameworks.settings.setting_names import SettingNames, Style, first_names
from opsk.workload.plan import Recompute, Sharding

_WRITTEN = ("tp", "pp", "vpp", "cp", "ep", "micro_batch")
NUMBERS: Mapping[str, str] = MappingProxyType(
    {
        **{f"model.{name}": field for name, field in CORE_CONFIG.items()},
        "model.encoder_seq_length": "model.seq",
        "model.micro_batch_size": "plan.micro_batch",
        "model.global_batch_size": "plan.global_batch",
    }
)
"""Numbers of NeMo 1, and the field that each states."""
RECOMPUTE = "model.activations_checkpoint_granularity"
RECOMPUTE_METHOD = "model.activations_checkpoint_method"
RECOMPUTE_LAYERS = "model.activations_checkpoint_num_layers"
OPTIMIZER = "model.optim.name"
SHARDED = ("distributed_fused_adam", "mcore_distributed_optim")
"""Optimizers whose states are sharded; the first is written."""
END_STAGE_OPTIONS: Mapping[str, str] = MappingProxyType(
    {f"{section}.{name}": option for section in SECTIONS for name, option in END_STAGES.items()}
)
"""Keys of NeMo 1 and 2 that lay out the first and the last stage, and the option that each becomes."""
SEQUENCE_PARALLEL = "model.sequence_parallel"
NAMES = SettingNames(
    style=Style.OVERRIDE,
    numbers=first_names(NUMBERS, *_WRITTEN),
    recompute={
        Recompute.NONE: ((RECOMPUTE, "null"),),
        Recompute.SELECTIVE: ((RECOMPUTE, "selective"),),
        Recompute.FULL: ((RECOMPUTE, "full"), (RECOMPUTE_METHOD, "uniform"), (RECOMPUTE_LAYERS, "1")),
    },
    sharding={Sharding.ZERO1: ((OPTIMIZER, SHARDED[0]),)},
    sequence_parallel=(SEQUENCE_PARALLEL, "true"),
)
NUMBERS_2: Mapping[str, str] = MappingProxyType(
    {
        "trainer.strategy.tensor_model_parallel_size": "plan.tp",
        "trainer.strategy.pipeline_model_parallel_size": "plan.pp",
        "trainer.strategy.virtual_pipeline_model_parallel_size": "plan.vpp",
        "trainer.strategy.context_parallel_size": "plan.cp",
        "trainer.strategy.expert_model_parallel_size": "plan.ep",
        "data.micro_batch_size": "plan.micro_batch",
        "data.global_batch_size": "plan.global_batch",
        "data.seq_length": "model.seq",
        "model.config.num_layers": "model.layers",
        "model.config.hidden_size": "model.hidden",
        "model.config.ffn_hidden_size": "model.ffn",
        "model.config.num_attention_heads": "model.heads",
        "model.config.num_query_groups": "model.kv_heads",
        "model.config.seq_length": "model.seq",
    }
)
"""Numbers of NeMo 2, and the field that each states."""
SEQUENCE_PARALLEL_2 = "trainer.strategy.sequence_parallel"
NAMES_2 = SettingNames(
    style=Style.OVERRIDE,
    numbers=first_names(NUMBERS_2, *_WRITTEN),
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
    sequence_parallel=(SEQUENCE_PARALLEL_2, "true"),
)
