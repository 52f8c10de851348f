"""Reads which LoRA adapters a run trains: their rank, the layers that have them, and the format of the frozen base.

Sources: ``FinetuningArguments`` and ``ModelArguments`` of LLaMA-Factory 0.6 to 0.9.4, ``ModelConfig`` of TRL,
axolotl's schemas, ``finetune/lora.py`` of LitGPT, torchtune's model builders and llama-cookbook's
``configs/peft.py`` and ``training.py``. Left out are other kinds (DoRA, IA3, prompts, OFT): opsk does not count the
memory that they keep.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from opsk_jobcheck.scripts.settings.command_settings import Setting, is_off, normalise_name

FRAMEWORKS = frozenset(
    {
        *("llama-factory", "axolotl", "litgpt", "torchtune", "llama-cookbook"),
        *("trl", "trl + accelerate", "hf-trainer", "hf-trainer+deepspeed"),
    }
)
"""Frameworks whose adapters are read: those that use PEFT, or have equivalent ones."""
ADAPTERS, RANK, TARGETS, DROPOUT, BASE_BITS = (
    *("adapters", "adapters.rank", "adapters.targets", "adapters.dropout"),
    "adapters.base_bits",
)
"""Options of a workload: the kind, rank, layers, whether inputs are dropped out, and bits of a base weight."""
LOADED_AS_CONFIGURED = frozenset({"trl", "trl + accelerate", "hf-trainer", "hf-trainer+deepspeed"})
"""Frameworks whose base is in fp32 unless they are given another format, or quantise it."""
_USER_PROGRAMS = frozenset({"hf-trainer", "hf-trainer+deepspeed"})
"""Programs of users: rank and layers that their Python code takes are not known."""
WEIGHTS = "weights.dtype"
"""Option of a workload: the 16-bit format in which weights are loaded."""
MAX_RANK = 4096
_KINDS = re.compile(r"finetuning_type|tuner_type|train_type|sft_type|peft_method|adapter|adapter_type|peft_type")
_SWITCHES = re.compile(r"(use|with|enable|do|train|apply)_?(peft|q?lora|adapters?)|q?lora|peft")
_LORA, _QLORA = "lora", "qlora"
_RANKS = re.compile(r"q?lora_(r|rank|dim)|peft_lora_r")
_TARGETS = re.compile(r"q?lora_(target(_modules|_linear)?|modules|attn_modules)|target_modules")
_DROPOUTS = re.compile(r"q?lora_dropout")
_SWITCHED = MappingProxyType(
    {
        **dict.fromkeys(("apply_lora_to_mlp", "lora_mlp", "lora_target_linear"), ("mlp",)),
        **dict.fromkeys(("lora_key", "lora_projection"), ("k", "o")),
    }
)
"""Switches that put adapters on more layers, and words for those."""
_QUANTISED = re.compile(r"load_in_(4|8)_?bit|quantization(_bit)?|quant_bits|quantize|quantize_base|use_4bit")
_BITS = re.compile(r"(bnb\.|bitsandbytes\.)?(nf|fp|int)?(?P<bits>[48])([ _-]?bits?)?(-dq)?(-training)?", re.IGNORECASE)
_KNOWN_QUANTISERS = frozenset({"bnb", "bitsandbytes"})
_METHODS = frozenset({"quantization_method", "quant_method"})
_OTHER_KINDS = re.compile(
    r"use_(dora|unsloth|galore|badam)|peft_use_dora|lora_(modules_to_save|on_cpu|target_parameters|head)|modules_to_save"
    r"|additional_target|resize_vocab|apply_lora_to_output|relora.*|loftq_.+|peft_layers.*|lora_(fan_in_fan_out)"
)
"""Settings with which adapters keep more, or less, than is counted."""
_MLP = re.compile(r"all(-linear|_linear)?|mlp|.*(gate|up|down)_?proj|fc\d|w[123]|dense_\w+|linear\w*|experts?|wi|wo")
_OUTPUT = re.compile(r"k|o|k_?proj|o_?proj|out(put)?_?proj|dense|key|query_key_value|w?qkv(_proj)?|c_attn|c_proj")


def find_adapters(settings: Iterable[Setting], framework: str, *, kind: str = "") -> Mapping[str, str] | None:
    """Return the options that describe the adapters; ``None`` where they are unknown, or are not plain LoRA.

    Parameters
    ----------
    settings
        Those of the command and of its files, in the order in which the later one holds.
    framework
        As the reader names it.
    kind
        The kind that the command states: ``lora``, or empty.
    """
    if framework not in FRAMEWORKS:
        return None
    rows = [(normalise_name(setting.name), setting.value) for setting in settings]
    if any(_OTHER_KINDS.fullmatch(name) and not is_off(value) for name, value in rows):
        return None
    kinds = [kind] * bool(kind) + [(value or "").strip().lower() for name, value in rows if _KINDS.fullmatch(name)]
    switches = [value for name, value in rows if _SWITCHES.fullmatch(name)]
    is_adapter = bool(kinds) or any(not is_off(value) for value in switches)
    # a rank alone may be left over: TRL and axolotl then train the whole model
    if not is_adapter or None in switches or any(word not in (_LORA, _QLORA) for word in kinds):
        return None
    options = {
        RANK: _find_rank(rows),
        TARGETS: _find_targets(rows),
        DROPOUT: _find_dropout(rows),
        BASE_BITS: _find_base_bits(rows, is_quantised=_QLORA in kinds),
    }
    if None in options.values():
        return None
    known = {option: word for option, word in options.items() if word}
    if framework in _USER_PROGRAMS and not {RANK, TARGETS} <= known.keys():
        return None
    return {ADAPTERS: _LORA} | known


def _find_rank(rows: list[tuple[str, str | None]]) -> str | None:
    """Return the rank, empty where none is given; ``None`` where it is unknown."""
    given = [value for name, value in rows if _RANKS.fullmatch(name)]
    if not given:
        return ""
    text = (given[-1] or "").strip()
    return text if text.isascii() and text.isdigit() and 0 < int(text[:9]) <= MAX_RANK else None


def _find_targets(rows: list[tuple[str, str | None]]) -> str | None:
    """Return which layers have adapters, empty where nothing is given; ``None`` where it is unknown."""
    words: list[str] = []
    for name, value in rows:
        if name in _SWITCHED:
            if not is_off(value):
                words += _SWITCHED[name]
        elif _TARGETS.fullmatch(name):
            if value is None:
                return None
            words += [] if is_off(value) else re.findall(r"[A-Za-z_][\w-]*", value.lower())[:64]
    if not words:
        return ""
    if any(_MLP.fullmatch(word) for word in words):
        return "all"
    return "attention" if any(_OUTPUT.fullmatch(word) for word in words) else "query-value"


def _find_dropout(rows: list[tuple[str, str | None]]) -> str | None:
    """Return ``true`` or ``false``, empty where nothing is given; ``None`` where it is unknown."""
    given = [value for name, value in rows if _DROPOUTS.fullmatch(name)]
    if not given:
        return ""
    return None if given[-1] is None else "false" if is_off(given[-1]) else "true"


def _find_base_bits(rows: list[tuple[str, str | None]], *, is_quantised: bool) -> str | None:
    """Return the bits of a base weight, empty where it is not quantised; ``None`` where they are unknown."""
    methods = {(value or "?").strip().lower() for name, value in rows if name in _METHODS and not is_off(value)}
    if not methods <= _KNOWN_QUANTISERS:
        return None
    bits = "4" if is_quantised else ""
    for name, value in rows:
        match = _QUANTISED.fullmatch(name)
        if match is None or is_off(value):
            continue
        if match[1]:
            bits = match[1]
        elif name in ("quantize_base", "use_4bit"):
            bits = "4"
        elif known := _BITS.fullmatch((value or "").strip()):
            bits = known["bits"]
        else:
            return None
    return bits
