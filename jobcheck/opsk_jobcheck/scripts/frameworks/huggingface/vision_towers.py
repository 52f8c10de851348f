"""Reads whether the vision tower of a model of images and text is trained.

Sources: ``finetuning_args.py`` of LLaMA-Factory, ``tuner_args.py`` of ms-swift (both freeze tower and projector unless
told otherwise), ``argument.py`` of Qwen-VL's fine-tuning, ``train.py`` of LLaVA and LLaVA-NeXT.
"""

from __future__ import annotations

from collections.abc import Mapping

from opsk.workload.public_models.tower_limits import OPEN_TOWER, OpenTower
from opsk.workload.public_models.vision_language import (
    FROZEN,
    TOWER,
    TOWER_PARAMETERS,
    find_tower,
    find_vision_language,
)
from opsk.workload.worst_case import ADAPTER_RANK
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import ADAPTERS, is_only_about_adapters
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import OPTION as TRAINABLE
from opsk_jobcheck.scripts.settings.config_file import ConfigFile, Entry
from opsk_jobcheck.scripts.settings.findings import Findings, parse_boolean
from opsk_jobcheck.scripts.settings.reader import Reading

_TOWERS: Mapping[str, bool] = {
    **dict.fromkeys(("freeze_vision_tower", "freeze_vit", "freeze_vision_modules", "freeze_vision"), True),
    **dict.fromkeys(("tune_mm_vision", "unfreeze_mm_vision_tower"), False),
}
"""Settings by the value with which they freeze the tower."""
_LANGUAGE: Mapping[str, bool] = {
    **dict.fromkeys(("freeze_language_model", "freeze_llm", "train_mm_proj_only", "tune_mm_mlp_adapter"), True),
    "tune_mm_llm": False,
}
"""Settings by the value with which they freeze the language model."""
_PROJECTORS = ("freeze_multi_modal_projector", "freeze_aligner", "tune_mm_mlp", "freeze_mm_mlp_adapter")
_ALL = frozenset({*_TOWERS, *_LANGUAGE, *_PROJECTORS})
_PARTS = "mm_tunable_parts"
_TOWER_NAMES = ("vision_tower", "mm_vision_tower")


def read_tower(config: ConfigFile, reading: Reading, *, is_frozen_by_default: bool) -> frozenset[str]:
    """State that the tower is frozen where it is; return the settings that say no more than that.

    Where a model of images and text may be trained with its tower, its shape is not known.
    """
    findings = reading.findings
    named = config.entry(_TOWER_NAMES[0]) or config.entry(_TOWER_NAMES[1])
    is_one = find_vision_language(reading.model_name or "") is not None
    if not is_one and named is None:
        return frozenset()
    is_frozen = _find_state(config, _TOWERS, default=is_frozen_by_default or named is not None)
    is_text_frozen = _find_state(config, _LANGUAGE, default=False)
    parts = config.entry(_PARTS)
    if parts is not None and (parts.why or "mm_vision_tower" in str(parts.value)):
        is_frozen = None
    if is_frozen is not True or is_text_frozen is not False:
        _doubt(is_frozen, findings, is_one=is_one)
        return frozenset()
    if is_one:
        findings.options[TOWER] = FROZEN
    elif named is not None:
        _state_named_tower(named, findings)
    return _ALL


def list_tower_settings(findings: Findings) -> frozenset[str]:
    """Return the settings that say no more than that the tower is frozen; none where it may be trained."""
    is_frozen = findings.options.get(TOWER) == FROZEN or TOWER_PARAMETERS in findings.options
    return _ALL if is_frozen else frozenset()


def doubt_tower(reading: Reading) -> None:
    """State that the tower of a model of images and text may be trained, or have adapters, where nothing freezes it."""
    options = reading.findings.options
    if options.get(TOWER) == FROZEN or find_vision_language(reading.model_name or "") is None:
        return
    is_adapted = ADAPTERS in options or (is_only_about_adapters(options) and ADAPTER_RANK in options)
    options |= {TOWER: FROZEN, OPEN_TOWER: (OpenTower.ADAPTED if is_adapted else OpenTower.TRAINED).value}
    what = "have adapters" if is_adapted else "be trained"
    why = f"unknown: the vision tower of {str(reading.model_name)[:80]} may {what}, and opsk predicts frozen ones"
    options.setdefault(TRAINABLE, why)


def _find_state(config: ConfigFile, table: Mapping[str, bool], *, default: bool) -> bool | None:
    """Return whether a part is frozen by its settings; ``None`` where that is not known."""
    for name, freezing in table.items():
        entry = config.entry(name)
        if entry is None:
            continue
        value = parse_boolean(entry.value) if not entry.why else None
        return None if value is None else value is freezing
    return default


def _doubt(is_frozen: bool | None, findings: Findings, *, is_one: bool) -> None:
    """State that the trained part is not known, of a model that is known otherwise."""
    if not is_one:
        what = "part of the model is frozen" if is_frozen else "the vision tower may be trained too"
        findings.options[TRAINABLE] = f"unknown: {what} (vision_tower)"


def _state_named_tower(entry: Entry, findings: Findings) -> None:
    """Note the parameters of a tower that the command puts in front of the language model."""
    parameters = find_tower(str(entry.value)) if not entry.why and entry.value is not None else None
    if parameters is not None:
        findings.options[TOWER_PARAMETERS] = str(parameters)
