"""States the sizes that a class of transformers has where a program gives none: ``RobertaConfig(num_hidden_layers=6)``.

Source: ``configuration_*.py`` of transformers 4.6 to 5; the sizes have not changed since each class came.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from opsk_jobcheck.scripts.frameworks.python.settings import ProgramSettings
from opsk_jobcheck.scripts.settings.reader import Reading

_FIELDS = ("model.layers", "model.hidden", "model.heads", "model.ffn", "model.vocab")
_SIZES: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "BertConfig": (12, 768, 12, 3072, 30522),
        "RobertaConfig": (12, 768, 12, 3072, 50265),
        "XLMRobertaConfig": (12, 768, 12, 3072, 30522),
        "CamembertConfig": (12, 768, 12, 3072, 30522),
        "DistilBertConfig": (6, 768, 12, 3072, 30522),
        "OPTConfig": (12, 768, 12, 3072, 50272),
        "LlamaConfig": (32, 4096, 32, 11008, 32000),
        "MistralConfig": (32, 4096, 32, 14336, 32000),
        "GPTNeoXConfig": (44, 6144, 64, 24576, 50432),
        "PhiConfig": (24, 2048, 32, 8192, 51200),
        "GPT2Config": (12, 768, 12, 0, 50257),
    }
)
"""Layers, width, heads, width of the MLP and words; 0 for an MLP of four times the width."""
_KEY_VALUE_HEADS = MappingProxyType({"MistralConfig": 8})
_NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "model.layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
        "model.hidden": ("hidden_size", "n_embd", "dim"),
        "model.heads": ("num_attention_heads", "n_head", "n_heads"),
        "model.ffn": ("intermediate_size", "ffn_dim", "hidden_dim", "n_inner"),
        "model.vocab": ("vocab_size",),
    }
)


def state_class_sizes(settings: ProgramSettings, reading: Reading) -> None:
    """State the sizes that the one configuration of a program has by its class."""
    source, findings = settings.source, reading.findings
    calls = [call for call in source.calls if call.function in _SIZES] if source is not None else []
    calls = [call for call in calls if settings.is_active(call) is not False]
    if len(calls) != 1 or not settings.is_active(calls[0]) or calls[0].first.line or not calls[0].keywords:
        return
    call = calls[0]
    sizes = dict(zip(_FIELDS, _SIZES[call.function], strict=True))
    if call.function in _KEY_VALUE_HEADS and "num_key_value_heads" not in call.keywords:
        sizes["model.kv_heads"] = _KEY_VALUE_HEADS[call.function]
    for name, size in sizes.items():
        is_given = not call.keywords.keys().isdisjoint(_NAMES.get(name, ()))
        if size and not is_given and name not in findings.values and name not in findings.unknown:
            findings.state(name, size, call.line, f"{call.function} has it by default", file=settings.file)
