"""States the sizes that a class of transformers has where a program gives none: ``RobertaConfig(num_hidden_layers=6)``.

Source: ``configuration_*.py`` of transformers 4.6 to 5; the sizes have not changed since each class came.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from opsk.workload.worst_case import MAX_TOKENS
from opsk_jobcheck.scripts.frameworks.own_program.vocabulary import find_words_of_tokenizer
from opsk_jobcheck.scripts.frameworks.python.settings import ProgramSettings
from opsk_jobcheck.scripts.frameworks.python.source import Call
from opsk_jobcheck.scripts.settings.findings import MAX_NUMBER, parse_integer
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
_POSITIONS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        **dict.fromkeys(("BertConfig", "DistilBertConfig"), (512, 0)),
        **dict.fromkeys(("RobertaConfig", "XLMRobertaConfig", "CamembertConfig"), (512, 2)),
        "OPTConfig": (2048, 0),
        "GPT2Config": (1024, 0),
    }
)
"""Positions of which each has a weight, and how many of them are those of no token; no text has more tokens."""
_OF_POSITIONS = ("max_position_embeddings", "n_positions")
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
    _limit_length(call, settings, reading)
    sizes = dict(zip(_FIELDS, _SIZES[call.function], strict=True))
    if call.function in _KEY_VALUE_HEADS and "num_key_value_heads" not in call.keywords:
        sizes["model.kv_heads"] = _KEY_VALUE_HEADS[call.function]
    if "model.vocab" in findings.unknown and (words := find_words_of_tokenizer(settings)) is not None:
        del findings.unknown["model.vocab"]
        findings.state("model.vocab", words.value, words.line, words.text, file=words.file)
    for name, size in sizes.items():
        is_given = not call.keywords.keys().isdisjoint(_NAMES.get(name, ()))
        if size and not is_given and name not in findings.values and name not in findings.unknown:
            findings.state(name, size, call.line, f"{call.function} has it by default", file=settings.file)


def _limit_length(call: Call, settings: ProgramSettings, reading: Reading) -> None:
    """Note how many tokens a text has at most: each position of the model has a weight."""
    if call.function not in _POSITIONS:
        return
    number, others = _POSITIONS[call.function]
    given = next((call.keywords[name] for name in _OF_POSITIONS if name in call.keywords), None)
    if given is not None:
        entry = settings.resolve(given)
        stated = None if entry.why else parse_integer(entry.value)
        if stated is None or not 0 < stated <= MAX_NUMBER:
            return
        number = stated
    if number > others:
        reading.findings.options[MAX_TOKENS] = str(number - others if given is not None else number)
