"""Lists the settings of nanotron and picotron.

Sources: ``nanotron/config/{config,models_config,parallelism_config}.py`` of nanotron 0.4; picotron's
``create_config.py`` and ``template/base_config.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from opsk.frameworks.settings.deepspeed_config import STAGES
from opsk.frameworks.settings.setting_names import SettingNames, Style, first_names
from opsk.workload.plan import Recompute, Sharding

NUMBERS: Mapping[str, str] = MappingProxyType(
    {
        "parallelism.tp": "plan.tp",
        "parallelism.pp": "plan.pp",
        "parallelism.dp": "plan.dp",
        "parallelism.context_parallel_size": "plan.cp",
        "parallelism.expert_parallel_size": "plan.ep",
        "tokens.micro_batch_size": "plan.micro_batch",
        "tokens.sequence_length": "model.seq",
        "model.model_config.hidden_size": "model.hidden",
        "model.model_config.num_hidden_layers": "model.layers",
        "model.model_config.num_attention_heads": "model.heads",
        "model.model_config.num_kv_heads": "model.kv_heads",
        "model.model_config.num_key_value_heads": "model.kv_heads",
        "model.model_config.intermediate_size": "model.ffn",
        "model.model_config.vocab_size": "model.vocab",
        "model.model_config.moe_config.num_experts": "model.experts",
        "model.model_config.moe_config.top_k": "model.top_k",
        "model.model_config.moe_config.moe_intermediate_size": "model.expert_ffn",
        "model.model_config.moe_num_experts": "model.experts",
        "model.model_config.num_experts_per_tok": "model.top_k",
    }
)
"""Numbers of nanotron, and the field that each states."""
STEPS = "tokens.batch_accumulation_per_replica"
RECOMPUTE = "parallelism.recompute_layer"
STAGE = "optimizer.zero_stage"
TP_MODE = "parallelism.tp_mode"
"""``REDUCE_SCATTER`` splits the sequence, ``ALL_REDUCE`` does not."""
NAMES = SettingNames(
    style=Style.FILE,
    numbers={**first_names(NUMBERS, "tp", "pp", "dp", "ep", "micro_batch"), "micro_batches": STEPS},
    recompute={Recompute.NONE: ((RECOMPUTE, "false"),), Recompute.FULL: ((RECOMPUTE, "true"),)},
    sharding={kind: ((STAGE, STAGES[kind]),) for kind in (Sharding.NONE, Sharding.ZERO1)},
    sequence_parallel=(TP_MODE, "REDUCE_SCATTER"),
    computes_batch=True,
)
PICOTRON_NUMBERS: Mapping[str, str] = MappingProxyType(
    {
        "distributed.tp_size": "plan.tp",
        "distributed.pp_size": "plan.pp",
        "distributed.cp_size": "plan.cp",
        "distributed.dp_size": "plan.dp",
        "model.num_hidden_layers": "model.layers",
        "model.num_attention_heads": "model.heads",
        "model.num_key_value_heads": "model.kv_heads",
        "training.seq_length": "model.seq",
        "training.micro_batch_size": "plan.micro_batch",
    }
)
"""Numbers of picotron, and the field that each states."""
PICOTRON_STEPS = "training.gradient_accumulation_steps"
PICOTRON = SettingNames(
    style=Style.FILE,
    numbers={**first_names(PICOTRON_NUMBERS, "tp", "pp", "cp", "dp", "micro_batch"), "micro_batches": PICOTRON_STEPS},
    computes_batch=True,
)
