"""Lists the settings of OpenRLHF, which trains by reinforcement learning and on preferences, with DeepSpeed and vLLM.

Source: the argument parsers in ``openrlhf/cli/train_*.py`` of OpenRLHF 0.5 to 0.9 (``--zero_stage``) and of releases
of 2026, whose flags name a section (``--ds.zero_stage``). Each row has the names over the years, today's first.
"""

from __future__ import annotations

MODEL = ("actor.model_name_or_path", "model.model_name_or_path", "pretrain")
REWARD_MODEL, CRITIC_MODEL = (
    ("reward.model_name_or_path", "reward_pretrain"),
    (
        "critic.model_name_or_path",
        "critic_pretrain",
    ),
)
REMOTE_REWARD = ("reward.remote_url", "remote_rm_url", "train.agent_func_path", "agent_func_path")
"""A reward that a server or a function gives: no model is in memory for it."""
STAGE = ("ds.zero_stage", "zero_stage")
USUAL_STAGE = 2
MICRO = ("train.micro_batch_size", "micro_train_batch_size")
ROLLOUT_MICRO = ("rollout.micro_batch_size", "micro_rollout_batch_size")
LENGTH = ("data.max_len", "max_len")
PROMPT, ANSWER = (
    ("data.prompt_max_len", "prompt_max_len"),
    ("rollout.generate_max_len", "rollout.max_new_tokens", "generate_max_len"),
)
USUAL_LENGTH = 1024
"""Tokens of a prompt, and of an answer, unless told otherwise."""
DYNAMIC = ("train.dynamic_batch_enable", "use_dynamic_batch")
MAX_TOKENS, USUAL_TOKENS = ("train.max_tokens_per_gpu", "train_max_tokens_per_gpu"), 16192
ROLLOUT_TOKENS = ("rollout.max_tokens_per_gpu", "rollout_max_tokens_per_gpu")
RECOMPUTE = ("actor.gradient_checkpointing_enable", "model.gradient_checkpointing_enable", "gradient_checkpointing")
ADAM_OFFLOAD = ("ds.adam_offload", "adam_offload")
PACKING = ("ds.packing_samples", "packing_samples")
LIGER = ("ds.use_liger_kernel", "use_liger_kernel")
RANK, TARGETS, DROPOUT, FOUR_BITS = (
    ("ds.lora.rank", "lora_rank"),
    ("ds.lora.target_modules", "target_modules"),
    ("ds.lora.dropout", "lora_dropout"),
    ("ds.load_in_4bit", "load_in_4bit"),
)
TENSOR, RING = ("ds.tensor_parallel_size", "ds_tensor_parallel_size"), ("ds.ring_attn_size", "ring_attn_size")
FORMAT, BF16 = ("ds.param_dtype", "param_dtype"), ("bf16",)
NODES, GPUS = "num_nodes", "num_gpus_per_node"
"""Of each role, behind its name: ``--actor.num_nodes``, ``--actor_num_nodes``."""
COLOCATE_ALL = ("train.colocate_all", "colocate_all_models")
COLOCATE_REFERENCE = ("train.colocate_actor_ref", "colocate_actor_ref")
KL = ("algo.kl.init_coef", "init_kl_coef")
"""There is a reference unless it is 0 (0.01 by default)."""
ESTIMATOR = ("algo.advantage.estimator", "advantage_estimator")
NEEDS_CRITIC = "gae"
ENGINES = ("vllm.num_engines", "vllm_num_engines")
ENGINE_TP = ("vllm.tensor_parallel_size", "vllm_tensor_parallel_size")
MEMORY_SHARE, USUAL_SHARE = ("vllm.gpu_memory_utilization", "vllm_gpu_memory_utilization"), "0.95"
ENGINE_SLEEPS, EAGER = ("vllm.enable_sleep", "vllm_enable_sleep"), ("vllm.enforce_eager", "enforce_eager")
ACTOR_SLEEPS = ("ds.enable_sleep", "deepspeed_enable_sleep")
REFERENCE_OFFLOAD = ("ref.offload", "ref_offload", "ref_reward_offload")
REWARD_OFFLOAD = ("reward.offload", "ref_reward_offload")
