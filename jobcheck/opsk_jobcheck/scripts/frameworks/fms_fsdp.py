"""Reads the training settings from a launch script of IBM's fms-fsdp.

Source: ``fms_fsdp/config/training.py`` and ``utils/config_utils.py`` (2024 to 2026). Programs are
``main_training_llama.py`` (before: ``main_training.py``) and ``main_training_mamba.py``; ``fire`` parses
``--key=value``. There is no gradient accumulation, and data parallelism only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.launchers.programs import SURE, name_shape, parse_settings, program_of, state_flags
from opsk_jobcheck.scripts.settings.arguments import arguments_of
from opsk_jobcheck.scripts.settings.config_file import Entry
from opsk_jobcheck.scripts.settings.deepspeed_config import STEPS_OPTION
from opsk_jobcheck.scripts.settings.findings import Findings
from opsk_jobcheck.scripts.settings.reader import Match, Reader, Reading
from opsk_jobcheck.scripts.settings.statements import parse_boolean, state_data_parallel_only, state_word

FMS = "fms-fsdp"
_PROGRAM = re.compile(r"main_training(_llama|_mamba)?(\.py)?")
_PLAIN = "main_training.py"
_KNOWN_FLAGS = frozenset(
    {"--model-variant", "--sharding-strategy", "--fsdp-activation-checkpointing", "--low-cpu-fsdp"}
)
_NUMBERS = MappingProxyType({"batch_size": "plan.micro_batch", "seq_length": "model.seq", "vocab_size": "model.vocab"})
_SHARDING = MappingProxyType({"fsdp": "zero3", "hsdp": "zero3", "ddp": "none"})
_VARIANT = re.compile(r"llama([23])_(7b|8b|13b|70b)(_4k)?")


def recognise(invocation: Invocation) -> Match | None:
    """Return a command that trains with fms-fsdp."""
    program = program_of(invocation)
    if program is None or not _PROGRAM.fullmatch(program.file):
        return None
    arguments = arguments_of(invocation)
    matched = len(_KNOWN_FLAGS & arguments.flags.keys())
    if program.file == _PLAIN and not matched and "fms" not in program.name:
        return None
    return Match(framework=FMS, weight=SURE + matched, invocation=invocation, arguments=arguments)


def read_fms_fsdp(match: Match, reading: Reading) -> None:
    """State the values of the flags."""
    program, findings = program_of(match.invocation), reading.findings
    given = parse_settings(program.words if program else ())
    state_flags(findings, given, _NUMBERS)
    state_word(findings, "plan.sharding", given.get("sharding_strategy"), _SHARDING)
    _state_copies(given, findings)
    _state_recompute(given, findings)
    state_data_parallel_only(findings, "fms-fsdp has data parallelism only", match.invocation.line)
    findings.options[STEPS_OPTION] = "1"
    name, variant = None, given.get("model_variant")
    if variant is not None and not variant.why and (known := _VARIANT.fullmatch(str(variant.value))):
        name = f"llama-{known[1]}-{known[2]}"
    why = "fms-fsdp takes the shape from --model_variant, in Python"
    name_shape(reading, name, why=why, line=match.invocation.line)


FMS_FSDP = Reader(frameworks=(FMS,), recognise=recognise, read=read_fms_fsdp)


def _state_copies(given: Mapping[str, Entry], findings: Findings) -> None:
    """Take over that HSDP shards within nodes."""
    entry, nodes = given.get("sharding_strategy"), findings.get("plan.nodes")
    if entry is not None and entry.value == "hsdp" and nodes and nodes > 1:
        findings.options["optimizer.instances"] = str(nodes)


def _state_recompute(given: Mapping[str, Entry], findings: Findings) -> None:
    """State recomputation, where it is of all layers or of none."""
    entry, part = given.get("fsdp_activation_checkpointing"), given.get("selective_checkpointing")
    switch = parse_boolean(entry.value) if entry is not None and not entry.why else None
    if entry is None or (switch is None and not entry.why):
        return
    if switch is None or (switch and part is not None and part.value not in ("1", "1.0")):
        why = entry.why or "a part of the layers is recomputed"
        findings.mark_unknown("plan.recompute", why, entry.line)
    else:
        findings.state("plan.recompute", "full" if switch else "none", entry.line, entry.text)
