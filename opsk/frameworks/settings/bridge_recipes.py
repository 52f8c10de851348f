"""Names the performance recipes of Megatron-Bridge, which reduce and keep gradients in 16 bits.

Source: ``src/megatron/bridge/perf_recipes`` of Megatron-Bridge (August 2026): ``_benchmark_common`` and
``_perf_precision`` set ``grad_reduce_in_fp32 = False`` in all of its 433 recipes. The library's own recipes have names
of the same form, and most of them keep fp32 gradients; where both have a name, the performance recipe runs
(``scripts/training/recipe_metadata.py``).
"""

from __future__ import annotations

import re

from opsk.workload.plan import Precision

_NAME = re.compile(
    r"(?P<model>[a-z0-9_]+)_(?P<task>pretrain|sft|peft)_(?P<gpus>[0-9]{1,5})gpu_(?P<gpu>[a-z]+[0-9]+)_"
    r"(?P<format>bf16|fp8cs|fp8ds|fp8mx|fp8sc|nvfp4)(?:_[a-z0-9_]+)?_config"
)
_MODELS = frozenset(
    {
        *("deepseek_v3", "gpt_oss_120b", "kimi_k2", "llama31_405b", "llama3_70b", "llama3_8b", "nemotronh_56b"),
        *("nemotron_3_5_lightning", "nemotron_3_nano", "nemotron_3_super", "nemotron_3_ultra", "qwen3_235b_a22b"),
        *("qwen3_30b_a3b", "qwen3_next_80b_a3b", "qwen3_vl_235b_a22b", "qwen3_vl_30b_a3b", "qwen35_vl_122b_a10b"),
        *("qwen35_vl_35b_a3b", "qwen35_vl_397b_a17b"),
    }
)
"""Models whose recipes for FP8, FP4, or other GPUs than H100 are performance recipes."""
_ON_H100_IN_BF16 = frozenset(
    {
        *("deepseek_v3_pretrain_1024", "deepseek_v3_pretrain_64", "glm51_sft_416", "glm52_sft_416"),
        *("gpt_oss_120b_pretrain_64", "kimi_k2_pretrain_1024", "llama31_405b_pretrain_1024"),
        *("llama31_405b_pretrain_512", "llama3_70b_peft_8", "llama3_70b_pretrain_64", "llama3_70b_sft_32"),
        *("llama3_8b_pretrain_8", "llama3_8b_sft_8", "nemotron_3_5_lightning_pretrain_16"),
        *("nemotron_3_nano_pretrain_16", "nemotron_3_super_pretrain_64", "qwen35_vl_122b_a10b_pretrain_128"),
        *("qwen35_vl_397b_a17b_pretrain_256", "qwen3_235b_a22b_pretrain_256", "qwen3_30b_a3b_pretrain_16"),
        *("qwen3_30b_a3b_pretrain_32", "qwen3_30b_a3b_pretrain_64", "qwen3_next_80b_a3b_pretrain_128"),
        *("qwen3_vl_30b_a3b_pretrain_16", "wan_14b_pretrain_32"),
    }
)
"""Model, task and GPUs of the performance recipes for H100 in bf16, where the library's own recipes are, too."""
_OF_THE_LIBRARY = re.compile(r"_(functional|mock)_config$|^llama3_8b_pretrain_2gpu_")
_BOTH = frozenset({"llama3_8b_pretrain_64", "qwen3_vl_235b_a22b_pretrain_256", "qwen35_vl_35b_a3b_pretrain_16"})
"""The same, where the library adds a word to the name for a recipe of its own."""


_PRECISIONS = {
    **{"bf16": Precision.BF16, "fp8cs": Precision.FP8_CURRENT, "fp8ds": Precision.FP8, "fp8mx": Precision.MXFP8},
    **{"fp8sc": Precision.FP8_BLOCK, "nvfp4": Precision.NVFP4},
}
"""Number formats by the word in a recipe's name; sc is for sub-channel scaling."""


def performance_precision(name: str) -> Precision | None:
    """Return the number format of a recipe that is certainly a performance recipe; ``None`` for any other name.

    20 of the 433 are not recognised: those of gpt-oss-20b and DeepSeek-V4, and some for GB200.
    """
    match = _NAME.fullmatch(name)
    if match is None or _OF_THE_LIBRARY.search(name):
        return None
    if match["gpu"] != "h100" or match["format"] != "bf16":
        is_known = match["model"] in _MODELS
    else:
        stem = f"{match['model']}_{match['task']}_{match['gpus']}"
        is_known = stem in _ON_H100_IN_BF16 or (stem in _BOTH and name.endswith("_bf16_config"))
    return _PRECISIONS[match["format"]] if is_known else None
