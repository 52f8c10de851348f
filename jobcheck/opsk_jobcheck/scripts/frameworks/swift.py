"""Reads the training settings from a launch script of ms-swift: ``swift sft``, ``swift pt`` and ``swift rlhf``.

The Trainer's settings and its own, as flags or in a file by ``--config``; ranks by ``NPROC_PER_NODE``, which its own
launcher reads (``swift/cli/main.py``), or by torchrun and ``swift/cli/rlhf.py``.
Source: `opsk.frameworks.settings.swift`.
"""

from __future__ import annotations

import re

from opsk.frameworks.settings import swift as names
from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.frameworks.huggingface.model import read_model
from opsk_jobcheck.scripts.frameworks.huggingface.preferences import PREFERENCE_KINDS, read_preferences
from opsk_jobcheck.scripts.frameworks.huggingface.role_settings import find_opaque
from opsk_jobcheck.scripts.frameworks.huggingface.settings import (
    find_first,
    read_deepspeed_settings,
    read_fsdp_settings,
    read_memory,
    read_settings,
)
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import RANK, read_trainable
from opsk_jobcheck.scripts.frameworks.huggingface.vision_towers import read_tower
from opsk_jobcheck.scripts.frameworks.recipes import parse_values, read_recipe
from opsk_jobcheck.scripts.launchers.programs import SURE, Program, find_command, find_program, is_open
from opsk_jobcheck.scripts.settings.arguments import get_arguments, iterate_settings
from opsk_jobcheck.scripts.settings.config_file import ConfigFile, Entry
from opsk_jobcheck.scripts.settings.findings import (
    Findings,
    mark_all_unknown,
    state_data_parallel_only,
)
from opsk_jobcheck.scripts.settings.reader import Match, Reader, Reading

FRAMEWORK = "ms-swift"
_FILE = re.compile(r"(?:.*/)?swift/cli/(sft|pt|rlhf)\.py|swift\.cli\.(sft|pt|rlhf)")


def recognise(invocation: Invocation) -> Match | None:
    """Return a command of ms-swift that trains."""
    started = _find_program(invocation)
    if started is None:
        return None
    arguments = get_arguments(invocation)
    return Match(
        framework=FRAMEWORK, weight=4 * SURE + len(arguments.flags), invocation=invocation, arguments=arguments
    )


def read_swift(match: Match, reading: Reading) -> None:
    """State the values of the command, its file, and the roles of a loss on preferences."""
    started = _find_program(match.invocation)
    if started is None:
        return
    (program, command), invocation, findings = started, match.invocation, reading.findings
    config = read_recipe(program, parse_values(program), invocation, reading)
    kind = _find_kind(config, command)
    read_settings(config, findings, lengths=names.LENGTHS)
    read_memory(config, findings)
    if not _state_preset(config, findings):
        read_deepspeed_settings(config, invocation, reading)
        read_fsdp_settings(config, invocation, reading)
    read_model(config, invocation, reading)
    state_data_parallel_only(findings, "ms-swift shards by DeepSpeed or FSDP", invocation.line)
    if config.why:
        mark_all_unknown(findings, ("plan.micro_batch", "model.seq", "plan.sharding"), config.why, invocation.line)
    of_tower = read_tower(config, reading, is_frozen_by_default=True)
    tuner = find_first(config, *names.TUNERS)
    usual = names.USUAL_TUNER if tuner is None and not config.why else ""
    knows_roles = kind in PREFERENCE_KINDS
    read_trainable(
        invocation,
        findings,
        settings=iterate_settings(config),
        known=of_tower,
        framework=FRAMEWORK,
        adapters=usual,
        knows_roles=knows_roles,
    )
    if "adapters" in findings.options:
        findings.options.setdefault(RANK, names.USUAL_RANK)
    if knows_roles:
        read_preferences(
            kind, config, findings, usual_bits=16, opaque=find_opaque(program), usual_share=names.USUAL_SHARE
        )


SWIFT_READER = Reader(frameworks=(FRAMEWORK,), recognise=recognise, read=read_swift)


def _find_program(invocation: Invocation) -> tuple[Program, str] | None:
    """Return the program and which of its commands it is."""
    command = find_command(invocation, "swift")
    if command is not None and command.words and command.words[0].known in names.COMMANDS:
        return Program(name="swift", is_module=False, words=command.words[1:], invocation=invocation), str(
            command.words[0].known
        )
    program = find_program(invocation)
    match = _FILE.fullmatch(program.name) if program is not None and len(program.name) < 512 else None
    return (program, match[1] or match[2]) if program is not None and match is not None else None


def _find_kind(config: ConfigFile, command: str) -> str:
    """Return the loss of ``swift rlhf``, empty for its other commands."""
    if command != "rlhf":
        return ""
    entry = config.entry(names.LOSS)
    return str(entry.value) if entry is not None and not entry.why else names.USUAL_LOSS


def _state_preset(config: ConfigFile, findings: Findings) -> bool:
    """State the sharding of a configuration of DeepSpeed that ms-swift ships; return whether one is named."""
    entry: Entry | None = config.entry("deepspeed")
    word = str(entry.value) if entry is not None and not entry.why else ""
    if entry is None or word not in names.PRESETS:
        return False
    findings.options["deepspeed"] = "true"
    if word in names.OFFLOADING:
        findings.options["optimizer.offload"] = "cpu"
        if word.startswith("zero3"):
            findings.options["weights.offload"] = "cpu"
    if is_open(findings, "plan.sharding"):
        findings.state("plan.sharding", names.PRESETS[word], entry.line, entry.text, file=entry.file)
    return True
