"""What does a launch script of LLaMA-Factory say about its training run?

Source: ``src/llamafactory/launcher.py`` and ``hparams/*.py`` of LLaMA-Factory 0.6 to 0.9.4 (``src/train_bash.py``
before): the Trainer's settings and its own, in a YAML or JSON file with ``key=value`` behind it, or as flags.
"""

from __future__ import annotations

from dataclasses import replace

from opsk_jobcheck.scripts.bash.values import Invocation, Scalar
from opsk_jobcheck.scripts.frameworks.huggingface.adapters import ADAPTERS, WEIGHTS
from opsk_jobcheck.scripts.frameworks.huggingface.memory import read_memory
from opsk_jobcheck.scripts.frameworks.huggingface.model import read_model
from opsk_jobcheck.scripts.frameworks.huggingface.settings import read_settings
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import OPTION, read_trainable
from opsk_jobcheck.scripts.frameworks.recipes import before, close, names_of_values, read_sharding, recipe_of, values_of
from opsk_jobcheck.scripts.launchers.accelerate import launch_of, read_accelerate
from opsk_jobcheck.scripts.launchers.programs import SURE, Program, command_of, is_open, program_of
from opsk_jobcheck.scripts.launchers.ranks import known_of_command
from opsk_jobcheck.scripts.settings.arguments import arguments_of
from opsk_jobcheck.scripts.settings.config_file import ConfigFile, Entry
from opsk_jobcheck.scripts.settings.findings import Findings
from opsk_jobcheck.scripts.settings.given_settings import settings_in
from opsk_jobcheck.scripts.settings.reading import Match, Reader, Reading
from opsk_jobcheck.scripts.settings.stating import state_number, truth

FRAMEWORK = "llama-factory"
_COMMANDS = ("llamafactory-cli", "llama-factory-cli", "lmf")
_MODULES = frozenset({"llamafactory.cli", "llmtuner.cli", "llamafactory.train.tuner"})
_LAUNCHERS = frozenset({"train.py", "train_bash.py", "launcher.py", "cli.py"})
_OWN = frozenset(
    {
        *("stage", "finetuning_type", "template", "cutoff_len", "dataset_dir", "lora_target", "flash_attn"),
        *("disable_gradient_checkpointing", "overwrite_cache", "pure_bf16", "mix_strategy", "enable_liger_kernel"),
    }
)
_MIN_OWN = 2
_NODES = (("NNODES", "plan.nodes"), ("NPROC_PER_NODE", "plan.gpus_per_node"))
_LENGTHS = ("cutoff_len",)


def recognise(invocation: Invocation) -> Match | None:
    """Return a command of LLaMA-Factory that trains, or ``None``."""
    found = _program(invocation)
    if found is None:
        return None
    program, weight = found
    own = len(_OWN & names_of_values(program))
    return Match(
        framework=FRAMEWORK,
        weight=weight + own + 2 * SURE,
        invocation=invocation,
        arguments=arguments_of(invocation),
    )


def read_llama_factory(match: Match, reading: Reading) -> None:
    """State what the recipe, the command line and the launcher say."""
    found = _program(match.invocation)
    if found is None:
        return
    program, invocation, findings = found[0], match.invocation, reading.findings
    config = recipe_of(program, values_of(program), invocation, reading)
    _environment(reading)
    reading.few_ranks = _few_ranks(invocation, reading)
    read_settings(config, findings, lengths=_LENGTHS)
    read_memory(config, findings)
    _own(config, findings)
    is_unread = read_sharding(config, invocation, reading)
    launch = launch_of(before(invocation, program), invocation, reading)
    if launch:
        read_accelerate(launch, invocation, reading)
    if not config.why or "model_name_or_path" in config.overrides:
        read_model(config, invocation, reading)
    close(config, invocation, reading, launch=launch, doubt=is_unread)
    kind = config.entry("finetuning_type")
    usual = "lora" if kind is None and not config.why else ""
    read_trainable(invocation, findings, settings=settings_in(config), framework=FRAMEWORK, adapters=usual)
    _trained(config, findings)


LLAMA_FACTORY = Reader(frameworks=(FRAMEWORK,), recognise=recognise, read=read_llama_factory)


def _program(invocation: Invocation) -> tuple[Program, int] | None:
    """Return what trains and how sure that is: ``llamafactory-cli train``, or a script of the repository."""
    command = command_of(invocation, *_COMMANDS)
    if command is not None:
        is_train = bool(command.words) and command.words[0].known == "train"
        return (replace(command, words=command.words[1:]), SURE) if is_train else None
    program = program_of(invocation)
    if program is None:
        return None
    if program.is_module and program.file in _MODULES:
        words = program.words[1:] if program.words and program.words[0].known == "train" else program.words
        return replace(program, words=words), SURE
    is_own = any(part in program.name for part in ("LLaMA-Factory/", "llamafactory/"))
    if program.words and program.words[0].known == "train":
        program = replace(program, words=program.words[1:])
    own = _OWN & names_of_values(program)
    is_fork = len(own) > _MIN_OWN and {"stage", "finetuning_type"} <= own
    is_its = program.file in _LAUNCHERS and (is_own or len(own) >= _MIN_OWN)
    return (program, 0) if is_its or is_fork else None


def _own(config: ConfigFile, findings: Findings) -> None:
    """State what LLaMA-Factory's own settings say of precision and recomputation."""
    off = config.entry("disable_gradient_checkpointing")
    if off is not None and not off.why and (is_off := truth(off.value)) is not None:
        recompute = "none" if is_off else "full"
        findings.state("plan.recompute", recompute, off.line, off.text, file=off.file)
    pure = config.entry("pure_bf16")
    if pure is not None and not pure.why and truth(pure.value):
        findings.options[WEIGHTS] = "bf16"
        if is_open(findings, "plan.precision"):
            findings.state("plan.precision", "bf16", pure.line, pure.text, file=pure.file)


def _trained(config: ConfigFile, findings: Findings) -> None:
    """Mark what trains less than the whole model: adapters are the default, and forks have kinds of their own."""
    kind = config.entry("finetuning_type")
    is_read = OPTION in findings.options or ADAPTERS in findings.options
    if config.why or is_read or (kind is not None and str(kind.value).lower() == "full"):
        return
    shown = f"finetuning_type {kind.value}" if kind is not None and not kind.why else "no finetuning_type full"
    findings.options[OPTION] = f"unknown: only adapters are trained ({shown[:60]})"


def _few_ranks(invocation: Invocation, reading: Reading) -> str:
    """Return why its own launcher starts few ranks: without ``NNODES`` it takes one node (``launcher.py``)."""
    if command_of(invocation, *_COMMANDS) is None:
        return ""
    nodes, per_node = reading.findings.get("plan.nodes"), reading.findings.get("plan.gpus_per_node")
    told, count = (known_of_command(invocation, reading.run.variables, name) for name in ("NNODES", "NPROC_PER_NODE"))
    if (nodes or 0) > 1 and told is None:
        return "LLaMA-Factory takes one node where NNODES is not set"
    is_other = bool(per_node and count and count.isdigit() and count != str(per_node))
    return f"NPROC_PER_NODE is {(count or '')[:9]}, and a node has {per_node} GPUs" if is_other else ""


def _environment(reading: Reading) -> None:
    """State nodes and GPUs that the variables of its launcher give, where Slurm was not asked for them."""
    findings = reading.findings
    for name, field in _NODES:
        variable = reading.run.variables.get(name)
        if isinstance(variable, Scalar) and variable.text.known and is_open(findings, field):
            text = f"{name}={variable.text.known}"
            state_number(findings, field, Entry(value=variable.text.known, line=variable.text.line, text=text))
    nodes, per_node = findings.get("plan.nodes"), findings.get("plan.gpus_per_node")
    if nodes and per_node and is_open(findings, "plan.gpus"):
        file, line = findings.cited("plan.gpus_per_node")
        findings.state("plan.gpus", nodes * per_node, line, f"nodes {nodes} × {per_node} GPUs", file=file)
