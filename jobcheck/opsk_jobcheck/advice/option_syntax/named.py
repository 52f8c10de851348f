"""Formats plan changes for frameworks whose settings are names with values, on a command line or in a file.

A number that the job states is changed where it is stated, under the job's own name for it; all others use the names of
the framework's table.
"""

from __future__ import annotations

import re

from opsk.workload.plan import Plan, Sharding
from opsk.workload.workload import Evidence, Workload
from opsk_jobcheck.advice.abilities import family_of, is_deepspeed
from opsk_jobcheck.advice.option_syntax.tables import (
    HF,
    HF_DEEPSPEED,
    NAMES,
    NEMO_1,
    NEMO_2,
    NO_NAMES,
    STAGES,
    Names,
    Style,
)

AXES = ("tp", "pp", "vpp", "cp", "ep", "dp", "micro_batch", "micro_batches")
_FOLLOWS = ("dp", "micro_batches")
"""Fields that follow from the others where the framework has no setting for them."""
_STATED = re.compile(r"""(?P<key>["']?[-\w.+]+["']?)(?P<between>\s*[:=]\s*|\s+)(?P<value>\d+),?(\s*#.*)?""")
_FILES = (".yaml", ".yml", ".json", ".toml", ".py")
MAX_FILE_CHARS = 80


def build_named_settings(workload: Workload, requested: Plan, target: Plan) -> tuple[str, ...]:
    """Return the settings that differ; empty when one of them cannot be expressed for the framework."""
    names = _select_table(workload)
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


def _select_table(workload: Workload) -> Names:
    """Return the settings table of a workload's framework; some frameworks have several."""
    names = NAMES.get(family_of(workload), NO_NAMES)
    if names is HF and is_deepspeed(workload):
        return HF_DEEPSPEED
    is_second = names is NEMO_1 and any("strategy." in entry.text for entry in workload.evidence)
    return NEMO_2 if is_second else names


def _format_number(workload: Workload, names: Names, field: str, requested: int, target: int) -> tuple[str, str] | None:
    """Return the setting of a number and its file: as the job states it, else by the framework's name."""
    stated = next((entry for entry in workload.evidence if entry.field == f"plan.{field}"), None)
    match = _STATED.fullmatch(stated.text.strip()) if stated else None
    if stated and match and not match["key"].startswith("#") and int(match["value"]) == requested:
        return f"{match['key']}{match['between']}{target}", settings_file(stated)
    if field not in names.numbers:
        return None
    return _format_setting(workload, names, names.numbers[field], str(target))


def _sharding(workload: Workload, names: Names, requested: Sharding, target: Sharding) -> list[tuple[str, str]]:
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


def _format_setting(workload: Workload, names: Names, name: str, value: str, *, file: str = "") -> tuple[str, str]:
    """Return a setting in the framework's syntax, and its file."""
    if names.style is Style.FILE or file:
        return f"{name}: {value}", file or _config_file(workload)
    return (f"--{name} {value}" if names.style is Style.FLAG else f"{name}={value}"), ""


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
