"""Reads the training settings from a launch script of LLaMA-Factory.

Source: ``src/llamafactory/launcher.py`` and ``hparams/*.py`` of LLaMA-Factory 0.6 to 0.9.4 (``src/train_bash.py``
before): the Trainer's settings and LLaMA-Factory's, in a YAML or JSON file followed by ``key=value``, or as flags.
"""

from __future__ import annotations

from dataclasses import replace

from opsk.frameworks.settings.huggingface import FACTORY_NO_RECOMPUTE
from opsk.frameworks.settings.preferences import WITHOUT_REFERENCE
from opsk.workload.roles import SCORES
from opsk_jobcheck.scripts.bash.values import Invocation, Scalar
from opsk_jobcheck.scripts.frameworks.huggingface.model import read_model
from opsk_jobcheck.scripts.frameworks.huggingface.preferences import read_preferences
from opsk_jobcheck.scripts.frameworks.huggingface.settings import read_memory, read_settings
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import ADAPTERS, OPTION, WEIGHTS, read_trainable
from opsk_jobcheck.scripts.frameworks.huggingface.vision_towers import read_tower
from opsk_jobcheck.scripts.frameworks.recipes import (
    get_launcher_words,
    list_value_names,
    parse_values,
    read_recipe,
    read_sharding,
    state_open_fields,
)
from opsk_jobcheck.scripts.launchers.accelerate import find_accelerate_launch, read_accelerate
from opsk_jobcheck.scripts.launchers.programs import SURE, Program, find_command, find_program, is_open
from opsk_jobcheck.scripts.launchers.ranks import get_known_variable
from opsk_jobcheck.scripts.settings.arguments import get_arguments, iterate_settings
from opsk_jobcheck.scripts.settings.config_file import ConfigFile, Entry
from opsk_jobcheck.scripts.settings.findings import Findings, parse_boolean, state_number
from opsk_jobcheck.scripts.settings.reader import Match, Reader, Reading

FRAMEWORK = "llama-factory"
_COMMANDS = ("llamafactory-cli", "llama-factory-cli", "lmf")
_MODULES = frozenset({"llamafactory.cli", "llmtuner.cli", "llamafactory.train.tuner"})
_LAUNCHERS = frozenset({"train.py", "train_bash.py", "launcher.py", "cli.py"})
_KNOWN_FLAGS = frozenset(
    {
        *("stage", "finetuning_type", "template", "cutoff_len", "dataset_dir", "lora_target", "flash_attn"),
        *(FACTORY_NO_RECOMPUTE, "overwrite_cache", "pure_bf16", "mix_strategy", "enable_liger_kernel"),
    }
)
_MIN_KNOWN_FLAGS = 2
_NODES = (("NNODES", "plan.nodes"), ("NPROC_PER_NODE", "plan.gpus_per_node"))
_LENGTHS = ("cutoff_len",)


def recognise(invocation: Invocation) -> Match | None:
    """Return a command of LLaMA-Factory that trains, or ``None``."""
    program_and_weight = _find_program(invocation)
    if program_and_weight is None:
        return None
    program, weight = program_and_weight
    matched = len(_KNOWN_FLAGS & list_value_names(program))
    return Match(
        framework=FRAMEWORK,
        weight=weight + matched + 2 * SURE,
        invocation=invocation,
        arguments=get_arguments(invocation),
    )


def read_llama_factory(match: Match, reading: Reading) -> None:
    """State the values of the recipe, the command line and the launcher."""
    program_and_weight = _find_program(match.invocation)
    if program_and_weight is None:
        return
    program, invocation, findings = program_and_weight[0], match.invocation, reading.findings
    config = read_recipe(program, parse_values(program), invocation, reading)
    _state_environment(reading)
    reading.few_ranks = _find_few_ranks(invocation, reading)
    read_settings(config, findings, lengths=_LENGTHS)
    read_memory(config, findings)
    _state_precision_and_recompute(config, findings)
    is_unread = read_sharding(config, invocation, reading)
    launch = find_accelerate_launch(get_launcher_words(invocation, program), invocation, reading)
    if launch:
        read_accelerate(launch, invocation, reading)
    if not config.why or "model_name_or_path" in config.overrides:
        read_model(config, invocation, reading)
    of_tower = read_tower(config, reading, is_frozen_by_default=True)
    state_open_fields(config, invocation, reading, launch=launch, doubt=is_unread)
    kind = config.entry("finetuning_type")
    usual = "lora" if kind is None and not config.why else ""
    stage = _find_stage(config)
    read_trainable(
        invocation,
        findings,
        settings=iterate_settings(config),
        known=of_tower,
        framework=FRAMEWORK,
        adapters=usual,
        knows_roles=bool(stage),
    )
    _mark_trained_part(config, findings)
    _doubt_other_stage(config, findings)
    if stage:
        read_preferences(stage, config, findings, usual_bits=16)
        findings.options.pop(SCORES, None)  # its value head stands behind the logits


_STAGES = frozenset({"pt", "sft", "rm", "ppo", "dpo", "kto"})
"""``stage`` of ``llamafactory/hparams/finetuning_args.py``."""

LLAMA_FACTORY = Reader(frameworks=(FRAMEWORK,), recognise=recognise, read=read_llama_factory)


def _doubt_other_stage(config: ConfigFile, findings: Findings) -> None:
    """Mark the memory of a stage as unknown that only a fork has: it may hold models of its own."""
    stage = config.entry("stage")
    if stage is None or stage.why or str(stage.value).lower() in _STAGES:
        return
    findings.options.pop(ADAPTERS, None)
    findings.options[OPTION] = f"unknown: other models may be in memory too (stage {str(stage.value)[:40]})"


def _find_stage(config: ConfigFile) -> str:
    """Return the loss on preferences that is trained, empty for other stages."""
    stage = config.entry("stage")
    word = str(stage.value).lower() if stage is not None and not stage.why else ""
    loss = config.entry("pref_loss")
    other = str(loss.value).lower() if loss is not None and not loss.why else ""
    if word == "dpo" and (loss is None or not loss.why):
        return other if other in WITHOUT_REFERENCE else word
    return word if word in ("kto", "rm") else ""


def _find_program(invocation: Invocation) -> tuple[Program, int] | None:
    """Return the program that trains and its weight: ``llamafactory-cli train``, or a script of the repository."""
    command = find_command(invocation, *_COMMANDS)
    if command is not None:
        is_train = bool(command.words) and command.words[0].known == "train"
        return (replace(command, words=command.words[1:]), SURE) if is_train else None
    program = find_program(invocation)
    if program is None:
        return None
    if program.is_module and program.file in _MODULES:
        words = program.words[1:] if program.words and program.words[0].known == "train" else program.words
        return replace(program, words=words), SURE
    is_in_repository = any(part in program.name for part in ("LLaMA-Factory/", "llamafactory/"))
    if program.words and program.words[0].known == "train":
        program = replace(program, words=program.words[1:])
    matched_names = _KNOWN_FLAGS & list_value_names(program)
    is_fork = len(matched_names) > _MIN_KNOWN_FLAGS and {"stage", "finetuning_type"} <= matched_names
    is_its = program.file in _LAUNCHERS and (is_in_repository or len(matched_names) >= _MIN_KNOWN_FLAGS)
    return (program, 0) if is_its or is_fork else None


def _state_precision_and_recompute(config: ConfigFile, findings: Findings) -> None:
    """State precision and recomputation from LLaMA-Factory's own settings."""
    off = config.entry(FACTORY_NO_RECOMPUTE)
    if off is not None and not off.why and (is_off := parse_boolean(off.value)) is not None:
        recompute = "none" if is_off else "full"
        findings.state("plan.recompute", recompute, off.line, off.text, file=off.file)
    pure = config.entry("pure_bf16")
    if pure is not None and not pure.why and parse_boolean(pure.value):
        findings.options[WEIGHTS] = "bf16"
        if is_open(findings, "plan.precision"):
            findings.state("plan.precision", "bf16", pure.line, pure.text, file=pure.file)


def _mark_trained_part(config: ConfigFile, findings: Findings) -> None:
    """Mark runs that train less than the whole model: adapters are the default, and forks add other kinds."""
    kind = config.entry("finetuning_type")
    is_read = OPTION in findings.options or ADAPTERS in findings.options
    if config.why or is_read or (kind is not None and str(kind.value).lower() == "full"):
        return
    shown = f"finetuning_type {kind.value}" if kind is not None and not kind.why else "no finetuning_type full"
    findings.options[OPTION] = f"unknown: only adapters are trained ({shown[:60]})"


def _find_few_ranks(invocation: Invocation, reading: Reading) -> str:
    """Return why its own launcher starts few ranks: without ``NNODES`` it takes one node (``launcher.py``)."""
    if find_command(invocation, *_COMMANDS) is None:
        return ""
    nodes, per_node = reading.findings.get("plan.nodes"), reading.findings.get("plan.gpus_per_node")
    node_count, count = (
        get_known_variable(invocation, reading.run.variables, name) for name in ("NNODES", "NPROC_PER_NODE")
    )
    if (nodes or 0) > 1 and node_count is None:
        return "LLaMA-Factory takes one node where NNODES is not set"
    is_other = bool(per_node and count and count.isdigit() and count != str(per_node))
    return f"NPROC_PER_NODE is {(count or '')[:9]}, and a node has {per_node} GPUs" if is_other else ""


def _state_environment(reading: Reading) -> None:
    """State nodes and GPUs that the variables of its launcher give, where Slurm was not asked for them."""
    findings = reading.findings
    for name, field in _NODES:
        variable = reading.run.variables.get(name)
        if isinstance(variable, Scalar) and variable.text.known and is_open(findings, field):
            text = f"{name}={variable.text.known}"
            state_number(findings, field, Entry(value=variable.text.known, line=variable.text.line, text=text))
    nodes, per_node = findings.get("plan.nodes"), findings.get("plan.gpus_per_node")
    if nodes and per_node and is_open(findings, "plan.gpus"):
        file, line = findings.find_source("plan.gpus_per_node")
        findings.state("plan.gpus", nodes * per_node, line, f"nodes {nodes} × {per_node} GPUs", file=file)
