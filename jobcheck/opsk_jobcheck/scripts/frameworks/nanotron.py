"""Reads the training settings from a launch script of nanotron or picotron, and from their files.

Source: ``nanotron/config/{config,models_config,parallelism_config}.py`` (2024 to 2026): ``run_train.py`` takes
``--config-file`` with a YAML file, and no other settings; a file in Python is not followed. ``train.py``,
``create_config.py`` and ``template/base_config.json`` of picotron (2024 to 2026): the width of the model comes from
the HuggingFace model that the JSON file names; the file may override layers and heads.
"""

from __future__ import annotations

import re
from types import MappingProxyType

from opsk.frameworks.settings.deepspeed_config import STAGE_WORDS
from opsk.frameworks.settings.nanotron import (
    NUMBERS,
    PICOTRON_NUMBERS,
    PICOTRON_STEPS,
    RECOMPUTE,
    STAGE,
    STEPS,
    TP_MODE,
)
from opsk.frameworks.settings.usual_settings import PRECISION_WORDS
from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import read_trainable
from opsk_jobcheck.scripts.launchers.programs import (
    RECOMPUTE_WORDS,
    SHAPE,
    SURE,
    find_program,
    name_shape,
    state_global_batch,
)
from opsk_jobcheck.scripts.settings.arguments import get_arguments, iterate_settings
from opsk_jobcheck.scripts.settings.config_file import ConfigFile
from opsk_jobcheck.scripts.settings.findings import (
    Findings,
    mark_all_unknown,
    parse_integer,
    state_derived,
    state_numbers,
    state_truth,
    state_word,
)
from opsk_jobcheck.scripts.settings.reader import Match, Reader, Reading

PICOTRON = "picotron"
_PICOTRON_FLAG = "--config"
NANOTRON = "nanotron"
_FLAG = "--config-file"
_PROGRAM = re.compile(r"run_(train|train_\w+)\.py|train_\w+\.py")
_MODES = MappingProxyType({"reduce_scatter": True, "all_reduce": False})
_GATED = MappingProxyType({"silu": True, "swish": True})


def recognise_picotron(invocation: Invocation) -> Match | None:
    """Return a command that trains with picotron: its ``train.py``, from a folder of that name."""
    program = find_program(invocation)
    if program is None or program.file != "train.py":
        return None
    arguments = get_arguments(invocation)
    if _PICOTRON_FLAG not in arguments.flags or not any(
        PICOTRON in name for name in (program.name, invocation.directory.shown)
    ):
        return None
    return Match(framework=PICOTRON, weight=SURE, invocation=invocation, arguments=arguments)


def read_picotron(match: Match, reading: Reading) -> None:
    """State the values of the file."""
    findings = reading.findings
    config = reading.config(match.arguments.flags[_PICOTRON_FLAG].value, match.invocation, form="json")
    state_numbers(findings, config, PICOTRON_NUMBERS)
    state_word(findings, "plan.precision", config.entry("model.dtype"), PRECISION_WORDS)
    state_truth(findings, "model.flash_attention", config.entry("model.use_flash_attention"))
    entry = config.entry(PICOTRON_STEPS)
    steps = None if entry is None or entry.why or entry.value is None else parse_integer(entry.value)
    if steps and steps > 0:
        state_global_batch(findings, steps)
    name = config.entry("model.name")
    known = str(name.value) if name is not None and not name.why and name.value is not None else None
    why = config.why or f"the shape of {(known or 'the model')[:80]} is not known"
    name_shape(reading, known, why=why, line=match.invocation.line)


PICOTRON_READER = Reader(frameworks=(PICOTRON,), recognise=recognise_picotron, read=read_picotron)


def recognise(invocation: Invocation) -> Match | None:
    """Return a command that trains with nanotron."""
    program = find_program(invocation)
    if program is None or program.is_module:
        return None
    arguments = get_arguments(invocation)
    if _FLAG not in arguments.flags or not (_PROGRAM.fullmatch(program.file) or "nanotron" in program.name):
        return None
    if "nanotron" not in program.name and program.file != "run_train.py":
        return None
    return Match(framework=NANOTRON, weight=SURE, invocation=invocation, arguments=arguments)


def read_nanotron(match: Match, reading: Reading) -> None:
    """State the values of the file."""
    findings, named = reading.findings, match.arguments.flags[_FLAG].value
    config = reading.config(named, match.invocation, form="yaml")
    if (named.known or "").endswith(".py"):
        config = ConfigFile(path=named.shown, why=f"{named.shown[:80]} is a program in Python, which is not followed")
    elif not config.why and not config.has("parallelism"):
        mark_all_unknown(findings, SHAPE, f"{config.path[:80]} holds no configuration of nanotron", 0)
        return
    state_nanotron_file(config, findings)
    if config.why:
        mark_all_unknown(findings, (*SHAPE, "model.seq", "plan.micro_batch"), config.why, match.invocation.line)
    read_trainable(match.invocation, findings, settings=iterate_settings(config))


def is_nanotron_file(config: ConfigFile) -> bool:
    """Return whether a file is a configuration of nanotron, whatever its program is called."""
    return all(config.has(name) for name in ("parallelism", "tokens", "model.model_config"))


def state_nanotron_file(config: ConfigFile, findings: Findings) -> None:
    """State the values of a configuration of nanotron."""
    state_numbers(findings, config, NUMBERS)
    _state_experts(config, findings)
    _state_steps(config, findings)
    state_word(findings, "plan.recompute", config.entry(RECOMPUTE), RECOMPUTE_WORDS)
    state_word(findings, "plan.precision", config.entry("model.dtype"), PRECISION_WORDS)
    state_word(findings, "plan.sharding", config.entry(STAGE), STAGE_WORDS)
    mode = config.entry(TP_MODE)
    if findings.get("plan.tp") != 1:
        state_word(findings, "plan.sequence_parallel", mode, _MODES)
    state_truth(findings, "model.tied_embeddings", config.entry("model.model_config.tie_word_embeddings"))
    activation = config.entry("model.model_config.hidden_act")
    if activation is not None and str(activation.value).lower() in _GATED:
        state_word(findings, "model.gated_mlp", activation, _GATED)


NANOTRON_READER = Reader(frameworks=(NANOTRON,), recognise=recognise, read=read_nanotron)


def _state_experts(config: ConfigFile, findings: Findings) -> None:
    """One expert is a dense MLP; ``moe_num_experts`` of the examples is as wide as that."""
    if findings.get("model.experts") == 1:
        for field in ("model.experts", "model.top_k", "model.expert_ffn"):
            findings.values.pop(field, None)
            findings.evidence.pop(field, None)
    elif config.has("model.model_config.moe_num_experts") and (width := findings.get("model.ffn")):
        state_derived(findings, "model.expert_ffn", width, f"every expert is {width} wide", "model.ffn")


def _state_steps(config: ConfigFile, findings: Findings) -> None:
    """Take over the accumulation, and state the global batch where all that it needs is stated."""
    entry = config.entry(STEPS)
    steps = parse_integer(entry.value) if entry is not None and not entry.why and entry.value is not None else None
    if entry is None or not steps or steps < 1:
        if entry is not None:
            findings.mark_unknown(
                "plan.global_batch", entry.why or f"{entry.text[:80]} is no number", entry.line, file=entry.file
            )
        return
    state_global_batch(findings, steps)
