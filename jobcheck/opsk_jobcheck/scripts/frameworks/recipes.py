"""Provides the parts that LLaMA-Factory's and axolotl's readers share: a settings file and its overrides."""

from __future__ import annotations

import re
from collections.abc import Mapping

from opsk_jobcheck.scripts.bash.values import Invocation, Text
from opsk_jobcheck.scripts.frameworks.huggingface.model import SHAPE
from opsk_jobcheck.scripts.frameworks.huggingface.settings import (
    FIELDS,
    find_model_split,
    read_deepspeed_settings,
    read_fsdp_details,
    read_fsdp_settings,
)
from opsk_jobcheck.scripts.launchers.accelerate import FSDP_OPTION, AccelerateSettings
from opsk_jobcheck.scripts.launchers.programs import (
    Program,
    collect_flags,
    list_setting_names,
    parse_assignments,
    parse_program_arguments,
    parse_program_flags,
)
from opsk_jobcheck.scripts.settings.arguments import parse_arguments
from opsk_jobcheck.scripts.settings.config_file import ConfigFile, Entry
from opsk_jobcheck.scripts.settings.findings import mark_all_unknown, state_data_parallel_only
from opsk_jobcheck.scripts.settings.reader import Reading

_RECIPE = re.compile(r".*\.(ya?ml|json)", re.DOTALL)


def get_launcher_words(invocation: Invocation, program: Program) -> tuple[Text, ...]:
    """Return the words before the program: the launcher's."""
    return invocation.words[: len(invocation.words) - len(program.words) - 1]


def read_recipe(program: Program, given: Mapping[str, Entry], invocation: Invocation, reading: Reading) -> ConfigFile:
    """Return the settings of the recipe that a program's first word or ``--config`` names, under those given."""
    named = parse_program_arguments(program).flags.get("--config")
    path = named.value if named else None
    if path is None and program.words:
        first = program.words[0]
        is_flag = first.shown.startswith("-") or "=" in first.shown
        path = first if not is_flag and (_RECIPE.fullmatch(first.shown) or first.known is None) else None
    config = reading.config(path, invocation) if path is not None and path.parts else ConfigFile(path="")
    config.overrides = dict(given)
    return config


def parse_values(program: Program) -> dict[str, Entry]:
    """Return the settings of a program's words, ``--key value`` and ``key=value``; those after ``--`` are left out."""
    words = program.words
    known = program.known_words
    end = known.index("--") if "--" in known else len(words)
    if end == len(words):
        return {**parse_program_flags(program), **parse_assignments(words)}
    return collect_flags(parse_arguments(words[:end])) | parse_assignments(words[:end])


def list_value_names(program: Program) -> frozenset[str]:
    """Return the names that a program's words set, as `parse_values` does: cheaper, for commands of other programs."""
    return frozenset(parse_values(program)) if "--" in program.known_words else list_setting_names(program)


def read_sharding(config: ConfigFile, invocation: Invocation, reading: Reading) -> bool:
    """Read DeepSpeed's and FSDP's settings; return whether a configuration of DeepSpeed's is left that was not read."""
    has_deepspeed = read_deepspeed_settings(config, invocation, reading)
    if not read_fsdp_settings(config, invocation, reading) and (details := config.under("fsdp_config")).names():
        reading.findings.options[FSDP_OPTION] = "true"
        read_fsdp_details(details, reading.findings)
    return has_deepspeed is False


def state_open_fields(
    config: ConfigFile, invocation: Invocation, reading: Reading, *, launch: AccelerateSettings | None, doubt: bool
) -> None:
    """Mark unstated fields as unknown, or state that ranks are data-parallel only."""
    findings = reading.findings
    if config.why:
        mark_all_unknown(findings, (*SHAPE, *FIELDS, "plan.tp", "plan.pp"), config.why, invocation.line)
    elif not doubt and not (launch and launch.config.why) and not find_model_split(config.overrides, config):
        why = "no setting splits the model: ranks are data-parallel only"
        state_data_parallel_only(findings, why, invocation.line)
