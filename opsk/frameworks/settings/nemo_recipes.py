"""Lists what NeMo 2's recipes for pre-training set: the plan, the batch and the length of a sequence.

Source: ``pretrain_recipe`` and ``trainer`` in ``nemo/collections/llm/recipes`` of NeMo 2.0 to 2.5. A value that changed
between these releases is left out, and so are recipes whose model has no public name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What a recipe sets: the public name of its ``model``, and ``values`` by dotted field."""

    model: str
    values: Mapping[str, object] = field(default_factory=dict)


EVERY: Mapping[str, object] = MappingProxyType(
    {"plan.precision": "bf16", "plan.sharding": "zero1", "plan.recompute": "none"}
)
"""What all of them set: ``bf16_mixed``, Adam with sharded states; nothing is recomputed unless it is asked for."""
_BATCHES = {"large": (512, 1), "small": (32, 2)}
"""Global batch and micro-batch."""


def _recipe(model: str, seq: int, batch: str, **plan: int) -> Recipe:
    """Return a recipe; axes that are left out are 1, and ``sp`` off; 0 for an axis, -1 for ``sp``, are not known."""
    whole, micro = _BATCHES[batch]
    sizes = {name: plan.get(name, 1) for name in ("tp", "pp", "cp", "vpp")}
    axes: dict[str, object] = {f"plan.{name}": size for name, size in sizes.items() if size}
    if "ep" in plan:
        axes["plan.ep"] = plan["ep"]
    if plan.get("sp", 0) >= 0:
        axes["plan.sequence_parallel"] = bool(plan.get("sp", 0))
    return Recipe(model=model, values={**axes, "model.seq": seq, "plan.global_batch": whole, "plan.micro_batch": micro})


_LLAMA_70B = {"tp": 4, "pp": 4, "vpp": 5, "cp": 2, "sp": 1}
_MIXTRAL_7B = {"pp": 4, "vpp": 8, "ep": 8}
RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "llama2_7b": _recipe("llama2_7b", 4096, "large", tp=2),
        "llama3_8b": _recipe("llama3_8b", 8192, "large", cp=2),
        "llama31_8b": _recipe("llama31_8b", 8192, "large", cp=2),
        "llama32_1b": _recipe("llama32_1b", 8192, "large"),
        "llama32_3b": _recipe("llama32_3b", 8192, "large"),
        "llama3_70b": _recipe("llama3_70b", 8192, "large", **_LLAMA_70B),
        "llama31_70b": _recipe("llama31_70b", 8192, "large", **_LLAMA_70B),
        # 9 stages in 2.0, 8 since 2.2
        "llama31_405b": _recipe("llama31_405b", 8192, "large", tp=8, pp=0, vpp=2, cp=4, sp=1),
        "mistral_7b": _recipe("mistral_7b", 4096, "large", cp=2),
        "mixtral_8x7b": _recipe("mixtral_8x7b", 4096, "large", **_MIXTRAL_7B),
        "mixtral_8x22b": _recipe("mixtral_8x22b", 4096, "large", tp=2, pp=4, vpp=14, cp=2, ep=8, sp=1),
        "gemma_2b": _recipe("gemma_2b", 8192, "large", cp=2),
        "gemma2_9b": _recipe("gemma2_9b", 4096, "small", tp=8),
        "gemma2_27b": _recipe("gemma2_27b", 4096, "small", tp=8, pp=2),
        "nemotron3_8b": _recipe("nemotron3_8b", 4096, "small", tp=2),
        "nemotron4_15b": _recipe("nemotron4_15b", 4096, "small", tp=4, sp=-1),
        "phi3_mini_4k_instruct": _recipe("phi3_mini_4k_instruct", 4096, "large"),
        "qwen2_7b": _recipe("qwen2_7b", 4096, "small", tp=2),
        "qwen2_72b": _recipe("qwen2_72b", 4096, "small", tp=8, pp=4),
        "qwen25_7b": _recipe("Qwen/Qwen2.5-7B", 4096, "small", tp=2),
        "qwen25_14b": _recipe("Qwen/Qwen2.5-14B", 4096, "small", tp=4),
        "qwen25_32b": _recipe("Qwen/Qwen2.5-32B", 4096, "small", tp=8, pp=2),
        "qwen25_72b": _recipe("Qwen/Qwen2.5-72B", 4096, "small", tp=8, pp=4),
        "qwen3_4b": _recipe("Qwen/Qwen3-4B", 4096, "small", tp=2),
        "qwen3_8b": _recipe("Qwen/Qwen3-8B", 4096, "small", tp=4),
        "qwen3_14b": _recipe("Qwen/Qwen3-14B", 4096, "small", tp=8),
        "starcoder2_7b": _recipe("starcoder2_7b", 4096, "small", tp=2),
    }
)
"""Recipes by the name of their module, which is also that of their factory."""
