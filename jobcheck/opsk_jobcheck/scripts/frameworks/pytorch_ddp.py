"""Reads launch scripts of plain PyTorch programs whose command states that ranks are data-parallel only.

The model of such a program is unknown. Its name (``train_ddp.py``, those of PyTorch's DDP tutorial) or a flag
(``--strategy ddp``, ``--multiprocessing-distributed``) may state that each rank holds a replica, or a shard of one.
"""

from __future__ import annotations

import re
from types import MappingProxyType

from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.launchers.programs import SHAPE, list_flag_names, parse_program_flags, program_of
from opsk_jobcheck.scripts.settings.arguments import arguments_of
from opsk_jobcheck.scripts.settings.reader import Match, Reader, Reading
from opsk_jobcheck.scripts.settings.statements import mark_all_unknown, parse_boolean, state_data_parallel_only

DDP, FSDP = "pytorch-ddp", "pytorch-fsdp"
_NAMES = MappingProxyType(
    {
        DDP: re.compile(r"(.*[_-])?ddp([_-].*)?\.py|multi(gpu|node)_torchrun\.py", re.IGNORECASE),
        FSDP: re.compile(r"T5_training\.py"),
    }
)
_STRATEGIES = MappingProxyType(
    {
        **dict.fromkeys(("ddp", "ddp_find_unused_parameters_true", "ddp_spawn"), DDP),
        **dict.fromkeys(("fsdp", "fsdp2"), FSDP),
    }
)
_FLAGS = ("strategy", "trainer.strategy", "distributed_strategy")
_IMAGENET = "multiprocessing_distributed"
_OTHERS = ("tensor", "pipeline", "deepspeed", "model_parallel", "context_parallel", "tp_", "pp_")
"""Prefixes of flags of other kinds of parallelism: with one of them nothing is stated."""


def recognise(invocation: Invocation) -> Match | None:
    """Return a command whose program or flags state that ranks are data-parallel only."""
    program = program_of(invocation)
    if program is None or program.is_module:
        return None
    names = list_flag_names(program)
    if any(name.rpartition(".")[2].startswith(_OTHERS) or name in ("tp", "pp", "cp") for name in names):
        return None
    given = parse_program_flags(program) if not names.isdisjoint((*_FLAGS, _IMAGENET)) else {}
    by_name = next((name for name, pattern in _NAMES.items() if pattern.fullmatch(program.file)), None)
    chosen = next((given[name] for name in _FLAGS if name in given), None)
    by_flag = _STRATEGIES.get(str(chosen.value).lower()) if chosen is not None and not chosen.why else None
    switch = given.get(_IMAGENET)
    if switch is not None and not switch.why and parse_boolean(switch.value):
        by_flag = by_flag or DDP
    if chosen is not None and by_flag is None:
        return None
    framework = by_flag or by_name
    if framework is None:
        return None
    return Match(framework=framework, weight=1, invocation=invocation, arguments=arguments_of(invocation))


def read_pytorch(match: Match, reading: Reading) -> None:
    """State that ranks share only data."""
    findings, line = reading.findings, match.invocation.line
    program = program_of(match.invocation)
    text = f"{program.file[:60] if program else 'the program'}: {match.framework}"
    state_data_parallel_only(findings, text, line)
    if match.framework == DDP:
        findings.state("plan.sharding", "none", line, text)
    why = "the program and its model are in Python"
    mark_all_unknown(findings, (*SHAPE, "model.seq", "plan.micro_batch"), why, line)


PYTORCH = Reader(frameworks=(DDP, FSDP), recognise=recognise, read=read_pytorch)
