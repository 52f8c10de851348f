"""Reads the training settings from a launch script of axolotl.

Source: ``src/axolotl/cli/main.py`` and ``utils/schemas/*.py`` of axolotl 0.4 to 0.13: one YAML file, which flags
(``--micro-batch-size``) override. ``batch_size`` is that of one rank, accumulation included.
"""

from __future__ import annotations

from dataclasses import replace

from opsk.frameworks.settings.huggingface import AXOLOTL_MICRO, RECOMPUTE, STEPS
from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.frameworks.huggingface.model import name_model
from opsk_jobcheck.scripts.frameworks.huggingface.settings import (
    OPTIMIZER,
    find_first,
    read_memory,
    read_precision,
    read_recompute,
    read_steps,
)
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import WEIGHTS, read_trainable
from opsk_jobcheck.scripts.frameworks.recipes import (
    get_launcher_words,
    parse_values,
    read_recipe,
    read_sharding,
    state_open_fields,
)
from opsk_jobcheck.scripts.launchers.accelerate import INSTANCES, find_accelerate_launch, read_accelerate
from opsk_jobcheck.scripts.launchers.programs import SURE, Program, find_command, find_program, is_open
from opsk_jobcheck.scripts.settings.arguments import get_arguments, iterate_settings
from opsk_jobcheck.scripts.settings.config_file import ConfigFile
from opsk_jobcheck.scripts.settings.deepspeed_config import STEPS_OPTION
from opsk_jobcheck.scripts.settings.findings import (
    Findings,
    parse_boolean,
    parse_integer,
    state_data_parallel_only,
    state_number,
)
from opsk_jobcheck.scripts.settings.reader import Match, Reader, Reading

FRAMEWORK = "axolotl"
_MODULES = frozenset({"axolotl.cli.train", "axolotl.cli.main"})
_SPLITS = (
    ("plan.tp", ("tensor_parallel_size",)),
    ("plan.cp", ("context_parallel_size", "sequence_parallel_degree")),
    ("plan.ep", ("expert_parallel_size",)),
)


def recognise(invocation: Invocation) -> Match | None:
    """Return a command of axolotl that trains, or ``None``."""
    program = _find_program(invocation)
    if program is None:
        return None
    arguments = get_arguments(invocation)
    return Match(framework=FRAMEWORK, weight=3 * SURE, invocation=invocation, arguments=arguments)


def read_axolotl(match: Match, reading: Reading) -> None:
    """State the values of the recipe, the command line and the launcher."""
    program, invocation, findings = _find_program(match.invocation), match.invocation, reading.findings
    if program is None:
        return
    config = read_recipe(program, parse_values(program), invocation, reading)
    state_number(findings, "plan.micro_batch", config.entry(AXOLOTL_MICRO))
    state_number(findings, "model.seq", config.entry("sequence_len"))
    _state_steps(config, findings)
    read_precision(config, findings)
    for name, precision in (("bfloat16", "bf16"), ("float16", "fp16")):
        entry = config.entry(name)
        if entry is not None and not entry.why and parse_boolean(entry.value):
            # weights and all else in 16 bits, without autocast
            findings.options[WEIGHTS] = precision
            if is_open(findings, "plan.precision"):
                findings.state("plan.precision", precision, entry.line, entry.text, file=entry.file)
    read_recompute(config.entry(RECOMPUTE), findings)
    read_memory(config, findings)
    optimizer = config.entry("optimizer")
    if optimizer is not None and isinstance(optimizer.value, str):
        findings.options[OPTIMIZER] = optimizer.value.lower()[:40]
    is_unread = read_sharding(config, invocation, reading)
    _state_splits(config, findings, line=invocation.line)
    launch = find_accelerate_launch(get_launcher_words(invocation, program), invocation, reading)
    if launch:
        read_accelerate(launch, invocation, reading)
    model = find_first(config, "base_model", "base_model_config")
    if model is not None and not model.why and isinstance(model.value, str) and model.value:
        name_model(model, invocation, reading)
    state_open_fields(config, invocation, reading, launch=launch, doubt=is_unread)
    read_trainable(invocation, findings, settings=iterate_settings(config), framework=FRAMEWORK)


AXOLOTL = Reader(frameworks=(FRAMEWORK,), recognise=recognise, read=read_axolotl)


def _find_program(invocation: Invocation) -> Program | None:
    """Return the program that trains: ``axolotl train``, the module, or the script that older releases had."""
    command = find_command(invocation, "axolotl")
    if command is not None:
        is_train = bool(command.words) and command.words[0].known == "train"
        return replace(command, words=command.words[1:]) if is_train else None
    program = find_program(invocation)
    if program is None:
        return None
    if program.is_module:
        words = program.words
        if program.file == "axolotl.cli.main":
            return replace(program, words=words[1:]) if words and words[0].known == "train" else None
        return program if program.file in _MODULES else None
    return program if program.name.endswith(("axolotl/scripts/finetune.py", "axolotl/cli/train.py")) else None


def _state_steps(config: ConfigFile, findings: Findings) -> None:
    """Keep the accumulation steps, given as such or by the batch of one rank."""
    read_steps(config.entry(STEPS), findings)
    batch, micro = config.entry("batch_size"), findings.get("plan.micro_batch")
    if batch is None or batch.why or STEPS_OPTION in findings.options or not micro:
        return
    count = parse_integer(batch.value)
    if count and count % micro == 0:
        findings.options[STEPS_OPTION] = str(count // micro)


def _state_splits(config: ConfigFile, findings: Findings, *, line: int) -> None:
    """State how the model and sequences are split; axolotl has no pipelines."""
    if config.why:
        return
    for target, names in _SPLITS:
        entry = find_first(config, *names)
        if entry is not None and (entry.why or (parse_integer(entry.value) or 1) > 1):
            state_number(findings, target, entry)
    copies = config.entry("dp_replicate_size")
    if copies is not None and not copies.why and (parse_integer(copies.value) or 1) > 1:
        findings.options[INSTANCES] = str(parse_integer(copies.value))
    if any(find_first(config, *names) is not None for _, names in _SPLITS):
        state_data_parallel_only(findings, "axolotl splits nothing but what it is told to, and has no pipelines", line)
