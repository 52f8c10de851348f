"""Reads the training settings from a launch script of picotron, and from its JSON file.

Source: ``train.py``, ``create_config.py`` and ``template/base_config.json`` of picotron (2024 to 2026). The width of
the model comes from the HuggingFace model that the file names; the file may override layers and heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.launchers.programs import SURE, name_shape, program_of, state_global_batch
from opsk_jobcheck.scripts.settings.arguments import arguments_of
from opsk_jobcheck.scripts.settings.reader import Match, Reader, Reading
from opsk_jobcheck.scripts.settings.statements import parse_integer, state_numbers, state_truth, state_word

PICOTRON = "picotron"
_FLAG = "--config"
_TABLE: Mapping[str, str] = MappingProxyType(
    {
        "distributed.tp_size": "plan.tp",
        "distributed.pp_size": "plan.pp",
        "distributed.cp_size": "plan.cp",
        "distributed.dp_size": "plan.dp",
        "model.num_hidden_layers": "model.layers",
        "model.num_attention_heads": "model.heads",
        "model.num_key_value_heads": "model.kv_heads",
        "training.seq_length": "model.seq",
        "training.micro_batch_size": "plan.micro_batch",
    }
)
_FORMATS = MappingProxyType({"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"})


def recognise(invocation: Invocation) -> Match | None:
    """Return a command that trains with picotron: its ``train.py``, from a folder of that name."""
    program = program_of(invocation)
    if program is None or program.file != "train.py":
        return None
    arguments = arguments_of(invocation)
    if _FLAG not in arguments.flags or not any(PICOTRON in name for name in (program.name, invocation.directory.shown)):
        return None
    return Match(framework=PICOTRON, weight=SURE, invocation=invocation, arguments=arguments)


def read_picotron(match: Match, reading: Reading) -> None:
    """State the values of the file."""
    findings = reading.findings
    config = reading.config(match.arguments.flags[_FLAG].value, match.invocation, form="json")
    state_numbers(findings, config, _TABLE)
    state_word(findings, "plan.precision", config.entry("model.dtype"), _FORMATS)
    state_truth(findings, "model.flash_attention", config.entry("model.use_flash_attention"))
    entry = config.entry("training.gradient_accumulation_steps")
    steps = None if entry is None or entry.why or entry.value is None else parse_integer(entry.value)
    if steps and steps > 0:
        state_global_batch(findings, steps)
    name = config.entry("model.name")
    known = str(name.value) if name is not None and not name.why and name.value is not None else None
    why = config.why or f"the shape of {(known or 'the model')[:80]} is not known"
    name_shape(reading, known, why=why, line=match.invocation.line)


PICOTRON_READER = Reader(frameworks=(PICOTRON,), recognise=recognise, read=read_picotron)
