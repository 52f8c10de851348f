"""Looks up the default settings of training software in the rules of ``software_defaults.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from opsk.workload.plan import Attention, Software

_NAMED = {
    "auto": Attention.AUTO,
    "aiter": Attention.AITER,
    "flash1": Attention.FLASH1,
    "xformers": Attention.FLASH1,
    "flash2": Attention.FLASH2,
    "flash3": Attention.FLASH3,
    "flash4": Attention.FLASH4,
    "cudnn": Attention.CUDNN,
    "triton": Attention.TRITON,
    "flex": Attention.TRITON,
}
_FLASH2_SINCE = "2023-08"
"""FlashAttention-2 is of July 2023 (arXiv 2307.08691)."""
_SDPA_FLASH2_SINCE = "2024-02"
"""PyTorch 2.2 added it to scaled_dot_product_attention."""
_SDPA_CUDNN_SINCE = "2026-04"
"""PyTorch 2.11 ships a cuDNN that it prefers (pytorch pull requests 162073, 171627)."""
_TE_CUDNN_SINCE = {"hopper": "2024-01"}
"""Transformer Engine uses cuDNN on Hopper since 1.2 (December 2023), on later generations always."""
_LATER = ("blackwell", "blackwell-ultra", "blackwell-rtx")
SETTINGS = (
    *("family", "attention_kernel", "flash", "layer_kernels", "compiled", "states", "loss_kernel", "sharding"),
    *("sequence_parallel", "tp_comm_overlap", "tp_async", "ep_comm_overlap", "optimizer_step", "cuda_graphs"),
    *("moe_dispatcher", "moe_gemm", "moe_permute_fusion", "fused_moe", "natural_routing"),
    *("compiled_loss", "chunked_loss", "recompute", "quantised_recompute", "stage_balance"),
    *("micro_batch", "pretrain_micro_batch"),
    *("lora_targets", "adapter_format", "upcast_base", "reentrant", "keeps_gathered", "reduces_16bit", "fused_norms"),
    *("expandable_segments", "quantised_head", "lora_dropout", "keeps_base_inputs", "qkv_layout", "memory_definition"),
    *("lora_rank", "gathers_fp32", "keeps_kv_cache", "accumulates_unsharded", "flat_adapters"),
    *("gathers_logits", "bare_loop", "distributed_tensors"),
    *("tuning_batch", "splits_model", "pretrain_recompute"),
)
LATEST_MONTH = "9999-12"
"""A month after the last change of any framework."""
_MATCHES = ("software", "gpu", "sharded", "since", "until", "why")
_ANY = "*"


def find_kernel(name: str, *, generation: str, month: str) -> Attention:
    """Return the kernel that a name selects.

    Parameters
    ----------
    name
        As in the column ``attention_kernel`` of a table of runs: ``flash`` is FlashAttention of any version, ``te``
        what Transformer Engine chooses, ``sdpa`` what PyTorch chooses.
    generation
        Chip generation as in the hardware catalogue.
    month
        When it ran, ``YYYY-MM``.
    """
    if name in _NAMED:
        return _NAMED[name]
    if generation.startswith("cdna"):
        return Attention.TRITON if name == "sdpa" else Attention.AITER
    if name == "te":
        takes_cudnn = generation in _LATER or month >= _TE_CUDNN_SINCE.get(generation, "9999")
        return Attention.CUDNN if takes_cudnn else find_kernel("flash", generation=generation, month=month)
    if name == "sdpa" and generation in ("hopper", *_LATER) and month >= _SDPA_CUDNN_SINCE:
        return Attention.CUDNN
    since = _SDPA_FLASH2_SINCE if name == "sdpa" else _FLASH2_SINCE
    return Attention.FLASH2 if month >= since else Attention.FLASH1


@dataclass(frozen=True, slots=True, kw_only=True)
class Default:
    """A default value, and why."""

    value: Any
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Settings of some software on some chip generations from a month on, until before another; empty is any.

    ``sharded`` restricts the rule to sharded states, or to unsharded ones; ``None`` is both.
    """

    software: frozenset[str]
    gpu: frozenset[str]
    sharded: bool | None
    since: str
    until: str
    why: str
    settings: Mapping[str, Any]

    def fits(self, software: str, gpu: str, month: str, *, sharded: bool) -> bool:
        """Return whether the rule applies to this software on this chip generation in this month (``YYYY-MM``)."""
        return (
            (software in self.software or _ANY in self.software)
            and (not self.gpu or gpu in self.gpu)
            and self.sharded in (None, sharded)
            and self.since <= month
            and (not self.until or month < self.until)
        )


def find_defaults(software: str, *, gpu: str, month: str, sharded: bool = False) -> Mapping[str, Default]:
    """Return the settings of a framework, by name.

    Parameters
    ----------
    software
        Name of the framework; an unknown one gets the rules for any.
    gpu
        Chip generation as in the hardware catalogue.
    month
        When it ran, ``YYYY-MM``.
    sharded
        Whether FSDP or ZeRO-3 shards the weights.
    """
    settings: dict[str, Default] = {}
    for rule in rules():
        if rule.fits(software, gpu, month, sharded=sharded):
            settings |= {name: Default(value=value, why=rule.why) for name, value in rule.settings.items()}
    return settings


def find_family(settings: Mapping[str, Default]) -> Software:
    """Return the family of a framework's settings."""
    return Software(settings["family"].value)


@lru_cache(maxsize=1)
def known_software() -> frozenset[str]:
    """Return the frameworks that the rules name."""
    return frozenset(name for rule in rules() for name in rule.software) - {_ANY}


@lru_cache(maxsize=1)
def rules() -> tuple[Rule, ...]:
    """Return the rules in the order of the file."""
    text = files(__package__).joinpath("software_defaults.toml").read_text(encoding="utf-8")
    return tuple(_rule(entry) for entry in tomllib.loads(text)["rule"])


def _rule(entry: Mapping[str, Any]) -> Rule:
    settings = {name: value for name, value in entry.items() if name not in _MATCHES}
    if unknown := settings.keys() - set(SETTINGS):
        raise ValueError(f"software_defaults.toml: {', '.join(sorted(unknown))}: no such setting")
    return Rule(
        software=frozenset(entry["software"]),
        gpu=frozenset(entry.get("gpu", ())),
        sharded=entry.get("sharded"),
        since=entry.get("since", ""),
        until=entry.get("until", ""),
        why=entry["why"],
        settings=settings,
    )
