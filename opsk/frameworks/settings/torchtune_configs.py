"""Looks up the configurations that torchtune ships, by name; the table is ``torchtune_configs.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

Setting = str | int | bool | tuple[str, ...]
_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "batch": "batch_size",
        "steps": "gradient_accumulation_steps",
        "dtype": "dtype",
        "recompute": "enable_activation_checkpointing",
        "offload": "enable_activation_offloading",
        "optimizer": "optimizer._component_",
        "in_backward": "optimizer_in_bwd",
        "loss": "loss._component_",
        "compile": "compile",
        "cpu_offload": "fsdp_cpu_offload",
        "tp": "tensor_parallel_dim",
        "seq": "tokenizer.max_seq_len",
        "rank": "model.lora_rank",
        "attention": "model.lora_attn_modules",
        "mlp": "model.apply_lora_to_mlp",
        "output": "model.apply_lora_to_output",
        "dora": "model.use_dora",
        "quantize_base": "model.quantize_base",
    }
)
_MODEL = "model._component_"
_LOSSES = MappingProxyType({"chunked": "CEWithChunkedOutputLoss", "plain": "CrossEntropyLoss", "dpo": "DPOLoss"})


def find_torchtune_config(name: str) -> Mapping[str, Setting | None] | None:
    """Return the settings of a configuration by torchtune's keys, ``None`` where no release ships it.

    A setting that is ``None`` differs between releases.
    """
    entry = _read_table().get(name)
    if entry is None:
        return None
    settings: dict[str, Setting | None] = {"dtype": "bf16", _MODEL: f"torchtune.models.{entry['model']}"}
    for short, value in entry.items():
        if short in _KEYS:
            settings[_KEYS[short]] = _convert(short, value)
    return settings | {_KEYS[short]: None for short in entry.get("varies", ())}


def _convert(short: str, value: str | int | bool) -> Setting:
    """Return a value as torchtune's file has it."""
    if short == "attention":
        return tuple(str(value).split())
    return f"torchtune.modules.loss.{_LOSSES[str(value)]}" if short == "loss" else value


@lru_cache(maxsize=1)
def _read_table() -> Mapping[str, Mapping[str, Any]]:
    """Return the table as it is written."""
    text = files(__package__).joinpath("torchtune_configs.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
