"""Reads the settings of a launch script of verl's supervised fine-tuning: ``verl.trainer.fsdp_sft_trainer``.

Source: ``verl/trainer/config/sft_trainer.yaml`` and ``verl/trainer/fsdp_sft_trainer.py`` of verl 0.7: weights in fp32,
products in bf16, all states sharded by FSDP, layers recomputed.
"""

from __future__ import annotations

import re

from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.frameworks.huggingface.model import name_model
from opsk_jobcheck.scripts.frameworks.huggingface.role_settings import RoleSettings, find_opaque
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import ADAPTERS, BASE_BITS, RANK, TARGETS
from opsk_jobcheck.scripts.launchers.programs import SURE, find_program, parse_assignments
from opsk_jobcheck.scripts.settings.arguments import get_arguments
from opsk_jobcheck.scripts.settings.config_file import Entry
from opsk_jobcheck.scripts.settings.findings import mark_all_unknown, state_data_parallel_only, state_number
from opsk_jobcheck.scripts.settings.reader import Match, Reader, Reading

FRAMEWORK = "verl"
_PROGRAM = re.compile(r"verl\.trainer\.fsdp_sft_trainer|(.*/)?fsdp_sft_trainer\.py")
_USUAL_MICRO, _USUAL_LENGTH = 4, 1024


def recognise(invocation: Invocation) -> Match | None:
    """Return a command that fine-tunes with verl."""
    program = find_program(invocation)
    if program is None or len(program.name) > 512 or not _PROGRAM.fullmatch(program.name):
        return None
    arguments = get_arguments(invocation)
    return Match(
        framework=FRAMEWORK, weight=SURE + len(arguments.overrides), invocation=invocation, arguments=arguments
    )


def read_verl_sft(match: Match, reading: Reading) -> None:
    """State model, batch, length, adapters and how layers are recomputed."""
    program, findings, line = find_program(match.invocation), reading.findings, match.invocation.line
    if program is None:
        return
    settings = RoleSettings(parse_assignments(program.words).get, findings, opaque=find_opaque(program))
    path = settings.entry("model.partial_pretrain")
    if path is not None and path.value and not path.why:
        name_model(path, match.invocation, reading)
    else:
        why = path.why if path is not None else "the command names no model"
        mark_all_unknown(findings, ("model.layers", "model.hidden", "model.heads"), why, line)
    rows = (
        ("plan.micro_batch", "data.micro_batch_size_per_gpu", _USUAL_MICRO),
        ("model.seq", "data.max_length", _USUAL_LENGTH),
    )
    for field, name, usual in rows:
        given = settings.entry(name)
        if given is not None or settings.opaque:
            state_number(findings, field, given or Entry(why=settings.opaque, line=line))
        else:
            findings.state(field, usual, line, f"verl takes {usual} unless told otherwise ({name})")
    if (recompute := settings.entry("model.enable_gradient_checkpointing")) is not None:
        settings.state_switch("plan.recompute", recompute, on="full", off="none")
    state_number(findings, "plan.cp", settings.entry("ulysses_sequence_parallel_size"))
    state_data_parallel_only(findings, "verl shards by FSDP, and splits nothing", line)
    is_half = settings.word("model.fsdp_config.model_dtype") in ("bf16", "bfloat16")
    if rank := settings.number("model.lora_rank", otherwise=0):
        words = settings.word("model.target_modules", otherwise="all-linear") or ""
        is_all = any(word in words for word in ("all", "gate", "up", "down"))
        findings.options |= {ADAPTERS: "lora", RANK: str(rank), TARGETS: "all" if is_all else "attention"}
        findings.options[BASE_BITS] = "16" if is_half else "32"
    elif is_half:
        findings.options["weights.dtype"] = "bf16"
    if settings.is_on("model.use_liger"):
        findings.options["loss.kernel"] = "fused"
    if settings.is_on("model.fsdp_config.cpu_offload"):
        findings.options |= {"optimizer.offload": "cpu", "weights.offload": "cpu"}
    settings.report_unknown()


VERL_SFT_READER = Reader(frameworks=(FRAMEWORK,), recognise=recognise, read=read_verl_sft)
