"""Defines the modules of a layer that can be recomputed, or offloaded to host memory, by Megatron Core's names.

Source: ``recompute_modules`` and ``offload_modules`` of ``megatron/core/transformer/transformer_config.py`` (0.20).
"""

from __future__ import annotations

from enum import StrEnum


class RecomputeModule(StrEnum):
    """A module that selective recomputation discards and recomputes (``--recompute-modules``)."""

    CORE_ATTN = "core_attn"
    MLP = "mlp"
    LAYERNORM = "layernorm"
    MOE_ACT = "moe_act"
    MOE = "moe"
    MLA_UP_PROJ = "mla_up_proj"
    SHARED_EXPERTS = "shared_experts"


class OffloadModule(StrEnum):
    """A module whose stored activations are offloaded to host memory (``--offload-modules``)."""

    ATTN_NORM = "attn_norm"
    QKV_LINEAR = "qkv_linear"
    CORE_ATTN = "core_attn"
    ATTN_PROJ = "attn_proj"
    MLP_NORM = "mlp_norm"
    EXPERT_FC1 = "expert_fc1"
    MOE_ACT = "moe_act"
    FUSED_GROUP_MLP = "fused_group_mlp"


def sorted_words(kind: type[StrEnum], text: str) -> tuple[str, tuple[str, ...]]:
    """Return the known words of a list once each, in the order of ``kind``, and the unknown ones.

    Blanks, commas, brackets and quotes separate words, as in command lines, YAML and tables.
    """
    words = text.translate(_SEPARATORS).split()
    names = [member.value for member in kind]
    known = " ".join(name for name in names if name in words)
    return known, tuple(word for word in words if word not in names)


_SEPARATORS = str.maketrans(dict.fromkeys(",;+[]()'\"", " "))
