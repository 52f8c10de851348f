"""Lists the settings with which TRL, LLaMA-Factory and ms-swift train on preferences and with GRPO.

Source: ``trl/trainer/{dpo,kto,grpo,rloo,reward}_config.py`` and ``trl/experimental/{orpo,cpo}`` of TRL 0.12 to 1.0,
``RLHFArguments`` of LLaMA-Factory 0.9 (``pref_loss``), ``swift/arguments/rlhf_args.py`` and
``swift/rlhf_trainers/arguments.py`` of ms-swift 3 and 4. LLaMA-Factory and ms-swift take TRL's names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What a loss on preferences needs.

    Parameters
    ----------
    sequences
        Sequences that are trained for each sample: a chosen and a rejected one.
    has_reference
        Whether it compares with a frozen copy of the model.
    has_scores
        Whether the model has a head of one number.
    """

    sequences: int = 1
    has_reference: bool = False
    has_scores: bool = False


PAIRED = Loss(sequences=2, has_reference=True)
LOSSES: Mapping[str, Loss] = MappingProxyType(
    {
        "dpo": PAIRED,
        "kto": Loss(has_reference=True),
        "orpo": Loss(sequences=2),
        "cpo": Loss(sequences=2),
        "simpo": Loss(sequences=2),
        "reward": Loss(sequences=2, has_scores=True),
        "rm": Loss(sequences=2, has_scores=True),
    }
)
"""Losses by trainer: Rafailov et al. 2023 (DPO), Ethayarajh et al. 2024 (KTO), Hong et al. 2024 (ORPO)."""
GENERATING = ("grpo", "rloo")
WITHOUT_REFERENCE = frozenset({"orpo", "simpo"})
"""LLaMA-Factory's ``pref_loss`` that need none."""
PRECOMPUTED = ("precompute_ref_log_probs",)
BETA = ("beta",)
"""The weight of the reference in GRPO: there is none where it is 0, as it is by default since TRL 0.19."""
PROMPT, USUAL_PROMPT = ("max_prompt_length",), 512
ANSWER, USUAL_ANSWER = ("max_completion_length", "response_length"), 512
USE_VLLM, MODE, SHARE, TENSOR, SLEEPS, LENGTH = (
    *(("use_vllm",), ("vllm_mode",), ("vllm_gpu_memory_utilization",), ("vllm_tensor_parallel_size",)),
    *(("vllm_enable_sleep_mode", "sleep_level"), ("vllm_max_model_length", "vllm_max_model_len")),
)
USUAL_SHARE = "0.3"
"""TRL's share of an engine on the GPUs that train, where none is given."""
SERVER = "server"
"""The mode of vLLM in which another command has the engine."""
EAGER = ("vllm_enforce_eager",)
REST_WEIGHTS, REST_OPTIMIZER = ("offload_model",), ("offload_optimizer",)
"""ms-swift moves both to host memory while it generates."""
