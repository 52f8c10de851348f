"""Who dispatches tokens to experts, and how do their products run, by the options of a Megatron script?

Source: ``megatron/training/arguments.py`` and ``megatron/core/transformer/transformer_config.py`` of Megatron-LM (2024
to August 2026): the dispatcher is ``allgather`` unless ``--moe-token-dispatcher-type`` says otherwise, ``flex`` is
DeepEP unless ``--moe-flex-dispatcher-backend`` says ``hybridep``, and without ``--moe-grouped-gemm`` experts run one
after the other. Megatron-Bridge's recipes choose the all-to-all and grouped products.
"""

from __future__ import annotations

import math

from opsk.workload.defaults import MEGATRON_BRIDGE, MEGATRON_LM, Filling
from opsk.workload.plan import MoeDispatcher, MoeGemm

_MOST_CAPACITY = 1000.0


def fill_experts(filling: Filling) -> None:
    """Fill in dispatcher, products, permutation, overlap and capacity of a model with experts."""
    framework = filling.workload.framework
    if not filling.get("model.experts") or framework not in (MEGATRON_LM, MEGATRON_BRIDGE):
        return
    is_recipe = framework == MEGATRON_BRIDGE
    dispatcher = _dispatcher(filling, is_recipe=is_recipe)
    filling.values["plan.moe_dispatcher"] = dispatcher
    filling.values["plan.moe_gemm"] = _gemm(filling, is_recipe=is_recipe)
    filling.values["plan.moe_permute_fusion"] = _is_on(filling, "moe.permute_fusion", otherwise=is_recipe)
    filling.values["plan.ep_overlap"] = _is_on(filling, "overlap.ep", otherwise=False)
    capacity = _capacity(filling.options.get("moe.capacity_factor", ""))
    if capacity and _is_on(filling, "moe.pads", otherwise=False):
        filling.values["model.capacity_factor"] = capacity


def _dispatcher(filling: Filling, *, is_recipe: bool) -> MoeDispatcher:
    """Return who dispatches tokens."""
    said = filling.options.get("moe.dispatcher", "")
    backend = filling.options.get("moe.flex_backend", "")
    if said == "flex" or (is_recipe and backend):
        return MoeDispatcher.HYBRIDEP if backend == "hybridep" else MoeDispatcher.DEEPEP
    if said in ("alltoall", "alltoall_seq"):
        return MoeDispatcher.ALLTOALL
    return MoeDispatcher.ALLTOALL if is_recipe and not said else MoeDispatcher.ALLGATHER


def _gemm(filling: Filling, *, is_recipe: bool) -> MoeGemm:
    """Return how the products of experts run."""
    is_grouped = _is_on(filling, "moe.grouped_gemm", otherwise=is_recipe)
    return MoeGemm.GROUPED if is_grouped else MoeGemm.SEQUENTIAL


def _is_on(filling: Filling, option: str, *, otherwise: bool) -> bool:
    """Return whether an option is switched on."""
    said = filling.options.get(option, "").lower()
    return otherwise if said not in ("true", "false") else said == "true"


def _capacity(text: str) -> float:
    """Return a capacity factor, 0 where it is none."""
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if math.isfinite(value) and 0 < value <= _MOST_CAPACITY else 0.0
