"""What do readers of LLaMA-Factory and axolotl share: one file of settings, and values over it?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from opsk_jobcheck.scripts.bash.values import Invocation, Text
from opsk_jobcheck.scripts.frameworks.huggingface.model import SHAPE
from opsk_jobcheck.scripts.frameworks.huggingface.settings import (
    FIELDS,
    read_deepspeed_of,
    read_fsdp_details,
    read_fsdp_of,
    splits_model,
)
from opsk_jobcheck.scripts.launchers.accelerate import FSDP_OPTION, Launch
from opsk_jobcheck.scripts.launchers.programs import Program, assigned, flagged, own_arguments, own_flags, own_names
from opsk_jobcheck.scripts.settings.arguments import parse_arguments
from opsk_jobcheck.scripts.settings.config_file import ConfigFile, Entry
from opsk_jobcheck.scripts.settings.reading import Reading
from opsk_jobcheck.scripts.settings.stating import cannot_tell_all, data_parallel_only

_RECIPE = re.compile(r".*\.(ya?ml|json)", re.DOTALL)


def before(invocation: Invocation, program: Program) -> tuple[Text, ...]:
    """Return the words before the program: the launcher's."""
    return invocation.words[: len(invocation.words) - len(program.words) - 1]


def recipe_of(program: Program, given: Mapping[str, Entry], invocation: Invocation, reading: Reading) -> ConfigFile:
    """Return the settings of the recipe that a program's first word or ``--config`` names, under those given."""
    named = own_arguments(program).flags.get("--config")
    path = named.value if named else None
    if path is None and program.words:
        first = program.words[0]
        is_flag = first.shown.startswith("-") or "=" in first.shown
        path = first if not is_flag and (_RECIPE.fullmatch(first.shown) or first.known is None) else None
    config = reading.config(path, invocation) if path is not None and path.parts else ConfigFile(path="")
    config.overrides = dict(given)
    return config


def values_of(program: Program) -> dict[str, Entry]:
    """Return what a program's words set, ``--key value`` and ``key=value``; those behind ``--`` are not its own."""
    words = program.words
    known = program.known_words
    end = known.index("--") if "--" in known else len(words)
    if end == len(words):
        return {**own_flags(program), **assigned(words)}
    return flagged(parse_arguments(words[:end])) | assigned(words[:end])


def names_of_values(program: Program) -> frozenset[str]:
    """Return the names that a program's words set, as `values_of` has them: cheaper, for commands of other programs."""
    return frozenset(values_of(program)) if "--" in program.known_words else own_names(program)


def read_sharding(config: ConfigFile, invocation: Invocation, reading: Reading) -> bool:
    """Read DeepSpeed's and FSDP's settings; tell whether a configuration of DeepSpeed's is left that was not read."""
    has_deepspeed = read_deepspeed_of(config, invocation, reading)
    if not read_fsdp_of(config, invocation, reading) and (details := config.under("fsdp_config")).names():
        reading.findings.options[FSDP_OPTION] = "true"
        read_fsdp_details(details, reading.findings)
    return has_deepspeed is False


def close(config: ConfigFile, invocation: Invocation, reading: Reading, *, launch: Launch | None, doubt: bool) -> None:
    """Say why what nobody has stated cannot be told, or that ranks are data-parallel only."""
    findings = reading.findings
    if config.why:
        cannot_tell_all(findings, (*SHAPE, *FIELDS, "plan.tp", "plan.pp"), config.why, invocation.line)
    elif not doubt and not (launch and launch.config.why) and not splits_model(config.overrides, config):
        why = "no setting splits the model: ranks are data-parallel only"
        data_parallel_only(findings, why, invocation.line)
