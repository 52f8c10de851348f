"""Reads the training settings from a launch script of Meta's llama-cookbook (formerly llama-recipes).

Source: ``llama_recipes/configs/training.py``, ``configs/fsdp.py`` and ``finetuning.py`` (2023 to 2025), flags by
``fire``: ``--key value``, ``--key=value``, a bare ``--key`` for yes. It shards data-parallel replicas, nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.frameworks.huggingface.model import name_model
from opsk_jobcheck.scripts.launchers.programs import RECOMPUTE_WORDS, SURE, collect_flags, name_shape, program_of
from opsk_jobcheck.scripts.settings.arguments import arguments_of
from opsk_jobcheck.scripts.settings.config_file import Entry
from opsk_jobcheck.scripts.settings.deepspeed_config import STEPS_OPTION
from opsk_jobcheck.scripts.settings.findings import Findings
from opsk_jobcheck.scripts.settings.reader import Match, Reader, Reading
from opsk_jobcheck.scripts.settings.statements import (
    parse_boolean,
    parse_integer,
    state_data_parallel_only,
    state_number,
    state_word,
)

COOKBOOK = "llama-cookbook"
_MODULE = re.compile(r"(llama_recipes|llama_cookbook)\.finetuning")
_KNOWN_FLAGS = frozenset(
    {
        *("--enable-fsdp", "--batch-size-training", "--use-peft", "--peft-method", "--low-cpu-fsdp"),
        *("--batching-strategy", "--dist-checkpoint-root-folder", "--dist-checkpoint-folder", "--pure-bf16"),
        *("--use-fast-kernels", "--fsdp-config.pure-bf16", "--fsdp-config.sharding-strategy", "--val-batch-size"),
        *("--fsdp-config.fsdp-activation-checkpointing", "--save-optimizer", "--freeze-layers", "--context-length"),
    }
)
_MIN_KNOWN_FLAGS = 2
_SHARDING = MappingProxyType(
    {
        **dict.fromkeys(("full_shard", "hybrid_shard", "shardingstrategy.full_shard"), "zero3"),
        **dict.fromkeys(("shardingstrategy.hybrid_shard",), "zero3"),
        **dict.fromkeys(("shard_grad_op", "_hybrid_shard_zero2", "shardingstrategy.shard_grad_op"), "zero2"),
        **dict.fromkeys(("no_shard", "shardingstrategy.no_shard"), "none"),
    }
)
_FORMATS = (("pure_bf16", "bf16"), ("use_fp16", "fp16"))


def recognise(invocation: Invocation) -> Match | None:
    """Return a command that trains with the cookbook: by its module, or by flags that only it has."""
    program = program_of(invocation)
    if program is None:
        return None
    arguments = arguments_of(invocation)
    matched = len(_KNOWN_FLAGS & arguments.flags.keys())
    is_sure = program.is_module and _MODULE.fullmatch(program.name)
    if not is_sure and (matched < _MIN_KNOWN_FLAGS or "finetun" not in program.file):
        return None
    return Match(
        framework=COOKBOOK, weight=matched + (SURE if is_sure else 0), invocation=invocation, arguments=arguments
    )


def read_llama_cookbook(match: Match, reading: Reading) -> None:
    """State the values of the flags."""
    findings, given = reading.findings, collect_flags(match.arguments)
    _state_batch(given, findings)
    state_number(findings, "model.seq", given.get("context_length"))
    state_word(findings, "plan.sharding", _find_fsdp_setting(given, "sharding_strategy"), _SHARDING)
    recompute = _find_fsdp_setting(given, "fsdp_activation_checkpointing")
    state_word(findings, "plan.recompute", recompute, RECOMPUTE_WORDS)
    for name, precision in _FORMATS:
        entry = _find_fsdp_setting(given, name)
        if entry is not None and entry.why:
            findings.mark_unknown("plan.precision", entry.why, entry.line)
        elif entry is not None and parse_boolean(entry.value):
            findings.state("plan.precision", precision, entry.line, entry.text)
    fsdp = given.get("enable_fsdp")
    if fsdp is not None and not fsdp.why and parse_boolean(fsdp.value):
        state_data_parallel_only(findings, f"{fsdp.text}: data parallelism only", fsdp.line)
    model = given.get("model_name")
    if model is not None and model.value:
        name_model(model, match.invocation, reading)
    else:
        why = "the model's shape is in its checkpoint, which opsk has not read"
        name_shape(reading, None, why=why, line=match.invocation.line)


LLAMA_COOKBOOK = Reader(frameworks=(COOKBOOK,), recognise=recognise, read=read_llama_cookbook)


def _find_fsdp_setting(given: Mapping[str, Entry], name: str) -> Entry | None:
    """Return a setting of the FSDP part, which is also taken without its name before it."""
    return given.get(f"fsdp_config.{name}") or given.get(name)


def _state_batch(given: Mapping[str, Entry], findings: Findings) -> None:
    """State the micro-batch and the steps; releases of 2023 divide the batch into micro-batches themselves."""
    micro, steps = given.get("micro_batch_size"), given.get("gradient_accumulation_steps")
    batch = state_number(findings, "plan.micro_batch", given.get("batch_size_training"))
    if micro is not None:
        size = state_number(findings, "plan.micro_batch", micro)
        if size and batch and batch % size == 0:
            findings.options[STEPS_OPTION] = str(batch // size)
    elif steps is not None and not steps.why and (count := parse_integer(steps.value)):
        findings.options[STEPS_OPTION] = str(count)
    elif steps is not None:
        findings.mark_unknown("plan.global_batch", steps.why or f"{steps.text[:80]} is no number", steps.line)
