"""Lists the settings of ms-swift that are not the Trainer's.

Source: ``swift/arguments`` of ms-swift 3 and 4 (``train_type`` became ``tuner_type``); its examples name the memory
that they were measured with (``examples/train``).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

COMMANDS = frozenset({"sft", "pt", "rlhf"})
LOSS, USUAL_LOSS = "rlhf_type", "dpo"
TUNERS, USUAL_TUNER = ("tuner_type", "train_type", "sft_type"), "lora"
"""What is trained; adapters of rank 8 on all linear layers unless told otherwise."""
USUAL_RANK = "8"
LENGTHS = ("max_length",)
PRESETS: Mapping[str, str] = MappingProxyType(
    {
        **{f"zero{stage}": f"zero{stage}" for stage in (0, 1, 2, 3)},
        "zero0": "none",
        "zero2_offload": "zero2",
        "zero3_offload": "zero3",
    }
)
"""DeepSpeed configurations that it ships (swift/config), and what they shard."""
OFFLOADING = frozenset({"zero2_offload", "zero3_offload"})
USUAL_SHARE = "0.9"
"""Of an engine (``vllm_gpu_memory_utilization``)."""
