"""Reads the adapters that a user's own program makes with PEFT: ``LoraConfig(r=16, target_modules=[...])``.

Source: ``peft/tuners/lora/config.py`` and ``peft/utils/constants.py`` of PEFT 0.4 to 0.18; ``BitsAndBytesConfig`` of
transformers 4.30 to 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from opsk.workload.worst_case import ADAPTER_BASE, ADAPTER_RANK, ADAPTER_TARGETS
from opsk_jobcheck.scripts.frameworks.huggingface.role_settings import mark_roles_unknown
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import (
    ADAPTERS,
    BASE_BITS,
    LOADED_AS_CONFIGURED,
    MAX_RANK,
    OPTION,
    TARGETS,
    WEIGHTS,
    find_adapters,
)
from opsk_jobcheck.scripts.frameworks.python.settings import ProgramSettings
from opsk_jobcheck.scripts.frameworks.python.source import Call, Value
from opsk_jobcheck.scripts.settings.arguments import Setting
from opsk_jobcheck.scripts.settings.config_file import Entry
from opsk_jobcheck.scripts.settings.findings import Findings, parse_boolean, parse_integer
from opsk_jobcheck.scripts.settings.reader import Reading

LORA = "LoraConfig"
_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "r": "lora_r",
        "target_modules": "lora_target_modules",
        "lora_dropout": "lora_dropout",
        "use_dora": "use_dora",
        "modules_to_save": "modules_to_save",
        "loftq_config": "loftq_config",
        "target_parameters": "lora_target_parameters",
    }
)
"""Arguments that decide what is trained, by the names that they have as settings."""
_HARMLESS = frozenset(
    {"lora_alpha", "task_type", "inference_mode", "use_rslora", "init_lora_weights", "revision", "peft_type"}
)
_HARMLESS_OF_UNSLOTH = frozenset(
    {"random_state", "use_gradient_checkpointing", "max_seq_length", "finetune_vision_layers", "finetune_mlp_modules"}
    | {"finetune_language_layers", "finetune_attention_modules"}
)
_UNSLOTH = ("FastLanguageModel", "FastModel", "FastVisionModel", "FastLlamaModel")
_UNSLOTH_SWITCH = "unsloth"
_LORA_FIELDS = frozenset({"r", "target_modules", "lora_dropout", "bias"})
_DEFAULTS = (Setting(name="lora_r", value="8"), Setting(name="lora_target_modules", value="q_proj,v_proj"))
"""PEFT's own, for the models that it knows by name as Llama, Mistral, Qwen2 and Gemma."""
_QUANTISERS = ("load_in_4bit", "load_in_8bit")
_MAKERS = (LORA, "get_peft_model")
_PREPARES = "prepare_model_for_kbit_training"


def state_python_adapters(settings: ProgramSettings, framework: str, findings: Findings) -> bool:
    """State the adapters that a program of HuggingFace's Trainer certainly trains; return whether it has known ones."""
    configs = _list_active(settings, LORA) if not _has_own_class(settings) else None
    if configs is None or len(configs) != 1 or framework not in LOADED_AS_CONFIGURED:
        return False
    is_used = any("peft_config" in call.keywords for call in settings.source.calls) if settings.source else False
    if not is_used and not _list_active(settings, "get_peft_model"):
        return False
    rows = list(_iterate_arguments(configs[0], settings))
    bases = _find_base(settings)
    if None in rows or bases is None:
        return False
    known = [row for row in rows if row is not None]
    read = find_adapters([*_DEFAULTS, *known, *bases], framework, kind="lora")
    if read is None or (BASE_BITS not in read and WEIGHTS not in findings.options):
        return False
    findings.options |= read
    _state_recompute(settings, findings)
    return True


def _has_own_class(settings: ProgramSettings) -> bool:
    """Return whether a program takes a class of PEFT's name from another package: its fields are other ones."""
    imports = settings.source.imports if settings.source is not None else ()
    return any(name.endswith(f".{LORA}") and name.partition(".")[0] != "peft" for name in imports)


def doubt_other_adapters(settings: ProgramSettings, reading: Reading) -> None:
    """State that adapters may be trained where another file of the program makes some, and its calls were not seen."""
    options = reading.findings.options
    if settings.source is None or options.keys() & {ADAPTERS, OPTION} or any(settings.source.find_calls(*_MAKERS)):
        return
    files = (path for path in sorted(reading.files) if path.endswith(".py") and path != settings.file)
    path = next((path for path in files if any(f"{name}(" in reading.files[path] for name in _MAKERS)), "")
    if path:
        mark_roles_unknown(reading.findings, "adapters may be trained", 0)
        options[OPTION] = f"unknown: only adapters may be trained ({path[-80:]})"


def state_largest_adapters(settings: ProgramSettings, findings: Findings) -> None:
    """State the rank of adapters that are certainly all that is trained, and their layers at most."""
    configs, makers = _list_active(settings, LORA), _list_active(settings, "get_peft_model")
    if configs is None or settings.source is None or _has_own_class(settings):
        return
    of_unsloth: Mapping[str, str] | None = {}
    if not configs and makers and len(makers) == 1 and makers[0].owner in _UNSLOTH:
        configs, of_unsloth = makers, _find_unsloth(makers[0], settings)
    is_used = makers or any("peft_config" in call.keywords for call in settings.source.calls)
    if len(configs) != 1 or not is_used or of_unsloth is None:
        return
    given = configs[0].keywords
    harmless = _HARMLESS | _HARMLESS_OF_UNSLOTH if of_unsloth else _HARMLESS
    others = given.keys() - {*harmless, *_LORA_FIELDS}
    if (configs[0].first.line and not of_unsloth) or any(
        not given[name].is_known or given[name].literal for name in others
    ):
        return  # DoRA, or whole modules that are trained too
    entry = settings.resolve(given["r"]) if "r" in given else Entry(value=8)
    rank = None if entry.why or entry.value is None else parse_integer(entry.value)
    if rank is None or not 0 < rank <= MAX_RANK:
        return
    words = _resolve(given["target_modules"], settings) if "target_modules" in given else None
    read = find_adapters([*_DEFAULTS, Setting(name="lora_target_modules", value=words or "all")], "trl", kind="lora")
    if read is not None:
        findings.options |= {ADAPTER_RANK: str(rank), ADAPTER_TARGETS: read.get(TARGETS, "all"), **of_unsloth}
        if of_unsloth:
            _state_recompute_by(configs[0], settings, findings)


def _find_unsloth(maker: Call, settings: ProgramSettings) -> Mapping[str, str] | None:
    """Return how Unsloth loads the base of adapters, in 4 bits unless told otherwise; ``None`` where that is not known.

    Source: ``unsloth/models/loader.py`` of Unsloth 2024.8 to 2025.11. What else it does lowers the memory.
    """
    calls = settings.source.find_calls("from_pretrained") if settings.source is not None else ()
    loads = [call for call in calls if call.owner == maker.owner]
    if len(loads) != 1:
        return None
    stated = {name: settings.resolve(value) for name, value in loads[0].keywords.items() if name in _QUANTISERS}
    whole = loads[0].keywords.get("full_finetuning")
    if any(entry.why for entry in stated.values()) or (whole is not None and whole.literal is not False):
        return None
    is_8bit = "load_in_8bit" in stated and parse_boolean(stated["load_in_8bit"].value)
    is_4bit = "load_in_4bit" not in stated or parse_boolean(stated["load_in_4bit"].value)
    bits = {ADAPTER_BASE: "8" if is_8bit else "4"} if is_8bit or is_4bit else {}
    return {WEIGHTS: "bf16", **bits}


def _list_active(settings: ProgramSettings, function: str) -> list[Call] | None:
    """Return the calls of a function that are made; ``None`` where one may be made or not."""
    calls = list(settings.source.find_calls(function)) if settings.source is not None else []
    states = [settings.is_active(call) for call in calls]
    return None if None in states else [call for call, state in zip(calls, states, strict=True) if state]


def _iterate_arguments(config: Call, settings: ProgramSettings) -> Iterator[Setting | None]:
    """Yield the arguments that decide what is trained as settings; ``None`` for one that is unknown or not counted."""
    for name, value in config.keywords.items():
        if name in _HARMLESS or (value.is_known and value.literal in (None, False, "none")):
            continue
        text = _resolve(value, settings) if name in _NAMES else None
        yield Setting(name=_NAMES[name], value=text, line=value.line, file=settings.file) if text is not None else None


def _resolve(value: Value, settings: ProgramSettings) -> str | None:
    """Return an argument as text, the words of a list with commas between them; ``None`` where it is not known."""
    words = value.words or (settings.source.lists.get(value.name, ()) if settings.source is not None else ())
    if words:
        return ",".join(words)
    entry = settings.resolve(value)
    return None if entry.why or entry.value is None else str(entry.value)


def _find_base(settings: ProgramSettings) -> list[Setting] | None:
    """Return how the base is quantised, no row where it is not; ``None`` where that is not known."""
    rows: list[Setting] = []
    for call in settings.source.calls if settings.source is not None else ():
        given = {name: call.keywords[name] for name in _QUANTISERS if name in call.keywords}
        is_active = settings.is_active(call) if given else False
        if is_active is None:
            return None
        for name, value in given.items() if is_active else ():
            entry = settings.resolve(value)
            is_on = None if entry.why else parse_boolean(entry.value)
            if is_on is None:
                return None
            rows += [Setting(name=name, value="true")] * is_on
    return rows


def _state_recompute(settings: ProgramSettings, findings: Findings) -> None:
    """State that layers are recomputed where the base is prepared for training, which switches it on by itself."""
    for call in _list_active(settings, _PREPARES) or ():
        _state_recompute_by(call, settings, findings)


def _state_recompute_by(call: Call, settings: ProgramSettings, findings: Findings) -> None:
    """State that layers are recomputed by what a call does unless told otherwise: PEFT's preparation, or Unsloth."""
    switch = call.keywords.get("use_gradient_checkpointing")
    if "plan.recompute" in findings.values or not (switch is None or switch.literal in (True, _UNSLOTH_SWITCH)):
        return
    text = settings.source.get_line(call.line) if settings.source is not None else ""
    findings.state("plan.recompute", "full", call.line, text, file=settings.file)
