"""Finds how a user's own program sets what a change of plan touches: by its parser, or in its Python text.

A program with a parser of its own refuses the flags of the framework that it calls. One that makes its arguments in
Python (``TrainingArguments(per_device_train_batch_size=4)``) takes any other of them there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from opsk.frameworks.settings import huggingface
from opsk.frameworks.settings.usual_settings import BATCHES, RECOMPUTES, STEPS
from opsk.workload.workload import OwnName
from opsk_jobcheck.scripts.frameworks.own_program.numbers import FIELDS
from opsk_jobcheck.scripts.frameworks.python.settings import ProgramSettings
from opsk_jobcheck.scripts.frameworks.python.source import Call

_OPEN_PARSERS = frozenset(
    {
        *("HfArgumentParser", "TrlParser", "parse_known_args", "parse_args_into_dataclasses", "add_config_arguments"),
        *("parse_intermixed_args", "parse_known_intermixed_args", "add_argparse_args", "CLI", "LightningCLI", "cli"),
        *("Fire", "from_cli", "compose", "parse_dataclasses", "parse_args_and_config", "parse_yaml_file"),
    }
)
"""Calls after which flags are accepted that the program's text does not list."""
_TRAINER_ARGUMENTS = re.compile(r"\w*TrainingArguments|(SFT|DPO|KTO|ORPO|CPO|Reward|GRPO|RLOO|PPO)Config")
_NAMES = {
    "plan.micro_batch": (*FIELDS["plan.micro_batch"], *BATCHES),
    "plan.micro_batches": STEPS,
    "plan.recompute": RECOMPUTES,
    "plan.sharding": (huggingface.FSDP,),
}
"""Settings of the fields that changes touch."""
_OF_TRAINER = {
    "plan.micro_batch": huggingface.MICRO[0],
    "plan.micro_batches": huggingface.STEPS,
    "plan.recompute": huggingface.RECOMPUTE,
    "plan.sharding": huggingface.FSDP,
}
"""Keywords that the arguments of HuggingFace's Trainer take."""


def find_own_names(settings: ProgramSettings) -> tuple[OwnName, ...] | None:
    """Return the program's names of what a change touches; ``None`` where it may accept names that its text lacks."""
    source = settings.source
    if source is None or settings.closed or any(source.find_calls(*_OPEN_PARSERS)):
        return None
    arguments = next((call for call in source.calls if _TRAINER_ARGUMENTS.fullmatch(call.function)), None)
    if arguments is None and not (source.flags and any(source.find_calls("parse_args"))):
        return None
    find = _find_keyword if arguments is not None else _find_setting
    # what a flag of the program's own takes for a strategy is not known
    fields = [field for field in _NAMES if field != "plan.sharding" or arguments is not None]
    rows = [find(field, _NAMES[field], settings, arguments) for field in fields]
    return tuple(row for row in rows if row is not None)


def _find_keyword(
    field: str, names: Sequence[str], settings: ProgramSettings, arguments: Call | None
) -> OwnName | None:
    """Return the keyword of the Trainer's arguments that sets a field, or the flag that its value is taken from."""
    keywords = arguments.keywords if arguments is not None else {}
    name = next((name for name in names if name in keywords), _OF_TRAINER[field])
    if name not in keywords or keywords[name].is_known:
        return OwnName(field=field, name=name, file=settings.file)
    return _find_flag(field, keywords[name].name, settings)


def _find_setting(
    field: str, names: Sequence[str], settings: ProgramSettings, arguments: Call | None
) -> OwnName | None:
    """Return the flag, or the constant, whose usual name says that it sets a field."""
    for name in names:
        if (flag := _find_flag(field, name, settings)) is not None:
            return flag
    source = settings.source
    constants = source.constants if source is not None else {}
    name = next((name for name in constants if name.lower() in names), "")
    return OwnName(field=field, name=name, file=settings.file) if name and not _is_changed(name, settings) else None


def _find_flag(field: str, name: str, settings: ProgramSettings) -> OwnName | None:
    """Return a flag of the program's parser."""
    source = settings.source
    if source is None or name not in source.flags or _is_changed(name, settings):
        return None
    is_switch = name in source.switches
    usual = source.defaults[name].literal if name in source.defaults else None
    if field == "plan.recompute" and not is_switch and isinstance(usual, int | float) and not isinstance(usual, bool):
        return None
    return OwnName(field=field, name=source.flags[name], is_switch=is_switch)


def _is_changed(name: str, settings: ProgramSettings) -> bool:
    """Return whether the program sets a setting again."""
    return settings.source is not None and name in settings.source.changed
