"""Formats the settings that change one plan into another, in the syntax of the script or of the files that it names.

A number that a file states is changed there, under the job's own name for it. A program whose parser is at hand gets
the names that it accepts; the frameworks' names for settings are in `opsk.frameworks`.
"""

from __future__ import annotations

import re

from opsk.frameworks.families import FAMILIES, NO_NAMES
from opsk.frameworks.settings import nemo
from opsk.frameworks.settings.deepspeed_config import STAGES
from opsk.frameworks.settings.megatron_flags import build_bridge_overrides, build_megatron_flags
from opsk.frameworks.settings.setting_names import SettingNames, Style
from opsk.frameworks.settings.torchtitan_flags import FORMER_NAMES, GLOBAL_BATCH, RESHARDS, SHARDS
from opsk.frameworks.torchtitan import build_plan_settings
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Recompute, Sharding
from opsk.workload.workload import Evidence, OwnName, Workload
from opsk_jobcheck.advice.abilities import get_family, is_deepspeed

_IN_TOML = re.compile(r"""(?P<name>\w+)(?P<between>\s*=\s*)(?P<quote>["']?)(?P<value>[-\w]+)(?P=quote)\s*(#.*)?""")
AXES = ("tp", "pp", "vpp", "cp", "ep", "dp", "micro_batch", "micro_batches")
_FOLLOWS = ("dp", "micro_batches")
"""Fields that follow from the others where the framework has no setting for them."""
_STATED = re.compile(r"""(?P<key>["']?[-\w.+]+["']?)(?P<between>\s*[:=]\s*|\s+)(?P<value>\d+),?(\s*#.*)?""")
_FILES = (".yaml", ".yml", ".json", ".toml", ".py")
MAX_FILE_CHARS = 80


def build_flags(
    workload: Workload, requested: Plan, target: Plan, *, model: ModelShape | None = None
) -> tuple[str, ...]:
    """Return the settings of a plan change in the framework's own syntax; empty when opsk cannot express all of it.

    Flags and overrides are for the command line; a setting in a file names the file: ``micro_batch_size: 1 in a.yaml``.

    Parameters
    ----------
    model
        The model, for frameworks whose settings depend on it.
    """
    framework = workload.framework
    if workload.own_names is not None:
        return build_own_settings(workload, requested, target)
    if framework == "megatron-bridge":
        return build_bridge_overrides(workload, requested, target, model=model)
    if framework in ("megatron-lm", "megatron-deepspeed"):
        deepspeed = framework == "megatron-deepspeed"
        return build_megatron_flags(
            workload, requested, target, deepspeed=deepspeed, model=None if deepspeed else model
        )
    if framework == "torchtitan" and model is not None:
        return build_torchtitan_flags(workload, model, requested, target)
    return build_named_settings(workload, requested, target)


def build_torchtitan_flags(workload: Workload, model: ModelShape, requested: Plan, target: Plan) -> tuple[str, ...]:
    """Return the settings: in the TOML where it states them, else flags of ``torchtitan.train``, which override it."""
    before, after = build_plan_settings(model, requested), build_plan_settings(model, target)
    changes = []
    for key, value in after.items():
        is_changed = (
            before.get(key) != value
            or (key == GLOBAL_BATCH and _is_torchtitan_batch_left_open(workload, requested, target))
            # by default weights are gathered once a step with a pipeline, and for each pass without one
            or (key == RESHARDS and (requested.pp > 1) != (target.pp > 1))
        )
        # Boolean flags take a value in some releases and none in others.
        if (
            is_changed
            and not isinstance(value, bool | list)
            and not (key == SHARDS[0] and _are_shards_implied(workload))
        ):
            changes.append(_format_torchtitan_setting(workload, key, value))
    return join_by_file(changes)


def _format_torchtitan_setting(workload: Workload, key: str, value: object) -> tuple[str, str]:
    """Return a setting, and its file where the job has it in one."""
    names = (key, *FORMER_NAMES.get(key, ()))
    last = {name.rpartition(".")[2] for name in names}
    for entry in workload.evidence:
        match = _IN_TOML.fullmatch(entry.text.strip())
        if match and match["name"] in last and settings_file(entry):
            return f"{match['name']}{match['between']}{match['quote']}{value}{match['quote']}", settings_file(entry)
    stated = " ".join(entry.text for entry in workload.evidence)
    return f"--{next((name for name in names if name in stated), key)} {value}", ""


def _are_shards_implied(workload: Workload) -> bool:
    """Return whether torchtitan itself uses all remaining GPUs as shards: -1, which is also its default."""
    return all(_shard_count(entry) in (None, "-1") for entry in workload.evidence)


def _shard_count(entry: Evidence) -> str | None:
    """Return the degree of sharding that a value states."""
    match = re.search(r"\bdata_parallel(?:_shard)?_degree['\"]?[\s=]+(-?\d+)", entry.text)
    return match[1] if match else None


def _is_torchtitan_batch_left_open(workload: Workload, requested: Plan, target: Plan) -> bool:
    """Return whether the release would use another global batch for the new plan: one local batch per replica."""
    if any(entry.field == "plan.global_batch" and " × dp " not in entry.text for entry in workload.evidence):
        return False
    return target.pp == 1 and target.micro_batches > 1 and target.micro_batch * target.dp != requested.global_batch


def build_named_settings(workload: Workload, requested: Plan, target: Plan) -> tuple[str, ...]:
    """Return the settings that differ; empty when one of them cannot be expressed for the framework."""
    names = _select_names(workload)
    changes: list[tuple[str, str]] = []
    for field in AXES:
        value = getattr(target, field)
        if getattr(requested, field) == value:
            continue
        change = _format_number(workload, names, field, getattr(requested, field), value)
        if change:
            changes.append(change)
        elif field not in _FOLLOWS or (field == "micro_batches" and names.computes_batch):
            return ()
    if requested.sharding != target.sharding:
        shards = _sharding(workload, names, requested.sharding, target.sharding)
        if not shards:
            return ()
        changes += shards
    if requested.recompute != target.recompute:
        settings = names.recompute.get(target.recompute)
        if not settings:
            return ()
        changes += [_format_setting(workload, names, name, value) for name, value in settings]
    if requested.sequence_parallel != target.sequence_parallel and target.tp > 1:
        if not names.sequence_parallel or not target.sequence_parallel:
            return ()
        changes.append(_format_setting(workload, names, *names.sequence_parallel))
    return join_by_file(changes)


def build_own_settings(workload: Workload, requested: Plan, target: Plan) -> tuple[str, ...]:
    """Return the settings that differ, by the names of the user's own program; empty when it lacks one of them."""
    own = {entry.field: entry for entry in workload.own_names or ()}
    changes: list[tuple[str, str] | None] = []
    for field in AXES:
        before, after = getattr(requested, field), getattr(target, field)
        if before == after or field == "dp" or (field == "micro_batches" and "plan.global_batch" in own):
            continue
        stated = _format_number(workload, NO_NAMES, field, before, after)
        changes.append(stated or _format_own(own.get(f"plan.{field}"), str(after)))
    if requested.sharding != target.sharding:
        names = _select_names(workload)
        if names.sharding_file:
            changes += _sharding(workload, names, requested.sharding, target.sharding) or [None]
        else:
            settings = names.sharding.get(target.sharding, ())
            entry = own.get("plan.sharding")
            changes += [_format_own(entry, value) for _, value in settings] or [None]
    if requested.recompute != target.recompute:
        entry = own.get("plan.recompute")
        changes.append(_format_own_switch(entry, target.recompute, is_whole=requested.recompute is Recompute.FULL))
    if requested.sequence_parallel != target.sequence_parallel:
        changes.append(_format_own(own.get("plan.sequence_parallel"), str(target.sequence_parallel)))
    known = [change for change in changes if change is not None]
    return join_by_file(known) if len(known) == len(changes) else ()


def _format_own(entry: OwnName | None, value: str) -> tuple[str, str] | None:
    """Return a setting of the user's own program and its file; ``None`` where it has none."""
    if entry is None or entry.is_switch:
        return None
    return (f"{entry.name}={value}", entry.file[-MAX_FILE_CHARS:]) if entry.file else (f"{entry.name} {value}", "")


def _format_own_switch(entry: OwnName | None, mode: Recompute, *, is_whole: bool) -> tuple[str, str] | None:
    """Return what switches recomputation of whole layers on or off."""
    if entry is None or mode not in (Recompute.FULL, Recompute.NONE) or (mode is Recompute.NONE and not is_whole):
        return None
    is_on = mode is Recompute.FULL
    if entry.file:
        return f"{entry.name}={is_on}", entry.file[-MAX_FILE_CHARS:]
    if entry.is_switch:
        return (entry.name if is_on else f"(without {entry.name})"), ""
    # argparse takes any text for true where the type is bool
    return (f"{entry.name} True", "") if is_on else (f"(without {entry.name})", "")


def _select_names(workload: Workload) -> SettingNames:
    """Return the names of a workload's framework; some frameworks have several."""
    family = FAMILIES.get(get_family(workload))
    if family is None:
        return NO_NAMES
    if family.names_on_deepspeed and is_deepspeed(workload):
        return family.names_on_deepspeed
    is_second = family.names is nemo.NAMES and any("strategy." in entry.text for entry in workload.evidence)
    return nemo.NAMES_2 if is_second else family.names


def _format_number(
    workload: Workload, names: SettingNames, field: str, requested: int, target: int
) -> tuple[str, str] | None:
    """Return the setting of a number and its file: as the job states it, else by the framework's name."""
    stated = next((entry for entry in workload.evidence if entry.field == f"plan.{field}"), None)
    match = _STATED.fullmatch(stated.text.strip()) if stated else None
    if stated and match and not match["key"].startswith("#") and int(match["value"]) == requested:
        return f"{match['key']}{match['between']}{target}", settings_file(stated)
    if field not in names.numbers:
        return None
    return _format_setting(workload, names, names.numbers[field], str(target))


def _sharding(workload: Workload, names: SettingNames, requested: Sharding, target: Sharding) -> list[tuple[str, str]]:
    """Return the settings of a sharding: another stage where the job states one, else by the framework's names."""
    stated = next((entry for entry in workload.evidence if entry.field == "plan.sharding"), None)
    match = _STATED.fullmatch(stated.text.strip()) if stated else None
    if stated and match and not match["key"].startswith("#") and match["value"] == STAGES[requested]:
        return [(f"{match['key']}{match['between']}{STAGES[target]}", settings_file(stated))]
    file = (settings_file(stated) if stated else "") or names.sharding_file
    settings = names.sharding.get(target, ())
    return [
        _format_setting(workload, names, name, value, file=file if names.sharding_file else "")
        for name, value in settings
    ]


def _format_setting(
    workload: Workload, names: SettingNames, name: str, value: str, *, file: str = ""
) -> tuple[str, str]:
    """Return a setting in the framework's syntax, and its file."""
    if names.style is Style.FILE or file:
        return f"{name}: {value}", file or _config_file(workload)
    return (f"--{name} {value}".rstrip() if names.style is Style.FLAG else f"{name}={value}"), ""


def _config_file(workload: Workload) -> str:
    """Return the file that holds the job's settings."""
    files = [file for entry in workload.evidence if (file := settings_file(entry)) and entry.field.startswith("plan.")]
    return files[0] if files else "its configuration"


def settings_file(entry: Evidence) -> str:
    """Return the configuration file that a value was read in; empty for the script itself."""
    return entry.file[-MAX_FILE_CHARS:] if entry.file.lower().endswith(_FILES) else ""


def join_by_file(changes: list[tuple[str, str]]) -> tuple[str, ...]:
    """Return the settings of the command line one by one, those of a file joined with its name."""
    inline = [text for text, file in changes if not file]
    files = dict.fromkeys(file for _, file in changes if file)
    together = [", ".join(text for text, name in changes if name == file) + f" in {file}" for file in files]
    return (*inline, *together)
