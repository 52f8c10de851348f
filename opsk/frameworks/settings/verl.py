"""Lists the settings of verl, which trains by reinforcement learning with a hybrid engine.

Source: ``verl/trainer/config/_generated_ppo_trainer.yaml`` of verl 0.7 and ``ppo_trainer.yaml`` of 0.2 to 0.6, with
the same names; defaults are those of 0.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

ACTOR, REFERENCE, ROLLOUT, CRITIC, REWARD = (
    *("actor_rollout_ref.actor", "actor_rollout_ref.ref", "actor_rollout_ref.rollout"),
    *("critic", "reward_model"),
)
"""Sections, one for each role."""
MODEL = "actor_rollout_ref.model"
MODEL_PATH = "path"
ESTIMATOR = "algorithm.adv_estimator"
NEEDS_CRITIC = "gae"
"""The estimator of advantages with a value function, which is the default (``need_critic`` in trainer/ppo/utils.py)."""
KL = ("algorithm.use_kl_in_reward", f"{ACTOR}.use_kl_loss")
"""There is a reference where one of these is on (``need_reference_policy``); both are off by default."""
PROMPT, ANSWER = ("data.max_prompt_length", 512), ("data.max_response_length", 512)
"""Lengths and their defaults [tokens]."""
NODES, GPUS_PER_NODE = "trainer.nnodes", "trainer.n_gpus_per_node"
MICRO, MICRO_OF_ALL, MINI = "ppo_micro_batch_size_per_gpu", "ppo_micro_batch_size", "ppo_mini_batch_size"
"""Sequences of a micro-batch on a GPU, on all (old), and samples of an update."""
DYNAMIC, MAX_TOKENS = "use_dynamic_bsz", ("ppo_max_token_len_per_gpu", 16384)
LOG_PROBS, LOG_PROB_TOKENS = "log_prob_micro_batch_size_per_gpu", "log_prob_max_token_len_per_gpu"
SEQUENCE_SPLIT = "ulysses_sequence_parallel_size"
SHARD_GPUS = "fsdp_config.fsdp_size"
FORMAT = "fsdp_config.model_dtype"
WEIGHTS_REST, OPTIMIZER_REST = "fsdp_config.param_offload", "fsdp_config.optimizer_offload"
CPU_OFFLOAD = "fsdp_config.offload_policy"
STRATEGY, SHARDED_BY_FSDP = "strategy", ("fsdp", "fsdp2")
RECOMPUTE = "enable_gradient_checkpointing"
RANK, TARGETS = "lora_rank", "target_modules"
FUSED_LOSS, PADDING_FREE = ("use_fused_kernels", "use_liger"), "use_remove_padding"
ENTROPY = "entropy_coeff"
ENGINE, MEMORY_SHARE, ENGINE_TP = "name", ("gpu_memory_utilization", "0.5"), ("tensor_model_parallel_size", 2)
SLEEPS, EAGER, MODE = "free_cache_engine", "enforce_eager", "mode"
"""The engine frees its memory between uses unless told otherwise."""
MEGATRON_AXES: Mapping[str, str] = MappingProxyType(
    {
        "tensor_model_parallel_size": "plan.tp",
        "pipeline_model_parallel_size": "plan.pp",
        "virtual_pipeline_model_parallel_size": "plan.vpp",
        "context_parallel_size": "plan.cp",
        "expert_model_parallel_size": "plan.ep",
    }
)
"""Settings of the section ``megatron`` of a role; all of them are 1 by default, and virtual stages are off."""
MEGATRON, MEGATRON_SEQUENCE, EXPERT_TP = "megatron", "sequence_parallel", "expert_tensor_parallel_size"
"""The section, and its settings for splitting norms, which is on, and for TP inside of experts: that of all layers."""
MEGATRON_WEIGHTS_REST, MEGATRON_OPTIMIZER_REST = f"{MEGATRON}.param_offload", f"{MEGATRON}.optimizer_offload"
"""Weights take their gradients with them (``offload_megatron_model_to_cpu`` in verl/utils/megatron_utils.py)."""
MEGATRON_RECOMPUTE = f"{MEGATRON}.override_transformer_config.recompute_granularity"
MEGATRON_OPTIMIZER = f"{MEGATRON}.use_distributed_optimizer"
MEGATRON_LORA = f"{MODEL}.lora.rank"
DEFAULT_CONFIGS = ("ppo_trainer", "ppo_trainer.yaml")
MEGATRON_CONFIGS = ("ppo_megatron_trainer", "ppo_megatron_trainer.yaml")
