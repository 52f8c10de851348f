"""How is a change of plan spelled for a framework whose settings are names with values, on a command line or in a file?

A number is changed where the job states it, in its own words; what it does not state goes by the framework's table.
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
    NOTHING,
    STAGES,
    Names,
    Style,
)

AXES = ("tp", "pp", "vpp", "cp", "ep", "dp", "micro_batch", "micro_batches")
_FOLLOWS = ("dp", "micro_batches")
"""Fields that follow from the others where the framework has no setting for them."""
_STATED = re.compile(r"""(?P<key>["']?[-\w.+]+["']?)(?P<between>\s*[:=]\s*|\s+)(?P<value>\d+),?(\s*#.*)?""")
_FILES = (".yaml", ".yml", ".json", ".toml", ".py")
MAX_PLACE = 80


def named_settings(workload: Workload, asked: Plan, wanted: Plan) -> tuple[str, ...]:
    """Return the settings that differ; empty when the framework has, or opsk knows, no words for one of them."""
    names = _names(workload)
    found: list[tuple[str, str]] = []
    for field in AXES:
        value = getattr(wanted, field)
        if getattr(asked, field) == value:
            continue
        spelled = _number(workload, names, field, getattr(asked, field), value)
        if spelled:
            found.append(spelled)
        elif field not in _FOLLOWS or (field == "micro_batches" and names.computes_batch):
            return ()
    if asked.sharding != wanted.sharding:
        shards = _sharding(workload, names, asked.sharding, wanted.sharding)
        if not shards:
            return ()
        found += shards
    if asked.recompute != wanted.recompute:
        settings = names.recompute.get(wanted.recompute)
        if not settings:
            return ()
        found += [_spelled(workload, names, name, value) for name, value in settings]
    if asked.sequence_parallel != wanted.sequence_parallel and wanted.tp > 1:
        if not names.sequence_parallel or not wanted.sequence_parallel:
            return ()
        found.append(_spelled(workload, names, *names.sequence_parallel))
    return by_place(found)


def _names(workload: Workload) -> Names:
    """Return the table of a workload's framework; some have several."""
    names = NAMES.get(family_of(workload), NOTHING)
    if names is HF and is_deepspeed(workload):
        return HF_DEEPSPEED
    is_second = names is NEMO_1 and any("strategy." in entry.text for entry in workload.evidence)
    return NEMO_2 if is_second else names


def _number(workload: Workload, names: Names, field: str, asked: int, wanted: int) -> tuple[str, str] | None:
    """Return how a number is set, and in which file: as the job states it, else by the framework's name."""
    stated = next((entry for entry in workload.evidence if entry.field == f"plan.{field}"), None)
    match = _STATED.fullmatch(stated.text.strip()) if stated else None
    if stated and match and not match["key"].startswith("#") and int(match["value"]) == asked:
        return f"{match['key']}{match['between']}{wanted}", settings_file(stated)
    if field not in names.numbers:
        return None
    return _spelled(workload, names, names.numbers[field], str(wanted))


def _sharding(workload: Workload, names: Names, asked: Sharding, wanted: Sharding) -> list[tuple[str, str]]:
    """Return how another sharding is set: another stage where the job states one, else by the framework's names."""
    stated = next((entry for entry in workload.evidence if entry.field == "plan.sharding"), None)
    match = _STATED.fullmatch(stated.text.strip()) if stated else None
    if stated and match and not match["key"].startswith("#") and match["value"] == STAGES[asked]:
        return [(f"{match['key']}{match['between']}{STAGES[wanted]}", settings_file(stated))]
    file = (settings_file(stated) if stated else "") or names.sharding_file
    settings = names.sharding.get(wanted, ())
    return [
        _spelled(workload, names, name, value, file=file if names.sharding_file else "") for name, value in settings
    ]


def _spelled(workload: Workload, names: Names, name: str, value: str, *, file: str = "") -> tuple[str, str]:
    """Return a setting as its framework writes it, and the file that it stands in."""
    if names.style is Style.FILE or file:
        return f"{name}: {value}", file or _config_file(workload)
    return (f"--{name} {value}" if names.style is Style.FLAG else f"{name}={value}"), ""


def _config_file(workload: Workload) -> str:
    """Return the file that the job's settings stand in."""
    files = [file for entry in workload.evidence if (file := settings_file(entry)) and entry.field.startswith("plan.")]
    return files[0] if files else "its configuration"


def settings_file(entry: Evidence) -> str:
    """Return the configuration file that a value was read in; empty for the script itself."""
    return entry.file[-MAX_PLACE:] if entry.file.lower().endswith(_FILES) else ""


def by_place(found: list[tuple[str, str]]) -> tuple[str, ...]:
    """Return the settings of the command line one by one, those of a file together with its name."""
    inline = [text for text, file in found if not file]
    files = dict.fromkeys(file for _, file in found if file)
    together = [", ".join(text for text, place in found if place == file) + f" in {file}" for file in files]
    return (*inline, *together)
